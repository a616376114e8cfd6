"""A history in memory: of messages that a caller brought along, and for tests."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from rag.conversation import DocRef, PastTurn, TurnLine

QUESTION_CHARACTERS = 200


class MemoryHistory:
    """Implements `rag.ports.HistoryStore` over turns, oldest first."""

    def __init__(self, turns: Sequence[PastTurn] = ()) -> None:
        self._turns = {turn.number: turn for turn in turns}

    def list_turns(self, limit: int, before: int | None = None) -> list[TurnLine]:
        """The newest turns, newest first."""
        numbers = [number for number in self._turns if before is None or number < before]
        return [_line(self._turns[number]) for number in sorted(numbers, reverse=True)[:limit]]

    def get_turns(self, numbers: Collection[int]) -> list[PastTurn]:
        """The turns with these numbers, oldest first."""
        return [self._turns[number] for number in sorted(set(numbers)) if number in self._turns]

    def documents(self) -> tuple[DocRef, ...]:
        """The documents of all answers by first appearance."""
        return session_documents(turn.doc_refs for _, turn in sorted(self._turns.items()))


def session_documents(answers: Iterable[Sequence[DocRef]]) -> tuple[DocRef, ...]:
    """Documents of answers, oldest first, numbered by first appearance; the latest look counts."""
    found: dict[UUID, DocRef] = {}
    for refs in answers:
        for ref in refs:
            found[ref.document_id] = ref
    return tuple(replace(ref, slot=slot) for slot, ref in enumerate(found.values(), 1))


def _line(turn: PastTurn) -> TurnLine:
    return TurnLine(
        number=turn.number,
        question=turn.user_text[:QUESTION_CHARACTERS],
        summary=turn.summary,
        question_type=turn.question_type,
        document_ids=tuple(ref.document_id for ref in turn.doc_refs),
        ts=turn.ts,
    )

"""The turns of one branch, as the engine looks them up."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db.models.functions import Left

from chats import records
from chats.calls import released
from chats.lineage import Branch
from chats.models import Turn as Row
from rag.conversation import DocRef, Turn, TurnLine
from rag.memory.store import QUESTION_CHARACTERS, session_documents

_LINE = ("pk", "number", "question", "summary", "question_type", "document_ids", "terms", "ts")


class BranchHistory:
    """Implements `rag.ports.HistoryStore` over a branch.

    `embedding` names the model whose vectors can be compared; others are left out. Every look
    gives its connection back: threads of the loop hold none while tokens arrive.
    """

    def __init__(self, branch: Branch, *, embedding: str = "") -> None:
        self._ids = {step.number: step.turn_id for step in branch.steps}
        self._answered = [step.turn_id for step in branch.steps if step.document_ids]
        self._embedding = embedding

    def list_turns(self, limit: int, before: int | None = None) -> list[TurnLine]:
        """The newest turns, newest first."""
        numbers = [number for number in self._ids if before is None or number < before]
        chosen = sorted(numbers, reverse=True)[: max(0, limit)]
        return released(self._lines, [self._ids[number] for number in chosen])

    def get_turns(self, numbers: Collection[int]) -> list[Turn]:
        """The turns with these numbers, oldest first."""
        chosen = [self._ids[number] for number in sorted(set(numbers)) if number in self._ids]
        return released(self._whole, chosen)

    def documents(self) -> tuple[DocRef, ...]:
        """The documents of all answers by first appearance."""
        return session_documents(released(self._references))

    def _lines(self, ids: Sequence[UUID]) -> list[TurnLine]:
        rows = Row.objects.filter(pk__in=ids).order_by("-number")
        told = rows.annotate(question=Left("user_text", QUESTION_CHARACTERS))
        return [self._line(row) for row in told.values(*_LINE, "vector", "embedding")]

    def _line(self, row: dict[str, Any]) -> TurnLine:
        known = row["vector"] is not None and row["embedding"] == self._embedding
        return TurnLine(
            number=row["number"],
            question=row["question"],
            summary=row["summary"],
            question_type=row["question_type"],
            document_ids=tuple(row["document_ids"]),
            terms=row["terms"],
            vector=tuple(row["vector"]) if known else None,
            ts=row["ts"],
        )

    def _whole(self, ids: Sequence[UUID]) -> list[Turn]:
        rows = Row.objects.told().filter(pk__in=ids).order_by("number")
        return [records.turn(row) for row in rows]

    def _references(self) -> list[tuple[DocRef, ...]]:
        rows = Row.objects.filter(pk__in=self._answered).order_by("number")
        return [records.references(refs) for refs in rows.values_list("doc_refs", flat=True)]

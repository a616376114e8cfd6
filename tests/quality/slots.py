"""Utterances that refer to documents by their place, after the dialogues that they end.

They lie in `tests/data/slots.jsonl`; every third dialogue was left unseen while rules were written.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from rag.conversation import Conversation, DocRef, PastTurn, View
from rag.understand.references import LAST_PART, Reference, resolve_reference

SET = Path(__file__).parents[1] / "data" / "slots.jsonl"


@dataclass(frozen=True, slots=True)
class Case:
    """An utterance after a dialogue, and what it refers to.

    `titles`: the documents meant; none with `unclear`: it must be asked back; neither: it refers
    to nothing. `rest` is compared where it is given.
    """

    dialogue: int
    language: str
    unseen: bool
    conversation: Conversation
    session: tuple[DocRef, ...]
    text: str
    titles: tuple[str, ...]
    unclear: str
    whole: bool
    part: int
    rest: str

    def found(self) -> Reference | None:
        """What the product makes of it."""
        return resolve_reference(self.text, self.conversation, lambda: self.session)


def load(path: Path = SET) -> list[Case]:
    """All utterances, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [case for line in lines for case in _cases(json.loads(line))]


def right(case: Case, found: Reference | None) -> bool:
    """Whether the documents, the wish, and the rest where it is given, are exactly those."""
    if found is None:
        return not case.titles and not case.unclear
    if case.unclear:
        return found.unclear == case.unclear
    titles = tuple(ref.title for ref in found.documents)
    same = found.unclear is None and titles == case.titles and found.whole == case.whole
    return same and (not case.whole or found.part == case.part) and found.rest.startswith(case.rest)


def resolves_falsely(case: Case, found: Reference | None) -> bool:
    """Whether a document is taken to be meant that is not."""
    if found is None or found.unclear:
        return False
    return not {ref.title for ref in found.documents} <= set(case.titles)


def _cases(dialogue: dict[str, Any]) -> Iterator[Case]:
    conversation, session = _conversation(dialogue["turns"])
    for case in dialogue["cases"]:
        part = case.get("part", 1)
        yield Case(
            dialogue=dialogue["dialogue"],
            language=dialogue["language"],
            unseen=dialogue["unseen"],
            conversation=conversation,
            session=session,
            text=case["text"],
            titles=tuple(case.get("titles", ())),
            unclear=case.get("unclear", ""),
            whole=case.get("whole", False),
            part=LAST_PART if part == "last" else part,
            rest=case.get("rest", ""),
        )


def _conversation(told: Sequence[dict[str, Any]]) -> tuple[Conversation, tuple[DocRef, ...]]:
    """The turns as the product keeps them, and the documents of the session."""
    turns = tuple(_turn(number, one) for number, one in enumerate(told, 1))
    begins = max(
        (turn.number for turn, one in zip(turns, told, strict=True) if one.get("cleared")),
        default=0,
    )
    shown = [turn for turn in turns if turn.doc_refs and turn.number > begins]
    titles = dict.fromkeys(ref.title for turn in turns for ref in turn.doc_refs)
    session = _refs(list(titles))
    readable = {ref.document_id: ref.version for ref in session}
    last = shown[-1] if shown else None
    return Conversation(turns, len(turns), shown_turn=last, readable=readable), session


def _turn(number: int, told: dict[str, Any]) -> PastTurn:
    view = told.get("view")
    return PastTurn(
        number=number,
        user_text=told["user"],
        assistant_text=told["assistant"],
        question_type=told.get("type", "single"),
        mode=told["mode"],
        doc_refs=_refs(told.get("titles", [])),
        candidates=_refs(told.get("candidates", [])),
        view=View(_key(view[0]), view[1], view[2]) if view else None,
    )


def _refs(titles: Sequence[str]) -> tuple[DocRef, ...]:
    return tuple(DocRef(slot, _key(title), title, title) for slot, title in enumerate(titles, 1))


def _key(title: str) -> UUID:
    return uuid5(NAMESPACE_OID, title)

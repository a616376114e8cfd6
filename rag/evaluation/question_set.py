"""Questions with what their answers need: lines of JSON, checked as they are read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag.evaluation.facts import Fact, is_findable
from rag.types import AnswerLabel

FOUND_LABELS = frozenset({AnswerLabel.DOCUMENTS, AnswerLabel.PARTIAL, AnswerLabel.PASSAGES})
"""What an answer from documents may be labelled."""
NOT_FOUND_LABELS = frozenset(
    {AnswerLabel.INSUFFICIENT, AnswerLabel.GENERAL, AnswerLabel.CONVERSATION}
)


class SetUnreadableError(ValueError):
    """A line is not what it should be; the text says which and why."""


@dataclass(frozen=True, slots=True)
class ExpectedTurn:
    """A question and what is expected of its answer.

    `answerable` None: nobody has said it yet. `is_ticked`: the documents of its line are all that
    may be read; else everything may, and they are those that bear on it.
    """

    user: str
    facts: tuple[Fact, ...] = ()
    answerable: bool | None = None
    labels: frozenset[AnswerLabel] = frozenset()
    kind: str = ""
    is_ticked: bool = False


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """A conversation of its own; `documents` are names or ids."""

    id: str
    turns: tuple[ExpectedTurn, ...]
    documents: tuple[str, ...] = ()


def parse_set(text: str) -> list[QuestionLine]:
    """The lines of `{id, documents?, turns: [{user, gold, answerable, ...}]}`.

    `gold` lists facts, each a list of alternatives or one text. Of a turn `kind`, `label` (one or
    several) and `choose` may be told; `kind` of a line holds for its turns. `choose: false` says
    that the documents of the line are not ticked for it. Raises `SetUnreadableError`.
    """
    lines: dict[str, QuestionLine] = {}
    for number, row in enumerate(text.split("\n"), 1):  # JSON may hold other ends of lines as such
        if row.strip():
            line = _parse_line(row, number)
            if line.id in lines:
                raise SetUnreadableError(f"line {number}: the id {line.id!r} is there twice")
            lines[line.id] = line
    if not lines:
        raise SetUnreadableError("there are no questions in it")
    return list(lines.values())


def _parse_line(row: str, number: int) -> QuestionLine:
    try:
        given = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise SetUnreadableError(f"line {number} is not JSON: {error}") from error
    try:
        return _to_line(given)
    except SetUnreadableError as error:
        raise SetUnreadableError(f"line {number}: {error}") from None


def _to_line(given: Any) -> QuestionLine:
    if not isinstance(given, Mapping):
        raise SetUnreadableError("expected an object")
    turns = given.get("turns")
    if not isinstance(turns, list) or not turns:
        raise SetUnreadableError("`turns` must be a list of questions")
    documents = given.get("documents")
    if documents is not None and not _texts(documents, "documents"):
        raise SetUnreadableError("`documents` is empty; without it everything is read")
    kind = str(given.get("kind") or "")
    return QuestionLine(
        id=_text(given.get("id"), "id"),
        turns=tuple(_to_turn(turn, kind, has_documents=bool(documents)) for turn in turns),
        documents=tuple(documents or ()),
    )


def _to_turn(given: Any, kind: str, *, has_documents: bool) -> ExpectedTurn:
    if not isinstance(given, Mapping):
        raise SetUnreadableError("a turn must be an object")
    answerable, choose = _decision(given, "answerable"), _decision(given, "choose")
    gold = given.get("gold") or ()
    if not isinstance(gold, Sequence) or isinstance(gold, str):
        raise SetUnreadableError("`gold` must be a list of facts")
    return ExpectedTurn(
        user=_text(given.get("user"), "user"),
        facts=tuple(_to_fact(one) for one in gold),
        answerable=answerable,
        labels=_to_labels(given.get("label"), answerable),
        kind=str(given.get("kind") or kind),
        is_ticked=has_documents and choose is not False,
    )


def _to_fact(given: Any) -> Fact:
    fact = tuple(_texts([given] if isinstance(given, str) else given, "gold"))
    if not fact or not all(map(is_findable, fact)):
        raise SetUnreadableError("a fact of `gold` is empty")
    return fact


def _to_labels(given: Any, answerable: bool | None) -> frozenset[AnswerLabel]:
    if given is None:
        return {True: FOUND_LABELS, False: NOT_FOUND_LABELS, None: frozenset[AnswerLabel]()}[
            answerable
        ]
    names = _texts([given] if isinstance(given, str) else given, "label")
    if unknown := set(names) - set(AnswerLabel):
        raise SetUnreadableError(f"`label` knows no {', '.join(sorted(unknown))}")
    return frozenset(map(AnswerLabel, names))


def _decision(given: Mapping[str, Any], field: str) -> bool | None:
    value = given.get(field)
    if value is not None and not isinstance(value, bool):
        raise SetUnreadableError(f"`{field}` must be true, false or null")
    return value


def _texts(given: Any, field: str) -> list[str]:
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise SetUnreadableError(f"`{field}` must be a list of texts")
    return list(given)


def _text(given: Any, field: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise SetUnreadableError(f"`{field}` must be a text")
    return given

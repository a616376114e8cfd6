"""Questions with what their answers need, read from lines of JSON; and whether a text holds it."""

import bisect
import functools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag.types import AnswerLabel

# Whether the facts that an answer needs stand in a text.
#
# A fact is told in words of its own, so it is given as alternatives; one of them is enough. They
# are looked for as a reader would: blanks, emphasis, tags, backslashes and hyphens do not count.

Fact = tuple[str, ...]
"""Alternatives as documents word them. A "|" separates two cells of a table."""

MAX_CELL_GAP_CHARACTERS = 60
"""Allowed between two cells of a row, which may be put into words."""
MIN_TELLING_CHARACTERS = 8
"""Shorter alternatives ("17명") occur in many unrelated texts."""

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_IGNORED = r"\s*_~`\\\-\u00ad\u2010-\u2015\u2212"
_BETWEEN = f"[{_IGNORED}]*"
_SKIPPED = re.compile(f"[{_IGNORED}]+")
_BLANK_OR_BAR = re.compile(r"[\s|]+")


def measure_fact_share(facts: Sequence[Fact], text: str, *, in_answer: bool) -> float:
    """The share (0..1) of the facts that stand in the text; there must be facts.

    `in_answer`: the text answers the question, so that short alternatives count as well.
    """
    plain = _to_plain(text)
    return sum(_has_fact(fact, plain, in_answer=in_answer) for fact in facts) / len(facts)


def find_missing_facts(facts: Sequence[Fact], text: str, *, in_answer: bool) -> list[str]:
    """The first alternative of every fact missing from the text."""
    plain = _to_plain(text)
    return [fact[0] for fact in facts if not _has_fact(fact, plain, in_answer=in_answer)]


def is_findable(alternative: str) -> bool:
    """Whether there is anything in it to look for."""
    return bool(_split_cells(alternative))


def _has_fact(fact: Fact, text: str, *, in_answer: bool) -> bool:
    return any(_is_in_text(one, text) for one in (fact if in_answer else _select_telling(fact)))


def _select_telling(fact: Fact) -> Fact:
    """The alternatives that say enough by themselves; all of them where none does."""
    long = [one for one in fact if len(_BLANK_OR_BAR.sub("", one)) >= MIN_TELLING_CHARACTERS]
    return tuple(long) or fact


def _is_in_text(alternative: str, text: str) -> bool:
    """Whether its cells follow each other in the text.

    Cell by cell, so that no text makes the search try every combination of places.
    """
    first, *others = _compile_cells(alternative) or (None,)
    if first is None:
        return False
    ends = [match.end() for match in first.finditer(text)]
    for cell in others:
        ends = [
            match.end() for match in cell.finditer(text) if _is_close_behind(match.start(), ends)
        ]
    return bool(ends)


def _is_close_behind(start: int, ends: Sequence[int]) -> bool:
    """Whether the start lies shortly behind one of the sorted ends."""
    place = bisect.bisect_right(ends, start)
    return place > 0 and start - ends[place - 1] <= MAX_CELL_GAP_CHARACTERS


@functools.lru_cache(maxsize=4096)
def _compile_cells(alternative: str) -> tuple[re.Pattern[str], ...]:
    """One pattern a cell.

    A number at an end of the whole must not go on there: 2 is not in 12, 500 is not in 1,500.
    """
    cells = _split_cells(alternative)
    made = [_BETWEEN.join(map(re.escape, cell)) for cell in cells]
    if made and cells[0][0].isdigit():
        made[0] = rf"(?<!\d)(?<!\d[.,]){made[0]}"
    if made and cells[-1][-1].isdigit():
        made[-1] = rf"{made[-1]}(?![.,]?\d)"
    return tuple(map(re.compile, made))


def _split_cells(alternative: str) -> list[str]:
    cells = (_SKIPPED.sub("", cell) for cell in _to_plain(alternative).split("|"))
    return [cell for cell in cells if cell]


def _to_plain(text: str) -> str:
    return _TAG.sub("", unicodedata.normalize("NFC", text))


# The lines of a set

FOUND_LABELS = frozenset({AnswerLabel.DOCUMENTS, AnswerLabel.PARTIAL, AnswerLabel.PASSAGES})
"""What an answer from documents may be labelled."""
NOT_FOUND_LABELS = frozenset(
    {AnswerLabel.INSUFFICIENT, AnswerLabel.GENERAL, AnswerLabel.CONVERSATION}
)


class SetUnreadableError(ValueError):
    """A line is invalid; the message says which and why."""


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
    """A conversation of its own; `documents` are names or ids.

    `known` is what the user has said of himself in conversations before.
    """

    id: str
    turns: tuple[ExpectedTurn, ...]
    documents: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


def parse_set(text: str) -> list[QuestionLine]:
    """The lines of `{id, documents?, known?, turns: [{user, gold, answerable, ...}]}`.

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
    if documents is not None and not _read_texts(documents, "documents"):
        raise SetUnreadableError("`documents` is empty; without it everything is read")
    kind = str(given.get("kind") or "")
    return QuestionLine(
        id=_read_text(given.get("id"), "id"),
        turns=tuple(_to_turn(turn, kind, has_documents=bool(documents)) for turn in turns),
        documents=tuple(documents or ()),
        known=tuple(_read_texts(given.get("known") or (), "known")),
    )


def _to_turn(given: Any, kind: str, *, has_documents: bool) -> ExpectedTurn:
    if not isinstance(given, Mapping):
        raise SetUnreadableError("a turn must be an object")
    answerable, choose = _read_decision(given, "answerable"), _read_decision(given, "choose")
    gold = given.get("gold") or ()
    if not isinstance(gold, Sequence) or isinstance(gold, str):
        raise SetUnreadableError("`gold` must be a list of facts")
    return ExpectedTurn(
        user=_read_text(given.get("user"), "user"),
        facts=tuple(_to_fact(one) for one in gold),
        answerable=answerable,
        labels=_to_labels(given.get("label"), answerable),
        kind=str(given.get("kind") or kind),
        is_ticked=has_documents and choose is not False,
    )


def _to_fact(given: Any) -> Fact:
    fact = tuple(_read_texts([given] if isinstance(given, str) else given, "gold"))
    if not fact or not all(map(is_findable, fact)):
        raise SetUnreadableError("a fact of `gold` is empty")
    return fact


def _to_labels(given: Any, answerable: bool | None) -> frozenset[AnswerLabel]:
    if given is None:
        return {True: FOUND_LABELS, False: NOT_FOUND_LABELS, None: frozenset[AnswerLabel]()}[
            answerable
        ]
    names = _read_texts([given] if isinstance(given, str) else given, "label")
    if unknown := set(names) - set(AnswerLabel):
        raise SetUnreadableError(f"`label` knows no {', '.join(sorted(unknown))}")
    return frozenset(map(AnswerLabel, names))


def _read_decision(given: Mapping[str, Any], field: str) -> bool | None:
    value = given.get(field)
    if value is not None and not isinstance(value, bool):
        raise SetUnreadableError(f"`{field}` must be true, false or null")
    return value


def _read_texts(given: Any, field: str) -> list[str]:
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise SetUnreadableError(f"`{field}` must be a list of texts")
    return list(given)


def _read_text(given: Any, field: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise SetUnreadableError(f"`{field}` must be a text")
    return given

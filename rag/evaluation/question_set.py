"""Question sets as lines of JSON: questions, what is expected of answers, and how it is checked."""

import bisect
import functools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag.types import AnswerLabel

# Whether a text contains the facts that an answer needs.
#
# A fact can be worded in several ways, so it is given as alternatives, one of which is enough. They
# are searched for as a reader would: blanks, emphasis, tags, backslashes and hyphens are ignored.

Fact = tuple[str, ...]
"""Alternatives as documents word them. A "|" separates two cells of a table."""

MAX_CELL_GAP_CHARACTERS = 60
"""Characters between two cells of a row, which may have been put into words."""
MIN_TELLING_CHARACTERS = 8
"""Shorter alternatives ("17명") occur in many unrelated texts."""

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_IGNORED_SIGNS = r"\s*_~`\\\-\u00ad\u2010-\u2015\u2212"
_BETWEEN = f"[{_IGNORED_SIGNS}]*"
_IGNORED_RUN = re.compile(f"[{_IGNORED_SIGNS}]+")
_BLANK_OR_BAR = re.compile(r"[\s|]+")


def measure_fact_share(facts: Sequence[Fact], text: str, *, in_answer: bool) -> float:
    """The share (0..1) of the facts that the text contains; there must be facts.

    `in_answer`: the text is an answer to the question, so that short alternatives count as well.
    """
    plain = _to_plain(text)
    return sum(_has_fact(fact, plain, in_answer=in_answer) for fact in facts) / len(facts)


def find_missing_facts(facts: Sequence[Fact], text: str, *, in_answer: bool) -> list[str]:
    """The first alternative of every fact missing from the text."""
    plain = _to_plain(text)
    return [fact[0] for fact in facts if not _has_fact(fact, plain, in_answer=in_answer)]


def is_findable(alternative: str) -> bool:
    """Whether an alternative contains anything to search for."""
    return bool(_split_cells(alternative))


def _has_fact(fact: Fact, text: str, *, in_answer: bool) -> bool:
    return any(
        _is_in_text(alternative, text)
        for alternative in (fact if in_answer else _select_telling(fact))
    )


def _select_telling(fact: Fact) -> Fact:
    """The alternatives long enough to be specific; all of them if none is."""
    long_enough = [
        alternative
        for alternative in fact
        if len(_BLANK_OR_BAR.sub("", alternative)) >= MIN_TELLING_CHARACTERS
    ]
    return tuple(long_enough) or fact


def _is_in_text(alternative: str, text: str) -> bool:
    """Whether the cells of an alternative follow each other in the text.

    Cells are matched one by one, so that no text makes the search try every combination.
    """
    first, *others = _compile_cells(alternative) or (None,)
    if first is None:
        return False
    ends = [match.end() for match in first.finditer(text)]
    for cell in others:
        ends = [
            match.end() for match in cell.finditer(text) if _is_shortly_after(match.start(), ends)
        ]
    return bool(ends)


def _is_shortly_after(start: int, ends: Sequence[int]) -> bool:
    """Whether the start is shortly after one of the sorted ends."""
    index = bisect.bisect_right(ends, start)
    return index > 0 and start - ends[index - 1] <= MAX_CELL_GAP_CHARACTERS


@functools.lru_cache(maxsize=4096)
def _compile_cells(alternative: str) -> tuple[re.Pattern[str], ...]:
    """One pattern for each cell.

    A number at either end must not be part of a longer one: 2 is not in 12, 500 is not in 1,500.
    """
    cells = _split_cells(alternative)
    patterns = [_BETWEEN.join(map(re.escape, cell)) for cell in cells]
    if patterns and cells[0][0].isdigit():
        patterns[0] = rf"(?<!\d)(?<!\d[.,]){patterns[0]}"
    if patterns and cells[-1][-1].isdigit():
        patterns[-1] = rf"{patterns[-1]}(?![.,]?\d)"
    return tuple(map(re.compile, patterns))


def _split_cells(alternative: str) -> list[str]:
    cells = (_IGNORED_RUN.sub("", cell) for cell in _to_plain(alternative).split("|"))
    return [cell for cell in cells if cell]


def _to_plain(text: str) -> str:
    return _TAG.sub("", unicodedata.normalize("NFC", text))


# Reading a set

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

    `answerable` is None if it has not been decided yet. `is_ticked`: only the documents of its line
    may be read; else all may, and those of the line are the relevant ones.
    """

    user: str
    facts: tuple[Fact, ...] = ()
    answerable: bool | None = None
    labels: frozenset[AnswerLabel] = frozenset()
    kind: str = ""
    is_ticked: bool = False


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """A line of a set: one conversation; `documents` are names or ids.

    `known` is what users have said about themselves in earlier conversations.
    """

    id: str
    turns: tuple[ExpectedTurn, ...]
    documents: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


def parse_set(text: str) -> list[QuestionLine]:
    """Parse lines of `{id, documents?, known?, turns: [{user, gold, answerable, ...}]}`.

    `gold` lists facts, each a list of alternatives or one text. A turn may have `kind`, `label`
    (one or several) and `choose`; the `kind` of a line applies to its turns. `choose: false` means
    that the documents of the line are not ticked for the turn. Raises `SetUnreadableError`.
    """
    lines: dict[str, QuestionLine] = {}
    for number, row in enumerate(text.split("\n"), 1):  # JSON may contain other line ends
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
        values = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise SetUnreadableError(f"line {number} is not JSON: {error}") from error
    try:
        return _to_line(values)
    except SetUnreadableError as error:
        raise SetUnreadableError(f"line {number}: {error}") from None


def _to_line(values: Any) -> QuestionLine:
    if not isinstance(values, Mapping):
        raise SetUnreadableError("expected an object")
    turns = values.get("turns")
    if not isinstance(turns, list) or not turns:
        raise SetUnreadableError("`turns` must be a list of questions")
    documents = values.get("documents")
    if documents is not None and not _read_texts(documents, "documents"):
        raise SetUnreadableError("`documents` is empty; without it everything is read")
    kind = str(values.get("kind") or "")
    return QuestionLine(
        id=_read_text(values.get("id"), "id"),
        turns=tuple(_to_turn(turn, kind, has_documents=bool(documents)) for turn in turns),
        documents=tuple(documents or ()),
        known=tuple(_read_texts(values.get("known") or (), "known")),
    )


def _to_turn(values: Any, kind: str, *, has_documents: bool) -> ExpectedTurn:
    if not isinstance(values, Mapping):
        raise SetUnreadableError("a turn must be an object")
    answerable, choose = _read_decision(values, "answerable"), _read_decision(values, "choose")
    gold = values.get("gold") or ()
    if not isinstance(gold, Sequence) or isinstance(gold, str):
        raise SetUnreadableError("`gold` must be a list of facts")
    return ExpectedTurn(
        user=_read_text(values.get("user"), "user"),
        facts=tuple(_to_fact(fact) for fact in gold),
        answerable=answerable,
        labels=_to_labels(values.get("label"), answerable),
        kind=str(values.get("kind") or kind),
        is_ticked=has_documents and choose is not False,
    )


def _to_fact(value: Any) -> Fact:
    fact = tuple(_read_texts([value] if isinstance(value, str) else value, "gold"))
    if not fact or not all(map(is_findable, fact)):
        raise SetUnreadableError("a fact of `gold` is empty")
    return fact


def _to_labels(value: Any, answerable: bool | None) -> frozenset[AnswerLabel]:
    if value is None:
        return {True: FOUND_LABELS, False: NOT_FOUND_LABELS, None: frozenset[AnswerLabel]()}[
            answerable
        ]
    names = _read_texts([value] if isinstance(value, str) else value, "label")
    if unknown := set(names) - set(AnswerLabel):
        raise SetUnreadableError(f"`label` knows no {', '.join(sorted(unknown))}")
    return frozenset(map(AnswerLabel, names))


def _read_decision(values: Mapping[str, Any], field: str) -> bool | None:
    value = values.get(field)
    if value is not None and not isinstance(value, bool):
        raise SetUnreadableError(f"`{field}` must be true, false or null")
    return value


def _read_texts(value: Any, field: str) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise SetUnreadableError(f"`{field}` must be a list of texts")
    return list(value)


def _read_text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SetUnreadableError(f"`{field}` must be a text")
    return value

"""Whether the facts that an answer needs stand in a text.

A fact is told in words of its own, so it is given as alternatives; one of them is enough. They are
looked for as a reader would: blanks, emphasis, tags, backslashes and hyphens do not count.
"""

import bisect
import functools
import re
import unicodedata
from collections.abc import Sequence

Fact = tuple[str, ...]
"""Alternatives, each as it is written in a document. A "|" stands between two cells of a table."""

MAX_CELL_GAP_CHARACTERS = 60
"""Between two cells of a row: it may be told in words."""
MIN_TELLING_CHARACTERS = 8
"""Shorter alternatives ("17명") stand in many a text that is about something else."""

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_IGNORED = r"\s*_~`\\\-\u00ad\u2010-\u2015\u2212"
_BETWEEN = f"[{_IGNORED}]*"
_SKIPPED = re.compile(f"[{_IGNORED}]+")
_BLANK_OR_BAR = re.compile(r"[\s|]+")


def share_of_facts(facts: Sequence[Fact], text: str, *, in_answer: bool) -> float:
    """The share (0..1) of the facts that stand in the text; there must be facts.

    `in_answer`: the text answers the question, so that short alternatives count as well.
    """
    plain = _to_plain(text)
    return sum(_has_fact(fact, plain, in_answer=in_answer) for fact in facts) / len(facts)


def missing_facts(facts: Sequence[Fact], text: str, *, in_answer: bool) -> list[str]:
    """The first alternative of every fact that does not stand in the text."""
    plain = _to_plain(text)
    return [fact[0] for fact in facts if not _has_fact(fact, plain, in_answer=in_answer)]


def is_findable(alternative: str) -> bool:
    """Whether there is anything in it to look for."""
    return bool(_cells(alternative))


def _has_fact(fact: Fact, text: str, *, in_answer: bool) -> bool:
    return any(_stands_in(one, text) for one in (fact if in_answer else _telling(fact)))


def _telling(fact: Fact) -> Fact:
    """The alternatives that say enough by themselves; all of them where none does."""
    long = [one for one in fact if len(_BLANK_OR_BAR.sub("", one)) >= MIN_TELLING_CHARACTERS]
    return tuple(long) or fact


def _stands_in(alternative: str, text: str) -> bool:
    """Whether its cells follow each other in the text.

    Cell by cell, so that no text makes the search try every combination of places.
    """
    first, *others = _patterns(alternative) or (None,)
    if first is None:
        return False
    ends = [match.end() for match in first.finditer(text)]
    for cell in others:
        ends = [match.end() for match in cell.finditer(text) if _follows(match.start(), ends)]
    return bool(ends)


def _follows(start: int, ends: Sequence[int]) -> bool:
    """Whether one of the sorted ends lies shortly before the start."""
    place = bisect.bisect_right(ends, start)
    return place > 0 and start - ends[place - 1] <= MAX_CELL_GAP_CHARACTERS


@functools.lru_cache(maxsize=4096)
def _patterns(alternative: str) -> tuple[re.Pattern[str], ...]:
    """One pattern a cell.

    A number at an end of the whole must not go on there: 2 is not in 12, 500 is not in 1,500.
    """
    cells = _cells(alternative)
    made = [_BETWEEN.join(map(re.escape, cell)) for cell in cells]
    if made and cells[0][0].isdigit():
        made[0] = rf"(?<!\d)(?<!\d[.,]){made[0]}"
    if made and cells[-1][-1].isdigit():
        made[-1] = rf"{made[-1]}(?![.,]?\d)"
    return tuple(map(re.compile, made))


def _cells(alternative: str) -> list[str]:
    cells = (_SKIPPED.sub("", cell) for cell in _to_plain(alternative).split("|"))
    return [cell for cell in cells if cell]


def _to_plain(text: str) -> str:
    return _TAG.sub("", unicodedata.normalize("NFC", text))

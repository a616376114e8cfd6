"""Headings of a page: bookmarks where their words stand, else short lines in larger letters."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from documents.parsers.pdf.rows import Row
from documents.parsers.pdf.runs import HYPHEN
from rag.pages import Heading

Bookmark = tuple[int, str]
"""Level from 1, title."""

_LEVELS = (1.8, 1.45, 1.2)
"""How much higher than the body's the letters of a heading are, by level from 1."""
_LONGEST = 80
"""Characters of a heading."""
_MOST_ROWS = 3
_SENTENCE = re.compile(r"[.!?。…:;,]$")
_WORD = re.compile(r"[^\W\d_]")


def bookmarked(text: str, bookmarks: Iterable[Bookmark]) -> tuple[Heading, ...]:
    """Bookmarks found as words of the page; one that is not found stands where the last one did."""
    found, position = [], 0
    for level, title in bookmarks:
        words = r"\s*".join(re.escape(character) for character in title if not character.isspace())
        if match := re.compile(words).search(text, position):
            position = match.start()
        found.append(Heading(position, level, title))
    return tuple(found)


class Sizes:
    """Heights of the letters of a document, as far as it is read."""

    def __init__(self) -> None:
        self._counted: Counter[int] = Counter()

    def add(self, rows: Iterable[Row], points: float) -> None:
        """Count the lines of a page that is so many points high."""
        for row in rows:
            self._counted[round(row.height * points * 2)] += row.length

    @property
    def body(self) -> float:
        """The height of most letters, in points; 0 without any."""
        return self._counted.most_common(1)[0][0] / 2 if self._counted else 0.0


def by_size(
    rows: Sequence[Row], starts: Sequence[int], points: float, body: float
) -> tuple[Heading, ...]:
    """Short lines that are higher than the body's; several of one size are one heading."""
    found = []
    for level, group in groupby(
        zip(rows, starts, strict=True), lambda place: _level(place[0], points, body)
    ):
        lines = list(group)
        title = " ".join(row.text for row, _ in lines)
        title = title.replace(f"{HYPHEN} ", "").replace(HYPHEN, "-")
        if level and len(lines) <= _MOST_ROWS and len(title) <= _LONGEST and _is_title(title):
            found.append(Heading(lines[0][1], level, title))
    return tuple(found)


def _level(row: Row, points: float, body: float) -> int:
    """1 for the largest letters, 0 for those of the body."""
    if not row.upright:
        return 0
    factor = row.height * points / body
    return next((level for level, least in enumerate(_LEVELS, 1) if factor >= least), 0)


def _is_title(text: str) -> bool:
    """Whether it names something rather than says it."""
    return bool(_WORD.search(text)) and not _SENTENCE.search(text)

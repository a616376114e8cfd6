"""Which lines of a page go on in the middle of a Korean word: justified Hangul breaks anywhere.

Searching needs the word whole. Producers that break words keep the space where a line ends between
two words, so a page that shows such spaces tells the two apart.
"""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from documents.parsers.pdf_geometry import Rect

Mark = tuple[str, Rect | None]
"""A character and its box; None for spaces that PDFium made up."""

_FEWEST_SPACES = 3
"""Lines that must end in a space before the others say anything."""
_FEWEST_AT_MARGIN = 3
"""Lines that end where this one does, itself included, before that place counts as the margin."""
_SHORTEST = 15
"""Characters below which a line may be a label or a cell rather than a wrapped line."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line as PDFium breaks it. `hyphen`: cut at a hyphen; `spaced`: it ended in a space."""

    marks: Sequence[Mark]
    strange: int
    hyphen: bool
    spaced: bool


def joins(rows: Sequence[Row]) -> list[bool]:
    """For each row, whether the next goes on in the same word."""
    spaced = sum(row.spaced and len(row.marks) >= _SHORTEST for row in rows)
    telling = spaced >= _FEWEST_SPACES
    margins = sorted(row.marks[-1][1].x1 for row in rows if row.marks and row.marks[-1][1])
    return [
        row.hyphen or (telling and _wrapped(row, below, margins)) for row, below in pairwise(rows)
    ] + [False]


def _wrapped(row: Row, below: Row, margins: Sequence[float]) -> bool:
    """Whether a full line of text breaks between two syllables right above its next line."""
    if row.spaced or len(row.marks) < _SHORTEST or not below.marks:
        return False
    (last, end), (first, start) = row.marks[-1], below.marks[0]
    left, right = row.marks[0][1], below.marks[-1][1]
    if not (_hangul(last) and _hangul(first) and left and end and start and right):
        return False
    width, height = end.x1 - end.x0, end.y1 - end.y0
    near = bisect(margins, end.x1 + width / 2) - bisect(margins, end.x1 - width / 2)
    full = near >= _FEWEST_AT_MARGIN and end.x1 >= right.x1 - width
    straight = start.x0 <= left.x0 + width / 2 and start.x0 < end.x0
    same = abs(start.y1 - start.y0 - height) < height / 10
    return full and straight and same and end.y0 < start.y0 < end.y1 + 1.5 * height


def _hangul(character: str) -> bool:
    """Whether this is a syllable."""
    return "가" <= character <= "힣"

"""How a line of a page goes on in the next: with a line end, in the same word, or at a hyphen.

Searching needs words whole. Justified Hangul breaks anywhere; producers that break words keep the
space where a line ends between two words, so a page that shows such spaces tells the two apart.
"""

import re
from bisect import bisect
from collections.abc import Sequence
from typing import NamedTuple

from documents.parsers.pdf.rows import Row
from documents.parsers.pdf.runs import HYPHEN

_FEWEST_SPACES = 3
"""Lines that must end in a space before the others say anything."""
_FEWEST_AT_MARGIN = 3
"""Lines that end where this one does, itself included, before that place counts as the margin."""
_SHORTEST = 15
"""Characters below which a line may be a label or a cell rather than a wrapped line."""
_SAME_HEIGHT = 0.25
"""Part of a line's height by which the next may differ, as one with a raised figure does."""
_COMPOUND = re.compile(r"[^\W\d_]+-[^\W\d_]+")
_LAST_WORD = re.compile(rf"([^\W\d_]+){HYPHEN}$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")


class Seam(NamedTuple):
    """What comes between two lines: `cut` characters less of the first one, and this text."""

    cut: int
    text: str


_NEW_LINE = Seam(0, "\n")


class Wrapping:
    """How the lines of one page, or of one cell, break."""

    def __init__(self, rows: Sequence[Row]) -> None:
        spaced = sum(row.runs[-1].spaced and row.length >= _SHORTEST for row in rows)
        self._telling = spaced >= _FEWEST_SPACES
        self._margins = sorted(row.runs[-1].edges[-1] for row in rows) if self._telling else []
        broken = any(row.runs[-1].text.endswith(HYPHEN) for row in rows)
        words = "\n".join(row.text for row in rows) if broken else ""
        self._compounds = set(_COMPOUND.findall(words))

    def seam(self, row: Row, below: Row) -> Seam:
        """How a line goes on in the next."""
        if row.runs[-1].text.endswith(HYPHEN):
            return _hyphenated(row.text, below.text, self._compounds)
        if self._telling and _wrapped(row, below, self._margins):
            return Seam(0, "")
        return _NEW_LINE


def _hyphenated(text: str, below: str, compounds: set[str]) -> Seam:
    """A hyphen goes where it only breaks a word, and stays within one that is spelt with it."""
    before, after = _LAST_WORD.search(text), _FIRST_WORD.match(below)
    if before and after and after[0][0].islower() and f"{before[1]}-{after[0]}" not in compounds:
        return Seam(1, "")
    return Seam(1, "-" if below[:1].isalnum() else "-\n")


def _wrapped(row: Row, below: Row, margins: Sequence[float]) -> bool:
    """Whether a full line of text breaks between two syllables right above its next line."""
    end, start = row.runs[-1], below.runs[0]
    if end.spaced or not (_hangul(end.text[-1]) and _hangul(start.text[0])):
        return False
    if row.length < _SHORTEST or row.down or below.down:
        return False
    width = end.edges[-1] - end.edges[-2]
    right = end.edges[-1]
    near = bisect(margins, right + width / 2) - bisect(margins, right - width / 2)
    full = near >= _FEWEST_AT_MARGIN and right >= below.runs[-1].edges[-1] - width
    straight = start.box.x0 <= row.box.x0 + width / 2 and start.box.x0 < right - width
    same = abs(start.height - end.height) < end.height * _SAME_HEIGHT
    return full and straight and same and _is_next(end.box.y0, start.box.y0, end.height)


def _is_next(upper: float, lower: float, height: float) -> bool:
    """Whether the next line begins within one and a half lines below."""
    return upper < lower < upper + 2.5 * height


def _hangul(character: str) -> bool:
    """Whether this is a syllable."""
    return "가" <= character <= "힣"

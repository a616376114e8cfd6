"""Lines of a page: built from runs, joined where a word continues, written as text.

Justified Hangul breaks anywhere, even within words. Some producers keep the space where a line ends
between two words; for others, only the letters can tell. Two log odds are added: which letters come
before and after the ends of words in Korean statutes (`spacing.json`, made by
`benchmarks/pdf_tables/train_spacing.py`), and whether this document writes the two letters at the
break together or apart elsewhere.
"""

import json
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import log
from pathlib import Path
from typing import NamedTuple

from documents.parsers.pdf.geometry import Rect, clip, clip_all, find_bounding_box
from documents.parsers.pdf.text_runs import HYPHEN, RIGHT_TO_LEFT, TextRun
from rag.types import Line

WEIGHTS = Path(__file__).with_name("spacing.json")
LEAST_ODDS = 1.0
"""Log odds from which a word counts as continued."""
_LEAST_ODDS_OF_CELL = 3.0
"""The same within a table cell, whose lines may be list items."""
_LEAST_LINE_ENDS = 6
"""Line ends of a document needed to tell how it breaks its lines."""
_LEAST_SHARE = 0.5
"""Share of line ends that seem to split a word: about .7 if lines break within words, else .2."""
_UNSEEN = 0.5
"""Added to counts of letters written together and apart (smoothing)."""
_TOGETHER = re.compile("(?=([가-힣]{2}))")
_APART = re.compile("(?=([가-힣]) ([가-힣]))")
_END = re.compile("[가-힣]+$")
_START = re.compile("[가-힣]+")


class WordSpacing:
    """Statistics of one document's word spacing, collected as it is read."""

    def __init__(self) -> None:
        self._together: Counter[str] = Counter()
        self._apart: Counter[str] = Counter()
        self._ends = 0
        self._broken = 0

    def add_lines(self, lines: Iterable[str]) -> None:
        """Count which letters are written together and which apart."""
        for line in lines:
            self._together.update(_TOGETHER.findall(line))
            self._apart.update(map("".join, _APART.findall(line)))

    def add_line_end(self, line: str, following: str) -> None:
        """Count the end of a full line; both sides are Hangul."""
        self._ends += 1
        self._broken += self.measure_odds(line, following) >= LEAST_ODDS

    @property
    def breaks_words(self) -> bool:
        """Whether lines of this document end within words."""
        return self._ends >= _LEAST_LINE_ENDS and self._broken >= _LEAST_SHARE * self._ends

    def continues_word(
        self, line: str, following: str, *, shows_blanks: bool = False, in_cell: bool = False
    ) -> bool:
        """Whether the last word of a full line continues in the following line.

        Both sides are Hangul, and the line ends without a space; `shows_blanks`: other lines nearby
        end with one. Some producers drop the space of a stretched line, so this alone proves
        nothing in a document whose lines end between words.
        """
        if self.breaks_words and shows_blanks:
            return True
        if not (self.breaks_words or shows_blanks):
            return False
        least = _LEAST_ODDS_OF_CELL if in_cell else LEAST_ODDS
        return self.measure_odds(line, following) >= least

    def measure_odds(self, line: str, following: str) -> float:
        """Log odds that the word continues; both sides are Hangul."""
        weights = load_weights()
        pair = line[-1] + following[0]
        known = sum(weights.get(feature, 0.0) for feature in extract_features(line, following))
        seen = log((self._together[pair] + _UNSEEN) / (self._apart[pair] + _UNSEEN))
        return weights["_"] + known + seen


def extract_features(line: str, following: str) -> list[str]:
    """The features of a line break: letters, pairs, and lengths of both parts of the word."""
    before, after = _END.search(line), _START.match(following)
    left, right = (before[0] if before else ""), (after[0] if after else "")
    return [
        f"L{left[-1:]}",
        f"R{right[:1]}",
        f"M{left[-1:]}{right[:1]}",
        f"l{left[-2:]}" if len(left) > 1 else f"l^{left}",
        f"r{right[:2]}" if len(right) > 1 else f"r{right}$",
        f"n{min(len(left), 5)}",
        f"m{min(len(right), 5)}",
    ]


@cache
def load_weights() -> dict[str, float]:
    """Weights by feature; "_" is the bias."""
    weights: dict[str, float] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return weights


_LEVEL = 0.5
"""Share of the smaller height by which runs on one line must overlap vertically."""
_OVERLAP = 0.3
"""Ems by which neighbours on a line may overlap."""
_NEAR = 3.0
"""Ems within which runs are on one line even if PDFium reports a line end between them."""
_WORDS_APART = 1.5
"""Line heights between two characters of vertical text."""
_SPACE = 0.2
"""Ems between two runs that are a space."""


@dataclass(slots=True)
class TextRow:
    """Runs on one line (or below each other, in vertical text), in reading order.

    `height` is that of its highest run, in fractions of the page's height.
    """

    runs: list[TextRun]
    box: Rect
    height: float
    em: float
    down: bool = False

    @property
    def text(self) -> str:
        """Its words."""
        return "".join(space + run.text for space, run in self.iterate_spaced_runs())

    @property
    def length(self) -> int:
        """Characters, without the spaces between runs."""
        return sum(len(run.text) for run in self.runs)

    def iterate_spaced_runs(self) -> Iterator[tuple[str, TextRun]]:
        """Its runs, each with the space before it or none."""
        yield "", self.runs[0]
        for run, following in pairwise(self.runs):
            yield " " if _is_space_between(run, following, self.em) else "", following

    @property
    def is_upright(self) -> bool:
        """Whether its text runs in the usual direction: neither vertical nor upside down."""
        if self.down:
            return False
        turned = sum(
            len(run.text)
            for run in self.runs
            if _is_backward(run) and not RIGHT_TO_LEFT.search(run.text)
        )
        return turned * 2 <= self.length


def group_rows(runs: Iterable[TextRun], em: float) -> list[TextRow]:
    """Group runs that are neighbours in PDFium's order and on the same line."""
    found: list[TextRow] = []
    for run in runs:
        if found and _continues_row(found[-1], run, em):
            row = found[-1]
            row.runs.append(run)
            row.box, row.height = find_bounding_box((row.box, run.box)), max(row.height, run.height)
        else:
            found.append(TextRow([run], run.box, run.height, em))
    for row in found:
        if len(row.runs) > 1 and not row.down and not any(map(_is_backward, row.runs)):
            row.runs.sort(key=lambda run: run.box.x0)
    return found


def _is_space_between(run: TextRun, following: TextRun, em: float) -> bool:
    """Whether there is a space between two runs of a row."""
    if run.spaced or following.led:
        return True
    one, other = run.box, following.box
    return max(other.x0 - one.x1, one.x0 - other.x1) > _SPACE * run.height * em


def _continues_row(row: TextRow, run: TextRun, em: float) -> bool:
    """Whether a run is on the line of a row, or continues vertical text."""
    last, box = row.runs[-1], run.box
    if (row.down or len(row.runs) == 1) and _follows_down(last, run, em):
        row.down = True
        return True
    if row.down:
        return False
    width = min(last.height, run.height) * em
    level = min(last.box.y1, box.y1) - max(last.box.y0, box.y0)
    gap = max(box.x0 - row.box.x1, row.box.x0 - box.x1)
    if level < _LEVEL * min(last.height, run.height) or gap < -_OVERLAP * width:
        return False
    return run.row == last.row or gap < _NEAR * width


def _follows_down(last: TextRun, run: TextRun, em: float) -> bool:
    """Whether two characters of the same PDFium line are above each other."""
    if run.row != last.row or max(len(run.text), len(last.text)) > 1:
        return False
    one, other = last.box, run.box
    # On its side, a letter is as wide as its line is high.
    widths = one.x1 - one.x0, other.x1 - other.x0
    shared = min(one.x1, other.x1) - max(one.x0, other.x0)
    gap = max(other.y0 - one.y1, one.y0 - other.y1)
    return shared > 0.5 * min(widths) and gap * em < _WORDS_APART * max(widths)


def _is_backward(run: TextRun) -> bool:
    """Whether its characters run to the left."""
    return run.edges[-1] < run.edges[0]


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
    """How two lines are joined: drop `cut` characters of the first, then insert `text`."""

    cut: int
    text: str


_NEW_LINE = Seam(0, "\n")


class Wrapping:
    """How the lines of one page, or of one cell, break.

    Search needs whole words. Producers that break words often keep the space where a line ends
    between two words, so a page with such spaces tells the two apart; on other pages, `spacing`
    decides by the letters.
    """

    def __init__(
        self, rows: Sequence[TextRow], spacing: WordSpacing, *, in_cell: bool = False
    ) -> None:
        spaced = sum(row.runs[-1].spaced and row.length >= _SHORTEST for row in rows)
        self._shows_blanks = spaced >= _FEWEST_SPACES
        self._margins = sorted(row.runs[-1].edges[-1] for row in rows)
        self._spacing, self._in_cell = spacing, in_cell
        broken = any(row.runs[-1].text.endswith(HYPHEN) for row in rows)
        words = "\n".join(row.text for row in rows) if broken else ""
        self._compounds = set(_COMPOUND.findall(words))

    def find_seam(self, row: TextRow, below: TextRow) -> Seam:
        """How a line continues in the next."""
        if row.runs[-1].text.endswith(HYPHEN):
            return _join_hyphenated(row.text, below.text, self._compounds)
        if self._is_wrapped(row, below) and self._spacing.continues_word(
            row.text, below.text, shows_blanks=self._shows_blanks, in_cell=self._in_cell
        ):
            return Seam(0, "")
        return _NEW_LINE

    def count_line_ends(self, rows: Sequence[TextRow]) -> None:
        """Count, for the document's spacing, full lines that end in Hangul without a space."""
        for row, below in pairwise(rows):
            if self._is_wrapped(row, below):
                self._spacing.add_line_end(row.text, below.text)

    def _is_wrapped(self, row: TextRow, below: TextRow) -> bool:
        """Whether a full line breaks between two syllables right above its next line."""
        end, start = row.runs[-1], below.runs[0]
        if end.spaced or not (_is_hangul(end.text[-1]) and _is_hangul(start.text[0])):
            return False
        if row.down or below.down or not _is_next(end, start):
            return False
        width, right = end.edges[-1] - end.edges[-2], end.edges[-1]
        if self._in_cell and not self._shows_blanks:
            return right >= self._margins[-1] - width
        near = bisect(self._margins, right + width / 2) - bisect(self._margins, right - width / 2)
        full = near >= _FEWEST_AT_MARGIN and right >= below.runs[-1].edges[-1] - width
        straight = start.box.x0 <= row.box.x0 + width / 2 and start.box.x0 < right - width
        return row.length >= _SHORTEST and full and straight


def _join_hyphenated(text: str, below: str, compounds: set[str]) -> Seam:
    """Drop a hyphen that only breaks a word; keep one that belongs to its spelling."""
    before, after = _LAST_WORD.search(text), _FIRST_WORD.match(below)
    if before and after and after[0][0].islower() and f"{before[1]}-{after[0]}" not in compounds:
        return Seam(1, "")
    return Seam(1, "-" if below[:1].isalnum() else "-\n")


def _is_next(end: TextRun, start: TextRun) -> bool:
    """Whether a run of about the same height begins within one and a half lines below."""
    same = abs(start.height - end.height) < end.height * _SAME_HEIGHT
    return same and end.box.y0 < start.box.y0 < end.box.y0 + 2.5 * end.height


def _is_hangul(character: str) -> bool:
    """Whether this is a syllable."""
    return "가" <= character <= "힣"


class TextWriter:
    """Growing text with the lines of its characters."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.length = 0
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """All that was written."""
        return "".join(self._parts)

    def write(self, text: str) -> None:
        """Write text without a position."""
        self._parts.append(text)
        self.length += len(text)

    def write_run(self, run: TextRun) -> None:
        """Write a run with its position; PDFium's hyphen marker becomes a hyphen."""
        if run.text:
            start, end = self.length, self.length + len(run.text)
            y0, y1 = clip(run.box.y0), clip(run.box.y1)
            self.lines.append(Line(start, end, y0, y1, clip_all(run.edges, run.box)))
            self.write(run.text.replace(HYPHEN, "-"))

    def write_rows(
        self, rows: Sequence[TextRow], wrapping: Wrapping, line_end: str = "\n"
    ) -> list[int]:
        """Write rows, joined by line ends or by nothing if a word continues; return offsets."""
        starts = []
        for index, row in enumerate(rows):
            below = rows[index + 1 : index + 2]
            cut, text = wrapping.find_seam(row, *below) if below else (0, "")
            starts.append(self.length)
            self._write_row(row, cut)
            self.write(text.replace("\n", line_end))
        return starts

    def write_paragraph(self, text: str, lines: Sequence[Line]) -> int:
        """Write text with its own lines after a blank line; return its offset."""
        self.end_paragraph()
        start = self.length
        self.lines += (
            Line(start + line.start, start + line.end, line.y0, line.y1, line.edges)
            for line in lines
        )
        self.write(text)
        return start

    def end_paragraph(self) -> None:
        """Write a blank line, unless the text is empty."""
        if self.length:
            self.write("\n\n")

    def _write_row(self, row: TextRow, cut: int) -> None:
        """Write the runs of a row without its last `cut` characters."""
        for space, run in row.iterate_spaced_runs():
            self.write(space)
            self.write_run(_cut_run_end(run, cut) if cut and run is row.runs[-1] else run)


def _cut_run_end(run: TextRun, cut: int) -> TextRun:
    """A run without its last characters."""
    return run.cut(0, len(run.text) - cut)

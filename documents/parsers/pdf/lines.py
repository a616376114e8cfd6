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
MIN_ODDS = 1.0
"""Log odds from which a word counts as continued."""
_MIN_ODDS_IN_CELL = 3.0
"""The same within a table cell, whose lines may be list items."""
_MIN_LINE_ENDS = 6
"""Line ends needed to tell how a document breaks its lines."""
_MIN_BROKEN_SHARE = 0.5
"""Share of line ends that seem to split a word: about .7 if lines break within words, else .2."""
_SMOOTHING_COUNT = 0.5
"""Added to counts of letters written together and apart (smoothing)."""
_PAIR_TOGETHER = re.compile("(?=([가-힣]{2}))")
_PAIR_APART = re.compile("(?=([가-힣]) ([가-힣]))")
_LAST_SYLLABLES = re.compile("[가-힣]+$")
_FIRST_SYLLABLES = re.compile("[가-힣]+")


class WordSpacing:
    """Statistics of one document's word spacing, collected as it is read."""

    def __init__(self) -> None:
        self._together: Counter[str] = Counter()
        self._apart: Counter[str] = Counter()
        self._line_end_count = 0
        self._broken_word_count = 0

    def add_lines(self, lines: Iterable[str]) -> None:
        """Count which letters are written together and which apart."""
        for line in lines:
            self._together.update(_PAIR_TOGETHER.findall(line))
            self._apart.update(map("".join, _PAIR_APART.findall(line)))

    def add_line_end(self, line: str, following: str) -> None:
        """Count the end of a full line; both sides are Hangul."""
        self._line_end_count += 1
        self._broken_word_count += self.compute_log_odds(line, following) >= MIN_ODDS

    @property
    def breaks_words(self) -> bool:
        """Whether lines of this document end within words."""
        return (
            self._line_end_count >= _MIN_LINE_ENDS
            and self._broken_word_count >= _MIN_BROKEN_SHARE * self._line_end_count
        )

    def continues_word(
        self, line: str, following: str, *, keeps_spaces: bool = False, in_cell: bool = False
    ) -> bool:
        """Whether the last word of a full line continues in the following line.

        Both sides are Hangul, and the line ends without a space; `keeps_spaces`: other lines nearby
        end with one. Some producers drop the space of a stretched line, so this alone proves
        nothing in a document whose lines end between words.
        """
        if self.breaks_words and keeps_spaces:
            return True
        if not (self.breaks_words or keeps_spaces):
            return False
        min_odds = _MIN_ODDS_IN_CELL if in_cell else MIN_ODDS
        return self.compute_log_odds(line, following) >= min_odds

    def compute_log_odds(self, line: str, following: str) -> float:
        """Log odds that the word continues; both sides are Hangul."""
        weights = load_weights()
        pair = line[-1] + following[0]
        general_odds = sum(
            weights.get(feature, 0.0) for feature in extract_features(line, following)
        )
        document_odds = log(
            (self._together[pair] + _SMOOTHING_COUNT) / (self._apart[pair] + _SMOOTHING_COUNT)
        )
        return weights["_"] + general_odds + document_odds


def extract_features(line: str, following: str) -> list[str]:
    """The features of a line break: letters, pairs, and lengths of both parts of the word."""
    before, after = _LAST_SYLLABLES.search(line), _FIRST_SYLLABLES.match(following)
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


_MIN_VERTICAL_OVERLAP = 0.5
"""Share of the smaller height by which runs on one line must overlap vertically."""
_MAX_OVERLAP_EMS = 0.3
"""Ems by which neighbours on a line may overlap."""
_MAX_GAP_EMS = 3.0
"""Ems within which runs are on one line even if PDFium reports a line end between them."""
_MAX_VERTICAL_GAP = 1.5
"""Line heights between two characters of vertical text."""
_MIN_SPACE_EMS = 0.2
"""Gap between two runs, in ems, that counts as a space."""


@dataclass(slots=True)
class TextRow:
    """Runs on one line (or below each other, in vertical text), in reading order.

    `height` is that of its highest run, in fractions of the page's height. `aspect` is the page's
    height by its width: times a height, it gives the width of as many points.
    """

    runs: list[TextRun]
    box: Rect
    height: float
    aspect: float
    is_vertical: bool = False

    @property
    def text(self) -> str:
        """Its runs, with spaces between them where there are gaps."""
        return "".join(space + run.text for space, run in self.iterate_spaced_runs())

    @property
    def length(self) -> int:
        """Number of characters, without the spaces between runs."""
        return sum(len(run.text) for run in self.runs)

    def iterate_spaced_runs(self) -> Iterator[tuple[str, TextRun]]:
        """Its runs, each preceded by a space or by nothing."""
        yield "", self.runs[0]
        for run, following in pairwise(self.runs):
            yield " " if _has_space_between(run, following, self.aspect) else "", following

    @property
    def is_upright(self) -> bool:
        """Whether its text runs in the usual direction: neither vertical nor upside down."""
        if self.is_vertical:
            return False
        leftward_length = sum(
            len(run.text)
            for run in self.runs
            if _is_leftward(run) and not RIGHT_TO_LEFT.search(run.text)
        )
        return leftward_length * 2 <= self.length


def group_rows(runs: Iterable[TextRun], aspect: float) -> list[TextRow]:
    """Group runs that are neighbours in PDFium's order and on the same line."""
    rows: list[TextRow] = []
    for run in runs:
        if rows and _continues_row(rows[-1], run, aspect):
            row = rows[-1]
            row.runs.append(run)
            row.box, row.height = find_bounding_box((row.box, run.box)), max(row.height, run.height)
        else:
            rows.append(TextRow([run], run.box, run.height, aspect))
    for row in rows:
        if len(row.runs) > 1 and not row.is_vertical and not any(map(_is_leftward, row.runs)):
            row.runs.sort(key=lambda run: run.box.x0)
    return rows


def _has_space_between(run: TextRun, following: TextRun, aspect: float) -> bool:
    """Whether there is a space between two runs of a row."""
    if run.space_after or following.space_before:
        return True
    box, following_box = run.box, following.box
    return (
        max(following_box.x0 - box.x1, box.x0 - following_box.x1)
        > _MIN_SPACE_EMS * run.height * aspect
    )


def _continues_row(row: TextRow, run: TextRun, aspect: float) -> bool:
    """Whether a run is on the line of a row, or continues vertical text."""
    last, box = row.runs[-1], run.box
    if (row.is_vertical or len(row.runs) == 1) and _continues_vertically(last, run, aspect):
        row.is_vertical = True
        return True
    if row.is_vertical:
        return False
    width = min(last.height, run.height) * aspect
    overlap = min(last.box.y1, box.y1) - max(last.box.y0, box.y0)
    gap = max(box.x0 - row.box.x1, row.box.x0 - box.x1)
    if (
        overlap < _MIN_VERTICAL_OVERLAP * min(last.height, run.height)
        or gap < -_MAX_OVERLAP_EMS * width
    ):
        return False
    return run.line_number == last.line_number or gap < _MAX_GAP_EMS * width


def _continues_vertically(last: TextRun, run: TextRun, aspect: float) -> bool:
    """Whether two characters of the same PDFium line are above each other."""
    if run.line_number != last.line_number or max(len(run.text), len(last.text)) > 1:
        return False
    last_box, box = last.box, run.box
    # On its side, a letter is as wide as its line is high.
    widths = last_box.x1 - last_box.x0, box.x1 - box.x0
    overlap = min(last_box.x1, box.x1) - max(last_box.x0, box.x0)
    gap = max(box.y0 - last_box.y1, last_box.y0 - box.y1)
    return overlap > 0.5 * min(widths) and gap * aspect < _MAX_VERTICAL_GAP * max(widths)


def _is_leftward(run: TextRun) -> bool:
    """Whether its characters run to the left."""
    return run.edges[-1] < run.edges[0]


_MIN_LINES_WITH_SPACE = 3
"""Lines that must end in a space before a missing one is taken to mean anything."""
_MIN_LINES_AT_MARGIN = 3
"""Lines that end where this one does, itself included, before that place counts as the margin."""
_MIN_WRAPPED_CHARACTERS = 15
"""Characters below which a line may be a label or a cell rather than a wrapped line."""
_MAX_HEIGHT_DIFFERENCE = 0.25
"""Share of a line's height by which the next may differ, as one with a raised number does."""
_COMPOUND = re.compile(r"[^\W\d_]+-[^\W\d_]+")
_LAST_WORD = re.compile(rf"([^\W\d_]+){HYPHEN}$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")


class LineJoin(NamedTuple):
    """How two lines are joined: drop `cut` characters of the first, then insert `text`."""

    cut: int
    text: str


_NEW_LINE = LineJoin(0, "\n")


class Wrapping:
    """How the lines of one page, or of one cell, break.

    Search needs whole words. Producers that break words often keep the space where a line ends
    between two words, so a page with such spaces tells the two apart; on other pages, `spacing`
    decides by the letters.
    """

    def __init__(
        self, rows: Sequence[TextRow], spacing: WordSpacing, *, in_cell: bool = False
    ) -> None:
        spaced_count = sum(
            row.runs[-1].space_after and row.length >= _MIN_WRAPPED_CHARACTERS for row in rows
        )
        self._keeps_spaces = spaced_count >= _MIN_LINES_WITH_SPACE
        self._margins = sorted(row.runs[-1].edges[-1] for row in rows)
        self._spacing, self._in_cell = spacing, in_cell
        has_hyphens = any(row.runs[-1].text.endswith(HYPHEN) for row in rows)
        text = "\n".join(row.text for row in rows) if has_hyphens else ""
        self._compounds = set(_COMPOUND.findall(text))

    def find_line_join(self, row: TextRow, next_row: TextRow) -> LineJoin:
        """How a line is joined with the next."""
        if row.runs[-1].text.endswith(HYPHEN):
            return _join_hyphenated(row.text, next_row.text, self._compounds)
        if self._is_wrapped(row, next_row) and self._spacing.continues_word(
            row.text, next_row.text, keeps_spaces=self._keeps_spaces, in_cell=self._in_cell
        ):
            return LineJoin(0, "")
        return _NEW_LINE

    def count_line_ends(self, rows: Sequence[TextRow]) -> None:
        """Count, for the document's spacing, full lines that end in Hangul without a space."""
        for row, next_row in pairwise(rows):
            if self._is_wrapped(row, next_row):
                self._spacing.add_line_end(row.text, next_row.text)

    def _is_wrapped(self, row: TextRow, next_row: TextRow) -> bool:
        """Whether a full line breaks between two syllables right above its next line."""
        end, start = row.runs[-1], next_row.runs[0]
        if end.space_after or not (_is_hangul(end.text[-1]) and _is_hangul(start.text[0])):
            return False
        if row.is_vertical or next_row.is_vertical or not _is_right_below(end, start):
            return False
        width, right = end.edges[-1] - end.edges[-2], end.edges[-1]
        if self._in_cell and not self._keeps_spaces:
            return right >= self._margins[-1] - width
        lines_at_margin = bisect(self._margins, right + width / 2) - bisect(
            self._margins, right - width / 2
        )
        is_full = (
            lines_at_margin >= _MIN_LINES_AT_MARGIN and right >= next_row.runs[-1].edges[-1] - width
        )
        is_flush = start.box.x0 <= row.box.x0 + width / 2 and start.box.x0 < right - width
        return row.length >= _MIN_WRAPPED_CHARACTERS and is_full and is_flush


def _join_hyphenated(line: str, next_line: str, compounds: set[str]) -> LineJoin:
    """Drop a hyphen that only breaks a word; keep one that belongs to its spelling."""
    before, after = _LAST_WORD.search(line), _FIRST_WORD.match(next_line)
    if before and after and after[0][0].islower() and f"{before[1]}-{after[0]}" not in compounds:
        return LineJoin(1, "")
    return LineJoin(1, "-" if next_line[:1].isalnum() else "-\n")


def _is_right_below(end: TextRun, start: TextRun) -> bool:
    """Whether a run of about the same height begins within one and a half lines below."""
    has_same_height = abs(start.height - end.height) < end.height * _MAX_HEIGHT_DIFFERENCE
    return has_same_height and end.box.y0 < start.box.y0 < end.box.y0 + 2.5 * end.height


def _is_hangul(character: str) -> bool:
    """Whether it is a Hangul syllable."""
    return "가" <= character <= "힣"


class TextWriter:
    """Growing text with the lines of its characters."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.length = 0
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """All that has been written."""
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
            next_rows = rows[index + 1 : index + 2]
            cut, joint = wrapping.find_line_join(row, *next_rows) if next_rows else (0, "")
            starts.append(self.length)
            self._write_row(row, cut)
            self.write(joint.replace("\n", line_end))
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


def _cut_run_end(run: TextRun, count: int) -> TextRun:
    """A run without its last `count` characters."""
    return run.cut(0, len(run.text) - count)

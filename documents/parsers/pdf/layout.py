"""The reading order of a page's lines, and columns whose lines alternate in the file.

PDFium returns text in the order of the file, which is the reading order in most files. If that
order jumps back, for example to a heading drawn last, blocks are sorted as in T. Breuel, "High
performance document layout analysis", 2003: above before below, left before right.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from statistics import median
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from documents.parsers.pdf.geometry import Rect, find_bounding_box
from documents.parsers.pdf.lines import TextRow
from documents.parsers.pdf.text_runs import TextRun

_MAX_BLOCKS = 200
"""Sorting takes cubic time in the number of blocks."""
_TOLERANCE = 0.003
"""Share of the page by which separate boxes may overlap."""
_STRIPES = 100
"""Vertical stripes of a page for each of which the lowest line so far is remembered."""
_MAX_INDENT = 3.0
"""Line heights by which the left edges of a block's lines may differ."""
_MAX_LEADING = 1.0
"""Line heights between two lines of a block, at most."""
_MAX_SIZE_FACTOR = 1.25
"""Factor by which the heights of a block's lines may differ."""
_MIN_COLUMN_WIDTH = 0.2
"""Share of the page's width from which a block may be a column of text."""
_MIN_COLUMN_LINES = 3


class PlacedItem(Protocol):
    """A line, or all of a table."""

    @property
    def box(self) -> Rect:
        """Its position."""
        ...

    @property
    def height(self) -> float:
        """Of a line, in fractions of the page."""
        ...


T = TypeVar("T", bound=PlacedItem)


class _Block(Generic[T]):
    """Lines directly below each other."""

    def __init__(self, first: T) -> None:
        self.lines = [first]
        self.box = first.box

    def add(self, line: T) -> None:
        self.lines.append(line)
        self.box = find_bounding_box((self.box, line.box))

    @property
    def is_column(self) -> bool:
        return (
            len(self.lines) >= _MIN_COLUMN_LINES and self.box.x1 - self.box.x0 >= _MIN_COLUMN_WIDTH
        )


def sort_reading_order(lines: Sequence[T], aspect: float) -> list[T]:
    """Lines in reading order: unchanged unless their order jumps back on the page."""
    if len(lines) < 2 or not _jumps_back(lines):
        return list(lines)
    blocks = _group_blocks(lines, aspect)
    if len(blocks) > _MAX_BLOCKS:
        return list(lines)
    return [line for block in _sort_blocks(blocks) for line in block.lines]


def _jumps_back(lines: Sequence[PlacedItem]) -> bool:
    """Whether a line follows one that is below it, or below and to the right of it."""
    lowest = [0.0] * _STRIPES
    last = Rect(0, 0, 0, 0)
    for line in lines:
        x0, y0, x1, _ = box = line.box
        if _is_above(box, last) and x0 < last.x1 - _TOLERANCE:
            return True
        start, end = (min(max(int(x * _STRIPES), 0), _STRIPES - 1) for x in (x0, x1))
        if _is_above(box, Rect(0, max(lowest[start : end + 1]), 0, 0)):
            return True
        for stripe in range(start + 1, end):
            lowest[stripe] = max(lowest[stripe], y0)
        last = box
    return False


def _group_blocks(lines: Sequence[T], aspect: float) -> list[_Block[T]]:
    """Group lines that follow each other downwards with the same size and left edge."""
    blocks: list[_Block[T]] = []
    for line in lines:
        if blocks and _continues_block(blocks[-1], line, aspect):
            blocks[-1].add(line)
        else:
            blocks.append(_Block(line))
    return blocks


def _continues_block(block: _Block[Any], line: PlacedItem, aspect: float) -> bool:
    """Whether a line is right below the last one of a block."""
    last = block.lines[-1]
    smaller, larger = sorted((last.height, line.height))
    gap = line.box.y0 - last.box.y1
    is_aligned = abs(line.box.x0 - block.box.x0) < _MAX_INDENT * larger * aspect
    return bool(
        -smaller / 2 < gap < _MAX_LEADING * larger
        and larger <= smaller * _MAX_SIZE_FACTOR
        and is_aligned
    )


def _sort_blocks(blocks: list[_Block[T]]) -> list[_Block[T]]:
    """Blocks in reading order; where it is undefined, they keep their order."""
    columns = _Columns(blocks)
    predecessor_ids = {
        id(block): {id(other) for other in blocks if _is_before(other, block, columns)}
        for block in blocks
    }
    waiting, waiting_ids, result = list(blocks), set(predecessor_ids), []
    while waiting:
        ready = (block for block in waiting if predecessor_ids[id(block)].isdisjoint(waiting_ids))
        # Overlapping boxes may each have to precede the other: take the highest.
        chosen = next(ready, None) or min(waiting, key=lambda block: block.box.y0)
        waiting.remove(chosen)
        waiting_ids.remove(id(chosen))
        result.append(chosen)
    return result


class _Columns:
    """The columns of a page that stand side by side, if any."""

    def __init__(self, blocks: Sequence[_Block[Any]]) -> None:
        column_boxes = [block.box for block in blocks if block.is_column]
        self._pairs = [
            (one, other)
            for one in column_boxes
            for other in column_boxes
            if one.x1 < other.x0 + _TOLERANCE and _overlaps_in_y(one, other)
        ]
        self._boxes = [block.box for block in blocks] if self._pairs else []

    def are_in_separate_columns(self, one: Rect, other: Rect) -> bool:
        """Whether two boxes are in columns side by side, without a box across both in between."""
        left, right = (one, other) if one.x0 < other.x0 else (other, one)
        if not any(
            _overlaps_in_x(left, first)
            and _overlaps_in_x(right, second)
            and not _overlaps_in_x(left, second)
            and not _overlaps_in_x(right, first)
            for first, second in self._pairs
        ):
            return False
        upper, lower = sorted((left.y0 + left.y1, right.y0 + right.y1))
        return not any(
            upper < box.y0 + box.y1 < lower
            and _overlaps_in_x(box, left)
            and _overlaps_in_x(box, right)
            for box in self._boxes
        )


def _is_before(one: _Block[Any], other: _Block[Any], columns: _Columns) -> bool:
    """Whether one block must be read before the other."""
    if one is other:
        return False
    box, other_box = one.box, other.box
    if _overlaps_in_x(box, other_box):
        return _is_above(box, other_box)
    if _overlaps_in_y(box, other_box) or columns.are_in_separate_columns(box, other_box):
        return box.x0 < other_box.x0
    return _is_above(box, other_box)


def _overlaps_in_x(one: Rect, other: Rect) -> bool:
    """Whether a vertical line can cross both."""
    return one.x0 + _TOLERANCE < other.x1 and other.x0 + _TOLERANCE < one.x1


def _overlaps_in_y(one: Rect, other: Rect) -> bool:
    """Whether a horizontal line can cross both."""
    return one.y0 + _TOLERANCE < other.y1 and other.y0 + _TOLERANCE < one.y1


def _is_above(one: Rect, other: Rect) -> bool:
    """Whether a box ends where the other begins, or higher."""
    return one.y1 <= other.y0 + _TOLERANCE


_MIN_GAPS = 5
"""Lines that must have a gap at the same position for it to be a gutter."""
_MIN_MEDIAN_LINE_CHARACTERS = 15
"""Median characters of a column's lines, at least; lines of a table are shorter."""
_MIN_MEDIAN_LINE_WIDTH = 0.2
"""Median width of a column's lines, at least, as a share of the page's."""


class _Gap(NamedTuple):
    """White space between two runs of a line."""

    start: float
    end: float


def separate_columns(rows: Sequence[TextRow]) -> list[TextRow]:
    """Put rows that span two columns into reading order: the left column, then the right.

    Rows that do not form columns keep their order.
    """
    gutter = _find_gutter(rows)
    if gutter is None:
        return list(rows)
    result: list[TextRow] = []
    left: list[TextRow] = []
    right: list[TextRow] = []
    for row in rows:
        parts = _split_row(row, gutter)
        if parts is None or not (left or right or all(parts)):
            result += [*separate_columns(left), *separate_columns(right), row]
            left, right = [], []
            continue
        for column, part in zip((left, right), parts, strict=True):
            column.extend([_make_partial_row(row, part)] if part else [])
    return [*result, *separate_columns(left), *separate_columns(right)]


def _find_gutter(rows: Sequence[TextRow]) -> float | None:
    """The x of the gutter between two columns: where the gaps of many lines coincide, or None."""
    gaps = [
        gap for row in rows if len(row.runs) > 1 and not row.is_vertical for gap in _find_gaps(row)
    ]
    if len(gaps) < _MIN_GAPS:
        return None
    gutter = _find_common_x(gaps)
    halves = [parts for row in rows if (parts := _split_row(row, gutter)) and all(parts)]
    if len(halves) < _MIN_GAPS:
        return None
    for column in zip(*halves, strict=True):
        if (
            median(sum(len(run.text) for run in part) for part in column)
            < _MIN_MEDIAN_LINE_CHARACTERS
        ):
            return None
        if median(part[-1].box.x1 - part[0].box.x0 for part in column) < _MIN_MEDIAN_LINE_WIDTH:
            return None
    return gutter


def _find_common_x(gaps: Sequence[_Gap]) -> float:
    """The centre of the interval that most gaps share."""
    ends = sorted([(gap.start, 1) for gap in gaps] + [(gap.end, -1) for gap in gaps])
    counts = accumulate(step for _, step in ends)
    intervals = zip(counts, pairwise([x for x, _ in ends]), strict=False)
    _, (start, end) = max(intervals, key=itemgetter(0))
    return (start + end) / 2


def _find_gaps(row: TextRow) -> list[_Gap]:
    """The gaps between runs of a row, from left to right."""
    return [
        _Gap(one.box.x1, other.box.x0)
        for one, other in pairwise(row.runs)
        if one.box.x1 < other.box.x0
    ]


def _split_row(row: TextRow, gutter: float) -> tuple[list[TextRun], list[TextRun]] | None:
    """The runs on both sides of a gutter; None if one crosses it."""
    if row.is_vertical or any(run.box.x0 < gutter < run.box.x1 for run in row.runs):
        return None
    return (
        [run for run in row.runs if run.box.x1 <= gutter],
        [run for run in row.runs if run.box.x1 > gutter],
    )


def _make_partial_row(row: TextRow, runs: list[TextRun]) -> TextRow:
    """A row of its own with some of a row's runs."""
    return TextRow(
        runs,
        find_bounding_box(run.box for run in runs),
        max(run.height for run in runs),
        row.aspect,
    )

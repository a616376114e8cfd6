"""The reading order of a page's lines, and columns whose lines alternate in the file.

PDFium returns the order of the file, which is the reading order in most files. If it jumps back, as
to a heading drawn last, blocks are sorted as in T. Breuel, "High performance document layout
analysis", 2003: above before below, left before right.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from statistics import median
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from documents.parsers.pdf.geometry import Rect, find_bounding_box
from documents.parsers.pdf.lines import TextRow
from documents.parsers.pdf.text_runs import TextRun

_MOST_BLOCKS = 200
"""Sorting takes cubic time in the number of blocks."""
_TOUCH = 0.003
"""Share of the page by which separate boxes may overlap."""
_STRIPES = 100
"""Vertical stripes of a page for each of which the lowest line so far is remembered."""
_INDENT = 3.0
"""Line heights by which the left edges of a block's lines may differ."""
_LEADING = 1.0
"""Line heights between two lines of a block, at most."""
_SIZE = 1.25
"""Factor by which the heights of a block's lines may differ."""
_COLUMN = 0.2
"""Share of the page's width from which a block may be a column of text."""
_COLUMN_LINES = 3


class Placed(Protocol):
    """A line, or all of a table."""

    @property
    def box(self) -> Rect:
        """Its position."""
        ...

    @property
    def height(self) -> float:
        """Of a line, in fractions of the page."""
        ...


T = TypeVar("T", bound=Placed)


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
        return len(self.lines) >= _COLUMN_LINES and self.box.x1 - self.box.x0 >= _COLUMN


def sort_reading_order(lines: Sequence[T], em: float) -> list[T]:
    """Lines in reading order: unchanged unless their order jumps back on the page."""
    if len(lines) < 2 or not _jumps_back(lines):
        return list(lines)
    blocks = _group_blocks(lines, em)
    if len(blocks) > _MOST_BLOCKS:
        return list(lines)
    return [line for block in _sort_blocks(blocks) for line in block.lines]


def _jumps_back(lines: Sequence[Placed]) -> bool:
    """Whether a line follows one that is below it, or below and to the right of it."""
    lowest = [0.0] * _STRIPES
    last = Rect(0, 0, 0, 0)
    for line in lines:
        x0, y0, x1, _ = box = line.box
        if _is_above(box, last) and x0 < last.x1 - _TOUCH:
            return True
        start, end = (min(max(int(x * _STRIPES), 0), _STRIPES - 1) for x in (x0, x1))
        if _is_above(box, Rect(0, max(lowest[start : end + 1]), 0, 0)):
            return True
        for stripe in range(start + 1, end):
            lowest[stripe] = max(lowest[stripe], y0)
        last = box
    return False


def _group_blocks(lines: Sequence[T], em: float) -> list[_Block[T]]:
    """Group lines that follow each other downwards with the same size and left edge."""
    found: list[_Block[T]] = []
    for line in lines:
        if found and _continues_block(found[-1], line, em):
            found[-1].add(line)
        else:
            found.append(_Block(line))
    return found


def _continues_block(block: _Block[Any], line: Placed, em: float) -> bool:
    """Whether a line is right below the last one of a block."""
    last = block.lines[-1]
    low, high = sorted((last.height, line.height))
    gap = line.box.y0 - last.box.y1
    aligned = abs(line.box.x0 - block.box.x0) < _INDENT * high * em
    return bool(-low / 2 < gap < _LEADING * high and high <= low * _SIZE and aligned)


def _sort_blocks(blocks: list[_Block[T]]) -> list[_Block[T]]:
    """Blocks in reading order; where it is undefined, they keep their order."""
    columns = _Columns(blocks)
    before = {
        id(block): {id(other) for other in blocks if _is_before(other, block, columns)}
        for block in blocks
    }
    waiting, left, result = list(blocks), set(before), []
    while waiting:
        free = (block for block in waiting if before[id(block)].isdisjoint(left))
        # Overlapping boxes may each have to precede the other: take the highest.
        chosen = next(free, None) or min(waiting, key=lambda block: block.box.y0)
        waiting.remove(chosen)
        left.remove(id(chosen))
        result.append(chosen)
    return result


class _Columns:
    """The columns of a page, if it has any side by side."""

    def __init__(self, blocks: Sequence[_Block[Any]]) -> None:
        wide = [block.box for block in blocks if block.is_column]
        self._pairs = [
            (one, other)
            for one in wide
            for other in wide
            if one.x1 < other.x0 + _TOUCH and _share_y(one, other)
        ]
        self._boxes = [block.box for block in blocks] if self._pairs else []

    def separate(self, one: Rect, other: Rect) -> bool:
        """Whether two boxes are in columns side by side, without a box across both in between."""
        left, right = (one, other) if one.x0 < other.x0 else (other, one)
        if not any(
            _share_x(left, first)
            and _share_x(right, second)
            and not _share_x(left, second)
            and not _share_x(right, first)
            for first, second in self._pairs
        ):
            return False
        upper, lower = sorted((left.y0 + left.y1, right.y0 + right.y1))
        return not any(
            upper < box.y0 + box.y1 < lower and _share_x(box, left) and _share_x(box, right)
            for box in self._boxes
        )


def _is_before(one: _Block[Any], other: _Block[Any], columns: _Columns) -> bool:
    """Whether one block must be read before the other."""
    if one is other:
        return False
    here, there = one.box, other.box
    if _share_x(here, there):
        return _is_above(here, there)
    if _share_y(here, there) or columns.separate(here, there):
        return here.x0 < there.x0
    return _is_above(here, there)


def _share_x(one: Rect, other: Rect) -> bool:
    """Whether a vertical line can cross both."""
    return one.x0 + _TOUCH < other.x1 and other.x0 + _TOUCH < one.x1


def _share_y(one: Rect, other: Rect) -> bool:
    """Whether a horizontal line can cross both."""
    return one.y0 + _TOUCH < other.y1 and other.y0 + _TOUCH < one.y1


def _is_above(one: Rect, other: Rect) -> bool:
    """Whether a box ends where the other begins, or higher."""
    return one.y1 <= other.y0 + _TOUCH


_FEWEST_GAPS = 5
"""Lines that must have a gap at the same position for it to be a gutter."""
_SHORTEST_COLUMN_LINE = 15
"""Median characters of a column's lines, at least; lines of a table are shorter."""
_NARROWEST_COLUMN = 0.2
"""Median width of a column's lines, at least, as a share of the page's."""


class _Gap(NamedTuple):
    """White space between two runs of a line."""

    start: float
    end: float


def unweave_columns(rows: Sequence[TextRow]) -> list[TextRow]:
    """Rows of two columns, one column after the other; other rows keep their order."""
    gutter = _find_gutter(rows)
    if gutter is None:
        return list(rows)
    found: list[TextRow] = []
    left: list[TextRow] = []
    right: list[TextRow] = []
    for row in rows:
        parts = _split_at(row, gutter)
        if parts is None or not (left or right or all(parts)):
            found += [*unweave_columns(left), *unweave_columns(right), row]
            left, right = [], []
            continue
        for column, part in zip((left, right), parts, strict=True):
            column.extend([_to_row(row, part)] if part else [])
    return [*found, *unweave_columns(left), *unweave_columns(right)]


def _find_gutter(rows: Sequence[TextRow]) -> float | None:
    """The x of a gutter, where the gaps of many lines coincide; None without one."""
    gaps = [gap for row in rows if len(row.runs) > 1 and not row.down for gap in _find_gaps(row)]
    if len(gaps) < _FEWEST_GAPS:
        return None
    gutter = _find_alignment(gaps)
    halves = [parts for row in rows if (parts := _split_at(row, gutter)) and all(parts)]
    if len(halves) < _FEWEST_GAPS:
        return None
    for side in zip(*halves, strict=True):
        if median(sum(len(run.text) for run in part) for part in side) < _SHORTEST_COLUMN_LINE:
            return None
        if median(part[-1].box.x1 - part[0].box.x0 for part in side) < _NARROWEST_COLUMN:
            return None
    return gutter


def _find_alignment(gaps: Sequence[_Gap]) -> float:
    """The centre of the interval that most gaps share."""
    ends = sorted([(gap.start, 1) for gap in gaps] + [(gap.end, -1) for gap in gaps])
    counts = accumulate(step for _, step in ends)
    places = zip(counts, pairwise([x for x, _ in ends]), strict=False)
    _, (start, end) = max(places, key=itemgetter(0))
    return (start + end) / 2


def _find_gaps(row: TextRow) -> list[_Gap]:
    """The gaps between runs of a row, from left to right."""
    return [
        _Gap(one.box.x1, other.box.x0)
        for one, other in pairwise(row.runs)
        if one.box.x1 < other.box.x0
    ]


def _split_at(row: TextRow, gutter: float) -> tuple[list[TextRun], list[TextRun]] | None:
    """The runs on both sides of a gutter; None if one crosses it."""
    if row.down or any(run.box.x0 < gutter < run.box.x1 for run in row.runs):
        return None
    return (
        [run for run in row.runs if run.box.x1 <= gutter],
        [run for run in row.runs if run.box.x1 > gutter],
    )


def _to_row(row: TextRow, runs: list[TextRun]) -> TextRow:
    """Some runs of a row as a row of their own."""
    return TextRow(
        runs, find_bounding_box(run.box for run in runs), max(run.height for run in runs), row.em
    )

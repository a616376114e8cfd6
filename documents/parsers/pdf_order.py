"""The order in which the lines of a page are read.

PDFium gives the order of the file, which most programs write as one reads. Where it jumps back, as
to a heading that was drawn last, blocks are sorted after T. Breuel, "High performance document
layout analysis", 2003: what is above before what is below, what is left before what is right.
"""

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from documents.parsers.pdf_geometry import Rect, around

_MOST_BLOCKS = 200
"""Sorting takes time with the cube of the blocks."""
_TOUCH = 0.003
"""Share of the page by which boxes may overlap and still lie apart."""
_STRIPES = 100
"""Upright stripes of a page in which the lowest line so far is known."""
_INDENT = 3.0
"""Line heights by which the lines of a block may begin apart."""
_LEADING = 1.0
"""Most line heights between two lines of a block."""
_SIZE = 1.25
"""Most that the heights of lines of a block may differ by, as a factor."""
_COLUMN = 0.2
"""Share of the page's width from which a block may be a column of text."""
_COLUMN_LINES = 3


class Placed(Protocol):
    """A line, or all of a table."""

    @property
    def box(self) -> Rect:
        """Where it stands."""
        ...

    @property
    def height(self) -> float:
        """Of a line, in fractions of the page."""
        ...


T = TypeVar("T", bound=Placed)


class _Block(Generic[T]):
    """Lines one below the other."""

    def __init__(self, first: T) -> None:
        self.lines = [first]
        self.box = first.box

    def add(self, line: T) -> None:
        self.lines.append(line)
        self.box = around((self.box, line.box))

    @property
    def is_column(self) -> bool:
        return len(self.lines) >= _COLUMN_LINES and self.box.x1 - self.box.x0 >= _COLUMN


def ordered(lines: Sequence[T], em: float) -> list[T]:
    """Lines in the order in which they are read; as they come, unless that jumps back."""
    if not _jumps_back(lines):
        return list(lines)
    blocks = _blocks(lines, em)
    if len(blocks) > _MOST_BLOCKS:
        return list(lines)
    return [line for block in _sorted(blocks) for line in block.lines]


def _jumps_back(lines: Sequence[Placed]) -> bool:
    """Whether a line comes after one that stands below it, or at the right of it and below."""
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


def _blocks(lines: Sequence[T], em: float) -> list[_Block[T]]:
    """Lines that follow each other downwards, of one size and with one left edge."""
    found: list[_Block[T]] = []
    for line in lines:
        if found and _goes_on(found[-1], line, em):
            found[-1].add(line)
        else:
            found.append(_Block(line))
    return found


def _goes_on(block: _Block[Any], line: Placed, em: float) -> bool:
    """Whether a line stands right below the last one of a block."""
    last = block.lines[-1]
    low, high = sorted((last.height, line.height))
    gap = line.box.y0 - last.box.y1
    aligned = abs(line.box.x0 - block.box.x0) < _INDENT * high * em
    return bool(-low / 2 < gap < _LEADING * high and high <= low * _SIZE and aligned)


def _sorted(blocks: list[_Block[T]]) -> list[_Block[T]]:
    """Blocks in their order; those that have none among each other stay as they come."""
    waiting = list(range(len(blocks)))
    after: dict[int, set[int]] = {
        index: {
            other
            for other in waiting
            if other != index and _is_before(blocks[other], blocks[index], blocks)
        }
        for index in waiting
    }
    result = []
    while waiting:
        free = (index for index in waiting if after[index].isdisjoint(waiting))
        # Boxes that overlap can want to be before each other: the highest one goes first.
        chosen = next(free, None)
        if chosen is None:
            chosen = min(waiting, key=lambda index: blocks[index].box.y0)
        waiting.remove(chosen)
        result.append(blocks[chosen])
    return result


def _is_before(one: _Block[Any], other: _Block[Any], blocks: Sequence[_Block[Any]]) -> bool:
    """Whether one block must be read before the other."""
    if _share_x(one.box, other.box):
        return _is_above(one.box, other.box)
    if _share_y(one.box, other.box) or _in_columns(one, other, blocks):
        return one.box.x0 < other.box.x0
    return _is_above(one.box, other.box)


def _in_columns(one: _Block[Any], other: _Block[Any], blocks: Sequence[_Block[Any]]) -> bool:
    """Whether two blocks belong to columns side by side, with nothing across between them."""
    heights = sorted((one.box.y0 + one.box.y1, other.box.y0 + other.box.y1))
    ours, theirs = [], []
    for third in blocks:
        with_one, with_other = _share_x(third.box, one.box), _share_x(third.box, other.box)
        if with_one and with_other:
            if heights[0] < third.box.y0 + third.box.y1 < heights[1]:
                return False
        elif third.is_column and with_one:
            ours.append(third)
        elif third.is_column and with_other:
            theirs.append(third)
    return any(_share_y(left.box, right.box) for left in ours for right in theirs)


def _share_x(one: Rect, other: Rect) -> bool:
    """Whether a line upwards can cross both."""
    return min(one.x1, other.x1) - max(one.x0, other.x0) > _TOUCH


def _share_y(one: Rect, other: Rect) -> bool:
    """Whether a line across the page can cross both."""
    return min(one.y1, other.y1) - max(one.y0, other.y0) > _TOUCH


def _is_above(one: Rect, other: Rect) -> bool:
    """Whether a box ends where the other begins, or higher."""
    return one.y1 <= other.y0 + _TOUCH

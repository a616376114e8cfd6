"""Cells between crossing lines and their tables: as pdfplumber finds them, far faster.

pdfplumber looks for the neighbours of a crossing among all others, and builds the sets of their
lines at each comparison; here both are known before.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from documents.parsers.pdf.joints import TOLERANCE, Segment
from documents.parsers.pdf.rules import TooManyRules

_MOST = 2_500
"""Finding cells may take time with the square of the crossings: for as many at most a second."""

Point = tuple[float, float]
"""x and distance from the top."""
Corners = tuple[float, float, float, float]
"""Left, top, right and bottom."""


class Crossings:
    """Where flat and upright lines cross or touch, and which lines do so there.

    They come as `joints.joined` gives them: each line once, by place. Raises TooManyRules.
    """

    def __init__(self, flat: Sequence[Segment], upright: Sequence[Segment]) -> None:
        self._flat: dict[Point, set[int]] = defaultdict(set)
        self._upright: dict[Point, set[int]] = defaultdict(set)
        places = [line.place for line in flat]
        for number, (x, top, bottom) in enumerate(upright):
            first = bisect_left(places, top - TOLERANCE)
            last = bisect_right(places, bottom + TOLERANCE)
            for other in range(first, last):
                y, left, right = flat[other]
                if left - TOLERANCE <= x <= right + TOLERANCE:
                    point = x, y
                    self._flat[point].add(other)
                    self._upright[point].add(number)
            if len(self._flat) > _MOST:
                raise TooManyRules
        self._columns: dict[float, list[float]] = defaultdict(list)
        self._rows: dict[float, list[float]] = defaultdict(list)
        for x, y in sorted(self._flat):
            self._columns[x].append(y)
            self._rows[y].append(x)

    def cells(self) -> list[Corners]:
        """For each crossing the smallest cell whose left top it is, if any, by left, then by top.

        A cell has crossings as its corners, and one line along each of its sides.
        """
        return [cell for point in sorted(self._flat) if (cell := self._cell(*point))]

    def _cell(self, x: float, y: float) -> Corners | None:
        """The smallest cell at the right of and below a crossing."""
        rights = self._rights(x, y)
        for bottom in self._bottoms(x, y) if rights else ():
            here = self._flat[x, bottom]
            for right in rights:
                lines = self._flat.get((right, bottom))
                if lines is None or lines.isdisjoint(here):
                    continue
                if not self._upright[right, bottom].isdisjoint(self._upright[right, y]):
                    return x, y, right, bottom
        return None

    def _bottoms(self, x: float, y: float) -> Iterator[float]:
        """Where upright lines through a crossing cross others below it."""
        column, lines = self._columns[x], self._upright[x, y]
        for bottom in column[bisect_right(column, y) :]:
            if not lines.isdisjoint(self._upright[x, bottom]):
                yield bottom

    def _rights(self, x: float, y: float) -> list[float]:
        """Where flat lines through a crossing cross others at the right of it."""
        row, lines = self._rows[y], self._flat[x, y]
        behind = row[bisect_right(row, x) :]
        return [right for right in behind if not lines.isdisjoint(self._flat[right, y])]


def tables_of(cells: Sequence[Corners]) -> list[list[Corners]]:
    """Cells that hang together by their corners, two at least; the topmost and leftmost first."""
    at: dict[Point, list[Corners]] = defaultdict(list)
    for cell in cells:
        for corner in _corners(cell):
            at[corner].append(cell)
    found, left = [], dict.fromkeys(cells)
    while left:
        table = [left.popitem()[0]]
        for cell in table:  # which grows meanwhile
            for corner in _corners(cell):
                for other in at.pop(corner, ()):
                    if other in left:
                        del left[other]
                        table.append(other)
        found.append(table)
    found.sort(key=lambda table: min((top, x0) for x0, top, _, _ in table))
    return [table for table in found if len(table) > 1]


def _corners(cell: Corners) -> tuple[Point, ...]:
    x0, top, x1, bottom = cell
    return (x0, top), (x0, bottom), (x1, top), (x1, bottom)

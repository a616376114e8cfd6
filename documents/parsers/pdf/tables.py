"""Ruled tables of a PDF page, from the lines that it draws: joined by pdfplumber, crossed here.

They are the tables that pdfplumber finds, whose own pages read every character once more.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from documents.parsers.base import Context
from documents.parsers.pdf.crossings import Corners, Crossings, tables_of
from documents.parsers.pdf.geometry import PageFrame, Rect
from documents.parsers.pdf.joints import TOLERANCE, Segment, joined, open_sides
from documents.parsers.pdf.rules import Rule, TooManyRules, rules

SECONDS = 30.0
"""Most that looking for tables may take of a document's time."""
_SHORTEST = 1.0
_LOWEST, _NARROWEST = 5.0, 8.0
"""No text fits into cells lower or narrower than this, in points."""
_BOXED = 0.6
"""Share of a grid from which cells as wide as all of it make it a box around a text."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a grid; a merged one spans several rows or columns. Counted from 0."""

    rect: Rect
    row: int
    column: int
    row_span: int
    column_span: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A ruled table: at least two rows and two columns, cells by row, then by column.

    Where its lines leave a hole, there is no cell.
    """

    rect: Rect
    rows: int
    columns: int
    cells: tuple[Cell, ...]


class Tables:
    """Finds the tables of one document, within a budget of seconds.

    A page with too many lines, and all pages after the budget, have none, with a warning.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seconds = SECONDS

    def grids(self, page: Any, frame: PageFrame) -> list[Grid]:
        """Tables of an open page, from the top; they do not overlap."""
        if self._seconds <= 0:
            self._context.warn("tables_skipped")
            return []
        started = time.monotonic()
        try:
            return _grids(rules(page), frame)
        except TooManyRules:
            self._context.warn("tables_skipped")
            return []
        finally:
            self._seconds -= time.monotonic() - started


def _grids(lines: list[Rule], frame: PageFrame) -> list[Grid]:
    """Tables that these lines draw; raises TooManyRules."""
    width, height = frame.shown_width, frame.shown_height
    flat, upright = _segments(lines, frame, width, height)
    if len(flat) < 2 or not upright:
        return []
    found = [_grid(cells, width, height) for cells in _tables(flat, upright)]
    return _apart(grid for grid in found if _is_table(grid, width, height))


def _segments(
    lines: Iterable[Rule], frame: PageFrame, width: float, height: float
) -> tuple[list[Segment], list[Segment]]:
    """Flat and upright lines, in points from the top left of the page as shown."""
    flat, upright = [], []
    for line in lines:
        x0, top, x1, bottom = frame.shown(*line)
        left, right, top, bottom = x0 * width, x1 * width, top * height, bottom * height
        if right - left > bottom - top:
            flat.append(Segment(top, left, right))
        else:
            upright.append(Segment(left, top, bottom))
    return flat, upright


def _tables(flat: list[Segment], upright: list[Segment]) -> list[list[Corners]]:
    """Cells by table; raises TooManyRules."""
    flat, upright = joined(_long(flat, _SHORTEST)), joined(_long(upright, _SHORTEST))
    if sides := open_sides(flat, upright):
        upright = joined(upright + sides)
    return tables_of(Crossings(_long(flat, TOLERANCE), _long(upright, TOLERANCE)).cells())


def _long(lines: Iterable[Segment], least: float) -> list[Segment]:
    """Those not shorter than this, in points."""
    return [line for line in lines if line.end - line.start >= least]


def _grid(cells: list[Corners], width: float, height: float) -> Grid:
    """Cells counted into rows and columns, in fractions of the page."""
    columns = {
        x: index for index, x in enumerate(sorted({c[0] for c in cells} | {c[2] for c in cells}))
    }
    rows = {
        y: index for index, y in enumerate(sorted({c[1] for c in cells} | {c[3] for c in cells}))
    }
    found = [
        Cell(
            Rect(x0 / width, y0 / height, x1 / width, y1 / height),
            rows[y0], columns[x0], rows[y1] - rows[y0], columns[x1] - columns[x0],
        )
        for x0, y0, x1, y1 in cells
    ]  # fmt: skip
    found.sort(key=lambda cell: (cell.row, cell.column))
    whole = Rect(min(columns) / width, min(rows) / height, max(columns) / width, max(rows) / height)
    return Grid(whole, len(rows) - 1, len(columns) - 1, tuple(found))


def _is_table(grid: Grid, width: float, height: float) -> bool:
    """Whether it has rows and columns, cells that text fits into, and no box for its body."""
    if grid.rows < 2 or grid.columns < 2:
        return False
    fitting = sum(
        (cell.rect.y1 - cell.rect.y0) * height > _LOWEST
        and (cell.rect.x1 - cell.rect.x0) * width > _NARROWEST
        for cell in grid.cells
    )
    boxes = sum(_area(cell.rect) for cell in grid.cells if cell.column_span == grid.columns)
    return fitting * 2 > len(grid.cells) and boxes < _BOXED * _area(grid.rect)


def _area(rect: Rect) -> float:
    return (rect.x1 - rect.x0) * (rect.y1 - rect.y0)


def _apart(grids: Iterable[Grid]) -> list[Grid]:
    """Of tables that overlap, the one with most cells: a frame around tables is none itself."""
    kept: list[Grid] = []
    for grid in sorted(grids, key=lambda grid: -len(grid.cells)):
        if not any(_overlap(grid.rect, other.rect) for other in kept):
            kept.append(grid)
    return sorted(kept, key=lambda grid: (grid.rect.y0, grid.rect.x0))


def _overlap(one: Rect, other: Rect) -> bool:
    return one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1

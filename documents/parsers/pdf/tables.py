"""Ruled tables of a PDF page: lines from PDFium, joined and crossed by pdfplumber.

pdfplumber's own pages read every character once more, which is twenty times slower.
"""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

from documents.parsers.base import Context
from documents.parsers.pdf.crossings import Corners, cells_between, tables_of
from documents.parsers.pdf.geometry import PageFrame, Rect
from documents.parsers.pdf.rules import Rule, TooManyRules, rules

SECONDS = 30.0
"""Most that looking for tables may take of a document's time."""
_TOLERANCE = 3.0
"""Lines nearer than this, in points, are one line; pdfplumber's own default."""
_SHORTEST = 1.0
_LOWEST, _NARROWEST = 5.0, 8.0
"""No text fits into cells lower or narrower than this, in points."""
_BOXED = 0.6
"""Share of a grid from which cells as wide as all of it make it a box around a text."""
_MOST_CROSSINGS = 2_500
"""Finding cells may take time with the square of the crossings: for 2,500 at most a second."""

Edge = dict[str, Any]
"""A line as pdfplumber knows it, in points from the top left of the page as shown."""


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
    """Tables that these lines draw."""
    width, height = frame.width, frame.height
    if frame.turns % 2:
        width, height = height, width
    edges = [_edge(line, frame, width, height) for line in lines]
    across = sum(edge["orientation"] == "h" for edge in edges)
    if across < 2 or across == len(edges):
        return []
    found = [_grid(cells, width, height) for cells in _tables(edges)]
    return _apart(grid for grid in found if _is_table(grid, width, height))


def _edge(line: Rule, frame: PageFrame, width: float, height: float) -> Edge:
    """A line of page space as pdfplumber wants it."""
    place = frame.shown(line.left, line.bottom, line.right, line.top)
    return _line(place.x0 * width, place.y0 * height, place.x1 * width, place.y1 * height)


def _line(x0: float, top: float, x1: float, bottom: float) -> Edge:
    """A line between two points of the page as shown."""
    flat = x1 - x0 > bottom - top
    return {
        "x0": x0, "x1": x1, "top": top, "bottom": bottom, "width": x1 - x0, "height": bottom - top,
        "orientation": "h" if flat else "v", "object_type": "line",
    }  # fmt: skip


def _tables(edges: list[Edge]) -> list[list[Corners]]:
    """Cells by table, by pdfplumber's way; raises TooManyRules."""
    from pdfplumber import table
    from pdfplumber.utils.geometry import filter_edges

    whole = _merged(filter_edges(edges, min_length=_SHORTEST))
    if sides := _open_sides(whole):
        whole = _merged(whole + sides)
    whole = filter_edges(whole, min_length=_TOLERANCE)
    crossings = table.edges_to_intersections(whole, _TOLERANCE, _TOLERANCE)
    if len(crossings) > _MOST_CROSSINGS:
        raise TooManyRules
    return tables_of(cells_between(crossings))


def _merged(edges: list[Edge]) -> list[Edge]:
    """Pieces of the same line joined."""
    from pdfplumber.table import merge_edges

    return merge_edges(edges, *(_TOLERANCE,) * 4)


def _open_sides(edges: list[Edge]) -> list[Edge]:
    """The sides of tables that are drawn without: rows of equal ends with a line between them."""
    upright = [edge for edge in edges if edge["orientation"] == "v"]
    rows: dict[tuple[int, int], list[Edge]] = defaultdict(list)
    for edge in sorted(edges, key=itemgetter("top")):
        if edge["orientation"] == "h":
            rows[round(edge["x0"] / _TOLERANCE), round(edge["x1"] / _TOLERANCE)].append(edge)
    return [
        _line(x, row["top"], x, below["top"])
        for row, below in chain.from_iterable(map(pairwise, rows.values()))
        for joining in [[edge["x0"] for edge in upright if _joins(edge, row, below)]]
        if any(row["x0"] + _TOLERANCE < x < row["x1"] - _TOLERANCE for x in joining)
        for x in (row["x0"], row["x1"])
        if not any(abs(x - other) <= _TOLERANCE for other in joining)
    ]


def _joins(edge: Edge, row: Edge, below: Edge) -> bool:
    """Whether an upright line reaches from one row to the other."""
    top, bottom = row["top"] + _TOLERANCE, below["top"] - _TOLERANCE
    return bool(edge["top"] <= top and edge["bottom"] >= bottom)


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

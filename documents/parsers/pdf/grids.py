"""The grids of ruled tables on a PDF page, from the lines that it draws.

Strokes, thin bars and sides of boxes are joined to lines, lines are crossed, and cells are what
lies between four crossings. These are the rules of pdfplumber's table finder, whose lines and
cells the tests hold ours to; it takes far longer, as its pages read every character once more
and it compares every crossing with every other.
"""

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, islice, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from documents.parsers.base import ReadingContext
from documents.parsers.pdf import pdfium
from documents.parsers.pdf.geometry import Matrix, PageFrame, Rect

_THIN = 3.0
"""A drawn thing thinner than this, in points, is one line along its middle."""
_FLAT = 0.5
"""Ends of a line may differ by this much, in points, across its direction."""
_WHITE = 250
MOST_OBJECTS = 20_000
MOST_RULES = 4_000
_DEEPEST = 4
"""Forms within forms; deeper ones are not looked into."""
_LINE_TO = 0
"""FPDF_SEGMENT_LINETO."""


class TooManyRules(Exception):
    """A drawing, not a page with tables."""


class Rule(NamedTuple):
    """A line along an axis of page space, in points; its ends in rising order."""

    left: float
    bottom: float
    right: float
    top: float


Sides = tuple[float, float, float, float]
"""Left, bottom, right and top in page space."""

_SAME = Matrix()


def read_rules(page: Any) -> list[Rule]:
    """All ruling lines of an open page; raises TooManyRules."""
    lines = (rule for path, matrix in _iterate_paths(page) for rule in _read_path(path, matrix))
    found = list(islice(lines, MOST_RULES + 1))
    if len(found) > MOST_RULES:
        raise TooManyRules
    return found


def _iterate_paths(page: Any) -> Iterator[tuple[Any, Matrix]]:
    """Paths of the page and of each of its forms, with what takes them to page space."""
    seen, waiting = 0, [(page.raw, False, _SAME, 0)]
    while waiting:
        holder, is_form, matrix, depth = waiting.pop()
        seen += pdfium.count_objects(holder, is_form=is_form)
        if seen > MOST_OBJECTS:
            raise TooManyRules
        for item, kind in pdfium.list_objects(holder, is_form=is_form):
            if kind == pdfium.PATH:
                yield item, matrix
            elif kind == pdfium.FORM and depth < _DEEPEST:
                waiting.append((item, True, pdfium.read_matrix(item).compose(matrix), depth + 1))


def _read_path(path: Any, matrix: Matrix) -> Iterator[Rule]:
    """Lines of a path: a thin one itself, of others the straight strokes or the sides of a box."""
    if not pdfium.is_inked(path, _WHITE):
        return
    left, bottom, right, top = pdfium.read_bounds(path)
    if matrix is not _SAME:
        left, bottom, right, top = _to_box(
            matrix.transform(left, bottom), matrix.transform(right, top)
        )
    wide, high = right - left >= _THIN, top - bottom >= _THIN
    if wide and high:
        yield from _read_strokes(path, matrix)
    elif wide or high:
        yield _to_rule(left, bottom, right, top)


def _read_strokes(path: Any, matrix: Matrix) -> Iterator[Rule]:
    """Its straight pieces along an axis."""
    if pdfium.count_segments(path) > MOST_RULES:
        raise TooManyRules
    matrix = pdfium.read_matrix(path).compose(matrix)
    last = 0.0, 0.0
    for kind, x, y in pdfium.list_segments(path):
        point = matrix.transform(x, y)
        if kind == _LINE_TO:
            left, bottom, right, top = _to_box(last, point)
            wide, high = right - left, top - bottom
            if min(wide, high) < _FLAT < max(wide, high):
                yield _to_rule(left, bottom, right, top)
        last = point


def _to_rule(left: float, bottom: float, right: float, top: float) -> Rule:
    """The line along a thin box."""
    if right - left > top - bottom:
        height = (bottom + top) / 2
        return Rule(left, height, right, height)
    place = (left + right) / 2
    return Rule(place, bottom, place, top)


def _to_box(one: tuple[float, float], other: tuple[float, float]) -> Sides:
    """The box between two points."""
    (x0, y0), (x1, y1) = one, other
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


TOLERANCE = 3.0
"""Lines nearer than this, in points, are one line."""


class Segment(NamedTuple):
    """A line along an axis: its place across, and its two ends in rising order, in points."""

    place: float
    start: float
    end: float


def join_segments(segments: Iterable[Segment]) -> list[Segment]:
    """Pieces of the same line joined, by place and then by start.

    Lines side by side take the mean of their places.
    """
    pieces = sorted(segments)
    places = sorted({piece.place for piece in pieces})
    neighbours = [0, *accumulate(b - a > TOLERANCE for a, b in pairwise(places))]
    line_of = dict(zip(places, neighbours, strict=False))
    found: list[Segment] = []
    for _, group in groupby(pieces, lambda piece: line_of[piece.place]):
        side_by_side = list(group)
        place = sum(piece.place for piece in side_by_side) / len(side_by_side)
        start, end = min((piece.start, piece.end) for piece in side_by_side)
        for piece in sorted(side_by_side, key=attrgetter("start")):
            if piece.start > end + TOLERANCE:
                found.append(Segment(place, start, end))
                start, end = piece.start, piece.end
            end = max(end, piece.end)
        found.append(Segment(place, start, end))
    return found


def find_open_sides(flat: Sequence[Segment], upright: Sequence[Segment]) -> list[Segment]:
    """The sides of tables that are drawn without: rows of equal ends with a line between them."""
    rows: dict[tuple[int, int], list[Segment]] = defaultdict(list)
    for row in flat:
        rows[round(row.start / TOLERANCE), round(row.end / TOLERANCE)].append(row)
    return [
        Segment(x, row.place, below.place)
        for row, below in chain.from_iterable(map(pairwise, rows.values()))
        for joining in [_find_joining_lines(row, below, upright)]
        if any(row.start + TOLERANCE < x < row.end - TOLERANCE for x in joining)
        for x in (row.start, row.end)
        if not any(abs(x - other) <= TOLERANCE for other in joining)
    ]


def _find_joining_lines(row: Segment, below: Segment, upright: Iterable[Segment]) -> list[float]:
    """Where upright lines reach from one row to the other."""
    highest, lowest = row.place + TOLERANCE, below.place - TOLERANCE
    return [x for x, top, bottom in upright if top <= highest and bottom >= lowest]


_MOST_CROSSINGS = 2_500
"""Finding cells may take time with the square of the crossings: for as many at most a second."""

Point = tuple[float, float]
"""x and distance from the top."""
Corners = tuple[float, float, float, float]
"""Left, top, right and bottom."""


class LineCrossings:
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
            if len(self._flat) > _MOST_CROSSINGS:
                raise TooManyRules
        self._columns: dict[float, list[float]] = defaultdict(list)
        self._rows: dict[float, list[float]] = defaultdict(list)
        for x, y in sorted(self._flat):
            self._columns[x].append(y)
            self._rows[y].append(x)

    def find_cells(self) -> list[Corners]:
        """For each crossing the smallest cell whose left top it is, if any, by left, then by top.

        A cell has crossings as its corners, and one line along each of its sides.
        """
        return [cell for point in sorted(self._flat) if (cell := self._find_cell(*point))]

    def _find_cell(self, left: float, top: float) -> Corners | None:
        """The smallest cell whose upper left corner is this crossing."""
        rights = self._list_rights(left, top)
        for bottom in self._iterate_bottoms(left, top) if rights else ():
            here = self._flat[left, bottom]
            for right in rights:
                lines = self._flat.get((right, bottom))
                if lines is None or lines.isdisjoint(here):
                    continue
                if not self._upright[right, bottom].isdisjoint(self._upright[right, top]):
                    return left, top, right, bottom
        return None

    def _iterate_bottoms(self, x: float, y: float) -> Iterator[float]:
        """Where upright lines through a crossing cross others below it."""
        column, lines = self._columns[x], self._upright[x, y]
        for bottom in column[bisect_right(column, y) :]:
            if not lines.isdisjoint(self._upright[x, bottom]):
                yield bottom

    def _list_rights(self, x: float, y: float) -> list[float]:
        """Where flat lines through a crossing cross others at the right of it."""
        row, lines = self._rows[y], self._flat[x, y]
        behind = row[bisect_right(row, x) :]
        return [right for right in behind if not lines.isdisjoint(self._flat[right, y])]


def group_cells(cells: Sequence[Corners]) -> list[list[Corners]]:
    """Cells that hang together by their corners, two at least; the topmost and leftmost first."""
    at: dict[Point, list[Corners]] = defaultdict(list)
    for cell in cells:
        for corner in _list_corners(cell):
            at[corner].append(cell)
    found, left = [], dict.fromkeys(cells)
    while left:
        table = [left.popitem()[0]]
        for cell in table:  # which grows meanwhile
            for corner in _list_corners(cell):
                for other in at.pop(corner, ()):
                    if other in left:
                        del left[other]
                        table.append(other)
        found.append(table)
    found.sort(key=lambda table: min((top, x0) for x0, top, _, _ in table))
    return [table for table in found if len(table) > 1]


def _list_corners(cell: Corners) -> tuple[Point, ...]:
    x0, top, x1, bottom = cell
    return (x0, top), (x0, bottom), (x1, top), (x1, bottom)


SECONDS = 30.0
"""Most that looking for tables may take of a document's time."""
_SHORTEST = 1.0
_LOWEST, _NARROWEST = 5.0, 8.0
"""No text fits into cells lower or narrower than this, in points."""
_BOXED = 0.6
"""Share of a grid from which cells as wide as all of it make it a box around a text."""


@dataclass(frozen=True, slots=True)
class GridCell:
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
    cells: tuple[GridCell, ...]


class GridFinder:
    """Finds the tables of one document, within a budget of seconds.

    A page with too many lines, and all pages after the budget, have none, with a warning.
    """

    def __init__(self, context: ReadingContext) -> None:
        self._context = context
        self._seconds = SECONDS

    def find_grids(self, page: Any, frame: PageFrame) -> list[Grid]:
        """Tables of an open page, from the top; they do not overlap."""
        if self._seconds <= 0:
            self._context.warn("tables_skipped")
            return []
        started = time.monotonic()
        try:
            return _find_grids(read_rules(page), frame)
        except TooManyRules:
            self._context.warn("tables_skipped")
            return []
        finally:
            self._seconds -= time.monotonic() - started


def _find_grids(lines: list[Rule], frame: PageFrame) -> list[Grid]:
    """GridFinder that these lines draw; raises TooManyRules."""
    width, height = frame.shown_width, frame.shown_height
    flat, upright = _to_segments(lines, frame, width, height)
    if len(flat) < 2 or not upright:
        return []
    found = [_to_grid(cells, width, height) for cells in _find_tables(flat, upright)]
    return _drop_overlapping(grid for grid in found if _is_table(grid, width, height))


def _to_segments(
    lines: Iterable[Rule], frame: PageFrame, width: float, height: float
) -> tuple[list[Segment], list[Segment]]:
    """Flat and upright lines, in points from the top left of the page as shown."""
    flat, upright = [], []
    for line in lines:
        x0, top, x1, bottom = frame.to_view(*line)
        left, right, top, bottom = x0 * width, x1 * width, top * height, bottom * height
        if right - left > bottom - top:
            flat.append(Segment(top, left, right))
        else:
            upright.append(Segment(left, top, bottom))
    return flat, upright


def _find_tables(flat: list[Segment], upright: list[Segment]) -> list[list[Corners]]:
    """Cells by table; raises TooManyRules."""
    flat, upright = (
        join_segments(_select_long(flat, _SHORTEST)),
        join_segments(_select_long(upright, _SHORTEST)),
    )
    if sides := find_open_sides(flat, upright):
        upright = join_segments(upright + sides)
    return group_cells(
        LineCrossings(_select_long(flat, TOLERANCE), _select_long(upright, TOLERANCE)).find_cells()
    )


def _select_long(lines: Iterable[Segment], least: float) -> list[Segment]:
    """Those not shorter than this, in points."""
    return [line for line in lines if line.end - line.start >= least]


def _to_grid(cells: list[Corners], width: float, height: float) -> Grid:
    """Cells counted into rows and columns, in fractions of the page."""
    columns = {
        x: index for index, x in enumerate(sorted({c[0] for c in cells} | {c[2] for c in cells}))
    }
    rows = {
        y: index for index, y in enumerate(sorted({c[1] for c in cells} | {c[3] for c in cells}))
    }
    found = [
        GridCell(
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
    boxes = sum(_compute_area(cell.rect) for cell in grid.cells if cell.column_span == grid.columns)
    return fitting * 2 > len(grid.cells) and boxes < _BOXED * _compute_area(grid.rect)


def _compute_area(rect: Rect) -> float:
    return (rect.x1 - rect.x0) * (rect.y1 - rect.y0)


def _drop_overlapping(grids: Iterable[Grid]) -> list[Grid]:
    """Of tables that overlap, the one with most cells: a frame around tables is none itself."""
    kept: list[Grid] = []
    for grid in sorted(grids, key=lambda grid: -len(grid.cells)):
        if not any(_is_overlapping(grid.rect, other.rect) for other in kept):
            kept.append(grid)
    return sorted(kept, key=lambda grid: (grid.rect.y0, grid.rect.x0))


def _is_overlapping(one: Rect, other: Rect) -> bool:
    return one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1

"""Finds the grids of ruled tables on a PDF page from the lines drawn on it.

Strokes, thin bars and sides of boxes are joined into lines; where lines cross, four crossings make
a cell. This is the algorithm of pdfplumber's table finder, and the tests compare the results with
pdfplumber's. Ours is far faster: pdfplumber reads every character again and compares every crossing
with every other.
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

_MAX_THIN_POINTS = 3.0
"""A shape thinner than this, in points, is one line along its middle."""
_MAX_SKEW_POINTS = 0.5
"""How far, in points, a line may deviate from an axis between its ends."""
_WHITE = 250
MAX_OBJECTS = 20_000
MAX_RULES = 4_000
_MAX_FORM_DEPTH = 4
"""Nesting depth of forms; deeper ones are ignored."""
_LINE_TO = 0
"""FPDF_SEGMENT_LINETO."""


class TooManyRules(Exception):
    """The page has too many lines: it is a drawing, not a page with tables."""


class Rule(NamedTuple):
    """A line along an axis of page space, in points; its ends in rising order."""

    left: float
    bottom: float
    right: float
    top: float


Sides = tuple[float, float, float, float]
"""Left, bottom, right and top in page space."""

_IDENTITY = Matrix()


def read_rules(page: Any) -> list[Rule]:
    """All ruling lines of an open page; raises TooManyRules."""
    all_rules = (rule for path, matrix in _iterate_paths(page) for rule in _read_path(path, matrix))
    rules = list(islice(all_rules, MAX_RULES + 1))
    if len(rules) > MAX_RULES:
        raise TooManyRules
    return rules


def _iterate_paths(page: Any) -> Iterator[tuple[Any, Matrix]]:
    """Paths of the page and its forms, each with the matrix that maps it to page space."""
    object_count, stack = 0, [(page.raw, False, _IDENTITY, 0)]
    while stack:
        holder, is_form, matrix, depth = stack.pop()
        object_count += pdfium.count_objects(holder, is_form=is_form)
        if object_count > MAX_OBJECTS:
            raise TooManyRules
        for item, kind in pdfium.list_objects(holder, is_form=is_form):
            if kind == pdfium.PATH:
                yield item, matrix
            elif kind == pdfium.FORM and depth < _MAX_FORM_DEPTH:
                stack.append((item, True, pdfium.read_matrix(item).compose(matrix), depth + 1))


def _read_path(path: Any, matrix: Matrix) -> Iterator[Rule]:
    """Lines of a path: a thin path is one line, others give their straight strokes or sides."""
    if not pdfium.has_ink(path, _WHITE):
        return
    left, bottom, right, top = pdfium.read_bounds(path)
    if matrix is not _IDENTITY:
        left, bottom, right, top = _to_box(
            matrix.transform(left, bottom), matrix.transform(right, top)
        )
    is_wide, is_high = right - left >= _MAX_THIN_POINTS, top - bottom >= _MAX_THIN_POINTS
    if is_wide and is_high:
        yield from _read_strokes(path, matrix)
    elif is_wide or is_high:
        yield _to_rule(left, bottom, right, top)


def _read_strokes(path: Any, matrix: Matrix) -> Iterator[Rule]:
    """The straight strokes of a path that run along an axis."""
    if pdfium.count_segments(path) > MAX_RULES:
        raise TooManyRules
    matrix = pdfium.read_matrix(path).compose(matrix)
    previous = 0.0, 0.0
    for kind, x, y in pdfium.list_segments(path):
        point = matrix.transform(x, y)
        if kind == _LINE_TO:
            left, bottom, right, top = _to_box(previous, point)
            width, height = right - left, top - bottom
            if min(width, height) < _MAX_SKEW_POINTS < max(width, height):
                yield _to_rule(left, bottom, right, top)
        previous = point


def _to_rule(left: float, bottom: float, right: float, top: float) -> Rule:
    """The line along a thin box."""
    if right - left > top - bottom:
        y = (bottom + top) / 2
        return Rule(left, y, right, y)
    x = (left + right) / 2
    return Rule(x, bottom, x, top)


def _to_box(point: tuple[float, float], other_point: tuple[float, float]) -> Sides:
    """The box between two points."""
    (x0, y0), (x1, y1) = point, other_point
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


TOLERANCE = 3.0
"""Lines nearer than this, in points, are one line."""


class Segment(NamedTuple):
    """A line along an axis: its position across, and its two ends in rising order, in points."""

    position: float
    start: float
    end: float


def join_segments(segments: Iterable[Segment]) -> list[Segment]:
    """Join segments of the same line; sorted by position, then by start.

    Segments of nearly the same position get its mean.
    """
    ordered = sorted(segments)
    positions = sorted({segment.position for segment in ordered})
    line_numbers = [0, *accumulate(b - a > TOLERANCE for a, b in pairwise(positions))]
    line_by_position = dict(zip(positions, line_numbers, strict=False))
    joined: list[Segment] = []
    for _, grouped in groupby(ordered, lambda segment: line_by_position[segment.position]):
        line = list(grouped)
        position = sum(segment.position for segment in line) / len(line)
        start, end = min((segment.start, segment.end) for segment in line)
        for segment in sorted(line, key=attrgetter("start")):
            if segment.start > end + TOLERANCE:
                joined.append(Segment(position, start, end))
                start, end = segment.start, segment.end
            end = max(end, segment.end)
        joined.append(Segment(position, start, end))
    return joined


def find_open_sides(horizontal: Sequence[Segment], vertical: Sequence[Segment]) -> list[Segment]:
    """The missing sides of open tables: where rules of equal ends have a line between them."""
    rows: dict[tuple[int, int], list[Segment]] = defaultdict(list)
    for row in horizontal:
        rows[round(row.start / TOLERANCE), round(row.end / TOLERANCE)].append(row)
    return [
        Segment(x, row.position, below.position)
        for row, below in chain.from_iterable(map(pairwise, rows.values()))
        for crossings in [_find_joining_lines(row, below, vertical)]
        if any(row.start + TOLERANCE < x < row.end - TOLERANCE for x in crossings)
        for x in (row.start, row.end)
        if not any(abs(x - crossing) <= TOLERANCE for crossing in crossings)
    ]


def _find_joining_lines(upper: Segment, lower: Segment, vertical: Iterable[Segment]) -> list[float]:
    """The positions of vertical lines that reach from one rule to the other."""
    highest, lowest = upper.position + TOLERANCE, lower.position - TOLERANCE
    return [x for x, top, bottom in vertical if top <= highest and bottom >= lowest]


_MAX_CROSSINGS = 2_500
"""Finding cells may take quadratic time: at most a second for this many crossings."""

Point = tuple[float, float]
"""x and distance from the top."""
Corners = tuple[float, float, float, float]
"""Left, top, right and bottom."""


class LineCrossings:
    """Where horizontal and vertical lines cross or touch, and which lines meet there.

    Takes the lines that `join_segments` returns. Raises TooManyRules.
    """

    def __init__(self, horizontal: Sequence[Segment], vertical: Sequence[Segment]) -> None:
        self._horizontal: dict[Point, set[int]] = defaultdict(set)
        self._vertical: dict[Point, set[int]] = defaultdict(set)
        positions = [line.position for line in horizontal]
        for number, (x, top, bottom) in enumerate(vertical):
            first = bisect_left(positions, top - TOLERANCE)
            last = bisect_right(positions, bottom + TOLERANCE)
            for other in range(first, last):
                y, left, right = horizontal[other]
                if left - TOLERANCE <= x <= right + TOLERANCE:
                    point = x, y
                    self._horizontal[point].add(other)
                    self._vertical[point].add(number)
            if len(self._horizontal) > _MAX_CROSSINGS:
                raise TooManyRules
        self._columns: dict[float, list[float]] = defaultdict(list)
        self._rows: dict[float, list[float]] = defaultdict(list)
        for x, y in sorted(self._horizontal):
            self._columns[x].append(y)
            self._rows[y].append(x)

    def find_cells(self) -> list[Corners]:
        """The smallest cell at each crossing that is a top left corner; by left, then by top.

        A cell has crossings as its corners, and one line along each of its sides.
        """
        return [cell for point in sorted(self._horizontal) if (cell := self._find_cell(*point))]

    def _find_cell(self, left: float, top: float) -> Corners | None:
        """The smallest cell whose upper left corner is this crossing."""
        rights = self._list_rights(left, top)
        for bottom in self._iterate_bottoms(left, top) if rights else ():
            left_lines = self._horizontal[left, bottom]
            for right in rights:
                right_lines = self._horizontal.get((right, bottom))
                if right_lines is None or right_lines.isdisjoint(left_lines):
                    continue
                if not self._vertical[right, bottom].isdisjoint(self._vertical[right, top]):
                    return left, top, right, bottom
        return None

    def _iterate_bottoms(self, x: float, y: float) -> Iterator[float]:
        """The y of crossings below this one on the same vertical line."""
        column, lines = self._columns[x], self._vertical[x, y]
        for bottom in column[bisect_right(column, y) :]:
            if not lines.isdisjoint(self._vertical[x, bottom]):
                yield bottom

    def _list_rights(self, x: float, y: float) -> list[float]:
        """The x of crossings to the right of this one on the same horizontal line."""
        row, lines = self._rows[y], self._horizontal[x, y]
        candidates = row[bisect_right(row, x) :]
        return [right for right in candidates if not lines.isdisjoint(self._horizontal[right, y])]


def group_cells(cells: Sequence[Corners]) -> list[list[Corners]]:
    """Group cells that share corners into tables of at least two, topmost and leftmost first."""
    cells_by_corner: dict[Point, list[Corners]] = defaultdict(list)
    for cell in cells:
        for corner in _list_corners(cell):
            cells_by_corner[corner].append(cell)
    tables, ungrouped = [], dict.fromkeys(cells)
    while ungrouped:
        table = [ungrouped.popitem()[0]]
        for cell in table:  # it grows while we iterate
            for corner in _list_corners(cell):
                for other in cells_by_corner.pop(corner, ()):
                    if other in ungrouped:
                        del ungrouped[other]
                        table.append(other)
        tables.append(table)
    tables.sort(key=lambda table: min((top, x0) for x0, top, _, _ in table))
    return [table for table in tables if len(table) > 1]


def _list_corners(cell: Corners) -> tuple[Point, ...]:
    x0, top, x1, bottom = cell
    return (x0, top), (x0, bottom), (x1, top), (x1, bottom)


SECONDS = 30.0
"""Seconds that finding tables may take for one document."""
_MIN_LINE_POINTS = 1.0
_MIN_CELL_HEIGHT, _MIN_CELL_WIDTH = 5.0, 8.0
"""Points; no text fits into smaller cells."""
_MAX_BOX_SHARE = 0.6
"""Share of a grid's area; full-width cells that cover more make it a box around text."""


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
    """A ruled table of at least two rows and columns; cells sorted by row, then column.

    A hole in its lines has no cell.
    """

    rect: Rect
    rows: int
    columns: int
    cells: tuple[GridCell, ...]


class GridFinder:
    """Finds the tables of one document within a time budget.

    A page with too many lines, and every page after the budget is spent, has none, with a warning.
    """

    def __init__(self, context: ReadingContext) -> None:
        self._context = context
        self._seconds_left = SECONDS

    def find_grids(self, page: Any, frame: PageFrame) -> list[Grid]:
        """The tables of an open page from top to bottom, without overlaps."""
        if self._seconds_left <= 0:
            self._context.warn("tables_skipped")
            return []
        started = time.monotonic()
        try:
            return _find_grids(read_rules(page), frame)
        except TooManyRules:
            self._context.warn("tables_skipped")
            return []
        finally:
            self._seconds_left -= time.monotonic() - started


def _find_grids(rules: list[Rule], frame: PageFrame) -> list[Grid]:
    """The grids that these lines form. Raises TooManyRules."""
    width, height = frame.shown_width, frame.shown_height
    horizontal, vertical = _to_segments(rules, frame, width, height)
    if len(horizontal) < 2 or not vertical:
        return []
    grids = [_to_grid(cells, width, height) for cells in _find_tables(horizontal, vertical)]
    return _drop_overlapping(grid for grid in grids if _is_table(grid, width, height))


def _to_segments(
    rules: Iterable[Rule], frame: PageFrame, width: float, height: float
) -> tuple[list[Segment], list[Segment]]:
    """Horizontal and vertical lines, in points from the top left of the page as displayed."""
    horizontal, vertical = [], []
    for rule in rules:
        x0, top, x1, bottom = frame.to_view(*rule)
        left, right, top, bottom = x0 * width, x1 * width, top * height, bottom * height
        if right - left > bottom - top:
            horizontal.append(Segment(top, left, right))
        else:
            vertical.append(Segment(left, top, bottom))
    return horizontal, vertical


def _find_tables(horizontal: list[Segment], vertical: list[Segment]) -> list[list[Corners]]:
    """The cells of each table. Raises TooManyRules."""
    horizontal, vertical = (
        join_segments(_select_long(horizontal, _MIN_LINE_POINTS)),
        join_segments(_select_long(vertical, _MIN_LINE_POINTS)),
    )
    if sides := find_open_sides(horizontal, vertical):
        vertical = join_segments(vertical + sides)
    return group_cells(
        LineCrossings(
            _select_long(horizontal, TOLERANCE), _select_long(vertical, TOLERANCE)
        ).find_cells()
    )


def _select_long(segments: Iterable[Segment], min_length: float) -> list[Segment]:
    """The segments of at least this length, in points."""
    return [segment for segment in segments if segment.end - segment.start >= min_length]


def _to_grid(cells: list[Corners], width: float, height: float) -> Grid:
    """A grid of these cells, numbered by row and column, in fractions of the page."""
    columns = {
        x: index for index, x in enumerate(sorted({c[0] for c in cells} | {c[2] for c in cells}))
    }
    rows = {
        y: index for index, y in enumerate(sorted({c[1] for c in cells} | {c[3] for c in cells}))
    }
    grid_cells = [
        GridCell(
            Rect(x0 / width, y0 / height, x1 / width, y1 / height),
            rows[y0], columns[x0], rows[y1] - rows[y0], columns[x1] - columns[x0],
        )
        for x0, y0, x1, y1 in cells
    ]  # fmt: skip
    grid_cells.sort(key=lambda cell: (cell.row, cell.column))
    outline = Rect(
        min(columns) / width, min(rows) / height, max(columns) / width, max(rows) / height
    )
    return Grid(outline, len(rows) - 1, len(columns) - 1, tuple(grid_cells))


def _is_table(grid: Grid, width: float, height: float) -> bool:
    """Whether it has rows, columns and cells that text fits into, and is not a box around text."""
    if grid.rows < 2 or grid.columns < 2:
        return False
    fitting_count = sum(
        (cell.rect.y1 - cell.rect.y0) * height > _MIN_CELL_HEIGHT
        and (cell.rect.x1 - cell.rect.x0) * width > _MIN_CELL_WIDTH
        for cell in grid.cells
    )
    full_width_area = sum(
        _compute_area(cell.rect) for cell in grid.cells if cell.column_span == grid.columns
    )
    return fitting_count * 2 > len(grid.cells) and full_width_area < _MAX_BOX_SHARE * _compute_area(
        grid.rect
    )


def _compute_area(rect: Rect) -> float:
    return (rect.x1 - rect.x0) * (rect.y1 - rect.y0)


def _drop_overlapping(grids: Iterable[Grid]) -> list[Grid]:
    """Keep the table with the most cells where tables overlap: the other is a frame around it."""
    kept: list[Grid] = []
    for grid in sorted(grids, key=lambda grid: -len(grid.cells)):
        if not any(_is_overlapping(grid.rect, other.rect) for other in kept):
            kept.append(grid)
    return sorted(kept, key=lambda grid: (grid.rect.y0, grid.rect.x0))


def _is_overlapping(one: Rect, other: Rect) -> bool:
    return one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1

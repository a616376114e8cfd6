"""Tables of a page as Markdown, with the position of each cell and the header rows."""

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median

from documents.parsers.pdf.geometry import Rect
from documents.parsers.pdf.grids import Grid, GridCell
from documents.parsers.pdf.layout import sort_reading_order, unweave_columns
from documents.parsers.pdf.lines import TextRow, TextWriter, WordSpacing, Wrapping, group_rows
from documents.parsers.pdf.text_runs import TextRun
from rag.types import Line

Place = tuple[int, int]
"""TextRow and column."""

_LONGEST = 400
"""Characters of a usual cell from which lines are a layout of text rather than a table."""


@dataclass(frozen=True, slots=True)
class RuledTable:
    """A table as Markdown. Lines and `header_end` count from its beginning."""

    box: Rect
    text: str
    lines: tuple[Line, ...]
    header_end: int
    height: float


class _Sheet:
    """A grid that takes in the text inside it."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.runs: list[TextRun] = []
        self._cells: dict[Place, list[TextRun]] = defaultdict(list)
        self._x = sorted({side for cell in grid.cells for side in (cell.rect.x0, cell.rect.x1)})
        self._y = sorted({side for cell in grid.cells for side in (cell.rect.y0, cell.rect.y1)})
        self._at = {
            (row, column): cell
            for cell in grid.cells
            for row in range(cell.row, cell.row + cell.row_span)
            for column in range(cell.column, cell.column + cell.column_span)
        }

    def find_cells(self, run: TextRun) -> list[tuple[GridCell | None, int]]:
        """The cells that contain the centres of a run's characters, and how many in a row."""
        box, columns = run.box, self._x
        row = bisect(self._y, (box.y0 + box.y1) / 2) - 1
        first, last = bisect(columns, box.x0) - 1, bisect(columns, box.x1) - 1
        if first == last:
            return [(self._at.get((row, first)), len(run.text))]
        middles = ((one + other) / 2 for one, other in pairwise(run.edges))
        homes = (self._at.get((row, bisect(columns, x) - 1)) for x in middles)
        return [(cell, len(list(group))) for cell, group in groupby(homes)]

    def add(self, cell: GridCell, run: TextRun) -> None:
        """Put text into a cell."""
        self.runs.append(run)
        self._cells[cell.row, cell.column].append(run)

    @property
    def is_table(self) -> bool:
        """Whether there is text in several rows and columns, and not too much of it."""
        lengths = [sum(len(run.text) for run in runs) for runs in self._cells.values()]
        lines, columns = map(set, zip(*self._cells, strict=True))
        return min(len(lines), len(columns)) > 1 and median(lengths) <= _LONGEST

    def _count_header_rows(self) -> int:
        """Rows of the header: a title over all columns, and names below cells that group them."""
        title = any(
            cell.row == 0 and cell.column_span == self.grid.columns for cell in self.grid.cells
        )
        first = 1 if title and self.grid.rows > 2 else 0
        top = [cell for cell in self.grid.cells if cell.row == first]
        if not any(cell.column_span > 1 for cell in top):
            return first + 1
        rows = max(cell.row_span for cell in top)
        if rows == 1 and all(self._is_header_part(cell) for cell in top):
            rows = 2
        return first + rows if first + rows < self.grid.rows else first + 1

    def _is_header_part(self, cell: GridCell) -> bool:
        """Whether a cell is a heading for those below it, or half of one."""
        below = [
            "".join(run.text for run in self._cells.get((cell.row + 1, column), ()))
            for column in range(cell.column, cell.column + cell.column_span)
        ]
        if cell.column_span > 1:
            return all(any(map(str.isalpha, name)) for name in below)
        return not (below[0] and self._cells.get((cell.row, cell.column)))

    def to_table(self, em: float, spacing: WordSpacing) -> RuledTable:
        """The whole as Markdown; merged cells have their text in their first place.

        Rows and columns without any text, as between double lines, are none.
        """
        writer, header_end = TextWriter(), 0
        lines, columns = (sorted(set(axis)) for axis in zip(*self._cells, strict=True))
        headers = max(self._count_header_rows(), lines[0] + 1)
        for number, line in enumerate(lines):
            writer.write("\n|" if number else "|")
            for column in columns:
                writer.write(" ")
                if runs := self._cells.get((line, column)):
                    _write_cell(writer, list(map(_escape_bars, runs)), em, spacing)
                    writer.write(" ")
                writer.write("|")
            if number == 0:
                writer.write("\n|" + " --- |" * len(columns))
            if line < headers:
                header_end = writer.length
        height = median(run.height for run in self.runs)
        return RuledTable(self.grid.rect, writer.text, tuple(writer.lines), header_end, height)


def _write_cell(
    writer: TextWriter, runs: Sequence[TextRun], em: float, spacing: WordSpacing
) -> None:
    """The runs of a cell on one line."""
    if len(runs) == 1:  # as in most cells: it has no order and no line ends
        writer.write_run(runs[0])
        return
    inside = sort_reading_order(group_rows(runs, em), em)
    writer.write_rows(inside, Wrapping(inside, spacing, in_cell=True), line_end=" ")


def place_tables(
    runs: Sequence[TextRun], grids: Sequence[Grid], em: float, spacing: WordSpacing
) -> list[TextRow | RuledTable]:
    """Lines and tables of a page, a table where its first text stands in PDFium's order."""
    found: list[TextRow | RuledTable] = []
    seen: set[int] = set()
    for number, group in groupby(_find_homes(runs, [_Sheet(grid) for grid in grids]), _home_of):
        parts = list(group)
        sheet = parts[0][0]
        if sheet is None or not sheet.is_table:
            found += unweave_columns(group_rows((run for _, run in parts), em))
        elif number not in seen:
            seen.add(number)
            found.append(sheet.to_table(em, spacing))
    return found


def _home_of(part: tuple[_Sheet | None, TextRun]) -> int:
    """What a run belongs to."""
    return id(part[0])


def _find_homes(
    runs: Sequence[TextRun], sheets: Sequence[_Sheet]
) -> list[tuple[_Sheet | None, TextRun]]:
    """Each run with the table that holds it, cut where cells end; the tables have them then."""
    found: list[tuple[_Sheet | None, TextRun]] = []
    for run in runs:
        sheet = next((sheet for sheet in sheets if _is_touching(sheet.grid.rect, run.box)), None)
        if sheet is None:
            found.append((None, run))
            continue
        for cell, part in _cut_at_cells(run, sheet):
            if cell is not None:
                sheet.add(cell, part)
            found.append((sheet if cell is not None else None, part))
    return found


def _is_touching(area: Rect, box: Rect) -> bool:
    """Whether the middle line of a text runs into an area."""
    return area.y0 < (box.y0 + box.y1) / 2 < area.y1 and box.x0 < area.x1 and area.x0 < box.x1


def _cut_at_cells(run: TextRun, sheet: _Sheet) -> Iterator[tuple[GridCell | None, TextRun]]:
    """Parts of a run by the cell of their characters."""
    start = 0
    for cell, length in sheet.find_cells(run):
        part = run.cut(start, start + length)
        if part.text:
            yield cell, part
        start += length


def _escape_bars(run: TextRun) -> TextRun:
    """A run whose bars are no ends of cells."""
    if "|" not in run.text:
        return run
    edges = [
        edge
        for character, edge in zip(run.text, run.edges, strict=False)
        for edge in ([edge, edge] if character == "|" else [edge])
    ]
    return replace(run, text=run.text.replace("|", "\\|"), edges=[*edges, run.edges[-1]])


# The grids of tables without upright lines, from words that stand below each other.
#
# Where lines that follow each other hold several words each, pdfplumber says where the columns of
# these words begin: its finder takes words that share their left side, their right side or their
# middle. It gets the runs that PDFium gave, so that no page is read twice.

_FEWEST_COLUMNS, _FEWEST_ROWS = 3, 3
"""Two columns, or two lines, may as well be a list or a form."""
_MOST_RUNS = 1_000
"""Of a block: finding columns may take time with the square of them."""
_LONGEST_RUN = 30
"""Characters of a cell's line; columns most of which stands in longer ones are text."""
_SAME_ROW = 0.4
"""Line heights by which the middles of runs on one row may lie apart."""
_FARTHEST = 2.0
"""Line heights between two rows of a table."""
_LEAST_AT_HOME = 0.7
"""Share of the runs that stand within one column; the others are merged cells."""
_EDGE = 0.002
"""Share of the page's width by which a run may reach into the next column."""

Columns = list[tuple[float, float]]
"""Where each column begins and ends, in fractions of the page's width."""
Placed = tuple[TextRun, int, int]
"""A run with the first and the last column of its cell."""


def find_aligned_grids(
    runs: Sequence[TextRun], grids: Sequence[Grid], width: float, height: float
) -> list[Grid]:
    """Tables outside of the ruled ones (`grids`), on a page of this size in points."""
    free = [run for run in runs if not any(_is_within(run, grid.rect) for grid in grids)]
    if len(free) < _FEWEST_COLUMNS * _FEWEST_ROWS:
        return []
    found = (_to_grid(block, width, height) for block in _list_blocks(_group_rows(free)))
    return [grid for grid in found if grid]


def _is_within(run: TextRun, area: Rect) -> bool:
    box = run.box
    return area.y0 < _find_middle(run) < area.y1 and box.x0 < area.x1 and area.x0 < box.x1


def _find_middle(run: TextRun) -> float:
    return (run.box.y0 + run.box.y1) / 2


def _find_top(row: Sequence[TextRun]) -> float:
    return min(run.box.y0 for run in row)


def _find_bottom(row: Sequence[TextRun]) -> float:
    return max(run.box.y1 for run in row)


def _group_rows(runs: Sequence[TextRun]) -> list[list[TextRun]]:
    """Runs by row, from the top; what stands between two rows is a merged cell of the upper."""
    lines: list[list[TextRun]] = []
    for run in sorted(runs, key=_find_middle):
        last = lines[-1][0] if lines else None
        if last and _find_middle(run) - _find_middle(last) < _SAME_ROW * min(
            run.height, last.height
        ):
            lines[-1].append(run)
        else:
            lines.append([run])
    rows: list[list[TextRun]] = []
    for line, below in pairwise([*lines, []]):
        between = (
            rows
            and below
            and _find_top(line) < _find_bottom(rows[-1])
            and _find_top(below) < _find_bottom(line)
        )
        if between and len(line) <= len(below):
            rows[-1] += line
        else:
            rows.append(line)
    return rows


def _list_blocks(rows: Sequence[list[TextRun]]) -> Iterator[list[list[TextRun]]]:
    """Rows of several runs that follow each other closely."""
    block: list[list[TextRun]] = []
    for row in [*rows, []]:
        is_wide = len(row) >= _FEWEST_COLUMNS
        if (
            block
            and is_wide
            and _find_top(row) - _find_bottom(block[-1]) < _FARTHEST * row[0].height
        ):
            block.append(row)
            continue
        if len(block) >= _FEWEST_ROWS:
            yield block
        block = [row] if is_wide else []


def _to_grid(block: Sequence[Sequence[TextRun]], width: float, height: float) -> Grid | None:
    """The grid of a block; None where its runs stand in no columns, or are lines of text."""
    runs = [run for row in block for run in row]
    lengths = [len(run.text) for run in runs]
    in_long_runs = sum(length for length in lengths if length > _LONGEST_RUN)
    if len(runs) > _MOST_RUNS or in_long_runs * 2 > sum(lengths):
        return None
    columns = _find_columns(runs, len(block), width, height)
    if len(columns) < _FEWEST_COLUMNS:
        return None
    at_home = sum(first == last for first, last in (_locate_columns(run, columns) for run in runs))
    if at_home < _LEAST_AT_HOME * len(runs):
        return None
    placed = [_place_row(row, columns) for row in block]
    xs = _find_sides(columns, [one for row in placed for one in row])
    ys = [
        _find_top(block[0]),
        *(_find_top(row) for row in block[1:]),
        _find_bottom(block[-1]) + _EDGE,
    ]
    cells = [
        GridCell(Rect(xs[first], ys[row], xs[end], ys[row + 1]), row, first, 1, end - first)
        for row, spans in enumerate(placed)
        for first, end in _list_spans(spans, len(columns))
    ]
    return Grid(Rect(xs[0], ys[0], xs[-1], ys[-1]), len(block), len(columns), tuple(cells))


def _find_columns(runs: Sequence[TextRun], rows: int, width: float, height: float) -> Columns:
    """The columns that hold a run."""
    from pdfplumber.table import words_to_edges_v

    words = [
        {
            "x0": run.box.x0 * width,
            "x1": run.box.x1 * width,
            "top": run.box.y0 * height,
            "bottom": run.box.y1 * height,
        }
        for run in runs
    ]
    edges = words_to_edges_v(words, word_threshold=max(2, rows // 4))
    sides = sorted({edge["x0"] / width for edge in edges})
    middles = sorted((run.box.x0 + run.box.x1) / 2 for run in runs)
    return [
        (start, end)
        for start, end in pairwise(sides)
        if bisect(middles, start - _EDGE) < bisect(middles, end)
    ]


def _locate_columns(run: TextRun, columns: Columns) -> tuple[int, int]:
    """The first and the last column that a run stands in."""
    starts = [start for start, _ in columns]
    first = bisect(starts, run.box.x0 + _EDGE) - 1
    last = bisect(starts, run.box.x1 - _EDGE) - 1
    return max(first, 0), max(last, 0)


def _place_row(row: Sequence[TextRun], columns: Columns) -> list[Placed]:
    """The runs of a row in their cells.

    One that reaches over columns is a merged cell, of those free columns whose middle is nearest.
    """
    found = [
        (run, *_locate_columns(run, columns)) for run in sorted(row, key=lambda run: run.box.x0)
    ]
    placed = [one for one in found if one[1] == one[2]]
    taken = {first for _, first, _ in placed}
    for run, left, right in (one for one in found if one[1] < one[2]):
        middle = run.box.x0 + run.box.x1
        spans = [
            (abs(columns[first][0] + columns[last][1] - middle), first, last)
            for first in range(right + 1)
            for last in range(max(first, left), len(columns))
            if taken.isdisjoint(range(first, last + 1))
        ]
        if spans:
            _, first, last = min(spans)
            taken.update(range(first, last + 1))
            placed.append((run, first, last))
    return placed


def _find_sides(columns: Columns, placed: Sequence[Placed]) -> list[float]:
    """Where cells begin and end: in the white between columns, so that no run is cut."""
    sides = [min(columns[0][0], *(run.box.x0 for run, _, _ in placed)) - _EDGE]
    for number, ((_, end), (start, _)) in enumerate(pairwise(columns)):
        left = max((run.box.x1 for run, _, last in placed if last == number), default=end)
        right = min((run.box.x0 for run, first, _ in placed if first == number + 1), default=start)
        sides.append((left + right) / 2 if left <= right else start - _EDGE / 2)
    return [*sides, max(columns[-1][1], *(run.box.x1 for run, _, _ in placed)) + _EDGE]


def _list_spans(placed: Sequence[Placed], columns: int) -> list[tuple[int, int]]:
    """Where the cells of a row begin and end, by column: those with a run, and the empty ones."""
    spans = {first: last + 1 for _, first, last in placed}
    covered = {column for first, end in spans.items() for column in range(first, end)}
    empty = {column: column + 1 for column in range(columns) if column not in covered}
    return sorted((spans | empty).items())

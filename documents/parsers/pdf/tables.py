"""Tables of a page as Markdown, with the position of each cell and the header rows."""

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median

from documents.parsers.pdf.geometry import Rect
from documents.parsers.pdf.grids import Grid, GridCell
from documents.parsers.pdf.layout import separate_columns, sort_reading_order
from documents.parsers.pdf.lines import TextRow, TextWriter, WordSpacing, Wrapping, group_rows
from documents.parsers.pdf.text_runs import TextRun
from rag.types import Line

CellPosition = tuple[int, int]
"""Row and column, from 0."""

_MAX_CELL_CHARACTERS = 400
"""Characters of a usual cell; in a layout of text, which is no table, there are more."""


@dataclass(frozen=True, slots=True)
class RuledTable:
    """A table as Markdown. Offsets of `lines` and `header_end` count from its beginning."""

    box: Rect
    text: str
    lines: tuple[Line, ...]
    header_end: int
    height: float


class _FilledGrid:
    """A grid with the text inside its cells."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.runs: list[TextRun] = []
        self._runs_by_position: dict[CellPosition, list[TextRun]] = defaultdict(list)
        self._xs = sorted({side for cell in grid.cells for side in (cell.rect.x0, cell.rect.x1)})
        self._ys = sorted({side for cell in grid.cells for side in (cell.rect.y0, cell.rect.y1)})
        self._cell_by_position = {
            (row, column): cell
            for cell in grid.cells
            for row in range(cell.row, cell.row + cell.row_span)
            for column in range(cell.column, cell.column + cell.column_span)
        }

    def find_cells(self, run: TextRun) -> list[tuple[GridCell | None, int]]:
        """The cells that a run crosses, each with the number of its characters centred there."""
        box, columns = run.box, self._xs
        row = bisect(self._ys, (box.y0 + box.y1) / 2) - 1
        first, last = bisect(columns, box.x0) - 1, bisect(columns, box.x1) - 1
        if first == last:
            return [(self._cell_by_position.get((row, first)), len(run.text))]
        centres = ((one + other) / 2 for one, other in pairwise(run.edges))
        cells = (self._cell_by_position.get((row, bisect(columns, x) - 1)) for x in centres)
        return [(cell, len(list(group))) for cell, group in groupby(cells)]

    def add(self, cell: GridCell, run: TextRun) -> None:
        """Put text into a cell."""
        self.runs.append(run)
        self._runs_by_position[cell.row, cell.column].append(run)

    @property
    def is_table(self) -> bool:
        """Whether there is text in several rows and columns, and not too much of it."""
        lengths = [sum(len(run.text) for run in runs) for runs in self._runs_by_position.values()]
        lines, columns = map(set, zip(*self._runs_by_position, strict=True))
        return min(len(lines), len(columns)) > 1 and median(lengths) <= _MAX_CELL_CHARACTERS

    def _count_header_rows(self) -> int:
        """Count the header rows, with a title across all columns and names below their groups."""
        has_title = any(
            cell.row == 0 and cell.column_span == self.grid.columns for cell in self.grid.cells
        )
        first_row = 1 if has_title and self.grid.rows > 2 else 0
        top_cells = [cell for cell in self.grid.cells if cell.row == first_row]
        if not any(cell.column_span > 1 for cell in top_cells):
            return first_row + 1
        row_count = max(cell.row_span for cell in top_cells)
        if row_count == 1 and all(self._is_header_part(cell) for cell in top_cells):
            row_count = 2
        return first_row + row_count if first_row + row_count < self.grid.rows else first_row + 1

    def _is_header_part(self, cell: GridCell) -> bool:
        """Whether a header cell groups the names below it, or shares a name with the cell below."""
        texts_below = [
            "".join(run.text for run in self._runs_by_position.get((cell.row + 1, column), ()))
            for column in range(cell.column, cell.column + cell.column_span)
        ]
        if cell.column_span > 1:
            return all(any(map(str.isalpha, text)) for text in texts_below)
        return not (texts_below[0] and self._runs_by_position.get((cell.row, cell.column)))

    def to_table(self, aspect: float, spacing: WordSpacing) -> RuledTable:
        """The table as Markdown; a merged cell has its text in its first position.

        Rows and columns without any text, as between double rules, are left out.
        """
        writer, header_end = TextWriter(), 0
        rows, columns = (sorted(set(axis)) for axis in zip(*self._runs_by_position, strict=True))
        header_rows = max(self._count_header_rows(), rows[0] + 1)
        for number, row in enumerate(rows):
            writer.write("\n|" if number else "|")
            for column in columns:
                writer.write(" ")
                if runs := self._runs_by_position.get((row, column)):
                    _write_cell(writer, list(map(_escape_bars, runs)), aspect, spacing)
                    writer.write(" ")
                writer.write("|")
            if number == 0:
                writer.write("\n|" + " --- |" * len(columns))
            if row < header_rows:
                header_end = writer.length
        height = median(run.height for run in self.runs)
        return RuledTable(self.grid.rect, writer.text, tuple(writer.lines), header_end, height)


def _write_cell(
    writer: TextWriter, runs: Sequence[TextRun], aspect: float, spacing: WordSpacing
) -> None:
    """Write the runs of a cell as one line of text."""
    if len(runs) == 1:  # true of most cells, and nothing has to be sorted or joined
        writer.write_run(runs[0])
        return
    rows = sort_reading_order(group_rows(runs, aspect), aspect)
    writer.write_rows(rows, Wrapping(rows, spacing, in_cell=True), line_end=" ")


def place_tables(
    runs: Sequence[TextRun], grids: Sequence[Grid], aspect: float, spacing: WordSpacing
) -> list[TextRow | RuledTable]:
    """Lines and tables of a page; a table stands where its first run does in PDFium's order."""
    items: list[TextRow | RuledTable] = []
    placed_ids: set[int] = set()
    for grid_id, group in groupby(
        _assign_runs(runs, [_FilledGrid(grid) for grid in grids]), _get_grid_id
    ):
        members = list(group)
        filled_grid = members[0][0]
        if filled_grid is None or not filled_grid.is_table:
            items += separate_columns(group_rows((run for _, run in members), aspect))
        elif grid_id not in placed_ids:
            placed_ids.add(grid_id)
            items.append(filled_grid.to_table(aspect, spacing))
    return items


def _get_grid_id(part: tuple[_FilledGrid | None, TextRun]) -> int:
    """The identity of the grid that a run belongs to; that of None for runs outside grids."""
    return id(part[0])


def _assign_runs(
    runs: Sequence[TextRun], filled_grids: Sequence[_FilledGrid]
) -> list[tuple[_FilledGrid | None, TextRun]]:
    """Pair each run with the grid it lies in, cut where cells end, and add it to that grid."""
    assigned: list[tuple[_FilledGrid | None, TextRun]] = []
    for run in runs:
        filled_grid = next(
            (
                filled_grid
                for filled_grid in filled_grids
                if _reaches_into(run, filled_grid.grid.rect)
            ),
            None,
        )
        if filled_grid is None:
            assigned.append((None, run))
            continue
        for cell, part in _cut_at_cells(run, filled_grid):
            if cell is not None:
                filled_grid.add(cell, part)
            assigned.append((filled_grid if cell is not None else None, part))
    return assigned


def _cut_at_cells(run: TextRun, grid: _FilledGrid) -> Iterator[tuple[GridCell | None, TextRun]]:
    """Cut a run where cells end; None is outside all cells."""
    start = 0
    for cell, length in grid.find_cells(run):
        part = run.cut(start, start + length)
        if part.text:
            yield cell, part
        start += length


def _escape_bars(run: TextRun) -> TextRun:
    """Escape the bars in a run, so that they do not end a cell."""
    if "|" not in run.text:
        return run
    edges = [
        edge
        for character, edge in zip(run.text, run.edges, strict=False)
        for edge in ([edge, edge] if character == "|" else [edge])
    ]
    return replace(run, text=run.text.replace("|", "\\|"), edges=[*edges, run.edges[-1]])


# Grids of tables without vertical rules, from words that are aligned below each other.
#
# Where consecutive lines have several words each, pdfplumber finds where the columns of these words
# begin: it looks for words that share their left side, their right side or their middle. It is
# given PDFium's runs, so that no page is read twice.

_MIN_COLUMNS, _MIN_ROWS = 3, 3
"""Two columns, or two lines, may as well be a list or a form."""
_MAX_BLOCK_RUNS = 1_000
"""Runs of a block: finding its columns may take quadratic time."""
_MAX_RUN_CHARACTERS = 30
"""Characters of a line in a cell. If most of a block is in longer ones, it is columns of text."""
_MAX_ROW_OFFSET = 0.4
"""Line heights by which the middles of runs on one row may differ."""
_MAX_ROW_GAP = 2.0
"""Line heights between two rows of a table."""
_MIN_SINGLE_COLUMN_SHARE = 0.7
"""Share of the runs that lie within one column; the others are merged cells."""
_TOLERANCE = 0.002
"""Share of the page's width by which a run may reach into the next column."""

Columns = list[tuple[float, float]]
"""Where each column begins and ends, in fractions of the page's width."""
PlacedRun = tuple[TextRun, int, int]
"""A run with the first and the last column of its cell."""


def find_aligned_grids(
    runs: Sequence[TextRun], grids: Sequence[Grid], width: float, height: float
) -> list[Grid]:
    """Tables without vertical rules, outside the ruled `grids`; the page's size is in points."""
    free_runs = [run for run in runs if not any(_reaches_into(run, grid.rect) for grid in grids)]
    if len(free_runs) < _MIN_COLUMNS * _MIN_ROWS:
        return []
    candidates = (
        _to_grid(block, width, height) for block in _iterate_blocks(_group_rows(free_runs))
    )
    return [grid for grid in candidates if grid]


def _reaches_into(run: TextRun, area: Rect) -> bool:
    """Whether the middle line of a run reaches into an area."""
    box = run.box
    return area.y0 < _find_middle(run) < area.y1 and box.x0 < area.x1 and area.x0 < box.x1


def _find_middle(run: TextRun) -> float:
    return (run.box.y0 + run.box.y1) / 2


def _find_top(row: Sequence[TextRun]) -> float:
    return min(run.box.y0 for run in row)


def _find_bottom(row: Sequence[TextRun]) -> float:
    return max(run.box.y1 for run in row)


def _group_rows(runs: Sequence[TextRun]) -> list[list[TextRun]]:
    """Group runs by row, from the top; a run between two rows is a merged cell of the upper one."""
    lines: list[list[TextRun]] = []
    for run in sorted(runs, key=_find_middle):
        last = lines[-1][0] if lines else None
        if last and _find_middle(run) - _find_middle(last) < _MAX_ROW_OFFSET * min(
            run.height, last.height
        ):
            lines[-1].append(run)
        else:
            lines.append([run])
    rows: list[list[TextRun]] = []
    for line, below in pairwise([*lines, []]):
        is_between = (
            rows
            and below
            and _find_top(line) < _find_bottom(rows[-1])
            and _find_top(below) < _find_bottom(line)
        )
        if is_between and len(line) <= len(below):
            rows[-1] += line
        else:
            rows.append(line)
    return rows


def _iterate_blocks(rows: Sequence[list[TextRun]]) -> Iterator[list[list[TextRun]]]:
    """Blocks of consecutive rows, close to each other, with several runs each."""
    block: list[list[TextRun]] = []
    for row in [*rows, []]:
        is_wide = len(row) >= _MIN_COLUMNS
        if (
            block
            and is_wide
            and _find_top(row) - _find_bottom(block[-1]) < _MAX_ROW_GAP * row[0].height
        ):
            block.append(row)
            continue
        if len(block) >= _MIN_ROWS:
            yield block
        block = [row] if is_wide else []


def _to_grid(block: Sequence[Sequence[TextRun]], width: float, height: float) -> Grid | None:
    """The grid of a block; None if its runs form no columns, or are lines of text."""
    runs = [run for row in block for run in row]
    lengths = [len(run.text) for run in runs]
    in_long_runs = sum(length for length in lengths if length > _MAX_RUN_CHARACTERS)
    if len(runs) > _MAX_BLOCK_RUNS or in_long_runs * 2 > sum(lengths):
        return None
    columns = _find_columns(runs, len(block), width, height)
    if len(columns) < _MIN_COLUMNS:
        return None
    single_column_count = sum(
        first == last for first, last in (_locate_columns(run, columns) for run in runs)
    )
    if single_column_count < _MIN_SINGLE_COLUMN_SHARE * len(runs):
        return None
    placed = [_place_row(row, columns) for row in block]
    xs = _find_sides(columns, [placed_run for row in placed for placed_run in row])
    ys = [
        _find_top(block[0]),
        *(_find_top(row) for row in block[1:]),
        _find_bottom(block[-1]) + _TOLERANCE,
    ]
    cells = [
        GridCell(Rect(xs[first], ys[row], xs[end], ys[row + 1]), row, first, 1, end - first)
        for row, spans in enumerate(placed)
        for first, end in _list_spans(spans, len(columns))
    ]
    return Grid(Rect(xs[0], ys[0], xs[-1], ys[-1]), len(block), len(columns), tuple(cells))


def _find_columns(runs: Sequence[TextRun], rows: int, width: float, height: float) -> Columns:
    """The columns that contain the middle of a run; the page's size is in points."""
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
        if bisect(middles, start - _TOLERANCE) < bisect(middles, end)
    ]


def _locate_columns(run: TextRun, columns: Columns) -> tuple[int, int]:
    """The first and the last column that a run reaches into."""
    starts = [start for start, _ in columns]
    first = bisect(starts, run.box.x0 + _TOLERANCE) - 1
    last = bisect(starts, run.box.x1 - _TOLERANCE) - 1
    return max(first, 0), max(last, 0)


def _place_row(row: Sequence[TextRun], columns: Columns) -> list[PlacedRun]:
    """Place the runs of a row in cells.

    A run across several columns becomes a merged cell of the free columns whose middle is nearest.
    """
    located = [
        (run, *_locate_columns(run, columns)) for run in sorted(row, key=lambda run: run.box.x0)
    ]
    placed = [item for item in located if item[1] == item[2]]
    taken_columns = {first for _, first, _ in placed}
    for run, left, right in (item for item in located if item[1] < item[2]):
        middle = run.box.x0 + run.box.x1
        spans = [
            (abs(columns[first][0] + columns[last][1] - middle), first, last)
            for first in range(right + 1)
            for last in range(max(first, left), len(columns))
            if taken_columns.isdisjoint(range(first, last + 1))
        ]
        if spans:
            _, first, last = min(spans)
            taken_columns.update(range(first, last + 1))
            placed.append((run, first, last))
    return placed


def _find_sides(columns: Columns, placed: Sequence[PlacedRun]) -> list[float]:
    """The x of the cells' sides: in the white space between columns, so that no run is cut."""
    sides = [min(columns[0][0], *(run.box.x0 for run, _, _ in placed)) - _TOLERANCE]
    for number, ((_, end), (start, _)) in enumerate(pairwise(columns)):
        left = max((run.box.x1 for run, _, last in placed if last == number), default=end)
        right = min((run.box.x0 for run, first, _ in placed if first == number + 1), default=start)
        sides.append((left + right) / 2 if left <= right else start - _TOLERANCE / 2)
    return [*sides, max(columns[-1][1], *(run.box.x1 for run, _, _ in placed)) + _TOLERANCE]


def _list_spans(placed: Sequence[PlacedRun], columns: int) -> list[tuple[int, int]]:
    """The cells of a row, empty ones too: the first column of each and the one after its last."""
    spans = {first: last + 1 for _, first, last in placed}
    covered = {column for first, end in spans.items() for column in range(first, end)}
    empty = {column: column + 1 for column in range(columns) if column not in covered}
    return sorted((spans | empty).items())

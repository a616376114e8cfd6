"""Ruled tables of a page as Markdown, with the position of each cell and the header rows."""

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
from documents.parsers.pdf.text import TextRun
from rag.pages import Line

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

    def cells(self, run: TextRun) -> list[tuple[GridCell | None, int]]:
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

    def table(self, em: float, spacing: WordSpacing) -> RuledTable:
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
                    _write_cell(writer, list(map(_escaped, runs)), em, spacing)
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
            found.append(sheet.table(em, spacing))
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
        sheet = next((sheet for sheet in sheets if _touch(sheet.grid.rect, run.box)), None)
        if sheet is None:
            found.append((None, run))
            continue
        for cell, part in _cut(run, sheet):
            if cell is not None:
                sheet.add(cell, part)
            found.append((sheet if cell is not None else None, part))
    return found


def _touch(area: Rect, box: Rect) -> bool:
    """Whether the middle line of a text runs into an area."""
    return area.y0 < (box.y0 + box.y1) / 2 < area.y1 and box.x0 < area.x1 and area.x0 < box.x1


def _cut(run: TextRun, sheet: _Sheet) -> Iterator[tuple[GridCell | None, TextRun]]:
    """Parts of a run by the cell of their characters."""
    start = 0
    for cell, length in sheet.cells(run):
        part = run.part(start, start + length)
        if part.text:
            yield cell, part
        start += length


def _escaped(run: TextRun) -> TextRun:
    """A run whose bars are no ends of cells."""
    if "|" not in run.text:
        return run
    edges = [
        edge
        for character, edge in zip(run.text, run.edges, strict=False)
        for edge in ([edge, edge] if character == "|" else [edge])
    ]
    return replace(run, text=run.text.replace("|", "\\|"), edges=[*edges, run.edges[-1]])

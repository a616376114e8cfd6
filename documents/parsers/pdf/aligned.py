"""The grids of tables without upright lines, from words that stand below each other.

Where lines that follow each other hold several words each, pdfplumber says where the columns of
these words begin: its finder takes words that share their left side, their right side or their
middle. It gets the runs that PDFium gave, so that no page is read twice.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import pairwise

from documents.parsers.pdf.geometry import Rect
from documents.parsers.pdf.grids import Grid, GridCell
from documents.parsers.pdf.text import TextRun

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
    return area.y0 < _middle(run) < area.y1 and box.x0 < area.x1 and area.x0 < box.x1


def _middle(run: TextRun) -> float:
    return (run.box.y0 + run.box.y1) / 2


def _top(row: Sequence[TextRun]) -> float:
    return min(run.box.y0 for run in row)


def _bottom(row: Sequence[TextRun]) -> float:
    return max(run.box.y1 for run in row)


def _group_rows(runs: Sequence[TextRun]) -> list[list[TextRun]]:
    """Runs by row, from the top; what stands between two rows is a merged cell of the upper."""
    lines: list[list[TextRun]] = []
    for run in sorted(runs, key=_middle):
        last = lines[-1][0] if lines else None
        if last and _middle(run) - _middle(last) < _SAME_ROW * min(run.height, last.height):
            lines[-1].append(run)
        else:
            lines.append([run])
    rows: list[list[TextRun]] = []
    for line, below in pairwise([*lines, []]):
        between = rows and below and _top(line) < _bottom(rows[-1]) and _top(below) < _bottom(line)
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
        if block and is_wide and _top(row) - _bottom(block[-1]) < _FARTHEST * row[0].height:
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
    at_home = sum(first == last for first, last in (_locate(run, columns) for run in runs))
    if at_home < _LEAST_AT_HOME * len(runs):
        return None
    placed = [_place_row(row, columns) for row in block]
    xs = _find_sides(columns, [one for row in placed for one in row])
    ys = [_top(block[0]), *(_top(row) for row in block[1:]), _bottom(block[-1]) + _EDGE]
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


def _locate(run: TextRun, columns: Columns) -> tuple[int, int]:
    """The first and the last column that a run stands in."""
    starts = [start for start, _ in columns]
    first = bisect(starts, run.box.x0 + _EDGE) - 1
    last = bisect(starts, run.box.x1 - _EDGE) - 1
    return max(first, 0), max(last, 0)


def _place_row(row: Sequence[TextRun], columns: Columns) -> list[Placed]:
    """The runs of a row in their cells.

    One that reaches over columns is a merged cell, of those free columns whose middle is nearest.
    """
    found = [(run, *_locate(run, columns)) for run in sorted(row, key=lambda run: run.box.x0)]
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

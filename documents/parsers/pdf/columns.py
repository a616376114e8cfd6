"""Columns whose lines come in turns, as where text recognition read across a page."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from documents.parsers.pdf.geometry import around
from documents.parsers.pdf.rows import Row
from documents.parsers.pdf.runs import Run

_FEWEST = 5
"""Lines with a gap at one place before that is a gutter."""
_SHORTEST = 15
"""Characters of a usual line of a column; those of a table are shorter."""
_NARROWEST = 0.2
"""Share of the page's width of a usual line of a column."""


class _Gap(NamedTuple):
    """White space between two runs of a line."""

    start: float
    end: float


def unwoven(rows: Sequence[Row]) -> list[Row]:
    """Rows that lie across a gutter, column by column; others as they come."""
    gutter = _gutter(rows)
    if gutter is None:
        return list(rows)
    found: list[Row] = []
    left: list[Row] = []
    right: list[Row] = []
    for row in rows:
        parts = _parts(row, gutter)
        if parts is None or not (left or right or all(parts)):
            found += [*unwoven(left), *unwoven(right), row]
            left, right = [], []
            continue
        for column, part in zip((left, right), parts, strict=True):
            column.extend([_row(row, part)] if part else [])
    return [*found, *unwoven(left), *unwoven(right)]


def _gutter(rows: Sequence[Row]) -> float | None:
    """Where the gaps of many lines of text meet."""
    gaps = [gap for row in rows if len(row.runs) > 1 and not row.down for gap in _gaps(row)]
    if len(gaps) < _FEWEST:
        return None
    gutter = _most_shared(gaps)
    halves = [parts for row in rows if (parts := _parts(row, gutter)) and all(parts)]
    if len(halves) < _FEWEST:
        return None
    for side in zip(*halves, strict=True):
        if median(sum(len(run.text) for run in part) for part in side) < _SHORTEST:
            return None
        if median(part[-1].box.x1 - part[0].box.x0 for part in side) < _NARROWEST:
            return None
    return gutter


def _most_shared(gaps: Sequence[_Gap]) -> float:
    """The middle of where most gaps lie one below the other."""
    ends = sorted([(gap.start, 1) for gap in gaps] + [(gap.end, -1) for gap in gaps])
    counts = accumulate(step for _, step in ends)
    places = zip(counts, pairwise([x for x, _ in ends]), strict=False)
    _, (start, end) = max(places, key=itemgetter(0))
    return (start + end) / 2


def _gaps(row: Row) -> list[_Gap]:
    """The gaps of a row whose runs go to the right."""
    return [
        _Gap(one.box.x1, other.box.x0)
        for one, other in pairwise(row.runs)
        if one.box.x1 < other.box.x0
    ]


def _parts(row: Row, gutter: float) -> tuple[list[Run], list[Run]] | None:
    """The runs on both sides of a gutter; None where one lies across."""
    if row.down or any(run.box.x0 < gutter < run.box.x1 for run in row.runs):
        return None
    return (
        [run for run in row.runs if run.box.x1 <= gutter],
        [run for run in row.runs if run.box.x1 > gutter],
    )


def _row(row: Row, runs: list[Run]) -> Row:
    """Some runs of a row as a row of their own."""
    return Row(runs, around(run.box for run in runs), max(run.height for run in runs), row.em)

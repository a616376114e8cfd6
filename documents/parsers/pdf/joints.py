"""Ruling lines joined from their pieces by pdfplumber, and the sides that tables leave open.

A line does not know its direction here: what is true of flat lines is true of upright ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

TOLERANCE = 3.0
"""Lines nearer than this, in points, are one line; pdfplumber's own default."""


class Segment(NamedTuple):
    """A line along an axis: its place across, and its two ends in rising order, in points."""

    place: float
    start: float
    end: float


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Pieces of the same line joined, by place and then by start.

    Lines side by side take the mean of their places.
    """
    from pdfplumber.table import merge_edges

    edges = [
        {"orientation": "h", "top": place, "bottom": place, "height": 0.0}
        | {"x0": start, "x1": end, "width": end - start}
        for place, start, end in segments
    ]
    whole = merge_edges(edges, *(TOLERANCE,) * 4)
    return sorted(Segment(edge["top"], edge["x0"], edge["x1"]) for edge in whole)


def open_sides(flat: Sequence[Segment], upright: Sequence[Segment]) -> list[Segment]:
    """The sides of tables that are drawn without: rows of equal ends with a line between them."""
    rows: dict[tuple[int, int], list[Segment]] = defaultdict(list)
    for row in flat:
        rows[round(row.start / TOLERANCE), round(row.end / TOLERANCE)].append(row)
    return [
        Segment(x, row.place, below.place)
        for row, below in chain.from_iterable(map(pairwise, rows.values()))
        for joining in [_between(row, below, upright)]
        if any(row.start + TOLERANCE < x < row.end - TOLERANCE for x in joining)
        for x in (row.start, row.end)
        if not any(abs(x - other) <= TOLERANCE for other in joining)
    ]


def _between(row: Segment, below: Segment, upright: Iterable[Segment]) -> list[float]:
    """Where upright lines reach from one row to the other."""
    highest, lowest = row.place + TOLERANCE, below.place - TOLERANCE
    return [x for x, top, bottom in upright if top <= highest and bottom >= lowest]

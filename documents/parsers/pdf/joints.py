"""Ruling lines joined from their pieces, as pdfplumber joins them.

A line does not know its direction here: what is true of flat lines is true of upright ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
    return [
        line
        for pieces in _side_by_side(sorted(segments))
        for line in _end_to_end(sum([piece.place for piece in pieces]) / len(pieces), pieces)
    ]


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


def _side_by_side(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Lines by place, in groups of which each is near to the one before it."""
    group: list[Segment] = []
    for segment in segments:
        if group and segment.place > group[-1].place + TOLERANCE:
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _end_to_end(place: float, pieces: Iterable[Segment]) -> Iterator[Segment]:
    """The lines that pieces at one place make, each of which goes on where the last one ends."""
    ends = sorted([(start, end) for _, start, end in pieces])
    start, end = ends[0]
    for piece_start, piece_end in ends:
        if piece_start > end + TOLERANCE:
            yield Segment(place, start, end)
            start, end = piece_start, piece_end
        elif piece_end > end:
            end = piece_end
    yield Segment(place, start, end)

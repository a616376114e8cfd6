"""Lines are joined and crossed, and make cells and tables, as pdfplumber does it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pdfplumber import table

from documents.parsers.pdf.grids import (
    TOLERANCE,
    Corners,
    LineCrossings,
    Segment,
    TooManyRules,
    group_cells,
    join_segments,
)

PLACES = st.integers(0, 7).map(lambda place: place * 20.0)
NEAR = st.integers(0, 120).map(lambda place: place * 1.25)
SIDES = ("x0", "top", "x1", "bottom")
Drawn = tuple[bool, float, float, float]
"""Whether a line is flat, its place across, and its two ends."""


def draw_lines(places: st.SearchStrategy[float]) -> st.SearchStrategy[list[Drawn]]:
    return st.lists(st.tuples(st.booleans(), places, places, places), max_size=40)


def to_segments(drawn: Sequence[Drawn], *, flat: bool) -> list[Segment]:
    return [Segment(line[1], *sorted(line[2:])) for line in drawn if line[0] == flat]


def find_cells(drawn: Sequence[Drawn]) -> list[Corners]:
    return LineCrossings(
        *(join_segments(to_segments(drawn, flat=flat)) for flat in (True, False))
    ).find_cells()


def to_pdfplumber_edges(drawn: Sequence[Drawn]) -> Any:
    """The lines as pdfplumber knows them, joined by it."""
    found = []
    for flat, place, *ends in drawn:
        start, end = sorted(ends)
        x0, top, x1, bottom = (start, place, end, place) if flat else (place, start, place, end)
        found.append({
            "x0": x0, "x1": x1, "top": top, "bottom": bottom, "width": x1 - x0,
            "height": bottom - top, "orientation": "h" if flat else "v", "object_type": "line",
        })  # fmt: skip
    snapped = table.snap_edges(found, TOLERANCE, TOLERANCE)
    # Pieces whose places differ by a rounding error would be two lines.
    exact = [{**edge, **{side: round(edge[side], 6) for side in SIDES}} for edge in snapped]
    return table.merge_edges(exact, 0, 0, TOLERANCE, TOLERANCE)


def find_cells_with_pdfplumber(drawn: Sequence[Drawn]) -> Any:
    crossings = table.edges_to_intersections(to_pdfplumber_edges(drawn), TOLERANCE, TOLERANCE)
    return table.intersections_to_cells(crossings)


@given(draw_lines(NEAR))
def test_pieces_make_the_lines_that_pdfplumber_joins(drawn: list[Drawn]) -> None:
    theirs = to_pdfplumber_edges(drawn)
    flat = [(e["top"], e["x0"], e["x1"]) for e in theirs if e["orientation"] == "h"]
    upright = [(e["x0"], e["top"], e["bottom"]) for e in theirs if e["orientation"] == "v"]

    for ours, them in (
        (to_segments(drawn, flat=True), flat),
        (to_segments(drawn, flat=False), upright),
    ):
        assert [tuple(round(value, 6) for value in line) for line in join_segments(ours)] == them


@given(draw_lines(PLACES))
def test_any_lines_make_the_cells_that_pdfplumber_finds(drawn: list[Drawn]) -> None:
    assert find_cells(drawn) == find_cells_with_pdfplumber(drawn)


@given(draw_lines(PLACES))
def test_cells_make_the_tables_that_pdfplumber_finds(drawn: list[Drawn]) -> None:
    found = table.cells_to_tables(find_cells(drawn))
    assert list(map(sorted, group_cells(find_cells(drawn)))) == list(map(sorted, found))


@given(st.integers(2, 8), st.integers(2, 8), st.sets(st.integers(0, 200)))
def test_a_grid_with_gaps_has_the_cells_that_pdfplumber_finds(
    rows: int, columns: int, gaps: set[int]
) -> None:
    sides = [(True, y * 20.0, x * 30.0, x * 30.0 + 30) for y in range(rows) for x in range(columns)]
    sides += [
        (False, x * 30.0, y * 20.0, y * 20.0 + 20) for y in range(rows) for x in range(columns)
    ]
    drawn = [side for place, side in enumerate(sides) if place not in gaps]
    assert find_cells(drawn) == find_cells_with_pdfplumber(drawn)


def test_lines_that_only_meet_at_their_ends_are_no_side() -> None:
    flat = [Segment(0, 0, 30), Segment(0, 30, 60), Segment(40, 0, 60)]
    upright = [Segment(0, 0, 40), Segment(60, 0, 40)]
    assert LineCrossings(flat, upright).find_cells() == []


def test_a_field_of_many_cells_is_whole() -> None:
    lines = [Segment(place * 20.0, 0.0, 980.0) for place in range(50)]
    assert len(LineCrossings(lines, lines).find_cells()) == 49 * 49


def test_lines_that_cross_very_often_are_no_table() -> None:
    lines = [Segment(place * 4.0, 0.0, 8_000.0) for place in range(2_000)]
    with pytest.raises(TooManyRules):
        LineCrossings(lines, lines)

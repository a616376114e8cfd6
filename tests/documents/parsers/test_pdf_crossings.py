"""The cells between crossing lines, and their tables, are those that pdfplumber finds."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from documents.parsers.pdf.crossings import cells_between, tables_of

TOLERANCE = 3.0
PLACES = st.integers(0, 7).map(lambda place: place * 20.0)
LINES = st.lists(st.tuples(st.booleans(), PLACES, PLACES, PLACES), max_size=40)


def _edge(line: tuple[bool, float, float, float]) -> dict[str, Any]:
    """A line as pdfplumber knows it: whether it is flat, its place across, and its two ends."""
    flat, place, *ends = line
    start, end = sorted(ends)
    x0, top, x1, bottom = (start, place, end, place) if flat else (place, start, place, end)
    return {
        "x0": x0, "x1": x1, "top": top, "bottom": bottom, "width": x1 - x0, "height": bottom - top,
        "orientation": "h" if flat else "v", "object_type": "line",
    }  # fmt: skip


def _crossings(lines: Sequence[tuple[bool, float, float, float]]) -> Any:
    from pdfplumber import table

    return table.edges_to_intersections(list(map(_edge, lines)), TOLERANCE, TOLERANCE)


@given(LINES)
def test_any_lines_make_the_cells_that_pdfplumber_finds(
    lines: list[tuple[bool, float, float, float]],
) -> None:
    from pdfplumber import table

    crossings = _crossings(lines)
    assert cells_between(crossings) == table.intersections_to_cells(crossings)


@given(LINES)
def test_cells_make_the_tables_that_pdfplumber_finds(
    lines: list[tuple[bool, float, float, float]],
) -> None:
    from pdfplumber import table

    cells = cells_between(_crossings(lines))
    found = table.cells_to_tables(cells)
    assert list(map(sorted, tables_of(cells))) == list(map(sorted, found))


@given(st.integers(2, 8), st.integers(2, 8), st.sets(st.integers(0, 200)))
def test_a_grid_with_gaps_has_the_cells_that_pdfplumber_finds(
    rows: int, columns: int, gaps: set[int]
) -> None:
    from pdfplumber import table

    sides = [(True, y * 20.0, x * 30.0, x * 30.0 + 30) for y in range(rows) for x in range(columns)]
    sides += [
        (False, x * 30.0, y * 20.0, y * 20.0 + 20) for y in range(rows) for x in range(columns)
    ]
    crossings = _crossings([side for place, side in enumerate(sides) if place not in gaps])
    assert cells_between(crossings) == table.intersections_to_cells(crossings)


def test_lines_that_only_meet_at_their_ends_are_no_side() -> None:
    halves = [(True, 0.0, 0.0, 30.0), (True, 0.0, 30.0, 60.0), (True, 40.0, 0.0, 60.0)]
    upright = [(False, 0.0, 0.0, 40.0), (False, 60.0, 0.0, 40.0)]
    assert cells_between(_crossings(halves + upright)) == []


def test_a_field_of_many_cells_is_whole() -> None:
    flat = [(True, y * 20.0, 0.0, 980.0) for y in range(50)]
    upright = [(False, x * 20.0, 0.0, 980.0) for x in range(50)]
    assert len(cells_between(_crossings(flat + upright))) == 49 * 49

"""Ruled tables of PDF pages: cells from lines, and what is no table."""

from pathlib import Path

import pypdfium2
import pytest

from documents.parsers import formats
from documents.parsers.base import Limits, ReadingContext
from documents.parsers.pdf.grids import Grid, GridFinder
from documents.parsers.pdf.pdfium import read_frame
from tests.documents.parsers.reading import shared
from tests.documents.parsers.samples import Pdf, rules

Warnings = list[object]


@pytest.fixture
def warnings() -> Warnings:
    return []


@pytest.fixture
def tables(warnings: Warnings) -> GridFinder:
    def emit(_kind: str, value: object) -> None:
        warnings.append(value)

    return GridFinder(ReadingContext(formats.PDF, Limits(), emit))


@pytest.fixture
def find_grids(tables: GridFinder, tmp_path: Path):
    def grids(drawn: str, rotate: int = 0) -> list[Grid]:
        path = Pdf().page(rotate=rotate, drawn=drawn).write(tmp_path / "a.pdf")
        page = pypdfium2.PdfDocument(path)[0]
        return tables.find_grids(page, read_frame(page))

    return grids


def draw_lattice(xs: list[float], ys: list[float]) -> str:
    """Lines from side to side at all these places."""
    return rules(*((min(xs), y, max(xs), y) for y in ys), *((x, min(ys), x, max(ys)) for x in xs))


def get_spans(grid: Grid) -> dict[tuple[int, int], tuple[int, int]]:
    return {(c.row, c.column): (c.row_span, c.column_span) for c in grid.cells}


def test_lines_make_rows_and_columns(find_grids) -> None:
    (grid,) = find_grids(draw_lattice([100, 200, 400], [700, 600, 500, 400]))

    assert (grid.rows, grid.columns, len(grid.cells)) == (3, 2, 6)
    assert grid.rect == pytest.approx((100 / 600, 1 / 8, 400 / 600, 4 / 8), abs=0.005)
    assert grid.cells[3].rect == pytest.approx((1 / 3, 1 / 4, 2 / 3, 3 / 8), abs=0.005)


def test_a_cell_over_two_columns_is_one_cell(find_grids) -> None:
    heads = [(100, y, 400, y) for y in (700, 600, 500)]
    (grid,) = find_grids(
        rules(*heads, (100, 500, 100, 700), (400, 500, 400, 700), (250, 500, 250, 600))
    )

    assert get_spans(grid) == {(0, 0): (1, 2), (1, 0): (1, 1), (1, 1): (1, 1)}


def test_a_table_without_its_sides_is_whole(find_grids) -> None:
    rows = [(100, y, 400, y) for y in (700, 650, 600, 550)]
    (grid,) = find_grids(rules(*rows, (250, 550, 250, 700)))

    assert (grid.rows, grid.columns) == (3, 2)
    assert (grid.rect.x0, grid.rect.x1) == pytest.approx((100 / 600, 400 / 600), abs=0.005)


def test_two_open_tables_of_one_width_stay_apart(find_grids) -> None:
    rows = [(100, y, 400, y) for y in (700, 650, 600, 400, 350, 300)]
    grids = find_grids(rules(*rows, (250, 600, 250, 700), (250, 300, 250, 400)))

    assert [grid.rows for grid in grids] == [2, 2]


def test_bars_and_boxes_are_lines_too(find_grids) -> None:
    bars = "".join(f"100 {y} 300 1 re f\n" for y in (700, 600, 500))
    boxes = "".join(f"{x} 500 150 200 re S\n" for x in (100, 250))
    (grid,) = find_grids(bars + boxes)

    assert (grid.rows, grid.columns) == (2, 2)


def test_what_is_drawn_in_white_or_not_at_all_is_no_line(find_grids) -> None:
    assert find_grids("1 g\n" + "".join(f"100 {y} 300 1 re f\n" for y in (700, 600, 500))) == []
    assert find_grids(draw_lattice([100, 200, 400], [700, 600, 500]).replace(" S\n", " n\n")) == []


@pytest.mark.parametrize("rotate", [90, 180, 270])
def test_a_rotated_page_has_its_table_as_shown(find_grids, rotate: int) -> None:
    (grid,) = find_grids(draw_lattice([100, 200, 400], [700, 600, 500, 400]), rotate)

    shape = (grid.rows, grid.columns)
    assert shape == ((2, 3) if rotate % 180 else (3, 2))


@pytest.mark.parametrize(
    "drawn",
    [
        rules((100, 700, 400, 700), (100, 690, 300, 690)),  # underlines
        draw_lattice([20, 580], [20, 780]),  # the frame of a page
        draw_lattice([100, 200, 300, 400], [600, 700]),  # one row
        draw_lattice([100, 400], [500, 600, 700]),  # one column
        draw_lattice(
            [100 + 4 * n for n in range(20)], [700 - 4 * n for n in range(20)]
        ),  # graph paper
        draw_lattice([100, 250, 400], [720, 700])
        + draw_lattice([100, 400], [700, 300]),  # a boxed body
    ],
)
def test_frames_and_drawings_are_no_tables(find_grids, drawn: str) -> None:
    assert find_grids(drawn) == []


def test_a_page_full_of_lines_is_left_alone_with_a_warning(find_grids, warnings: Warnings) -> None:
    assert find_grids(rules(*((10, y / 10, 500, y / 10) for y in range(5_000)))) == []
    assert warnings == ["tables_skipped"]


def test_a_grid_with_very_many_cells_is_left_alone(find_grids, warnings: Warnings) -> None:
    assert find_grids(draw_lattice([9 * n for n in range(65)], [9 * n for n in range(65)])) == []
    assert warnings == ["tables_skipped"]


def test_the_time_for_tables_is_limited(find_grids, warnings: Warnings, monkeypatch) -> None:
    monkeypatch.setattr("documents.parsers.pdf.grids.SECONDS", 0.0)
    spent = GridFinder(
        ReadingContext(formats.PDF, Limits(), lambda _, value: warnings.append(value))
    )
    page = pypdfium2.PdfDocument(shared("pdf/docling/normal_4pages.pdf"))[1]

    assert spent.find_grids(page, read_frame(page)) == []
    assert warnings == ["tables_skipped"]


def test_a_korean_brief_with_an_open_table(tables: GridFinder) -> None:
    page = pypdfium2.PdfDocument(shared("pdf/docling/normal_4pages.pdf"))[1]
    (grid,) = tables.find_grids(page, read_frame(page))

    assert (grid.rows, grid.columns, len(grid.cells)) == (5, 3, 15)

"""PDF: ruled tables are Markdown tables whose characters keep their places."""

from pathlib import Path

from rag.types import Kind, Page
from tests.documents.parsers.reading import read, shared
from tests.documents.parsers.samples import Pdf, column, rules, words

X, Y = (50, 200, 350, 500), (700, 670, 640, 610)
LINES = [(X[0], y, X[-1], y) for y in Y] + [(x, Y[0], x, Y[-1]) for x in X]
ROWS = [("항목", "수치", "비고"), ("전압", "220V", ""), ("전류", "15A", "최대")]


def write_cells(rows: list[tuple[str, ...]]) -> str:
    """The words of a table."""
    return "".join(
        words(X[column] + 5, Y[row] - 20, text)
        for row, texts in enumerate(rows)
        for column, text in enumerate(texts)
        if text
    )


def read_page(path: Path, drawn: str) -> Page:
    (page,) = read(Pdf().page(drawn=drawn).write(path / "a.pdf")).pages
    return page


def test_a_ruled_table_is_markdown_between_its_paragraphs(tmp_path: Path) -> None:
    drawn = (
        words(50, 740, "표 앞의 글")
        + rules(*LINES)
        + write_cells(ROWS)
        + words(50, 560, "표 뒤의 글")
    )

    page = read_page(tmp_path, drawn)

    assert page.text == (
        "표 앞의 글\n\n"
        "| 항목 | 수치 | 비고 |\n| --- | --- | --- |\n| 전압 | 220V | |\n| 전류 | 15A | 최대 |\n\n"
        "표 뒤의 글"
    )


def test_a_table_is_a_region_with_its_header(tmp_path: Path) -> None:
    page = read_page(tmp_path, rules(*LINES) + write_cells(ROWS))

    (region,) = page.regions
    assert (region.kind, region.start, region.end) == (Kind.TABLE, 0, len(page.text))
    assert page.text[: region.header_end] == "| 항목 | 수치 | 비고 |\n| --- | --- | --- |"


def test_words_of_cells_stand_where_they_are_drawn(tmp_path: Path) -> None:
    page = read_page(tmp_path, rules(*LINES) + write_cells(ROWS))

    places = {page.text[line.start : line.end]: line for line in page.lines}
    assert set(places) == {text for row in ROWS for text in row if text}
    assert abs(places["220V"].edges[0] - 205 / 600) < 0.002
    assert 1 - 690 / 800 < places["220V"].y0 + 0.05 < places["15A"].y0 + 0.05


def test_a_merged_cell_has_its_words_once(tmp_path: Path) -> None:
    lines = [line for line in LINES if line != (200, 700, 200, 610)]
    lines.append((200, 670, 200, 610))

    page = read_page(tmp_path, rules(*lines) + write_cells([("합친 머리", "", "비고"), *ROWS[1:]]))

    assert page.text.startswith("| 합친 머리 | | 비고 |\n")


def test_lines_of_a_cell_are_one_line(tmp_path: Path) -> None:
    two = words(55, 688, "첫 줄", 8) + words(55, 676, "둘째 줄", 8)

    page = read_page(tmp_path, rules(*LINES) + two + write_cells([("", "수치", "비고"), *ROWS[1:]]))

    assert page.text.startswith("| 첫 줄 둘째 줄 | 수치 | 비고 |\n")


def test_a_bar_in_a_cell_is_no_border(tmp_path: Path) -> None:
    page = read_page(tmp_path, rules(*LINES) + write_cells([("가|나", "수치", "비고"), *ROWS[1:]]))

    assert page.text.startswith("| 가\\|나 | 수치 | 비고 |\n")
    assert all(len(line.edges) == line.end - line.start + 1 for line in page.lines)


def test_text_that_one_row_of_pdfium_holds_is_cut_at_the_cells(tmp_path: Path) -> None:
    drawn = (
        words(55, 680, "항목          ")
        + words(205, 680, "수치")
        + write_cells([("", "", "비고"), *ROWS[1:]])
    )

    assert read_page(tmp_path, rules(*LINES) + drawn).text.startswith("| 항목 | 수치 | 비고 |\n")


def test_a_frame_around_paragraphs_is_no_table(tmp_path: Path) -> None:
    frame = [(50, y, 500, y) for y in (700, 400, 100)] + [(x, 700, x, 100) for x in (50, 275, 500)]
    long = [f"틀 안에 놓인 긴 글의 아주 긴 줄 {number}" for number in range(21)]
    drawn = "".join(column(x, y, *long) for y in (690, 390) for x in (55, 280))

    page = read_page(tmp_path, rules(*frame) + drawn)

    assert "|" not in page.text
    assert not page.regions


def test_a_caption_drawn_before_its_table_stays_below_it(tmp_path: Path) -> None:
    drawn = words(50, 590, "표 1 규격") + rules(*LINES) + write_cells(ROWS)

    assert read_page(tmp_path, drawn).text.endswith("| 최대 |\n\n표 1 규격")


def test_tables_of_a_real_brief_are_markdown() -> None:
    text = read(shared("pdf/docling/normal_4pages.pdf")).pages[1].text

    assert (
        "| 구분 | 개정전 | 개정후 |\n| --- | --- | --- |\n| 분류 | 1군 감염병 | 1급 감염병 |"
        in text
    )


def draw_grouped_table(
    first: tuple[str, ...], second: tuple[str, ...], *, title: bool = False
) -> str:
    """A table whose second and third column share a cell in the first row, or all of them."""
    lines = [line for line in LINES if line[0] != line[2] or line[0] not in X[1:3]]
    lines += [(X[1], 670 if title else 700, X[1], 610), (X[2], 670, X[2], 610)]
    return rules(*lines) + write_cells([first, second, ("서울", "10", "20")])


def get_header(page: Page) -> str:
    (region,) = page.regions
    return page.text[: region.header_end]


def test_names_below_a_cell_over_several_columns_are_header(tmp_path: Path) -> None:
    page = read_page(tmp_path, draw_grouped_table(("", "2026년", ""), ("지역", "상반기", "하반기")))

    assert get_header(page) == "| | 2026년 | |\n| --- | --- | --- |\n| 지역 | 상반기 | 하반기 |"


def test_figures_below_a_cell_over_several_columns_are_no_header(tmp_path: Path) -> None:
    page = read_page(tmp_path, draw_grouped_table(("", "2026년", ""), ("전국", "30", "40")))

    assert get_header(page) == "| | 2026년 | |\n| --- | --- | --- |"


def test_a_form_has_one_row_of_header(tmp_path: Path) -> None:
    page = read_page(
        tmp_path, draw_grouped_table(("성명", "홍길동", ""), ("생년월일", "미상", "남"))
    )

    assert get_header(page) == "| 성명 | 홍길동 | |\n| --- | --- | --- |"


def test_a_title_over_all_columns_is_header_with_the_names_below_it(tmp_path: Path) -> None:
    page = read_page(
        tmp_path,
        draw_grouped_table(("지역별 예산", "", ""), ("지역", "상반기", "하반기"), title=True),
    )

    assert get_header(page) == (
        "| 지역별 예산 | | |\n| --- | --- | --- |\n| 지역 | 상반기 | 하반기 |"
    )

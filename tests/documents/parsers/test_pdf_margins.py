"""PDF: running headers, footers and page numbers are no part of the text; all else is."""

from pathlib import Path

import pytest

from rag.types import Page
from tests.documents.parsers.reading import read, shared
from tests.documents.parsers.samples import Pdf, column, words


def draw_body(number: int, lines: int = 40) -> str:
    """The text of a page."""
    return column(50, 680, *(f"{number}쪽의 본문 {line}째 줄" for line in range(lines)))


def read_pages(
    path: Path, count: int, *, top: str = "", bottom: str = "", text: int = 40
) -> list[Page]:
    """Pages with these lines at their edges; `{}` in them is the number of the page."""
    pdf = Pdf()
    for number in range(1, count + 1):
        edges = words(50, 770, top.format(number)) + words(290, 20, bottom.format(number))
        pdf.page(drawn=edges + draw_body(number, text))
    return list(read(pdf.write(path / "a.pdf")).pages)


def test_a_running_header_is_no_text(tmp_path: Path) -> None:
    pages = read_pages(tmp_path, 5, top="표준 운영 지침")

    assert [page.margins for page in pages] == [("표준 운영 지침",)] * 5
    assert not any("지침" in page.text for page in pages)


def test_page_numbers_are_no_text(tmp_path: Path) -> None:
    pages = read_pages(tmp_path, 12, bottom="- {} -")

    assert [page.margins for page in pages] == [(f"- {number} -",) for number in range(1, 13)]


def test_headers_of_odd_and_even_pages_are_told_apart(tmp_path: Path) -> None:
    pdf = Pdf()
    for number in range(1, 9):
        header = "제목" if number % 2 else "장의 이름"
        pdf.page(drawn=words(50, 770, header) + draw_body(number))

    pages = read(pdf.write(tmp_path / "a.pdf")).pages

    assert [page.margins for page in pages] == [("제목",), ("장의 이름",)] * 4


def test_numbers_that_do_not_count_pages_are_text(tmp_path: Path) -> None:
    pdf = Pdf()
    for number in range(1, 7):
        pdf.page(drawn=words(50, 770, f"매출 {number * number * 100}원") + draw_body(number))

    pages = read(pdf.write(tmp_path / "a.pdf")).pages

    assert not any(page.margins for page in pages)


def test_a_repeated_line_right_above_the_text_is_text(tmp_path: Path) -> None:
    pdf = Pdf()
    for number in range(1, 7):
        pdf.page(drawn=column(50, 770, "번호 이름 금액", *(f"{number} 행 {n}" for n in range(9))))

    pages = read(pdf.write(tmp_path / "a.pdf")).pages

    assert all(page.text.startswith("번호 이름 금액") for page in pages)


def test_two_pages_lose_nothing_but_their_numbers(tmp_path: Path) -> None:
    pages = read_pages(tmp_path, 2, top="같은 머리말", bottom="{}")

    assert [page.margins for page in pages] == [("1",), ("2",)]
    assert all("같은 머리말" in page.text for page in pages)


def test_the_first_page_keeps_what_only_it_has(tmp_path: Path) -> None:
    pdf = Pdf().page(drawn=words(50, 770, "표지의 제목") + draw_body(1))
    for number in range(2, 7):
        pdf.page(drawn=words(50, 770, "머리말") + draw_body(number))

    first, *others = read(pdf.write(tmp_path / "a.pdf")).pages

    assert first.text.startswith("표지의 제목")
    assert {page.margins for page in others} == {("머리말",)}


def test_lines_stay_true_without_the_margins(tmp_path: Path) -> None:
    for page in read_pages(tmp_path, 5, top="머리말", bottom="{}"):
        first = page.lines[0]
        assert page.text[first.start : first.end] == page.text.split("\n")[0]
        assert first.y0 == pytest.approx(1 - 688 / 800, abs=0.01)


def test_a_long_document_comes_page_by_page_in_order(tmp_path: Path) -> None:
    pages = read_pages(tmp_path, 60, top="머리말", bottom="{}", text=3)

    assert [page.number for page in pages] == list(range(1, 61))
    assert all(page.text.startswith(f"{page.number}쪽의") for page in pages)


def test_headers_of_a_real_specification_are_found_on_all_its_pages() -> None:
    pages = read(shared("hwp/hancom_spec_pairs/한글문서파일형식_5.0_revision1.3.pdf")).pages

    numbered = [page for page in pages if len(page.margins) == 2]
    assert len(numbered) > 60
    assert all(page.margins[0].endswith("문서 파일 형식 5.0") for page in numbered)

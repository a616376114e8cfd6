"""PDF: text in the order in which one reads it, words whole, nothing lost."""

from pathlib import Path

import pytest

from tests.documents.parsers.reading import read, shared
from tests.documents.parsers.samples import Pdf, column, upward, words

LEFT = [f"왼쪽 단의 글이 이어지는 줄 {number}" for number in range(8)]
RIGHT = [f"오른쪽 단의 글이 이어지는 {number}" for number in range(8)]


def read_page_text(path: Path, *drawn: str) -> str:
    """The text of a page on which this is drawn, in this order."""
    (page,) = read(Pdf().page(drawn="".join(drawn)).write(path / "a.pdf")).pages
    return page.text


def test_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    text = read_page_text(tmp_path, column(50, 700, *LEFT), column(320, 700, *RIGHT))

    assert text.split("\n") == [*LEFT, *RIGHT]


def test_a_title_drawn_last_is_read_first(tmp_path: Path) -> None:
    title = words(50, 740, "두 단에 걸친 제목이 맨 위에 길게 놓인다", size=14)

    text = read_page_text(tmp_path, column(50, 700, *LEFT), column(320, 700, *RIGHT), title)

    assert text.split("\n") == ["두 단에 걸친 제목이 맨 위에 길게 놓인다", *LEFT, *RIGHT]


def test_a_right_column_drawn_first_is_read_last(tmp_path: Path) -> None:
    text = read_page_text(tmp_path, column(320, 700, *RIGHT), column(50, 700, *LEFT))

    assert text.split("\n") == [*LEFT, *RIGHT]


def test_columns_whose_lines_come_in_turns_are_read_one_after_the_other(tmp_path: Path) -> None:
    turns = "".join(
        words(50, 700 - 14 * n, left) + words(320, 700 - 14 * n, right)
        for n, (left, right) in enumerate(zip(LEFT, RIGHT, strict=True))
    )

    text = read_page_text(tmp_path, turns)

    assert text.split("\n") == [*LEFT, *RIGHT]


def test_short_cells_without_rules_stay_on_their_line(tmp_path: Path) -> None:
    cells = "".join(
        words(50, 700 - 14 * n, f"항목 {n}") + words(320, 700 - 14 * n, f"{n}00원")
        for n in range(1, 9)
    )

    text = read_page_text(tmp_path, cells)

    assert text.split("\n") == [f"항목 {n} {n}00원" for n in range(1, 9)]


def test_a_rotated_page_reads_in_order(tmp_path: Path) -> None:
    # As shown, the first line stands at the top: page space has it at the left, running upwards.
    drawn = upward(100, 50, "The first line") + upward(120, 50, "and the second")
    path = Pdf().page(rotate=90, drawn=drawn).write(tmp_path / "a.pdf")

    (page,) = read(path).pages

    assert page.text == "The first line\nand the second"
    assert len(page.lines) == 2


def test_text_on_its_side_keeps_its_words(tmp_path: Path) -> None:
    side = upward(580, 300, "lies on its side")

    text = read_page_text(tmp_path, column(50, 700, *LEFT), side)

    assert text.split("\n") == [*LEFT, "lies on its side"]


def test_wide_words_on_their_side_stay_on_their_line(tmp_path: Path) -> None:
    path = Pdf().page((50, 700, "담당 부서는 여기"), rotate=90).write(tmp_path / "a.pdf")

    assert read(path).pages[0].text == "담당 부서는 여기"


def test_every_character_on_its_side_has_its_place(tmp_path: Path) -> None:
    drawn = upward(580, 300, "up")

    (page,) = read(Pdf().page(drawn=drawn).write(tmp_path / "a.pdf")).pages

    assert [(line.start, line.end) for line in page.lines] == [(0, 1), (1, 2)]
    assert page.lines[0].y0 > page.lines[1].y0


def test_a_word_cut_at_a_hyphen_is_whole(tmp_path: Path) -> None:
    assert read_page_text(tmp_path, column(50, 700, "the infor-", "mation is here")) == (
        "the information is here"
    )


def test_a_hyphen_before_a_capital_stays(tmp_path: Path) -> None:
    assert "non-European" in read_page_text(
        tmp_path, column(50, 700, "from non-", "European states")
    )


def test_a_compound_that_is_spelt_with_a_hyphen_keeps_it(tmp_path: Path) -> None:
    text = read_page_text(
        tmp_path, column(50, 700, "a self-locking nut", "and a self-", "locking bolt")
    )

    assert text == "a self-locking nut\nand a self-locking bolt"


def test_only_the_word_at_the_hyphen_is_joined(tmp_path: Path) -> None:
    text = read_page_text(tmp_path, column(50, 700, "the infor-", "mation is", "here"))

    assert text == "the information is\nhere"


def test_a_soft_hyphen_leaves_no_trace(tmp_path: Path) -> None:
    text = read_page_text(tmp_path, column(50, 700, "the infor\xad", "mation is here"))

    assert text == "the information is here"


def test_a_heading_cut_at_a_hyphen_has_a_whole_title(tmp_path: Path) -> None:
    title = words(50, 760, "Infor-", size=20) + words(50, 730, "mation", size=20)

    (page,) = read(Pdf().page(drawn=title + column(50, 700, *LEFT)).write(tmp_path / "a.pdf")).pages

    assert [heading.title for heading in page.headings] == ["Information"]


def test_ligatures_are_letters_with_places_of_their_own(tmp_path: Path) -> None:
    path = Pdf().page((60, 700, "e\ufb03cient \ufb02ow")).write(tmp_path / "a.pdf")

    (page,) = read(path).pages

    assert page.text == "efficient flow"
    (line,) = page.lines
    assert line.edges[1:4] == pytest.approx(
        (80 / 600, 80 / 600 + 1 / 90, 80 / 600 + 2 / 90), abs=1e-3
    )


def test_a_raised_figure_stays_on_its_line(tmp_path: Path) -> None:
    drawn = words(50, 700, "상해") + words(70, 704, "1", size=6) + words(76, 700, "나 재해")

    assert read_page_text(tmp_path, drawn) == "상해1나 재해"


def test_bars_in_text_are_kept(tmp_path: Path) -> None:
    assert read_page_text(tmp_path, words(50, 700, "가|나 다")) == "가|나 다"


def test_larger_short_lines_are_headings_where_there_is_no_outline(tmp_path: Path) -> None:
    title, part = words(50, 760, "운영 지침", size=20), words(50, 725, "둘째 절", size=13)
    (page,) = read(
        Pdf().page(drawn=title + part + column(50, 700, *LEFT)).write(tmp_path / "a.pdf")
    ).pages

    assert [(heading.level, heading.title) for heading in page.headings] == [
        (1, "운영 지침"),
        (3, "둘째 절"),
    ]
    assert page.text[page.headings[1].start :].startswith("둘째 절")


def test_a_real_title_page_is_read_from_its_masthead() -> None:
    text = read(shared("pdf/docling/normal_4pages.pdf")).pages[0].text

    places = [
        text.index(words) for words in ("발행처", "재해보험금 지급문제", "들어가며", "통상 질병")
    ]
    assert places == sorted(places)


def test_arabic_ligatures_have_their_letters_in_order() -> None:
    text = read(shared("pdf/docling/right_to_left_01.pdf")).text

    assert "الإنتاجية" in text
    assert "المشكلات" in text


def test_nothing_is_lost_of_a_real_file_with_two_columns() -> None:
    text = read(shared("pdf/py-pdf_sample-files/026-latex-multicolumn__multicolumn.pdf")).text

    assert text.index("Abstract") < text.index("Lorem ipsum dolor")
    assert "sollicitudin" in text

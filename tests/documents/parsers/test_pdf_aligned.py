"""Tables of PDF pages that draw no upright lines: columns are where words are aligned."""

from pathlib import Path

import pytest

from rag.types import Kind, Page
from tests.documents.parsers.reading import read
from tests.documents.parsers.samples import Pdf, rules, words

LEFT = (50, 200, 350, 480)
Row = tuple[float, tuple[tuple[float, str], ...]]


@pytest.fixture
def read_rows(tmp_path: Path):
    def read_page(*rows: Row, drawn: str = "") -> Page:
        drawn += "".join(words(x, y, text) for y, cells in rows for x, text in cells)
        (page,) = read(Pdf().page(drawn=drawn).write(tmp_path / "a.pdf")).pages
        return page

    return read_page


def align_left(y: float, *texts: str) -> Row:
    return y, tuple(zip(LEFT, texts, strict=False))


def align_middle(y: float, *texts: str) -> Row:
    return y, tuple((x + 40 - 5 * len(text), text) for x, text in zip(LEFT, texts, strict=False))


FIGURES = [
    ("구분", "미국", "유럽", "아시아"),
    ("수출", "12.5", "3.4", "8"),
    ("수입", "7", "99.1", "6"),
]
TABLE = (
    "| 구분 | 미국 | 유럽 | 아시아 |\n| --- | --- | --- | --- |\n"
    "| 수출 | 12.5 | 3.4 | 8 |\n| 수입 | 7 | 99.1 | 6 |"
)


@pytest.mark.parametrize("aligned", [align_left, align_middle])
@pytest.mark.parametrize("heights", [(), (720, 690, 630), (720, 690, 660, 630)])
def test_aligned_words_are_a_table_with_or_without_lines_across(
    read_rows, aligned, heights
) -> None:
    rows = [aligned(700 - 30 * number, *texts) for number, texts in enumerate(FIGURES)]
    page = read_rows(*rows, drawn=rules(*((40, y, 560, y) for y in heights)))
    assert page.text == TABLE
    assert [region.kind for region in page.regions] == [Kind.TABLE]


def test_text_above_and_below_stays_text(read_rows) -> None:
    rows = [align_left(700 - 20 * number, *texts) for number, texts in enumerate(FIGURES)]
    above, below = (760, ((50, "지역별 투자"),)), (600, ((50, "자료는 아래와 같다"),))
    page = read_rows(above, *rows, below)
    assert page.text == f"지역별 투자\n\n{TABLE}\n\n자료는 아래와 같다"


def test_a_name_over_several_columns_stands_in_the_first_of_them(read_rows) -> None:
    head = (720, ((50, "구분"), (255, "올해의상반기"), (480, "작년")))
    rows = [align_left(700 - 20 * number, *texts) for number, texts in enumerate(FIGURES)]
    assert read_rows(head, *rows).text.startswith("| 구분 | 올해의상반기 | | 작년 |\n")


def test_what_stands_between_two_rows_is_a_cell_of_the_upper_one(read_rows) -> None:
    rows = [align_left(700, *FIGURES[0])]
    for number, name in enumerate(("수출", "수입")):
        y = 688 - 24 * number
        rows += [(y, ((200, "12"), (350, "34"), (480, "56")))]
        rows += [(y - 6, ((50, name),))]
        rows += [(y - 12, ((200, "(1)"), (350, "(2)"), (480, "(3)")))]
    assert "| 수출 | 12 | 34 | 56 |\n| | (1) | (2) | (3) |\n| 수입 |" in read_rows(*rows).text


def test_columns_of_text_are_no_table(read_rows) -> None:
    line = "가나다라마바사아자차카타파하" * 3
    rows = [
        (700 - 6 * number, tuple((x, line) for x in (20, 210, 400)))
        for number in range(12)
    ]  # fmt: skip
    small = "".join(words(x, y, text, size=4) for y, cells in rows for x, text in cells)
    assert not read_rows(drawn=small).regions


def test_a_list_with_its_pages_is_no_table(read_rows) -> None:
    rows = [
        (700 - 20 * number, ((50, f"제{number}장 총칙"), (500, f"{number}0")))
        for number in range(5)
    ]
    assert not read_rows(*rows).regions

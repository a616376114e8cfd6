"""DOCX: the numbers and marks before paragraphs, which stand in no text of the file."""

from pathlib import Path

import pytest

from rag.types import Kind
from tests.documents.parsers.reading import read
from tests.documents.parsers.samples import W, docx, paragraph

STYLES = (
    f'<w:styles xmlns:w="{W}">'
    '<w:style w:type="paragraph" w:styleId="1"><w:name w:val="heading 1"/><w:pPr><w:numPr>'
    '<w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
    '<w:style w:type="paragraph" w:styleId="B"><w:name w:val="List Bullet"/><w:pPr><w:numPr>'
    '<w:numId w:val="2"/></w:numPr></w:pPr></w:style>'
    '<w:style w:type="paragraph" w:styleId="C"><w:name w:val="마디"/><w:basedOn w:val="B"/>'
    "</w:style></w:styles>"
)


def level(depth: int, form: str, text: str, more: str = "") -> str:
    return (
        f'<w:lvl w:ilvl="{depth}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/>{more}</w:lvl>'
    )


def numbering(*kinds: str, lists: str) -> str:
    """Kinds of lists, numbered from 0, and the lists (`num`) that use them."""
    abstract = "".join(
        f'<w:abstractNum w:abstractNumId="{at}">{levels}</w:abstractNum>'
        for at, levels in enumerate(kinds)
    )
    return f'<w:numbering xmlns:w="{W}">{abstract}{lists}</w:numbering>'


def numbered(number: int, kind: int, change: str = "") -> str:
    return f'<w:num w:numId="{number}"><w:abstractNumId w:val="{kind}"/>{change}</w:num>'


def item(text: str, number: int, depth: int = 0) -> str:
    return (
        f'<w:p><w:pPr><w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/></w:numPr>'
        f"</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"
    )


CHAPTERS = level(0, "decimal", "제%1장") + level(1, "decimal", "%1.%2.")
BULLETS = level(0, "bullet", "\uf0b7") + level(1, "bullet", "o")
KINDS = numbering(CHAPTERS, BULLETS, lists=numbered(1, 0) + numbered(2, 1))


def test_a_list_is_one_block_with_its_marks_and_depths(tmp_path: Path) -> None:
    body = paragraph("준비물") + item("신분증", 2) + item("사본", 2, 1) + item("도장", 2)

    (page,) = read(docx(tmp_path / "a.docx", body, numbering=KINDS)).pages

    assert page.text == "준비물\n\n- 신분증\n    - 사본\n- 도장"
    (region,) = page.regions
    assert region.kind is Kind.LIST
    assert page.text[region.start : region.end] == "- 신분증\n    - 사본\n- 도장"


def test_headings_are_numbered_by_their_style(tmp_path: Path) -> None:
    body = paragraph("총칙", "1") + paragraph("절차", "1")

    (page,) = read(docx(tmp_path / "a.docx", body, styles=STYLES, numbering=KINDS)).pages

    assert [heading.title for heading in page.headings] == ["제1장 총칙", "제2장 절차"]


def test_a_style_takes_its_marks_from_the_style_it_is_based_on(tmp_path: Path) -> None:
    body = paragraph("하나", "B") + paragraph("둘", "C")

    path = docx(tmp_path / "a.docx", body, styles=STYLES, numbering=KINDS)

    assert read(path).text == "- 하나\n- 둘"


def test_deeper_numbers_begin_again_under_each_number_above(tmp_path: Path) -> None:
    body = "".join(item(f"가{at}", 1, depth) for at, depth in enumerate((0, 1, 1, 0, 1)))

    text = read(docx(tmp_path / "a.docx", body, numbering=KINDS)).text

    assert [line.split()[0] for line in text.split("\n")] == [
        "제1장",
        "1.1.",
        "1.2.",
        "제2장",
        "2.1.",
    ]


def test_a_skipped_level_counts_as_begun(tmp_path: Path) -> None:
    levels = CHAPTERS + level(2, "decimal", "%1.%2.%3.")
    kinds = numbering(levels, lists=numbered(1, 0))
    body = item("장", 1) + item("항", 1, 2) + item("절", 1, 1)

    text = read(docx(tmp_path / "a.docx", body, numbering=kinds)).text

    assert [line.split()[0] for line in text.split("\n")] == ["제1장", "1.1.1.", "1.2."]


def test_lists_of_one_kind_count_on_unless_they_start_anew(tmp_path: Path) -> None:
    change = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride>'
    lists = numbered(1, 0) + numbered(2, 0) + numbered(3, 0, change)
    kinds = numbering(level(0, "decimal", "%1."), lists=lists)
    body = item("가", 1) + item("나", 2) + item("다", 3) + item("라", 3)

    path = docx(tmp_path / "a.docx", body, numbering=kinds)

    assert read(path).text == "1. 가\n2. 나\n1. 다\n2. 라"


@pytest.mark.parametrize(
    ("form", "third"),
    [
        ("ganada", "다"),
        ("chosung", "ㄷ"),
        ("koreanDigital", "삼"),
        ("koreanCounting", "삼"),
        ("koreanLegal", "셋"),
        ("decimalEnclosedCircle", "③"),
        ("upperRoman", "III"),
        ("lowerLetter", "c"),
        ("decimalZero", "03"),
        ("unheardOf", "3"),
    ],
)
def test_numbers_are_written_as_word_shows_them(tmp_path: Path, form: str, third: str) -> None:
    kinds = numbering(level(0, form, "%1)"), lists=numbered(1, 0))
    body = "".join(item("항목", 1) for _ in range(3))

    text = read(docx(tmp_path / "a.docx", body, numbering=kinds)).text

    assert text.endswith(f"{third}) 항목")


def test_text_between_parts_a_list_and_its_numbers_go_on(tmp_path: Path) -> None:
    kinds = numbering(level(0, "decimal", "%1."), lists=numbered(1, 0))
    body = item("가", 1) + paragraph("설명") + item("나", 1)

    (page,) = read(docx(tmp_path / "a.docx", body, numbering=kinds)).pages

    assert page.text == "1. 가\n\n설명\n\n2. 나"
    assert [page.text[one.start : one.end] for one in page.regions] == ["1. 가", "2. 나"]


def test_a_list_in_a_cell_keeps_its_marks(tmp_path: Path) -> None:
    cell = f"<w:tc>{item('신분증', 2)}{item('도장', 2)}</w:tc><w:tc>{paragraph('필수')}</w:tc>"
    body = f"<w:tbl><w:tr>{cell}</w:tr><w:tr>{cell}</w:tr></w:tbl>"

    text = read(docx(tmp_path / "a.docx", body, numbering=KINDS)).text

    assert "| - 신분증 - 도장 | 필수 |" in text


def test_a_list_that_nobody_defined_is_plain_text(tmp_path: Path) -> None:
    assert read(docx(tmp_path / "a.docx", item("본문", 9))).text == "본문"

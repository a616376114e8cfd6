"""Words over line ends: whole where a line cuts them, apart where lines end between words."""

from pathlib import Path

import pytest
import typst

from documents.parsers.pdf.lines import WordSpacing
from tests.documents.parsers.reading import read

FONTS = Path("chats/printing/fonts")
TEXT = """국가는 회계연도마다 예산안을 편성하여 회계연도 개시 구십일 전까지
국회에 제출하고, 국회는 회계연도 개시 삼십일 전까지 이를 의결하여야
한다. 새로운 회계연도가 개시될 때까지 예산안이 의결되지 못한 때에는
정부는 국회에서 예산안이 의결될 때까지 전년도 예산에 준하여 집행할 수
있다. 정부는 예산에 변경을 가할 필요가 있을 때에는 추가경정예산안을
편성하여 국회에 제출할 수 있다. 국채를 모집하거나 예산 외에 국가의
부담이 될 계약을 체결하려 할 때에는 정부는 미리 국회의 의결을 얻어야
한다. 조세의 종목과 세율은 법률로 정하며, 정부는 해마다 그 결산을
국회에 보고하여야 한다.""".replace("\n", " ")
CUT = [
    ("국회는 회계연도 개", "시 삼십일 전까지"),
    ("정부는 국회에서 예산안", "이 의결될 때까지"),
    ("예산에 변경을 가할 필요", "가 있을 때에는"),
    ("추가경정예산안을 편성하", "여 국회에 제출할 수"),
    ("정부는 미리 국회의 의결", "을 얻어야 한다"),
    ("조세의 종목과 세율은 법", "률로 정하며"),
]
WHOLE = [
    ("국회는 회계연도", "개시 삼십일 전까지"),
    ("정부는 국회에서 예산안이", "의결될 때까지"),
    ("예산에 변경을 가할", "필요가 있을 때에는"),
    ("추가경정예산안을", "편성하여 국회에 제출할"),
    ("정부는 미리 국회의", "의결을 얻어야 한다"),
    ("조세의 종목과 세율은", "법률로 정하며"),
]


@pytest.fixture
def cutting_spacing() -> WordSpacing:
    """What a document shows whose lines end within words."""
    spacing = WordSpacing()
    for line, following in CUT:
        spacing.add_line_end(line, following)
    return spacing


def test_a_cut_word_goes_on_where_lines_cut_words(cutting_spacing: WordSpacing) -> None:
    assert cutting_spacing.continues_word("국가는 다음 연도의 예", "산을 편성하여")
    assert cutting_spacing.continues_word("국가는 다음 연도의 예산", "을 편성하여")
    assert not cutting_spacing.continues_word("국가는 다음 연도의 예산을", "편성하여 제출한다")


def test_no_word_goes_on_where_lines_end_between_words() -> None:
    spacing = WordSpacing()
    for line, following in WHOLE:
        spacing.add_line_end(line, following)
    assert not spacing.continues_word("국가는 다음 연도의 예산", "을 편성하여")


def test_no_word_goes_on_before_the_document_has_shown_anything() -> None:
    assert not WordSpacing().continues_word("국가는 다음 연도의 예산", "을 편성하여")


def test_what_a_document_writes_together_goes_on(cutting_spacing: WordSpacing) -> None:
    before = cutting_spacing.compute_log_odds("가락국의 도읍인 봉", "황대를 찾았다")
    cutting_spacing.add_lines(["봉황대는 김해에 있다. 봉황대 유적", "봉황동과 봉황대"])
    assert cutting_spacing.compute_log_odds("가락국의 도읍인 봉", "황대를 찾았다") > before


@pytest.mark.parametrize("joiner", ["", "\u2060"], ids=["within words", "between words"])
def test_the_words_of_a_justified_paragraph_are_whole(tmp_path: Path, joiner: str) -> None:
    """Word joiners, which draw nothing, keep the syllables of a word on one line."""
    text = " ".join(joiner.join(word) for word in TEXT.split())
    source = f"""#set page(width: 90mm, height: 200mm)
    #set text(font: "Noto Sans KR", size: 9pt, lang: "ko")
    #set par(justify: true)
    {text}"""
    path = tmp_path / "paragraph.pdf"
    typst.compile(source.encode(), output=str(path), font_paths=[str(FONTS)])
    (page,) = read(path).pages
    assert page.text.split() == TEXT.split()


def test_the_figure_of_a_footnote_is_a_word_of_its_own_and_that_of_a_unit_is_not(
    tmp_path: Path,
) -> None:
    source = """#set page(width: 120mm, height: 100mm)
    #set text(font: "Noto Sans KR", size: 9pt)
    #set super(typographic: false)
    The pilots read an alert,#super[5] and the checklists#super[15] say so.#super[6]

    It covers 84 m#super[2] and costs 1,200 in 2027.

    #text(size: 7pt)[#super[15]All of the checklists were replaced.]"""
    path = tmp_path / "notes.pdf"
    typst.compile(source.encode(), output=str(path), font_paths=[str(FONTS)])
    (page,) = read(path).pages
    assert "an alert, 5 and the checklists 15 say so. 6" in page.text
    assert "84 m2 and costs 1,200 in 2027." in page.text
    assert "15 All of the checklists" in page.text

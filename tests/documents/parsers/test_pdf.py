"""PDF: the right text on the right page, and boxes where the characters stand."""

from pathlib import Path

import pytest

from documents.parsers.base import Corrupt, Encrypted, NoText
from rag.chunking import split_pages
from tests.documents.parsers.reading import read, shared
from tests.documents.parsers.samples import Pdf


def test_every_page_has_its_own_text(tmp_path: Path) -> None:
    pdf = Pdf().page((50, 700, "첫째 쪽이다.")).page((50, 700, "둘째 쪽이다."))

    result = read(pdf.write(tmp_path / "a.pdf"))

    assert [(page.number, page.text) for page in result.pages] == [
        (1, "첫째 쪽이다."),
        (2, "둘째 쪽이다."),
    ]
    assert result.page_total == 2


def test_edges_stand_at_the_sides_of_the_characters(tmp_path: Path) -> None:
    path = Pdf().page((60, 700, "가나다")).write(tmp_path / "a.pdf")

    (line,) = read(path).pages[0].lines

    assert (line.start, line.end) == (0, 3)
    assert line.edges == pytest.approx((0.1, 0.1 + 1 / 30, 0.1 + 2 / 30, 0.2), abs=0.001)
    assert (line.y0, line.y1) == pytest.approx((1 - 716 / 800, 1 - 696 / 800), abs=0.006)


def test_a_crop_box_moves_the_boxes_with_the_page_as_shown(tmp_path: Path) -> None:
    path = Pdf(box="300 400 600 800").page((300, 700, "가나")).write(tmp_path / "a.pdf")

    (line,) = read(path).pages[0].lines

    assert line.edges == pytest.approx((0, 20 / 300, 40 / 300), abs=0.001)
    assert line.y1 == pytest.approx(1 - 296 / 400, abs=0.01)


U, V = 70 / 600, 706 / 800  # the middle of the first character, in page space


@pytest.mark.parametrize(
    ("turn", "x", "y"),
    [(0, U, 1 - V), (90, V, U), (180, 1 - U, V), (270, 1 - V, 1 - U)],
)
def test_a_turned_page_has_its_boxes_as_shown(
    tmp_path: Path, turn: int, x: float, y: float
) -> None:
    path = Pdf().page((60, 700, "가나"), rotate=turn).write(tmp_path / "a.pdf")

    pages = split_pages(read(path).pages, size=1, overlap=0)

    (box,) = pages.chunks[0].boxes
    assert ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2) == pytest.approx((x, y), abs=0.004)


def test_words_far_apart_keep_their_order(tmp_path: Path) -> None:
    path = Pdf().page((50, 700, "왼쪽"), (350, 700, "오른쪽")).write(tmp_path / "a.pdf")

    page = read(path).pages[0]

    words = [page.text[line.start : line.end] for line in page.lines]
    assert " ".join(words) == "왼쪽 오른쪽"


def test_decomposed_hangul_is_composed_and_keeps_its_boxes(tmp_path: Path) -> None:
    path = Pdf().page((60, 700, "\u1112\u1161\u11ab\u1100\u1173\u11af")).write(tmp_path / "a.pdf")

    page = read(path).pages[0]

    assert page.text == "한글"
    assert [len(line.edges) for line in page.lines] == [3]


def test_a_word_broken_by_the_end_of_a_line_is_whole(tmp_path: Path) -> None:
    spaced = [f"계약의 해석은 모두에게 공정해야 하{end} " for end in "며고나"]
    rows = [*spaced, "이 약관을 두고 서로 다르게 보는 보", "험회사가 많다."]
    path = Pdf().page(*((50, 700 - 25 * n, row) for n, row in enumerate(rows)))

    page = read(path.write(tmp_path / "a.pdf")).pages[0]

    assert page.text.split("\n")[-1] == "이 약관을 두고 서로 다르게 보는 보험회사가 많다."
    assert len(page.lines) == 5


def test_bookmarks_become_headings_where_their_words_stand(tmp_path: Path) -> None:
    pdf = Pdf().page((50, 750, "앞말"), (50, 700, "제1장 총칙"), bookmark="제1장 총칙")

    (page,) = read(pdf.write(tmp_path / "a.pdf")).pages

    (heading,) = page.headings
    assert (heading.level, heading.title) == (1, "제1장 총칙")
    assert page.text[heading.start :].startswith("제1장")


def test_the_title_is_metadata(tmp_path: Path) -> None:
    path = Pdf(title="제안요청서").page((50, 700, "본문")).write(tmp_path / "a.pdf")

    assert read(path).metadata["title"] == "제안요청서"


def test_a_file_without_text_on_any_page_is_called_a_scan(tmp_path: Path) -> None:
    path = Pdf().page().page().write(tmp_path / "a.pdf")

    with pytest.raises(NoText) as caught:
        read(path)

    assert caught.value.params == {"kind": "scan"}


def test_glyph_codes_without_a_unicode_map_are_not_text() -> None:
    with pytest.raises(NoText) as caught:
        read(shared("bad-inputs/pdf/korean-no-tounicode.pdf"))

    assert caught.value.params == {"kind": "unreadable"}


def test_a_password_is_named_as_the_reason() -> None:
    with pytest.raises(Encrypted) as caught:
        read(shared("bad-inputs/pdf/real-pypdf-r3-user-password.pdf"))

    assert caught.value.params == {"lock": "password"}


def test_half_a_file_is_corrupt(tmp_path: Path) -> None:
    whole = Pdf().page((50, 700, "본문")).write(tmp_path / "a.pdf").read_bytes()
    (tmp_path / "half.pdf").write_bytes(whole[: len(whole) // 3])

    with pytest.raises(Corrupt):
        read(tmp_path / "half.pdf")


def test_filled_form_fields_are_text() -> None:
    assert "Execute" in read(shared("bad-inputs/pdf/real-pdfjs-evaljs.pdf")).text


def test_a_real_brief_has_its_sentences_on_their_pages() -> None:
    result = read(shared("pdf/docling/normal_4pages.pdf"))

    pages = ["".join(page.text.split()) for page in result.pages]
    assert len(pages) == 4
    assert "들어가며" in pages[0]
    assert "생명보험표준약관재해분류표" in pages[1]
    assert "작성자불이익의해석원칙" in pages[2]
    assert "국회입법조사처" in pages[3]
    assert result.metadata["author"] == "김창호"


def test_every_line_of_a_real_page_fits_its_text() -> None:
    for page in read(shared("pdf/docling/normal_4pages.pdf")).pages:
        assert len(page.lines) > 20
        for line in page.lines:
            assert len(line.edges) == line.end - line.start + 1
            assert "\n" not in page.text[line.start : line.end]
            assert 0 <= line.y0 < line.y1 <= 1

"""PyMuPDF as the reader of PDF: the same pages as PDFium's. Skipped where it is not installed."""

import importlib.util
from pathlib import Path

import pytest

from documents.parsers import formats
from documents.parsers.base import NoText, ReaderMissing
from documents.parsers.formats import PYMUPDF
from documents.parsers.sandbox import client
from rag.types import Kind, Page
from tests.documents.parsers.reading import shared
from tests.documents.parsers.samples import Pdf, rules, words

is_there = importlib.util.find_spec("pymupdf") is not None
needs_pymupdf = pytest.mark.skipif(not is_there, reason="PyMuPDF is not installed")
SMALL = "".join(
    (
        rules(*((100, y, 400, y) for y in (700, 660, 620))),
        rules(*((x, 620, x, 700) for x in (100, 250, 400))),
        words(110, 675, "항목"), words(260, 675, "금액"),
        words(110, 635, "예산"), words(260, 635, "이십만원"),
    )
)  # fmt: skip


def read_pages(path: Path, pdf_reader: str = PYMUPDF) -> list[Page]:
    with client.read_document(path, formats.PDF, path.name, pdf_reader=pdf_reader) as reading:
        return list(reading)


@needs_pymupdf
@pytest.mark.parametrize("rotate", [0, 180])
def test_it_reads_what_pdfium_reads(tmp_path: Path, rotate: int) -> None:
    lines = [(50, 700 - 30 * row, f"{row}번째 줄의 본문입니다.") for row in range(5)]
    path = Pdf(box="20 20 580 780").page(*lines, rotate=rotate).write(tmp_path / "a.pdf")
    (ours,), (theirs,) = read_pages(path), read_pages(path, "pdfium")

    assert ours.text == theirs.text
    for line, other in zip(ours.lines, theirs.lines, strict=True):
        assert line.edges == pytest.approx(other.edges, abs=0.01)
        assert (line.y0 + line.y1) == pytest.approx(other.y0 + other.y1, abs=0.03)


@needs_pymupdf
def test_tables_are_found(tmp_path: Path) -> None:
    (page,) = read_pages(Pdf().page(drawn=SMALL).write(tmp_path / "a.pdf"))

    assert "| 예산 | 이십만원 |" in page.text
    assert [region.kind for region in page.regions] == [Kind.TABLE]


@needs_pymupdf
def test_letters_that_cannot_be_told_are_no_text() -> None:
    with pytest.raises(NoText):
        read_pages(shared("bad-inputs/pdf/korean-no-tounicode.pdf"))


@pytest.mark.skipif(is_there, reason="PyMuPDF is installed")
def test_a_reader_that_is_missing_is_named(tmp_path: Path) -> None:
    path = Pdf().page((50, 700, "본문입니다.")).write(tmp_path / "a.pdf")

    with pytest.raises(ReaderMissing) as caught:
        read_pages(path)

    assert caught.value.params == {"name": "PyMuPDF"}

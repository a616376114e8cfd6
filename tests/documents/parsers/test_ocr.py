"""Pages that are pictures: read by text recognition where it is installed, named where not."""

from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from documents.parsers import formats
from documents.parsers.base import Limits, NoText
from documents.parsers.pdf import ocr
from documents.parsers.sandbox import client
from rag.types import Kind
from tests.documents.parsers.reading import Result, read, shared
from tests.documents.parsers.samples import Pdf

needs_tesseract = pytest.mark.skipif(
    ocr.find_program() is None, reason="tesseract with Korean is not installed"
)
OFF = Limits(recognised_pages=0)
FEW = Limits(recognised_pages=1)


def scan(path: Path, *pages: str, turned: int = 0) -> Path:
    """A PDF of pictures of text, one a page."""
    font = ImageFont.load_default(size=44)
    pictures = []
    for text in pages:
        picture = Image.new("L", (1240, 1754), 255)
        ImageDraw.Draw(picture).multiline_text((150, 200), text, 0, font, spacing=30)
        pictures.append(picture.rotate(turned, expand=True))
    pictures[0].save(path, save_all=True, append_images=pictures[1:], resolution=150)
    return path


@pytest.fixture
def quarterly(tmp_path: Path) -> Path:
    return scan(tmp_path / "a.pdf", "Quarterly report\nThe boiler pressure is 42 units")


@needs_tesseract
def test_a_scanned_page_is_read(quarterly: Path) -> None:
    (page,) = read(quarterly).pages

    assert page.text == "Quarterly report\nThe boiler pressure is 42 units"
    (region,) = page.regions
    assert (region.start, region.end, region.kind) == (0, len(page.text), Kind.RECOGNISED)


@needs_tesseract
def test_words_of_a_scan_stand_where_they_are_drawn(quarterly: Path) -> None:
    (page,) = read(quarterly).pages
    first = page.lines[0]

    assert page.text[first.start : first.end] == "Quarterly report"
    assert first.y0 == pytest.approx(200 / 1754, abs=0.02)
    assert first.edges[0] == pytest.approx(150 / 1240, abs=0.02)
    assert first.edges == tuple(sorted(first.edges))


@needs_tesseract
@pytest.mark.parametrize("turned", [90, 180, pytest.param(270, marks=pytest.mark.whole)])
def test_a_scan_that_was_put_in_turned_is_read(tmp_path: Path, turned: int) -> None:
    lines = "\n".join(f"Line {n} says that the boiler pressure is high today" for n in range(9))
    (page,) = read(scan(tmp_path / "a.pdf", lines, turned=turned)).pages

    assert "Line 3 says that the boiler pressure is high today" in page.text
    assert all(0 <= edge <= 1 for line in page.lines for edge in line.edges)


@needs_tesseract
@pytest.mark.parametrize("name", ["scan-only-korean.pdf", "scan-upside-down.pdf"])
def test_a_korean_scan_is_read(name: str) -> None:
    text = read(shared(f"bad-inputs/pdf/{name}")).text

    assert "점검 결과 통보서" in text
    assert "3.9 MPa" in text


@needs_tesseract
def test_pages_beyond_the_limit_are_left_out_with_a_warning(tmp_path: Path) -> None:
    result = read(scan(tmp_path / "a.pdf", "First page here", "Second page here"), FEW)

    assert [page.text for page in result.pages] == ["First page here", ""]
    assert result.warnings == ("ocr_skipped",)


@needs_tesseract
def test_pictures_without_text_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    Image.linear_gradient("L").resize((1200, 1600)).save(path)

    reading = client.read_document(path, formats.PDF, pictures=client.PictureRules(max_pictures=0))
    with reading, pytest.raises(NoText) as caught:
        list(reading)

    assert caught.value.params["kind"] == "unrecognised"


def test_a_scan_without_recognition_says_so(quarterly: Path) -> None:
    reading = client.read_document(
        quarterly, formats.PDF, limits=OFF, pictures=client.PictureRules(max_pictures=0)
    )
    with reading, pytest.raises(NoText) as caught:
        list(reading)

    assert caught.value.params["kind"] == "scan"
    assert reading.warnings == ["scanned_pages"]


def test_pages_with_text_are_not_recognised(tmp_path: Path) -> None:
    path = Pdf().page((50, 700, "본문이 있는 쪽입니다.")).page().write(tmp_path / "a.pdf")
    result: Result = read(path, OFF)

    assert (result.text.strip(), result.warnings) == ("본문이 있는 쪽입니다.", ())


def write_tsv(*lines: tuple[tuple[int, int, int, str], ...], sure: float = 90) -> str:
    """TSV as tesseract writes it: left, width, confidence (or `sure`) and text of each word."""
    found = ["level"]
    for number, line in enumerate(lines):
        for left, width, confidence, text in line:
            place = f"5\t1\t1\t1\t{number}\t1\t{left}\t{number * 100}\t{width}\t40"
            found.append(f"{place}\t{confidence or sure}\t{text}")
    return "\n".join(found)


def list_lines(tsv: str) -> list[str]:
    return [row.text for row in ocr.build_rows(ocr.parse_words(tsv, 1000, 1000), 1.0, 0)]


def test_syllables_of_a_word_come_together() -> None:
    line = ((100, 38, 0, "보"), (142, 37, 0, "험"), (184, 80, 0, "약관"), (300, 38, 0, "및"))

    assert list_lines(write_tsv(line)) == ["보험약관 및"]


def test_latin_words_stay_apart() -> None:
    assert list_lines(write_tsv(((100, 50, 0, "boiler"), (155, 50, 0, "room")))) == ["boiler room"]


def test_specks_are_left_out() -> None:
    assert list_lines(write_tsv(((100, 50, 0, "압력"), (300, 5, 12, "'")), ((0, 3, 5, "|"),))) == [
        "압력"
    ]

"""What a file is: by its content, held against its name."""

import io
from pathlib import Path

import pytest

from documents.parsers import formats
from documents.parsers.base import (
    Corrupt,
    EmptyFile,
    Encrypted,
    ParseFailed,
    TypeMismatch,
    UnsupportedType,
    UnsupportedVersion,
)
from tests.documents.parsers.reading import shared
from tests.documents.parsers.samples import Pdf, docx, hwpx, paragraph, write_zip

NAMES = {
    "pdf": formats.PDF,
    "docx": formats.DOCX,
    "hwpx": formats.HWPX,
    "html": formats.HTML,
    "md": formats.MARKDOWN,
    "txt": formats.TEXT,
}


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("kinds")
    return {
        "pdf": Pdf().page((50, 700, "본문")).write(folder / "a").read_bytes(),
        "docx": docx(folder / "b", paragraph("본문")).read_bytes(),
        "hwpx": hwpx(folder / "c", "본문").read_bytes(),
        "html": "<!-- x -->\n<!DOCTYPE html><html><body>본문</body></html>".encode(),
        "md": "# 제목\n\n본문".encode(),
        "txt": "본문".encode("cp949"),
    }


@pytest.mark.parametrize("named", NAMES)
@pytest.mark.parametrize("kind", NAMES)
def test_content_decides_and_the_name_must_agree(
    contents: dict[str, bytes], kind: str, named: str
) -> None:
    file = io.BytesIO(contents[kind])

    if kind == named or (kind in {"md", "txt", "html"} and named in {"md", "txt"}):
        assert formats.detect_content_type(file, f"문서.{named.upper()}") == NAMES[named]
    else:
        with pytest.raises(TypeMismatch) as caught:
            formats.detect_content_type(file, f"문서.{named}")
        assert caught.value.params["named"] == formats.LABELS[NAMES[named]]
    assert file.tell() == 0


def sniff(content: bytes, name: str) -> str:
    return formats.detect_content_type(io.BytesIO(content), name)


def test_a_name_without_an_extension_leaves_it_to_the_content(contents: dict[str, bytes]) -> None:
    assert sniff(contents["pdf"], "보고서") == formats.PDF
    assert sniff(contents["md"], "README") == formats.TEXT


@pytest.mark.parametrize(
    ("content", "name", "failure", "found"),
    [
        (b"{\\rtf1 abc}", "a.docx", TypeMismatch, "RTF"),
        (b"  <!DOCTYPE html><html>", "a.pdf", TypeMismatch, "HTML"),
        ("그냥 글 1 < 2".encode(), "a.html", TypeMismatch, "text"),
        (b"<!-- " * 1600 + b"<svg>", "a.pdf", TypeMismatch, "text"),
        (b"\x89PNG\r\n\x1a\n\0\0", "a.png", UnsupportedType, "PNG"),
        (b"a,b\n1,2\n", "a.csv", UnsupportedType, "text"),
        (bytes(range(256)) * 40, "a.txt", TypeMismatch, "binary"),
        (b"<?xml version='1.0'?><svg xmlns='x'/>", "a.svg", UnsupportedType, "SVG"),
    ],
)
def test_other_kinds_are_named(
    content: bytes, name: str, failure: type[ParseFailed], found: str
) -> None:
    with pytest.raises(failure) as caught:
        sniff(content, name)

    assert caught.value.params["found"] == found


def test_a_text_that_begins_like_a_bitmap_is_text() -> None:
    assert sniff(b"BM25 is a ranking function.", "a.md") == formats.MARKDOWN


@pytest.mark.parametrize(
    "content",
    [
        b"<h1>a</h1><p>b</p>",
        b"\n<?xml version='1.0'?>\n<!-- a -->\n<html xmlns='b'>",
        "<html><body>본문</body></html>".encode("utf-16"),
        "<p>본문</p>".encode("cp949"),
    ],
)
def test_a_page_or_a_piece_of_one_is_html_under_that_name(content: bytes) -> None:
    assert sniff(content, "a.htm") == formats.HTML


def test_utf_16_without_a_mark_is_text() -> None:
    assert sniff("담당자: 홍길동 2026".encode("utf-16-le"), "a.txt") == formats.TEXT


def test_nothing_is_an_empty_file() -> None:
    with pytest.raises(EmptyFile):
        sniff(b"", "a.pdf")


@pytest.mark.parametrize(
    "content", [b"HWP Document File V3.00 \x1a", b"<?xml version='1.0'?><HWPML >"]
)
def test_old_hwp_is_a_version_that_cannot_be_read(content: bytes) -> None:
    with pytest.raises(UnsupportedVersion):
        sniff(content, "a.hwp")


def test_a_cut_package_is_corrupt(contents: dict[str, bytes]) -> None:
    with pytest.raises(Corrupt):
        sniff(contents["docx"][:-40], "a.docx")


def test_any_other_package_is_not_a_document(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatch):
        formats.detect_content_type(write_zip(tmp_path / "a.docx", {"a.txt": "x"}), "a.docx")


def test_a_locked_word_file_asks_for_its_password() -> None:
    path = shared("bad-inputs/docx/real-poi-bug53475-password-is-pass.docx")

    with pytest.raises(Encrypted):
        formats.detect_content_type(path, path.name)


def test_hwp_under_the_name_hwpx_is_named() -> None:
    path = shared("bad-inputs/hwpx/is-really-hwp5.hwpx")

    with pytest.raises(TypeMismatch) as caught:
        formats.detect_content_type(path, path.name)

    assert caught.value.params == {"named": "HWPX", "found": "HWP"}

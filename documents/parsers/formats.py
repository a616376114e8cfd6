"""The readable formats: their names, their parsers, and detection by content.

A new format needs its type, extensions and label, a line in `PARSERS`, and its detection.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, cast

from documents.parsers.archive import Archive
from documents.parsers.base import (
    ArchiveBomb,
    Corrupt,
    EmptyFile,
    Encrypted,
    Limits,
    Parser,
    TypeMismatch,
    UnsupportedType,
    UnsupportedVersion,
)
from documents.parsers.text import detect_utf16

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
HWP = "application/x-hwp"
HWPX = "application/hwp+zip"
HTML = "text/html"
MARKDOWN = "text/markdown"
TEXT = "text/plain"

EXTENSIONS = {
    "pdf": PDF,
    "docx": DOCX,
    "hwp": HWP,
    "hwpx": HWPX,
    "html": HTML,
    "htm": HTML,
    "xhtml": HTML,
    "md": MARKDOWN,
    "markdown": MARKDOWN,
    "txt": TEXT,
    "text": TEXT,
}

LABELS = {
    PDF: "PDF",
    DOCX: "DOCX",
    HWP: "HWP",
    HWPX: "HWPX",
    HTML: "HTML",
    MARKDOWN: "Markdown",
    TEXT: "text",
}
"""Names for people, used in `params` of errors."""

PDFIUM, PYMUPDF = PDF_READERS = ("pdfium", "pymupdf")
"""Libraries for PDF. The second is under the AGPL, so it has to be chosen explicitly."""
PARSERS = {
    PDFIUM: "pdf.parser:PdfParser",
    PYMUPDF: "pdf.mupdf:PyMuPdfParser",
    DOCX: "docx.parser:DocxParser",
    HWP: "hwp.binary:HwpParser",
    HWPX: "hwp.owpml:HwpxParser",
    HTML: "html:HtmlParser",
    MARKDOWN: "markdown:MarkdownParser",
    TEXT: "text:TextParser",
}
_PICTURES = ("PIL.ImageFilter", "PIL.ImageOps", "PIL.ImageStat")
_PDF = ("pypdfium2", "pypdfium2.raw", "pdfplumber.table", *_PICTURES)
LIBRARIES = {
    PDFIUM: _PDF,
    PYMUPDF: _PDF,  # PyMuPDF itself starts threads, which a fork would lack
    DOCX: ("docx", *_PICTURES),
    HWP: ("olefile", *_PICTURES),
    HWPX: ("lxml.etree", *_PICTURES),
    HTML: ("lxml.html",),
}
"""Imports of the parsers; the fork server loads them before it forks."""

_HEAD_BYTES = 8_192
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MAGIC = (
    (b"{\\rtf", "RTF"),
    (b"\x89PNG", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"RIFF", "RIFF"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"\x00\x00\x00\x0cjP", "JPEG 2000"),
    (b"\x1f\x8b", "GZIP"),
    (b"7z\xbc\xaf", "7-Zip"),
    (b"Rar!", "RAR"),
    (b"\x7fELF", "program"),
    (b"MZ\x90", "program"),
)
_PROLOGUE = r"(?:<\?xml[^>]*>\s*|<!--.*?-->\s*)*+"
_MARKUP = (
    (
        re.compile(_PROLOGUE + r"(?:<!doctype\s+html|<html[\s>])", re.IGNORECASE | re.DOTALL),
        HTML,
    ),
    (re.compile(_PROLOGUE + r"(?:<!DOCTYPE[^>]*>\s*)?<HWPML[\s>]", re.DOTALL), "HWPML"),
    (re.compile(_PROLOGUE + r"(?:<!DOCTYPE[^>]*>\s*)?<svg[\s>]", re.DOTALL), "SVG"),
)
_ELEMENT = re.compile(
    r"<!--|<(?:head|title|meta|style|script|body|main|article|section|div|p|h[1-6]|ul|ol|dl|table|"
    r"pre|span|a|br)\b[^<>]*>",
    re.IGNORECASE,
)
"""A piece of a page, such as a program saves under the name .html."""
_OFFICE = (
    (b"wordprocessingml.document.main", DOCX),
    (b"ms-word.document.macroEnabled.main", DOCX),
    (b"spreadsheetml", "XLSX"),
    (b"presentationml", "PPTX"),
)
_OLE_STREAMS = (
    ("WordDocument", "DOC (Word 97-2003)"),
    ("Workbook", "XLS (Excel 97-2003)"),
    ("Book", "XLS (Excel 97-2003)"),
    ("PowerPoint Document", "PPT (PowerPoint 97-2003)"),
)
_ALLOWED_CONTROLS = b"\t\n\r\x0b\x0c\x1b\x08"
_CONTROLS = bytes(set(range(32)) - set(_ALLOWED_CONTROLS))
_TEXT_TYPES = {TEXT, MARKDOWN}


def get_extension(name: str) -> str:
    """The lower-case extension of a file name, without the dot; "" if there is none."""
    stem, dot, end = name.rpartition(".")
    return end.lower() if dot and stem else ""


def detect_content_type(source: Path | BinaryIO, name: str) -> str:
    """The type of the content, with which `name` must agree. A file object is left at its start.

    Raises EmptyFile, TypeMismatch, UnsupportedType, UnsupportedVersion, Encrypted, Corrupt,
    ArchiveBomb.
    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            return detect_content_type(file, name)
    source.seek(0)
    try:
        return _match_name(source, source.read(_HEAD_BYTES), get_extension(name))
    finally:
        source.seek(0)


def _match_name(file: BinaryIO, head: bytes, extension: str) -> str:
    """The kind of the content, checked against the extension of the name."""
    if not head:
        raise EmptyFile
    expected = EXTENSIONS.get(extension)
    kind = _detect_kind(file, head, expected)
    if kind == "text":
        if expected in _TEXT_TYPES:
            return str(expected)
        if not extension:
            return TEXT
    elif kind in LABELS and (kind == expected or not extension):
        return kind
    if expected is None:
        raise UnsupportedType(named=extension, found=LABELS.get(kind, kind))
    raise TypeMismatch(named=LABELS[expected], found=LABELS.get(kind, kind))


def _detect_kind(file: BinaryIO, head: bytes, expected: str | None) -> str:
    """A content type, "text", or the name of another kind."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return _detect_in_zip(file, expected)
    if head.startswith(_OLE):
        return _detect_in_ole(file, expected)
    if head.startswith(b"HWP Document File"):
        raise UnsupportedVersion(found="HWP 3")
    # proxies may add bytes before a PDF; viewers search the first 1,024 bytes, and so do we
    if head.startswith(b"%PDF-") or (expected == PDF and b"%PDF-" in head[:1024]):
        return PDF
    for magic, kind in _MAGIC:
        if head.startswith(magic) and not (magic.isalpha() and _is_text(head)):
            return kind
    return _detect_in_text(head, expected)


def _detect_in_text(head: bytes, expected: str | None) -> str:
    """The kind of a text, or "binary"."""
    beginning = _keep_ascii(head).lstrip()
    for pattern, kind in _MARKUP:
        if pattern.match(beginning):
            return _resolve_markup(kind, expected)
    if not _is_text(head):
        return "binary"
    return HTML if expected == HTML and _ELEMENT.search(beginning) else "text"


def _keep_ascii(head: bytes) -> str:
    """The ASCII characters of a beginning, in whatever encoding."""
    return head.translate(None, bytes(range(128, 256)) + b"\x00").decode("ascii")


def _resolve_markup(kind: str, expected: str | None) -> str:
    """The kind of a text with markup, given the type that its name promises.

    HWPML named .hwp is a version that cannot be read. A text file stays one, whatever tags it has.
    """
    if kind == "HWPML" and expected in {HWP, HWPX}:
        raise UnsupportedVersion(found="HWPML")
    return "text" if kind == HTML and expected in _TEXT_TYPES else kind


def _is_text(head: bytes) -> bool:
    """Whether the beginning looks like text: UTF-16, or hardly any control characters."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or detect_utf16(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls <= len(head) // 20


def _detect_in_zip(file: BinaryIO, expected: str | None) -> str:
    """The kind of a ZIP package; a broken one counts as what its name says."""
    try:
        archive = Archive(file, Limits())
        if "mimetype" in archive and b"hwp+zip" in archive.read_part("mimetype")[:100]:
            return HWPX
        if "Contents/content.hpf" in archive:
            return HWPX
        declared = (
            archive.read_part("[Content_Types].xml") if "[Content_Types].xml" in archive else b""
        )
    except (Corrupt, ArchiveBomb, Encrypted):
        if expected in {DOCX, HWPX}:
            raise
        return "ZIP"
    for words, kind in _OFFICE:
        if words in declared:
            return kind
    if declared and expected == DOCX:
        raise Corrupt(detail="word/document.xml is missing")
    return "ZIP"


def _detect_in_ole(file: BinaryIO, expected: str | None) -> str:
    """The kind of an OLE file: HWP 5, a locked Office file, or an old Office format."""
    import olefile

    try:
        file.seek(0)
        with olefile.OleFileIO(file) as ole:
            if (
                ole.exists("FileHeader")
                and ole.openstream("FileHeader").read(17) == b"HWP Document File"
            ):
                return HWP
            if ole.exists("EncryptedPackage"):
                raise Encrypted(lock="password")
            for stream, kind in _OLE_STREAMS:
                if ole.exists(stream):
                    return kind
    except (OSError, ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        if expected == HWP:
            raise Corrupt(detail=type(error).__name__) from error
    return "OLE"


def make_parser(content_type: str, pdf_reader: str = PDFIUM) -> Parser:
    """The parser of a type; imports its module."""
    module, name = _locate_parser(content_type, pdf_reader)
    return cast("Parser", getattr(import_module(module), name)())


def preload_parser(content_type: str, pdf_reader: str) -> None:
    """Import what the parser of a type needs, before this process forks."""
    for library in LIBRARIES.get(_to_parser_key(content_type, pdf_reader), ()):
        import_module(library)
    if image := sys.modules.get("PIL.Image"):
        image.preinit()
    module, _ = _locate_parser(content_type, pdf_reader)
    import_module(module)


def _locate_parser(content_type: str, pdf_reader: str) -> tuple[str, str]:
    """Module and class of a parser."""
    module, _, name = PARSERS[_to_parser_key(content_type, pdf_reader)].partition(":")
    return f"documents.parsers.{module}", name


def _to_parser_key(content_type: str, pdf_reader: str) -> str:
    return pdf_reader if content_type == PDF else content_type

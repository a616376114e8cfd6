"""What a file is, by its content; the name only has to agree. Cheap: no child process."""

import re
from pathlib import Path
from typing import BinaryIO

from documents.parsers import kinds
from documents.parsers.archive import Archive
from documents.parsers.base import Limits
from documents.parsers.encoding import utf16
from documents.parsers.errors import (
    ArchiveBomb,
    Corrupt,
    EmptyFile,
    Encrypted,
    TypeMismatch,
    UnsupportedType,
    UnsupportedVersion,
)

_HEAD = 8_192
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
        kinds.HTML,
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
    (b"wordprocessingml.document.main", kinds.DOCX),
    (b"ms-word.document.macroEnabled.main", kinds.DOCX),
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
_TEXT_TYPES = {kinds.TEXT, kinds.MARKDOWN}


def content_type(source: Path | BinaryIO, name: str) -> str:
    """The type of the content, with which `name` must agree. A file object is left at its start.

    Raises EmptyFile, TypeMismatch, UnsupportedType, UnsupportedVersion, Encrypted, Corrupt,
    ArchiveBomb.
    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            return content_type(file, name)
    source.seek(0)
    try:
        return _decided(source, source.read(_HEAD), kinds.extension(name))
    finally:
        source.seek(0)


def _decided(file: BinaryIO, head: bytes, named: str) -> str:
    """The content's kind, held against the name."""
    if not head:
        raise EmptyFile
    expected = kinds.EXTENSIONS.get(named)
    found = _found(file, head, expected)
    if found == "text":
        if expected in _TEXT_TYPES:
            return str(expected)
        if not named:
            return kinds.TEXT
    elif found in kinds.LABELS and (found == expected or not named):
        return found
    if expected is None:
        raise UnsupportedType(named=named, found=kinds.LABELS.get(found, found))
    raise TypeMismatch(named=kinds.LABELS[expected], found=kinds.LABELS.get(found, found))


def _found(file: BinaryIO, head: bytes, expected: str | None) -> str:
    """A content type, "text", or the name of another kind."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return _in_zip(file, expected)
    if head.startswith(_OLE):
        return _in_ole(file, expected)
    if head.startswith(b"HWP Document File"):
        raise UnsupportedVersion(found="HWP 3")
    # Proxies put noise before a PDF; viewers look into the first 1,024 bytes, and so do we.
    if head.startswith(b"%PDF-") or (expected == kinds.PDF and b"%PDF-" in head[:1024]):
        return kinds.PDF
    for magic, kind in _MAGIC:
        if head.startswith(magic) and not (magic.isalpha() and _is_text(head)):
            return kind
    return _in_text(head, expected)


def _in_text(head: bytes, expected: str | None) -> str:
    """The kind of a text, or "binary"."""
    beginning = _ascii(head).lstrip()
    for pattern, kind in _MARKUP:
        if pattern.match(beginning):
            return _markup(kind, expected)
    if not _is_text(head):
        return "binary"
    return kinds.HTML if expected == kinds.HTML and _ELEMENT.search(beginning) else "text"


def _ascii(head: bytes) -> str:
    """The ASCII characters of a beginning, in whatever encoding."""
    return head.translate(None, bytes(range(128, 256)) + b"\x00").decode("ascii")


def _markup(kind: str, expected: str | None) -> str:
    """HWPML under the name .hwp is the right family in a version that we cannot read.

    A text that says it is a text stays one, whatever tags it shows.
    """
    if kind == "HWPML" and expected in {kinds.HWP, kinds.HWPX}:
        raise UnsupportedVersion(found="HWPML")
    return "text" if kind == kinds.HTML and expected in _TEXT_TYPES else kind


def _is_text(head: bytes) -> bool:
    """Whether the beginning looks like text: UTF-16, or hardly any control characters."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or utf16(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls <= len(head) // 20


def _in_zip(file: BinaryIO, expected: str | None) -> str:
    """The kind of a ZIP package; a broken one counts as what its name says."""
    try:
        archive = Archive(file, Limits())
        if "mimetype" in archive and b"hwp+zip" in archive.read("mimetype")[:100]:
            return kinds.HWPX
        if "Contents/content.hpf" in archive:
            return kinds.HWPX
        declared = archive.read("[Content_Types].xml") if "[Content_Types].xml" in archive else b""
    except (Corrupt, ArchiveBomb, Encrypted):
        if expected in {kinds.DOCX, kinds.HWPX}:
            raise
        return "ZIP"
    for words, kind in _OFFICE:
        if words in declared:
            return kind
    if declared and expected == kinds.DOCX:
        raise Corrupt(detail="word/document.xml is missing")
    return "ZIP"


def _in_ole(file: BinaryIO, expected: str | None) -> str:
    """The kind of an OLE file: HWP 5, a locked Office file, or an old Office format."""
    import olefile

    try:
        file.seek(0)
        with olefile.OleFileIO(file) as ole:
            if (
                ole.exists("FileHeader")
                and ole.openstream("FileHeader").read(17) == b"HWP Document File"
            ):
                return kinds.HWP
            if ole.exists("EncryptedPackage"):
                raise Encrypted(lock="password")
            for stream, kind in _OLE_STREAMS:
                if ole.exists(stream):
                    return kind
    except (OSError, ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        if expected == kinds.HWP:
            raise Corrupt(detail=type(error).__name__) from error
    return "OLE"

"""HWP 5 and HWPX through unhwp, behind a look at what locks the file and at what it unpacks to."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from documents.parsers import kinds
from documents.parsers.archive import Archive, check_xml
from documents.parsers.base import Context, Limits
from documents.parsers.builder import PageBuilder
from documents.parsers.errors import ArchiveBomb, Corrupt, Encrypted, UnsupportedVersion
from rag.pages import Page

SIGNATURE = b"HWP Document File"
_COMPRESSED = 1
LOCKS = ((1, "password"), (2, "distribution"), (4, "drm"), (8, "certificate"), (10, "drm"))
"""Bits of the FileHeader's flags. A distribution document (배포용) shows others only a notice."""
_NOTICE = "상위 버전의 배포용 문서"
_STREAMS = re.compile(r"^(docinfo|bodytext/section\d+)$", re.IGNORECASE)
_HEADING = re.compile(r"^(#{1,6}) +(.*)$")
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)\n]*\)")
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")


class HwpParser:
    """Reads .hwp and .hwpx: one page without a number, tables as Markdown."""

    types = (kinds.HWP, kinds.HWPX)

    def parse(self, path: Path, context: Context) -> Iterator[Page]:
        """The whole document as one page."""
        if context.content_type == kinds.HWPX:
            check_hwpx(Archive(path, context.limits))
        else:
            check_hwp(path, context.limits)
        builder = PageBuilder(context)
        _add(builder, _markdown(path, context))
        yield builder.page()


def check_hwp(path: Path, limits: Limits) -> None:
    """Refuse locked documents by name, other versions, and streams that unpack to too much."""
    import olefile

    try:
        with olefile.OleFileIO(path) as ole:
            header = ole.openstream("FileHeader").read(256)
            flags = _checked_flags(header)
            for entry in ole.listdir(streams=True, storages=False):
                if flags & _COMPRESSED and _STREAMS.match("/".join(entry)):
                    _check_stream(ole.openstream(entry).read(), limits)
    except (OSError, ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt(detail=type(error).__name__) from error


def _checked_flags(header: bytes) -> int:
    """The flags of a FileHeader that we can read."""
    if not header.startswith(SIGNATURE) or len(header) < 40:
        raise Corrupt(detail="FileHeader")
    major = header[35]
    if major != 5:
        raise UnsupportedVersion(found=f"HWP {major}")
    flags = int.from_bytes(header[36:40], "little")
    for bit, lock in LOCKS:
        if flags >> bit & 1:
            raise Encrypted(lock=lock)
    return flags


def _check_stream(packed: bytes, limits: Limits) -> None:
    """Inflate a stream in steps, counting."""
    allowed = min(limits.inflated, max(limits.ratio_after, len(packed) * limits.ratio))
    inflater, total = zlib.decompressobj(-zlib.MAX_WBITS), 0
    try:
        while packed and not inflater.eof:
            total += len(inflater.decompress(packed, 1 << 20))
            packed = inflater.unconsumed_tail
            if total > allowed:
                raise ArchiveBomb(limit=allowed)
    except zlib.error as error:
        raise Corrupt(detail="deflate") from error


def check_hwpx(archive: Archive) -> None:
    """Refuse encryption by name, document types, and text that unpacks to too much.

    Pictures are not counted: unhwp has a limit of its own for them, and the child one of memory.
    """
    manifest = "META-INF/manifest.xml"
    if manifest in archive and b"encryption-data" in archive.read(manifest):
        raise Encrypted(lock="password")
    for name in archive.names:
        if name.lower().endswith((".xml", ".hpf", ".rdf")):
            check_xml(archive, name)


def _markdown(path: Path, context: Context) -> str:
    """What unhwp makes of the file."""
    import unhwp

    options = unhwp.RenderOptions(escape_special_chars=False, max_heading_level=6)
    try:
        with unhwp.parse(str(path), render_options=options) as document:
            context.found({"title": document.title, "author": document.author})
            text: str = document.markdown
    except unhwp.UnhwpError as error:
        if error.kind in {unhwp.ErrorKind.ENCRYPTED, unhwp.ErrorKind.DISTRIBUTION_RESTRICTED}:
            raise Encrypted(lock="password") from error
        raise Corrupt(detail=getattr(error.kind, "name", "unhwp")) from error
    if _NOTICE in text[:1000]:
        raise Encrypted(lock="distribution")
    return text


def _add(builder: PageBuilder, markdown: str) -> None:
    """Unhwp's Markdown as blocks: headings known as such, pictures and bold marks dropped."""
    text = _BOLD.sub(r"\1", _PICTURE.sub("", markdown))
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").split("\n")
        while lines and (match := _HEADING.match(lines[0])):
            builder.heading(len(match[1]), match[2])
            lines.pop(0)
        paragraph = "\n".join(lines)
        if not paragraph.startswith("|"):
            paragraph = paragraph.replace("<br>", "\n")
        builder.paragraph(paragraph)

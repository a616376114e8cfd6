"""HWP 5 and HWPX: both become one page without a number, tables as Markdown.

What locks a file, and what it unpacks to, is looked at before anything else is read.
"""

import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from documents.parsers import formats
from documents.parsers.archive import Archive, check_xml_part
from documents.parsers.base import MEGABYTE, Limits, ReadingContext
from documents.parsers.builder import PageBuilder
from documents.parsers.errors import ArchiveBomb, Corrupt, Encrypted, UnsupportedVersion
from documents.parsers.hwp import binary, owpml
from documents.parsers.hwp.blocks import HwpWriter, ParagraphNumberer
from documents.parsers.pictures import PictureSieve
from rag.pages import Page

_NOTICE = "상위 버전의 배포용 문서"
_SUMMARY = "\x05HwpSummaryInformation"
_TITLE, _AUTHOR = 2, 4
"""Keys of the summary's properties."""
MAX_PICTURE_BYTES = 100 * MEGABYTE

SIGNATURE = b"HWP Document File"
COMPRESSED = 1
LOCKS = ((1, "password"), (2, "distribution"), (4, "drm"), (8, "certificate"), (10, "drm"))
"""Bits of the FileHeader's flags. A distribution document (배포용) shows others only a notice."""
_STREAMS = re.compile(r"^(docinfo|bodytext/section\d+)$", re.IGNORECASE)


class HwpParser:
    """Reads .hwp and .hwpx. Their pages exist only when they are laid out: there is one."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The whole document as one page. Raises `Encrypted` for what is locked, by its lock."""
        read = _read_hwpx if context.content_type == formats.HWPX else _read_hwp
        builder = PageBuilder(context)
        margins = read(path, context, builder)
        page = builder.build_page(margins)
        if _NOTICE in page.text[:1000]:
            raise Encrypted(lock="distribution")
        yield page


def _read_hwpx(path: Path, context: ReadingContext, builder: PageBuilder) -> list[str]:
    """The package into the builder; its running headers and footers come back."""
    archive = Archive(path, context.limits)
    check_hwpx(archive)
    context.add_metadata(owpml.read_properties(archive))
    styles = owpml.HwpxStyles(
        owpml.parse_part(archive, owpml.HEADER_PART) if owpml.HEADER_PART in archive else None
    )
    flow = HwpWriter(builder, ParagraphNumberer(styles.numberings))
    for part in owpml.list_sections(archive):
        flow.write(owpml.HwpxSection(owpml.parse_part(archive, part), styles.heads).paragraphs())
    sieve, parts = PictureSieve(context), owpml.map_parts(archive)
    for key, at in flow.images:
        sieve.add_file(key, partial(archive.read_part, parts.get(key, key)), at)
    return flow.margins


def _read_hwp(path: Path, context: ReadingContext, builder: PageBuilder) -> list[str]:
    """The compound file into the builder; its running headers and footers come back."""
    import olefile

    check_hwp(path, context.limits)
    with olefile.OleFileIO(path) as ole:
        stream = _open_streams(ole)
        context.add_metadata(_read_summary(ole))
        info = binary.DocInfo(stream(["DocInfo"]))
        flow = HwpWriter(builder, ParagraphNumberer(info.numberings))
        for entry in binary.list_sections(ole):
            flow.write(binary.HwpSection(stream(entry), info).paragraphs())
        sieve = PictureSieve(context)
        for name, at in flow.images:
            sieve.add_file(name, partial(_read_picture, ole, name), at)
    return flow.margins


def _open_streams(ole: Any) -> Callable[[list[str]], list[binary.HwpRecord]]:
    """What reads the records of a stream, unpacked where the file is packed."""
    packed = ole.openstream("FileHeader").read(40)[36] & COMPRESSED

    def stream(entry: list[str]) -> list[binary.HwpRecord]:
        data = ole.openstream(entry).read()
        return binary.parse_records(binary.inflate_stream(data) if packed else data)

    return stream


def _read_picture(ole: Any, name: str) -> bytes:
    """The bytes of a picture; those of most kinds are packed once more."""
    data: bytes = ole.openstream(["BinData", name]).read()
    try:
        return binary.inflate_stream(data, MAX_PICTURE_BYTES)
    except Corrupt:  # it was stored as it is
        return data


def _read_summary(ole: Any) -> dict[str, str]:
    """Title and author as the program keeps them."""
    if not ole.exists(_SUMMARY):
        return {}
    kept = ole.getproperties(_SUMMARY)
    return {
        name: str(kept.get(key, "")).partition("\0")[0]
        for name, key in (("title", _TITLE), ("author", _AUTHOR))
    }


def check_hwp(path: Path, limits: Limits) -> None:
    """Refuse locked documents by name, other versions, and streams that unpack to too much."""
    import olefile

    try:
        with olefile.OleFileIO(path) as ole:
            header = ole.openstream("FileHeader").read(256)
            flags = _checked_flags(header)
            for entry in ole.listdir(streams=True, storages=False):
                if flags & COMPRESSED and _STREAMS.match("/".join(entry)):
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

    Pictures are not counted: each is looked at before it is unpacked.
    """
    manifest = "META-INF/manifest.xml"
    if manifest in archive and b"encryption-data" in archive.read_part(manifest):
        raise Encrypted(lock="password")
    for name in archive.names:
        if name.lower().endswith((".xml", ".hpf", ".rdf")):
            check_xml_part(archive, name)

"""ZIP packages of XML (DOCX, HWPX). Declared sizes are not trusted: what inflates is counted."""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from documents.parsers.base import MEGABYTE, ArchiveBomb, Corrupt, Encrypted, Limits, XmlUnsafe

_END_SIGNATURE, _END_RECORD_BYTES, _MAX_COMMENT_BYTES = b"PK\x05\x06", 22, 65_535
_MAX_DIRECTORY_BYTES = 4 * MEGABYTE
_CHUNK_BYTES = 256 * 1024
_MAX_DEPTH = 256
_ZIP_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, RuntimeError,
    ValueError,
)  # fmt: skip
"""What `zipfile` raises on broken packages; an offset before the start of the file is OSError."""


class Archive:
    """An open package. Names of parts are case-insensitive."""

    def __init__(self, source: Path | BinaryIO, limits: Limits) -> None:
        self._limits = limits
        with source.open("rb") if isinstance(source, Path) else nullcontext(source) as file:
            _check_directory(file)
        try:
            self._zip = zipfile.ZipFile(source)
        except _ZIP_ERRORS as error:
            raise Corrupt(detail=type(error).__name__) from error
        entries = self._zip.infolist()
        if len(entries) > limits.entries:
            raise ArchiveBomb(entries=len(entries), limit=limits.entries)
        self._entries = {entry.filename.lower(): entry for entry in reversed(entries)}
        self.names = [entry.filename for entry in entries]

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._entries

    def read_chunks(self, name: str) -> Iterator[bytes]:
        """Inflate a part piece by piece. Raises Corrupt, Encrypted or ArchiveBomb."""
        entry = self._entries.get(name.lower())
        if entry is None:
            raise Corrupt(detail=f"{name} is missing")
        if entry.flag_bits & 1:
            raise Encrypted(lock="password")
        byte_count, limit = 0, self._compute_allowed_bytes(entry.compress_size)
        try:
            with self._zip.open(entry) as part:
                while data := part.read(_CHUNK_BYTES):
                    byte_count += len(data)
                    if byte_count > limit:
                        raise ArchiveBomb(part=name, limit=limit)
                    yield data
        except _ZIP_ERRORS as error:
            raise Corrupt(detail=type(error).__name__) from error

    def read_part(self, name: str) -> bytes:
        """A whole part, inflated. Raises as `read_chunks`."""
        return b"".join(self.read_chunks(name))

    def _compute_allowed_bytes(self, packed_bytes: int) -> int:
        """The most bytes that a part of this packed size may inflate to."""
        limits = self._limits
        return min(limits.inflated, max(limits.ratio_after, packed_bytes * limits.ratio))


def _check_directory(file: BinaryIO) -> None:
    """Refuse an oversized central directory before `zipfile` reads it into memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END_RECORD_BYTES - _MAX_COMMENT_BYTES))
    tail = file.read()
    record_start = tail.rfind(_END_SIGNATURE)
    if record_start < 0:
        raise Corrupt(detail="no central directory")
    directory_bytes = int.from_bytes(tail[record_start + 12 : record_start + 16], "little")
    if directory_bytes > _MAX_DIRECTORY_BYTES:
        raise ArchiveBomb(entries=directory_bytes // 46)


def check_xml_part(archive: Archive, name: str) -> None:
    """Refuse XML with a document type, or nested deeper than libxml2 accepts (256).

    Raises XmlUnsafe, or Corrupt also for XML that is not well-formed.
    """
    from lxml import etree

    parser = etree.XMLParser(
        target=_XmlGuard(), resolve_entities=False, no_network=True, huge_tree=False
    )
    try:
        for data in archive.read_chunks(name):
            parser.feed(data)
        parser.close()
    except etree.XMLSyntaxError as error:
        raise Corrupt(detail=f"XMLSyntaxError in {name}") from error


def get_local_name(element: Any) -> str:
    """The element's name without its namespace; "" for comments and instructions."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


class _XmlGuard:
    """A parser target that checks XML as it streams by and keeps nothing."""

    def __init__(self) -> None:
        self._depth = 0

    def doctype(self, _name: str, _public: str, _system: str) -> None:
        """Refuse `<!DOCTYPE`, the only way to declare an entity."""
        raise XmlUnsafe

    def start(self, _tag: str, _attributes: object) -> None:
        """Count the depth: libxml2 limits it only when it builds a tree."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Corrupt(detail="XML nested too deep")

    def end(self, _tag: str) -> None:
        """Leave an element."""
        self._depth -= 1

    def close(self) -> None:
        """Required by lxml; there is nothing to return."""

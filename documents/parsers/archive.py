"""ZIP packages (DOCX, HWPX); sizes are not believed, bytes are counted while they inflate."""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from documents.parsers.base import MEGABYTE, ArchiveBomb, Corrupt, Encrypted, Limits, XmlUnsafe

_END, _END_BYTES, _MAX_COMMENT_BYTES = b"PK\x05\x06", 22, 65_535
_MAX_DIRECTORY_BYTES = 4 * MEGABYTE
_STEP_BYTES = 256 * 1024
_MAX_DEPTH = 256
_BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, RuntimeError,
    ValueError,
)  # fmt: skip
"""What `zipfile` raises on broken packages; places before the file's beginning are an OSError."""


class Archive:
    """An open package. Parts are found by name, without regard to case."""

    def __init__(self, source: Path | BinaryIO, limits: Limits) -> None:
        self._limits = limits
        with source.open("rb") if isinstance(source, Path) else _LeftOpen(source) as file:
            _check_directory(file)
        try:
            self._zip = zipfile.ZipFile(source)
        except _BROKEN as error:
            raise Corrupt(detail=type(error).__name__) from error
        entries = self._zip.infolist()
        if len(entries) > limits.entries:
            raise ArchiveBomb(entries=len(entries), limit=limits.entries)
        self._entries = {entry.filename.lower(): entry for entry in reversed(entries)}
        self.names = [entry.filename for entry in entries]

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._entries

    def read_chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a part as they inflate."""
        entry = self._entries.get(name.lower())
        if entry is None:
            raise Corrupt(detail=f"{name} is missing")
        if entry.flag_bits & 1:
            raise Encrypted(lock="password")
        total, allowed = 0, self._compute_allowed_bytes(entry.compress_size)
        try:
            with self._zip.open(entry) as part:
                while data := part.read(_STEP_BYTES):
                    total += len(data)
                    if total > allowed:
                        raise ArchiveBomb(part=name, limit=allowed)
                    yield data
        except _BROKEN as error:
            raise Corrupt(detail=type(error).__name__) from error

    def read_part(self, name: str) -> bytes:
        """A whole part."""
        return b"".join(self.read_chunks(name))

    def _compute_allowed_bytes(self, packed: int) -> int:
        """How much a part of `packed` bytes may unpack to."""
        limits = self._limits
        return min(limits.inflated, max(limits.ratio_after, packed * limits.ratio))


class _LeftOpen:
    """An open file as a context manager that leaves it open."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __enter__(self) -> BinaryIO:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.seek(0)


def _check_directory(file: BinaryIO) -> None:
    """Refuse a directory that is too long before `zipfile` reads all of it into memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END_BYTES - _MAX_COMMENT_BYTES))
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0:
        raise Corrupt(detail="no central directory")
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    if length > _MAX_DIRECTORY_BYTES:
        raise ArchiveBomb(entries=length // 46)


def check_xml_part(archive: Archive, name: str) -> None:
    """Refuse a part with a document type, or nested beyond what libxml2 takes (256)."""
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


class _XmlGuard:
    """Looks at XML as it streams by, keeping nothing."""

    def __init__(self) -> None:
        self._depth = 0

    def doctype(self, _name: str, _public: str, _system: str) -> None:
        """Called for `<!DOCTYPE`: the only way to declare an entity."""
        raise XmlUnsafe

    def start(self, _tag: str, _attributes: object) -> None:
        """Called for every element: libxml2 watches the depth only where it builds a tree."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Corrupt(detail="XML nested too deep")

    def end(self, _tag: str) -> None:
        """Called behind every element."""
        self._depth -= 1

    def close(self) -> None:
        """Called at the end."""

"""The records of HWP 5, tagged and nested. Source: Hancom's "한글 문서 파일 구조 5.0"."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from documents.parsers.errors import Corrupt, TooLarge

BEGIN = 0x10
DOCUMENT_PROPERTIES, BIN_DATA = BEGIN, BEGIN + 2
NUMBERING, BULLET, PARA_SHAPE = BEGIN + 7, BEGIN + 8, BEGIN + 9
PARA_HEADER, PARA_TEXT = BEGIN + 50, BEGIN + 51
CTRL_HEADER, LIST_HEADER = BEGIN + 55, BEGIN + 56
SHAPE_COMPONENT, TABLE = BEGIN + 60, BEGIN + 61
PICTURE, EQUATION, TEXT_ART = BEGIN + 69, BEGIN + 72, BEGIN + 74
_LONG = 0xFFF
_DEEPEST = 200
_MOST = 5_000_000
"""Records of a stream."""


@dataclass(slots=True)
class Record:
    """One record with those that belong to it."""

    tag: int
    data: bytes
    children: "list[Record]" = field(default_factory=list)

    def u16(self, place: int, default: int = 0) -> int:
        """An unsigned number of two bytes; the default behind the end."""
        return self._number("<H", place, default)

    def u32(self, place: int, default: int = 0) -> int:
        """An unsigned number of four bytes; the default behind the end."""
        return self._number("<I", place, default)

    def _number(self, form: str, place: int, default: int) -> int:
        if place + struct.calcsize(form) > len(self.data):
            return default
        return int(struct.unpack_from(form, self.data, place)[0])

    def text(self, place: int) -> str:
        """A text with its length in two bytes before it."""
        return utf16(self.data[place + 2 : place + 2 + 2 * self.u16(place)])

    def of(self, tag: int) -> "Iterator[Record]":
        """Children with that tag."""
        return (child for child in self.children if child.tag == tag)


def utf16(data: bytes) -> str:
    """Text in UTF-16; half pairs become replacement marks."""
    return data[: len(data) // 2 * 2].decode("utf-16-le", "replace")


def inflated(packed: bytes, most: int = 0) -> bytes:
    """An unpacked stream, no more than `most` bytes of it (0: all, where it was looked at before).

    Raises `Corrupt`.
    """
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most)
    except zlib.error as error:
        raise Corrupt(detail="deflate") from error


def forest(data: bytes) -> list[Record]:
    """The records of a stream as trees. Raises `Corrupt` or `TooLarge`."""
    top: list[Record] = []
    open_: list[tuple[int, Record]] = []
    for count, (tag, level, body) in enumerate(_flat(data)):
        if count > _MOST:
            raise TooLarge(limit=_MOST)
        while open_ and open_[-1][0] >= level:
            open_.pop()
        if len(open_) > _DEEPEST:
            raise Corrupt(detail="records nested too deep")
        record = Record(tag, body)
        (open_[-1][1].children if open_ else top).append(record)
        open_.append((level, record))
    return top


def _flat(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Tag, level and body of each record."""
    place = 0
    while place + 4 <= len(data):
        head = struct.unpack_from("<I", data, place)[0]
        tag, level, size = head & 0x3FF, head >> 10 & 0x3FF, head >> 20
        place += 4
        if size == _LONG:
            if place + 4 > len(data):
                raise Corrupt(detail="record")
            size = struct.unpack_from("<I", data, place)[0]
            place += 4
        if place + size > len(data):
            raise Corrupt(detail="record")
        yield tag, level, data[place : place + size]
        place += size

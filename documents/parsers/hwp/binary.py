"""HWP 5: tagged and nested records in the streams of a compound file, as blocks.

Source: Hancom's "한글 문서 파일 구조 5.0".
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from documents.parsers.base import (
    MEGABYTE,
    ArchiveBomb,
    Corrupt,
    Encrypted,
    Limits,
    ReadingContext,
    TooLarge,
    UnsupportedVersion,
)
from documents.parsers.builder import HANGUL_FORMS, PageBuilder, format_hangul_number
from documents.parsers.formulas import format_hangul_equation
from documents.parsers.hwp.blocks import (
    HangulParser,
    HeadKind,
    HwpCell,
    HwpParagraph,
    HwpTable,
    HwpWriter,
    NumberingLevel,
    ParagraphHead,
    ParagraphNumberer,
    PictureAnchor,
    RunningText,
    TextFrame,
    find_note_mark,
    format_ruby,
)
from documents.parsers.pictures import PictureSieve

BEGIN = 0x10
DOCUMENT_PROPERTIES, BIN_DATA = BEGIN, BEGIN + 2
NUMBERING, BULLET, PARA_SHAPE = BEGIN + 7, BEGIN + 8, BEGIN + 9
PARA_HEADER, PARA_TEXT = BEGIN + 50, BEGIN + 51
CTRL_HEADER, LIST_HEADER = BEGIN + 55, BEGIN + 56
SHAPE_COMPONENT, TABLE = BEGIN + 60, BEGIN + 61
PICTURE, EQUATION, TEXT_ART = BEGIN + 69, BEGIN + 72, BEGIN + 74
_LONG_SIZE = 0xFFF
_MAX_DEPTH = 200
_MAX_RECORDS = 5_000_000
"""Records of a stream."""

_SECTION_STREAM = re.compile(r"^bodytext/section(\d+)$", re.IGNORECASE)
_KINDS = {1: HeadKind.OUTLINE, 2: HeadKind.NUMBER, 3: HeadKind.BULLET}
_LEVELS, _MORE_LEVELS = 7, 3
_FULL_LEVEL = 54
"""Where a shape says its level once more: the flags have no room for more than seven."""
_NEW_LINE, _END, _HYPHEN, _SPACES, _TAB = 10, 13, 24, (30, 31), 9
_SINGLE = {0, _NEW_LINE, _END, _HYPHEN, 25, 26, 27, 28, 29, *_SPACES}
"""Control characters of one unit; all others take eight."""
_INLINE = {4, 5, 6, 7, 8, _TAB, 19, 20}
"""Of those with eight units, the ones without a record of their own."""
_PAGE_NUMBER = 0


@dataclass(slots=True)
class HwpRecord:
    """One record with those that belong to it."""

    tag: int
    data: bytes
    children: "list[HwpRecord]" = field(default_factory=list)

    def read_u16(self, place: int, default: int = 0) -> int:
        """An unsigned number of two bytes; the default behind the end."""
        return self._read_number("<H", place, default)

    def read_u32(self, place: int, default: int = 0) -> int:
        """An unsigned number of four bytes; the default behind the end."""
        return self._read_number("<I", place, default)

    def _read_number(self, form: str, place: int, default: int) -> int:
        if place + struct.calcsize(form) > len(self.data):
            return default
        return int(struct.unpack_from(form, self.data, place)[0])

    def read_text(self, place: int) -> str:
        """A text with its length in two bytes before it."""
        return decode_utf16(self.data[place + 2 : place + 2 + 2 * self.read_u16(place)])

    def find_children(self, tag: int) -> "Iterator[HwpRecord]":
        """Children with that tag."""
        return (child for child in self.children if child.tag == tag)


def decode_utf16(data: bytes) -> str:
    """Text in UTF-16; half pairs become replacement marks."""
    return data[: len(data) // 2 * 2].decode("utf-16-le", "replace")


def inflate_stream(packed: bytes, most: int = 0) -> bytes:
    """An unpacked stream, no more than `most` bytes of it (0: all, where it was looked at before).

    Raises `Corrupt`.
    """
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most)
    except zlib.error as error:
        raise Corrupt(detail="deflate") from error


def parse_records(data: bytes) -> list[HwpRecord]:
    """The records of a stream as trees. Raises `Corrupt` or `TooLarge`."""
    top: list[HwpRecord] = []
    open_: list[tuple[int, HwpRecord]] = []
    for count, (tag, level, body) in enumerate(_iterate_records(data)):
        if count > _MAX_RECORDS:
            raise TooLarge(limit=_MAX_RECORDS)
        while open_ and open_[-1][0] >= level:
            open_.pop()
        if len(open_) > _MAX_DEPTH:
            raise Corrupt(detail="records nested too deep")
        record = HwpRecord(tag, body)
        (open_[-1][1].children if open_ else top).append(record)
        open_.append((level, record))
    return top


def _iterate_records(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Tag, level and body of each record."""
    place = 0
    while place + 4 <= len(data):
        head = struct.unpack_from("<I", data, place)[0]
        tag, level, size = head & 0x3FF, head >> 10 & 0x3FF, head >> 20
        place += 4
        if size == _LONG_SIZE:
            if place + 4 > len(data):
                raise Corrupt(detail="record")
            size = struct.unpack_from("<I", data, place)[0]
            place += 4
        if place + size > len(data):
            raise Corrupt(detail="record")
        yield tag, level, data[place : place + size]
        place += size


class DocInfo:
    """Heads of paragraphs by the number of their shape, numberings, and parts of pictures."""

    def __init__(self, stream: Sequence[HwpRecord]) -> None:
        self.heads: list[ParagraphHead | None] = []
        self.numberings: dict[int, list[NumberingLevel]] = {}
        self.parts: list[str] = []
        for record in _iterate_all(stream):
            if record.tag == PARA_SHAPE:
                self.heads.append(_read_head(record))
            elif record.tag == NUMBERING:
                self.numberings[len(self.numberings) + 1] = _read_levels(record)
            elif record.tag == BIN_DATA:
                self.parts.append(_read_part_name(record))


def _iterate_all(stream: Sequence[HwpRecord]) -> Iterator[HwpRecord]:
    for record in stream:
        yield record
        yield from _iterate_all(record.children)


def _read_head(shape: HwpRecord) -> ParagraphHead | None:
    flags = shape.read_u32(0)
    kind = _KINDS.get(flags >> 23 & 3)
    if kind is None:
        return None
    return ParagraphHead(kind, shape.read_u32(_FULL_LEVEL, flags >> 25 & 7), shape.read_u16(30))


def _read_levels(record: HwpRecord) -> list[NumberingLevel]:
    """The levels of a numbering: seven, their first numbers, and the same for three more."""
    first, place = _read_forms(record, 0, _LEVELS)
    starts = [record.read_u32(place + 2 + 4 * level, 1) for level in range(_LEVELS)]
    more, place = _read_forms(record, place + 2 + 4 * _LEVELS, _MORE_LEVELS)
    starts += [record.read_u32(place + 4 * level, 1) for level in range(_MORE_LEVELS)]
    return [NumberingLevel(*form, start) for form, start in zip(first + more, starts, strict=True)]


def _read_forms(record: HwpRecord, place: int, count: int) -> tuple[list[tuple[str, str]], int]:
    """Text and number format of so many levels, and the place behind them."""
    found = []
    for _ in range(count):
        form = min(record.read_u32(place) >> 5 & 15, len(HANGUL_FORMS) - 1)
        found.append((record.read_text(place + 12), HANGUL_FORMS[form]))
        place += 14 + 2 * record.read_u16(place + 12)
    return found, place


def _read_part_name(record: HwpRecord) -> str:
    """The name of a picture's stream within BinData; empty if it is not embedded."""
    if record.read_u16(0) & 15 != 1:
        return ""
    return f"BIN{record.read_u16(2):04X}.{record.read_text(4)}"


def list_sections(ole: Any) -> list[list[str]]:
    """Paths of the streams with text, in order."""
    found = {
        match[0]: (int(match[1]), entry)
        for entry in ole.listdir(streams=True, storages=False)
        if (match := _SECTION_STREAM.match("/".join(entry)))
    }
    return [entry for _, entry in sorted(found.values())]


class HwpSection:
    """The paragraphs of one stream."""

    def __init__(self, stream: Sequence[HwpRecord], info: DocInfo) -> None:
        self._stream = stream
        self._info = info
        self._outline = _read_outline(stream)

    def iterate_paragraphs(self) -> Iterator[HwpParagraph]:
        """In order."""
        return (self._read_paragraph(one) for one in self._stream if one.tag == PARA_HEADER)

    def _read_paragraph(self, record: HwpRecord) -> HwpParagraph:
        paragraph = HwpParagraph(head=self._find_head(record))
        controls = record.find_children(CTRL_HEADER)
        parts: list[str] = []
        for text in record.find_children(PARA_TEXT):
            for piece in _iterate_pieces(text.data):
                if piece is None:
                    self._add_control(next(controls, None), parts, paragraph)
                else:
                    parts.append(piece)
        for control in controls:
            self._add_control(control, parts, paragraph)
        paragraph.text = "".join(parts)
        return paragraph

    def _find_head(self, record: HwpRecord) -> ParagraphHead | None:
        shape = record.read_u16(8)
        head = self._info.heads[shape] if shape < len(self._info.heads) else None
        if head and head.kind is HeadKind.OUTLINE:
            return ParagraphHead(head.kind, head.level, self._outline)
        return head

    def _add_control(
        self, record: HwpRecord | None, parts: list[str], paragraph: HwpParagraph
    ) -> None:
        """Add a control's content to the line, or anchor it to the paragraph."""
        if record is None:
            return
        match record.data[:4][::-1]:
            case b"tbl ":
                paragraph.anchored.append(self._read_table(record))
            case b"gso ":
                self._add_drawing(record, paragraph)
            case b"eqed":
                parts += [
                    f" {format_hangul_equation(one.read_text(4))} "
                    for one in record.find_children(EQUATION)
                ]
                paragraph.anchored += [
                    TextFrame(blocks) for _, blocks in self._iterate_lists(record)
                ]
            case b"fn  " | b"en  ":
                self._add_note(record, parts, paragraph)
            case b"head" | b"foot" | b"secd":
                paragraph.anchored += [
                    RunningText(blocks) for _, blocks in self._iterate_lists(record)
                ]
            case b"atno":
                parts.append(_format_auto_number(record))
            case b"tcps":
                parts.append(record.read_text(4))
            case b"tdut":
                parts.append(
                    format_ruby(record.read_text(4), record.read_text(6 + 2 * record.read_u16(4)))
                )

    def _add_note(self, record: HwpRecord, parts: list[str], paragraph: HwpParagraph) -> None:
        for _, blocks in self._iterate_lists(record):
            parts.append(find_note_mark(blocks))
            paragraph.anchored.append(TextFrame(blocks))

    def _add_drawing(self, record: HwpRecord, paragraph: HwpParagraph) -> None:
        """A drawing: its text, the pictures and shapes in it, then its caption."""
        for shape in record.find_children(SHAPE_COMPONENT):
            self._add_shape(shape, paragraph)
        paragraph.anchored += [TextFrame(blocks) for _, blocks in self._iterate_lists(record)]

    def _add_shape(self, record: HwpRecord, paragraph: HwpParagraph) -> None:
        paragraph.anchored += [TextFrame(blocks) for _, blocks in self._iterate_lists(record)]
        for child in record.children:
            if child.tag == SHAPE_COMPONENT:
                self._add_shape(child, paragraph)
            elif child.tag == PICTURE:
                self._add_picture(child, paragraph)
            elif child.tag == TEXT_ART:
                paragraph.anchored.append(TextFrame([HwpParagraph(child.read_text(32))]))

    def _add_picture(self, record: HwpRecord, paragraph: HwpParagraph) -> None:
        key = record.read_u16(71) - 1
        if 0 <= key < len(self._info.parts) and self._info.parts[key]:
            paragraph.anchored.append(PictureAnchor(self._info.parts[key]))

    def _iterate_lists(self, record: HwpRecord) -> Iterator[tuple[HwpRecord, list[HwpParagraph]]]:
        """Each list of a record with its paragraphs, which follow it in the file."""
        return (
            (head, list(map(self._read_paragraph, members)))
            for head, members in _group_lists(record)
        )

    def _read_table(self, record: HwpRecord) -> HwpTable:
        """Lists before the table's own record are its caption, those behind it its cells."""
        own = next((i for i, child in enumerate(record.children) if child.tag == TABLE), 0)
        before, behind = (
            HwpRecord(record.tag, record.data, part)
            for part in (record.children[:own], record.children[own:])
        )
        caption = [line for _, lines in self._iterate_lists(before) for line in lines]
        cells = [_read_cell(head, lines) for head, lines in self._iterate_lists(behind)]
        return HwpTable(cells, caption)


def _group_lists(record: HwpRecord) -> Iterator[tuple[HwpRecord, list[HwpRecord]]]:
    head: HwpRecord | None = None
    members: list[HwpRecord] = []
    for child in record.children:
        if child.tag == LIST_HEADER:
            if head:
                yield head, members
            head, members = child, []
        elif child.tag == PARA_HEADER:
            members.append(child)
    if head:
        yield head, members


def _read_cell(head: HwpRecord, blocks: list[HwpParagraph]) -> HwpCell:
    column, row, columns, rows = (head.read_u16(8 + 2 * i) for i in range(4))
    return HwpCell(row, column, max(rows, 1), max(columns, 1), blocks)


def _read_outline(stream: Sequence[HwpRecord]) -> int:
    """The numbering of the section's outline."""
    for paragraph in stream:
        for control in paragraph.find_children(CTRL_HEADER):
            if control.data[:4] == b"dces":
                return control.read_u16(18)
    return 0


def _iterate_pieces(data: bytes) -> Iterator[str | None]:
    """Runs of text; None in place of a control with its own record."""
    place, start, end = 0, 0, len(data) // 2 * 2
    while place < end:
        code = data[place] | data[place + 1] << 8
        if code >= 32:
            place += 2
            continue
        yield decode_utf16(data[start:place])
        yield _to_text(code)
        place += 2 if code in _SINGLE else 16
        start = place
    yield decode_utf16(data[start:end])


def _to_text(code: int) -> str | None:
    if code in _SINGLE or code in _INLINE:
        return {_NEW_LINE: "\n", _HYPHEN: "-", 30: " ", 31: " ", _TAB: "\t"}.get(code, "")
    return None


def _format_auto_number(record: HwpRecord) -> str:
    """An automatic number as displayed; page numbers are empty in a text without pages."""
    flags = record.read_u32(4)
    if flags & 15 == _PAGE_NUMBER:
        return ""
    user, before, behind = (record.read_u16(10 + 2 * i) for i in range(3))
    form = HANGUL_FORMS[min(flags >> 4 & 0xFF, len(HANGUL_FORMS) - 1)]
    shown = chr(user) if user else format_hangul_number(record.read_u16(8), form)
    return f"{chr(before) if before else ''}{shown}{chr(behind) if behind else ''}"


_SUMMARY = "\x05HwpSummaryInformation"
_TITLE, _AUTHOR = 2, 4
"""Keys of the summary's properties."""
MAX_PICTURE_BYTES = 100 * MEGABYTE

SIGNATURE = b"HWP Document File"
COMPRESSED = 1
LOCKS = ((1, "password"), (2, "distribution"), (4, "drm"), (8, "certificate"), (10, "drm"))
"""Bits of the FileHeader's flags. A distribution document (배포용) shows others only a notice."""
_STREAMS = re.compile(r"^(docinfo|bodytext/section\d+)$", re.IGNORECASE)


class HwpParser(HangulParser):
    """Reads .hwp. What locks the file, and what it unpacks to, is looked at before all else."""

    def write(self, path: Path, context: ReadingContext, builder: PageBuilder) -> list[str]:
        """The compound file into the builder."""
        import olefile

        check_hwp(path, context.limits)
        with olefile.OleFileIO(path) as ole:
            stream = _open_streams(ole)
            context.add_metadata(_read_summary(ole))
            info = DocInfo(stream(["DocInfo"]))
            flow = HwpWriter(builder, ParagraphNumberer(info.numberings))
            for entry in list_sections(ole):
                flow.write(HwpSection(stream(entry), info).iterate_paragraphs())
            sieve = PictureSieve(context)
            for name, at in flow.images:
                sieve.add_file(name, partial(_read_picture, ole, name), at)
        return flow.margins


def _open_streams(ole: Any) -> Callable[[list[str]], list[HwpRecord]]:
    """What reads the records of a stream, unpacked where the file is packed."""
    packed = ole.openstream("FileHeader").read(40)[36] & COMPRESSED

    def read_stream(entry: list[str]) -> list[HwpRecord]:
        data = ole.openstream(entry).read()
        return parse_records(inflate_stream(data) if packed else data)

    return read_stream


def _read_picture(ole: Any, name: str) -> bytes:
    """The bytes of a picture; those of most kinds are packed once more."""
    data: bytes = ole.openstream(["BinData", name]).read()
    try:
        return inflate_stream(data, MAX_PICTURE_BYTES)
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
            flags = _read_flags(header)
            for entry in ole.listdir(streams=True, storages=False):
                if flags & COMPRESSED and _STREAMS.match("/".join(entry)):
                    _check_stream(ole.openstream(entry).read(), limits)
    except (OSError, ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt(detail=type(error).__name__) from error


def _read_flags(header: bytes) -> int:
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

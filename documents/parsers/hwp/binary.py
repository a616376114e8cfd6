"""HWP 5: nested records in the streams of a compound file, read as blocks.

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
from documents.parsers.builder import HANGUL_FORMS, format_hangul_number
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
    PictureAnchor,
    RunningText,
    TextFrame,
    find_note_mark,
    format_ruby,
)
from documents.parsers.pictures import PictureSieve

BEGIN = 0x10
BIN_DATA = BEGIN + 2
NUMBERING, BULLET, PARA_SHAPE = BEGIN + 7, BEGIN + 8, BEGIN + 9
PARA_HEADER, PARA_TEXT = BEGIN + 50, BEGIN + 51
CTRL_HEADER, LIST_HEADER = BEGIN + 55, BEGIN + 56
SHAPE_COMPONENT, TABLE = BEGIN + 60, BEGIN + 61
PICTURE, EQUATION, TEXT_ART = BEGIN + 69, BEGIN + 72, BEGIN + 74
_EXTENDED_SIZE = 0xFFF
_MAX_DEPTH = 200
_MAX_RECORDS = 5_000_000
"""Records of a stream."""

_SECTION_STREAM = re.compile(r"^bodytext/section(\d+)$", re.IGNORECASE)
_KINDS = {1: HeadKind.OUTLINE, 2: HeadKind.NUMBER, 3: HeadKind.BULLET}
_BASIC_LEVELS, _EXTRA_LEVELS = 7, 3
_EXTENDED_LEVEL_OFFSET = 54
"""Offset at which a shape repeats its level, since its flags have room for seven only."""
_NEW_LINE, _END, _HYPHEN, _SPACES, _TAB = 10, 13, 24, (30, 31), 9
_SINGLE_UNIT_CONTROLS = {0, _NEW_LINE, _END, _HYPHEN, 25, 26, 27, 28, 29, *_SPACES}
"""Control characters of one UTF-16 unit; all others take eight."""
_INLINE_CONTROLS = {4, 5, 6, 7, 8, _TAB, 19, 20}
"""Control characters of eight units that have no record of their own."""
_PAGE_NUMBER = 0


@dataclass(slots=True)
class HwpRecord:
    """A record and its children."""

    tag: int
    data: bytes
    children: "list[HwpRecord]" = field(default_factory=list)

    def read_u16(self, offset: int, default: int = 0) -> int:
        """An unsigned 16-bit number; the default beyond the end of the data."""
        return self._read_number("<H", offset, default)

    def read_u32(self, offset: int, default: int = 0) -> int:
        """An unsigned 32-bit number; the default beyond the end of the data."""
        return self._read_number("<I", offset, default)

    def _read_number(self, format_: str, offset: int, default: int) -> int:
        if offset + struct.calcsize(format_) > len(self.data):
            return default
        return int(struct.unpack_from(format_, self.data, offset)[0])

    def read_text(self, offset: int) -> str:
        """A text preceded by its length in two bytes."""
        return decode_utf16(self.data[offset + 2 : offset + 2 + 2 * self.read_u16(offset)])

    def find_children(self, tag: int) -> "Iterator[HwpRecord]":
        """Children with that tag."""
        return (child for child in self.children if child.tag == tag)


def decode_utf16(data: bytes) -> str:
    """Decode UTF-16; lone surrogates become replacement characters."""
    return data[: len(data) // 2 * 2].decode("utf-16-le", "replace")


def inflate_stream(packed: bytes, max_bytes: int = 0) -> bytes:
    """Inflate a stream, up to `max_bytes` (0: all of a checked stream). Raises `Corrupt`."""
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, max_bytes)
    except zlib.error as error:
        raise Corrupt(detail="deflate") from error


def parse_records(data: bytes) -> list[HwpRecord]:
    """Parse a stream into trees of records. Raises `Corrupt` or `TooLarge`."""
    roots: list[HwpRecord] = []
    open_records: list[tuple[int, HwpRecord]] = []
    for count, (tag, level, body) in enumerate(_iterate_records(data)):
        if count > _MAX_RECORDS:
            raise TooLarge(limit=_MAX_RECORDS)
        while open_records and open_records[-1][0] >= level:
            open_records.pop()
        if len(open_records) > _MAX_DEPTH:
            raise Corrupt(detail="records nested too deep")
        record = HwpRecord(tag, body)
        (open_records[-1][1].children if open_records else roots).append(record)
        open_records.append((level, record))
    return roots


def _iterate_records(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Tag, level and body of each record."""
    offset = 0
    while offset + 4 <= len(data):
        header = struct.unpack_from("<I", data, offset)[0]
        tag, level, size = header & 0x3FF, header >> 10 & 0x3FF, header >> 20
        offset += 4
        if size == _EXTENDED_SIZE:
            if offset + 4 > len(data):
                raise Corrupt(detail="record")
            size = struct.unpack_from("<I", data, offset)[0]
            offset += 4
        if offset + size > len(data):
            raise Corrupt(detail="record")
        yield tag, level, data[offset : offset + size]
        offset += size


class DocInfo:
    """Paragraph heads by the index of their shape, numberings by id, and streams of pictures."""

    def __init__(self, records: Sequence[HwpRecord]) -> None:
        self.heads: list[ParagraphHead | None] = []
        self.numberings: dict[int, list[NumberingLevel]] = {}
        self.picture_streams: list[str] = []
        for record in _walk_records(records):
            if record.tag == PARA_SHAPE:
                self.heads.append(_read_head(record))
            elif record.tag == NUMBERING:
                self.numberings[len(self.numberings) + 1] = _read_levels(record)
            elif record.tag == BIN_DATA:
                self.picture_streams.append(_read_part_name(record))


def _walk_records(records: Sequence[HwpRecord]) -> Iterator[HwpRecord]:
    for record in records:
        yield record
        yield from _walk_records(record.children)


def _read_head(shape: HwpRecord) -> ParagraphHead | None:
    flags = shape.read_u32(0)
    kind = _KINDS.get(flags >> 23 & 3)
    if kind is None:
        return None
    return ParagraphHead(
        kind, shape.read_u32(_EXTENDED_LEVEL_OFFSET, flags >> 25 & 7), shape.read_u16(30)
    )


def _read_levels(record: HwpRecord) -> list[NumberingLevel]:
    """The levels of a numbering: seven and their start numbers, then the same for three more."""
    forms, offset = _read_forms(record, 0, _BASIC_LEVELS)
    starts = [record.read_u32(offset + 2 + 4 * level, 1) for level in range(_BASIC_LEVELS)]
    extra_forms, offset = _read_forms(record, offset + 2 + 4 * _BASIC_LEVELS, _EXTRA_LEVELS)
    starts += [record.read_u32(offset + 4 * level, 1) for level in range(_EXTRA_LEVELS)]
    return [
        NumberingLevel(*form, start)
        for form, start in zip(forms + extra_forms, starts, strict=True)
    ]


def _read_forms(record: HwpRecord, offset: int, count: int) -> tuple[list[tuple[str, str]], int]:
    """Text and number format of `count` levels, and the offset after them."""
    forms = []
    for _ in range(count):
        format_index = min(record.read_u32(offset) >> 5 & 15, len(HANGUL_FORMS) - 1)
        forms.append((record.read_text(offset + 12), HANGUL_FORMS[format_index]))
        offset += 14 + 2 * record.read_u16(offset + 12)
    return forms, offset


def _read_part_name(record: HwpRecord) -> str:
    """The name of a picture's stream within BinData; empty if it is not embedded."""
    if record.read_u16(0) & 15 != 1:
        return ""
    return f"BIN{record.read_u16(2):04X}.{record.read_text(4)}"


def list_sections(ole: Any) -> list[list[str]]:
    """Paths of the streams with text, in order."""
    sections = {
        match[0]: (int(match[1]), entry)
        for entry in ole.listdir(streams=True, storages=False)
        if (match := _SECTION_STREAM.match("/".join(entry)))
    }
    return [entry for _, entry in sorted(sections.values())]


class HwpSection:
    """The paragraphs of one stream."""

    def __init__(self, records: Sequence[HwpRecord], info: DocInfo) -> None:
        self._records = records
        self._info = info
        self._outline = _read_outline(records)

    def iterate_paragraphs(self) -> Iterator[HwpParagraph]:
        """In order."""
        return (
            self._read_paragraph(record) for record in self._records if record.tag == PARA_HEADER
        )

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
        """Add a control's text to the line, or anchor its content to the paragraph."""
        if record is None:
            return
        match record.data[:4][::-1]:
            case b"tbl ":
                paragraph.anchored.append(self._read_table(record))
            case b"gso ":
                self._add_drawing(record, paragraph)
            case b"eqed":
                parts += [
                    f" {format_hangul_equation(equation.read_text(4))} "
                    for equation in record.find_children(EQUATION)
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
        """Anchor a drawing: its text, pictures and shapes, then its caption."""
        for shape in record.find_children(SHAPE_COMPONENT):
            self._add_shape(shape, paragraph)
        paragraph.anchored += [TextFrame(blocks) for _, blocks in self._iterate_lists(record)]

    def _add_shape(self, record: HwpRecord, paragraph: HwpParagraph) -> None:
        paragraph.anchored += [TextFrame(blocks) for _, blocks in self._iterate_lists(record)]
        for child in record.children:
            if child.tag == SHAPE_COMPONENT:
                self._add_shape(child, paragraph)
            elif child.tag == PICTURE:
                self._anchor_picture(child, paragraph)
            elif child.tag == TEXT_ART:
                paragraph.anchored.append(TextFrame([HwpParagraph(child.read_text(32))]))

    def _anchor_picture(self, record: HwpRecord, paragraph: HwpParagraph) -> None:
        index = record.read_u16(71) - 1
        if 0 <= index < len(self._info.picture_streams) and self._info.picture_streams[index]:
            paragraph.anchored.append(PictureAnchor(self._info.picture_streams[index]))

    def _iterate_lists(self, record: HwpRecord) -> Iterator[tuple[HwpRecord, list[HwpParagraph]]]:
        """Each list header of a record with the paragraphs that follow it."""
        return (
            (head, list(map(self._read_paragraph, members)))
            for head, members in _group_lists(record)
        )

    def _read_table(self, record: HwpRecord) -> HwpTable:
        """A table: lists before its TABLE record are the caption, those after it the cells."""
        table_index = next((i for i, child in enumerate(record.children) if child.tag == TABLE), 0)
        caption_record, cells_record = (
            HwpRecord(record.tag, record.data, children)
            for children in (record.children[:table_index], record.children[table_index:])
        )
        caption = [line for _, lines in self._iterate_lists(caption_record) for line in lines]
        cells = [_read_cell(head, lines) for head, lines in self._iterate_lists(cells_record)]
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


def _read_outline(records: Sequence[HwpRecord]) -> int:
    """The numbering of the section's outline."""
    for paragraph in records:
        for control in paragraph.find_children(CTRL_HEADER):
            if control.data[:4] == b"dces":
                return control.read_u16(18)
    return 0


def _iterate_pieces(data: bytes) -> Iterator[str | None]:
    """Pieces of text; None in place of a control that has a record of its own."""
    offset, start, end = 0, 0, len(data) // 2 * 2
    while offset < end:
        code = data[offset] | data[offset + 1] << 8
        if code >= 32:
            offset += 2
            continue
        yield decode_utf16(data[start:offset])
        yield _to_text(code)
        offset += 2 if code in _SINGLE_UNIT_CONTROLS else 16
        start = offset
    yield decode_utf16(data[start:end])


def _to_text(code: int) -> str | None:
    if code in _SINGLE_UNIT_CONTROLS or code in _INLINE_CONTROLS:
        return {_NEW_LINE: "\n", _HYPHEN: "-", 30: " ", 31: " ", _TAB: "\t"}.get(code, "")
    return None


def _format_auto_number(record: HwpRecord) -> str:
    """An automatic number as displayed; "" for a page number, as there are no pages."""
    flags = record.read_u32(4)
    if flags & 15 == _PAGE_NUMBER:
        return ""
    symbol, prefix, suffix = (record.read_u16(10 + 2 * i) for i in range(3))
    format_ = HANGUL_FORMS[min(flags >> 4 & 0xFF, len(HANGUL_FORMS) - 1)]
    number = chr(symbol) if symbol else format_hangul_number(record.read_u16(8), format_)
    return f"{chr(prefix) if prefix else ''}{number}{chr(suffix) if suffix else ''}"


_SUMMARY = "\x05HwpSummaryInformation"
_TITLE, _AUTHOR = 2, 4
"""Keys of the summary's properties."""
MAX_PICTURE_BYTES = 100 * MEGABYTE

SIGNATURE = b"HWP Document File"
COMPRESSED = 1
LOCKS = ((1, "password"), (2, "distribution"), (4, "drm"), (8, "certificate"), (10, "drm"))
"""Bits of the FileHeader's flags. Other programs see only a notice in a distribution document."""
_COMPRESSED_STREAM = re.compile(r"^(docinfo|bodytext/section\d+)$", re.IGNORECASE)


class HwpParser(HangulParser):
    """Reads .hwp. Locks and the inflated size are checked before anything else."""

    def write_document(self, path: Path, context: ReadingContext, writer: HwpWriter) -> None:
        """Write the sections of the compound file."""
        import olefile

        check_hwp(path, context.limits)
        with olefile.OleFileIO(path) as ole:
            read_stream = _open_streams(ole)
            context.add_metadata(_read_summary(ole))
            info = DocInfo(read_stream(["DocInfo"]))
            writer.start_numbering(info.numberings)
            for entry in list_sections(ole):
                writer.write(HwpSection(read_stream(entry), info).iterate_paragraphs())
            sieve = PictureSieve(context)
            for name, offset in writer.pictures:
                sieve.add_file(name, partial(_read_picture, ole, name), offset)


def _open_streams(ole: Any) -> Callable[[list[str]], list[HwpRecord]]:
    """A function that reads the records of a stream, inflated if the file is compressed."""
    packed = ole.openstream("FileHeader").read(40)[36] & COMPRESSED

    def read_stream(entry: list[str]) -> list[HwpRecord]:
        data = ole.openstream(entry).read()
        return parse_records(inflate_stream(data) if packed else data)

    return read_stream


def _read_picture(ole: Any, name: str) -> bytes:
    """The bytes of a picture, inflated if it was compressed."""
    data: bytes = ole.openstream(["BinData", name]).read()
    try:
        return inflate_stream(data, MAX_PICTURE_BYTES)
    except Corrupt:  # it was stored uncompressed
        return data


def _read_summary(ole: Any) -> dict[str, str]:
    """Title and author from the summary information."""
    if not ole.exists(_SUMMARY):
        return {}
    properties = ole.getproperties(_SUMMARY)
    return {
        name: str(properties.get(key, "")).partition("\0")[0]
        for name, key in (("title", _TITLE), ("author", _AUTHOR))
    }


def check_hwp(path: Path, limits: Limits) -> None:
    """Refuse locked documents, other versions, and streams that inflate to too much.

    Raises Encrypted, UnsupportedVersion, ArchiveBomb or Corrupt.
    """
    import olefile

    try:
        with olefile.OleFileIO(path) as ole:
            header = ole.openstream("FileHeader").read(256)
            flags = _read_flags(header)
            for entry in ole.listdir(streams=True, storages=False):
                if flags & COMPRESSED and _COMPRESSED_STREAM.match("/".join(entry)):
                    _check_stream(ole.openstream(entry).read(), limits)
    except (OSError, ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt(detail=type(error).__name__) from error


def _read_flags(header: bytes) -> int:
    """The flags of a FileHeader. Raises Corrupt, UnsupportedVersion or Encrypted."""
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
    """Inflate a stream step by step and count its bytes. Raises ArchiveBomb or Corrupt."""
    limit = min(limits.inflated, max(limits.ratio_after, len(packed) * limits.ratio))
    inflater, total = zlib.decompressobj(-zlib.MAX_WBITS), 0
    try:
        while packed and not inflater.eof:
            total += len(inflater.decompress(packed, 1 << 20))
            packed = inflater.unconsumed_tail
            if total > limit:
                raise ArchiveBomb(limit=limit)
    except zlib.error as error:
        raise Corrupt(detail="deflate") from error

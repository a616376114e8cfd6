"""HWP 5: the streams of its compound file as blocks."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from documents.parsers.hangul import equations, records
from documents.parsers.hangul.blocks import (
    Cell,
    Frame,
    Head,
    HeadKind,
    Image,
    Margin,
    Paragraph,
    Table,
    mark_of,
    with_ruby,
)
from documents.parsers.hangul.numbering import Level
from documents.parsers.hangul.records import Record
from documents.parsers.numerals import HANGUL_FORMS, format_hangul_number

_SECTION = re.compile(r"^bodytext/section(\d+)$", re.IGNORECASE)
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


class DocInfo:
    """Heads of paragraphs by the number of their shape, numberings, and parts of pictures."""

    def __init__(self, stream: Sequence[Record]) -> None:
        self.heads: list[Head | None] = []
        self.numberings: dict[int, list[Level]] = {}
        self.parts: list[str] = []
        for record in _all(stream):
            if record.tag == records.PARA_SHAPE:
                self.heads.append(_head(record))
            elif record.tag == records.NUMBERING:
                self.numberings[len(self.numberings) + 1] = _levels(record)
            elif record.tag == records.BIN_DATA:
                self.parts.append(_part(record))


def _all(stream: Sequence[Record]) -> Iterator[Record]:
    for record in stream:
        yield record
        yield from _all(record.children)


def _head(shape: Record) -> Head | None:
    flags = shape.u32(0)
    kind = _KINDS.get(flags >> 23 & 3)
    if kind is None:
        return None
    return Head(kind, shape.u32(_FULL_LEVEL, flags >> 25 & 7), shape.u16(30))


def _levels(record: Record) -> list[Level]:
    """The levels of a numbering: seven, their first numbers, and the same for three more."""
    first, place = _forms(record, 0, _LEVELS)
    starts = [record.u32(place + 2 + 4 * level, 1) for level in range(_LEVELS)]
    more, place = _forms(record, place + 2 + 4 * _LEVELS, _MORE_LEVELS)
    starts += [record.u32(place + 4 * level, 1) for level in range(_MORE_LEVELS)]
    return [Level(*form, start) for form, start in zip(first + more, starts, strict=True)]


def _forms(record: Record, place: int, count: int) -> tuple[list[tuple[str, str]], int]:
    """Text and number format of so many levels, and the place behind them."""
    found = []
    for _ in range(count):
        form = min(record.u32(place) >> 5 & 15, len(HANGUL_FORMS) - 1)
        found.append((record.text(place + 12), HANGUL_FORMS[form]))
        place += 14 + 2 * record.u16(place + 12)
    return found, place


def _part(record: Record) -> str:
    """The name of a picture's stream within BinData; empty for one that lies elsewhere."""
    if record.u16(0) & 15 != 1:
        return ""
    return f"BIN{record.u16(2):04X}.{record.text(4)}"


def sections(ole: Any) -> list[list[str]]:
    """Paths of the streams with text, in order."""
    found = {
        match[0]: (int(match[1]), entry)
        for entry in ole.listdir(streams=True, storages=False)
        if (match := _SECTION.match("/".join(entry)))
    }
    return [entry for _, entry in sorted(found.values())]


class Section:
    """The paragraphs of one stream."""

    def __init__(self, stream: Sequence[Record], info: DocInfo) -> None:
        self._stream = stream
        self._info = info
        self._outline = _outline(stream)

    def paragraphs(self) -> Iterator[Paragraph]:
        """In order."""
        return (self._paragraph(one) for one in self._stream if one.tag == records.PARA_HEADER)

    def _paragraph(self, record: Record) -> Paragraph:
        paragraph = Paragraph(head=self._head(record))
        controls = record.of(records.CTRL_HEADER)
        parts: list[str] = []
        for text in record.of(records.PARA_TEXT):
            for piece in _pieces(text.data):
                if piece is None:
                    self._control(next(controls, None), parts, paragraph)
                else:
                    parts.append(piece)
        for control in controls:
            self._control(control, parts, paragraph)
        paragraph.text = "".join(parts)
        return paragraph

    def _head(self, record: Record) -> Head | None:
        shape = record.u16(8)
        head = self._info.heads[shape] if shape < len(self._info.heads) else None
        if head and head.kind is HeadKind.OUTLINE:
            return Head(head.kind, head.level, self._outline)
        return head

    def _control(self, record: Record | None, parts: list[str], paragraph: Paragraph) -> None:
        """What a control stands for: into the line, or anchored to the paragraph."""
        if record is None:
            return
        match record.data[:4][::-1]:
            case b"tbl ":
                paragraph.anchored.append(self._table(record))
            case b"gso ":
                self._drawing(record, paragraph)
            case b"eqed":
                parts += [f" {equations.text(one.text(4))} " for one in record.of(records.EQUATION)]
                paragraph.anchored += [Frame(blocks) for _, blocks in self._lists(record)]
            case b"fn  " | b"en  ":
                self._note(record, parts, paragraph)
            case b"head" | b"foot" | b"secd":
                paragraph.anchored += [Margin(blocks) for _, blocks in self._lists(record)]
            case b"atno":
                parts.append(_auto_number(record))
            case b"tcps":
                parts.append(record.text(4))
            case b"tdut":
                parts.append(with_ruby(record.text(4), record.text(6 + 2 * record.u16(4))))

    def _note(self, record: Record, parts: list[str], paragraph: Paragraph) -> None:
        for _, blocks in self._lists(record):
            parts.append(mark_of(blocks))
            paragraph.anchored.append(Frame(blocks))

    def _drawing(self, record: Record, paragraph: Paragraph) -> None:
        """A drawing: its text, the pictures and shapes in it, then its caption."""
        for shape in record.of(records.SHAPE_COMPONENT):
            self._shape(shape, paragraph)
        paragraph.anchored += [Frame(blocks) for _, blocks in self._lists(record)]

    def _shape(self, record: Record, paragraph: Paragraph) -> None:
        paragraph.anchored += [Frame(blocks) for _, blocks in self._lists(record)]
        for child in record.children:
            if child.tag == records.SHAPE_COMPONENT:
                self._shape(child, paragraph)
            elif child.tag == records.PICTURE:
                self._picture(child, paragraph)
            elif child.tag == records.TEXT_ART:
                paragraph.anchored.append(Frame([Paragraph(child.text(32))]))

    def _picture(self, record: Record, paragraph: Paragraph) -> None:
        key = record.u16(71) - 1
        if 0 <= key < len(self._info.parts) and self._info.parts[key]:
            paragraph.anchored.append(Image(self._info.parts[key]))

    def _lists(self, record: Record) -> Iterator[tuple[Record, list[Paragraph]]]:
        """Each list of a record with its paragraphs, which stand behind it and not in it."""
        return ((head, list(map(self._paragraph, members))) for head, members in _grouped(record))

    def _table(self, record: Record) -> Table:
        """Lists before the table's own record are its caption, those behind it its cells."""
        own = next((i for i, child in enumerate(record.children) if child.tag == records.TABLE), 0)
        before, behind = (
            Record(record.tag, record.data, part)
            for part in (record.children[:own], record.children[own:])
        )
        caption = [line for _, lines in self._lists(before) for line in lines]
        cells = [_cell(head, lines) for head, lines in self._lists(behind)]
        return Table(cells, caption)


def _grouped(record: Record) -> Iterator[tuple[Record, list[Record]]]:
    head: Record | None = None
    members: list[Record] = []
    for child in record.children:
        if child.tag == records.LIST_HEADER:
            if head:
                yield head, members
            head, members = child, []
        elif child.tag == records.PARA_HEADER:
            members.append(child)
    if head:
        yield head, members


def _cell(head: Record, blocks: list[Paragraph]) -> Cell:
    column, row, columns, rows = (head.u16(8 + 2 * i) for i in range(4))
    return Cell(row, column, max(rows, 1), max(columns, 1), blocks)


def _outline(stream: Sequence[Record]) -> int:
    """The numbering of the section's outline."""
    for paragraph in stream:
        for control in paragraph.of(records.CTRL_HEADER):
            if control.data[:4] == b"dces":
                return control.u16(18)
    return 0


def _pieces(data: bytes) -> Iterator[str | None]:
    """Runs of text; None where a control with a record of its own stands."""
    place, start, end = 0, 0, len(data) // 2 * 2
    while place < end:
        code = data[place] | data[place + 1] << 8
        if code >= 32:
            place += 2
            continue
        yield records.utf16(data[start:place])
        yield _shown(code)
        place += 2 if code in _SINGLE else 16
        start = place
    yield records.utf16(data[start:end])


def _shown(code: int) -> str | None:
    if code in _SINGLE or code in _INLINE:
        return {_NEW_LINE: "\n", _HYPHEN: "-", 30: " ", 31: " ", _TAB: "\t"}.get(code, "")
    return None


def _auto_number(record: Record) -> str:
    """A counted number as it is shown; pages have none in a text without pages."""
    flags = record.u32(4)
    if flags & 15 == _PAGE_NUMBER:
        return ""
    user, before, behind = (record.u16(10 + 2 * i) for i in range(3))
    form = HANGUL_FORMS[min(flags >> 4 & 0xFF, len(HANGUL_FORMS) - 1)]
    shown = chr(user) if user else format_hangul_number(record.u16(8), form)
    return f"{chr(before) if before else ''}{shown}{chr(behind) if behind else ''}"

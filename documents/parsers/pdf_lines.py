"""Puts PDFium's characters together: clean NFC text, and where the characters stand."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from documents.parsers.clean import keeps
from documents.parsers.pdf_geometry import Glyph, PageFrame, Rect, clipped
from documents.parsers.pdf_wrap import Mark, Row, joins
from rag.pages import Line

_MOST_MAPPED = 200_000
"""Characters of a page beyond which boxes are not worth their size."""
_NEW_LINE = 10
_CODED_SHARE = 0.2
"""Share of control and private characters from which a font counts as having no Unicode map."""


@dataclass(frozen=True, slots=True)
class PageText:
    """Text of a page with its lines; `coded` says that it is glyph codes rather than words."""

    text: str
    lines: tuple[Line, ...]
    coded: bool

    @classmethod
    def assembled(cls, glyphs: Iterable[Glyph], frame: PageFrame) -> Self:
        """The page of these glyphs."""
        parts: list[str] = []
        lines: list[Line] = []
        position, odd, total = 0, 0, 0
        rows = list(_rows(glyphs, frame))
        for row, joined in zip(rows, joins(rows), strict=True):
            odd, total = odd + row.strange, total + len(row.marks) + row.strange
            text = "".join(mark for mark, _ in row.marks)
            if position < _MOST_MAPPED:
                lines += _lines(row.marks, position)
            parts.append(text if joined else text + "\n")
            position += len(parts[-1])
        whole = "".join(parts).rstrip("\n")
        if not unicodedata.is_normalized("NFC", whole):
            # Rare scripts compose in ways `_composed` does not know: text matters more than boxes.
            whole, lines = unicodedata.normalize("NFC", whole), []
        return cls(whole, tuple(lines), odd > max(total * _CODED_SHARE, 3))


def _rows(glyphs: Iterable[Glyph], frame: PageFrame) -> Iterator[Row]:
    """Rows as PDFium breaks them, clean and in NFC; surrogate pairs become one character."""
    marks: list[Mark] = []
    strange, high, hyphen = 0, 0, False
    for glyph in glyphs:
        code = glyph.code
        if code in {_NEW_LINE, 13}:
            if code == _NEW_LINE or not marks:
                if marks or strange:
                    yield _row(marks, strange, hyphen)
                marks, strange, hyphen = [], 0, False
            continue
        if glyph.hyphen:
            hyphen = True
            continue
        if 0xD800 <= code < 0xDC00:
            high = code
            continue
        if high and 0xDC00 <= code < 0xE000:
            code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)
        high = 0
        character = _character(code)
        strange += _meaningless(code)
        if character:
            marks.append((character, _box(glyph, frame)))
    yield _row(marks, strange, hyphen=False)


def _row(marks: list[Mark], strange: int, hyphen: bool) -> Row:
    """A finished row, without the spaces at its ends."""
    spaced = bool(marks) and marks[-1][0].isspace()
    return Row(_stripped(_composed(marks)), strange, hyphen, spaced)


def _character(code: int) -> str:
    """The character to keep; "" for what text may not hold."""
    if code == 9:
        return " "
    character = chr(code) if 0 < code < 0x110000 else ""
    return character if character and keeps(character) else ""


def _meaningless(code: int) -> bool:
    """Whether a code stands for no character: controls, private use, replacement marks."""
    return (code < 32 and code != 9) or 0xE000 <= code < 0xF900 or code == 0xFFFD or code >= 0xF0000


def _box(glyph: Glyph, frame: PageFrame) -> Rect | None:
    """The glyph's box as shown; None where it has no width."""
    if glyph.right <= glyph.left and glyph.top <= glyph.bottom:
        return None
    return frame.shown(glyph)


def _stripped(marks: list[Mark]) -> list[Mark]:
    """Without spaces at either end."""
    start, end = 0, len(marks)
    while start < end and marks[start][0].isspace():
        start += 1
    while end > start and marks[end - 1][0].isspace():
        end -= 1
    return marks[start:end]


def _composed(marks: list[Mark]) -> list[Mark]:
    """The marks in NFC: parts of a syllable or letter become one mark with the box around them."""
    if unicodedata.is_normalized("NFC", "".join(mark for mark, _ in marks)):
        return marks
    result: list[Mark] = []
    cluster: list[Mark] = []
    for mark in marks:
        if cluster and not _joins(mark[0]):
            result += _merged(cluster)
            cluster = []
        cluster.append(mark)
    return [*result, *_merged(cluster)]


def _joins(character: str) -> bool:
    """Whether a character belongs to the one before it (accents, vowels and finals of Hangul)."""
    return unicodedata.combining(character) > 0 or "\u1160" <= character <= "\u11ff"


def _merged(cluster: Sequence[Mark]) -> Iterator[Mark]:
    """A cluster in NFC, every character with the box of the whole."""
    boxes = [box for _, box in cluster if box is not None]
    for character in unicodedata.normalize("NFC", "".join(mark for mark, _ in cluster)):
        yield character, _around(boxes) if boxes else None


def _around(boxes: Sequence[Rect]) -> Rect:
    """The smallest box that holds them all."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return Rect(min(x0), min(y0), max(x1), max(y1))


def _lines(marks: Sequence[Mark], position: int) -> Iterator[Line]:
    """Lines of a row that begins at `position` of the page; a jump begins a new one."""
    start, last = 0, None
    for index, (_, box) in enumerate(marks):
        if box is None:
            continue
        if last is not None and _jumps(last, box):
            yield from _line(marks, start, index, position)
            start = index
        last = box
    yield from _line(marks, start, len(marks), position)


def _jumps(last: Rect, box: Rect) -> bool:
    """Whether the text goes on elsewhere: on another height, or back to the left."""
    apart = box.y0 >= last.y1 or box.y1 <= last.y0
    return apart or box.x1 < last.x0 - 0.01


def _line(marks: Sequence[Mark], start: int, end: int, position: int) -> Iterator[Line]:
    """One line; its edges are where each character begins, and where the last one ends."""
    while end > start and marks[end - 1][1] is None:
        end -= 1
    boxes = [box for _, box in marks[start:end] if box is not None]
    if not boxes:
        return
    # Text that runs to the left (upside down, Hebrew) has its characters' right sides as edges.
    near, far = (2, 0) if boxes[-1].x0 < boxes[0].x0 else (0, 2)
    edges, edge = [], boxes[0][near]
    for _, box in marks[start:end]:
        edges.append(box[near] if box is not None else edge)
        edge = box[far] if box is not None else edge
    area = _around(boxes)
    places = tuple(map(clipped, (*edges, edge)))
    y0, y1 = clipped(area.y0), clipped(area.y1)
    yield Line(position + start, position + end, y0, y1, places)

"""What a Hangul document consists of in either of its formats, and how that is written into a page.

Paragraphs get the numbers that stand in no text of the file, such as "제^1장" or "^1.^2)", counted
level by level; equations are LaTeX (`documents.parsers.formulas`).
"""

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from documents.parsers.base import Encrypted, ReadingContext
from documents.parsers.builder import PageBuilder, format_hangul_number
from rag.types import Page

MAX_HEADING_CHARACTERS = 100
"""A longer outline paragraph is a numbered paragraph."""
_MAX_HEADER_ROWS = 3
_MAX_GRID_CELLS = 200_000
"""Cells of a table; a larger grid exists only on paper."""

BULLET = "-"
_PLACE = re.compile(r"\^(\d+|n|N)")


class HeadKind(StrEnum):
    """The number before a paragraph."""

    OUTLINE = "outline"
    NUMBER = "number"
    BULLET = "bullet"


@dataclass(frozen=True, slots=True)
class ParagraphHead:
    """The head of a paragraph: `level` from 0, `list_id` names its numbering or bullet."""

    kind: HeadKind
    level: int
    list_id: int


@dataclass(slots=True)
class HwpParagraph:
    """A paragraph; `anchored` are the tables, frames and notes that hang on it, in order."""

    text: str = ""
    head: ParagraphHead | None = None
    anchored: "list[AnchoredBlock]" = field(default_factory=list)


@dataclass(slots=True)
class HwpCell:
    """A cell by its place in the grid."""

    row: int
    column: int
    row_span: int
    column_span: int
    blocks: "list[HwpParagraph]"


@dataclass(slots=True)
class HwpTable:
    """A table with its caption."""

    cells: list[HwpCell]
    caption: list[HwpParagraph] = field(default_factory=list)
    header_rows: int = 1


@dataclass(slots=True)
class TextFrame:
    """Text outside the flow: a text box, a picture's caption, a note."""

    blocks: list[HwpParagraph]


@dataclass(slots=True)
class RunningText:
    """A running header or footer, or the master page."""

    blocks: list[HwpParagraph]


@dataclass(slots=True)
class PictureAnchor:
    """A picture by the name of its part."""

    part: str


AnchoredBlock = HwpTable | TextFrame | RunningText | PictureAnchor


def find_note_mark(note: list[HwpParagraph]) -> str:
    """The number that a note begins with, for the place that it belongs to."""
    match = re.match(r"\s*(\S{1,6}?\))", note[0].text) if note else None
    return match[1] if match else ""


def format_ruby(word: str, above: str) -> str:
    """A word with what is written above it."""
    return f"{word}({above})" if above else word


@dataclass(frozen=True, slots=True)
class NumberingLevel:
    """How one level is numbered; `text` holds `^1` for the number of level 1 and so on."""

    text: str
    format: str = "DIGIT"
    start: int = 1


class ParagraphNumberer:
    """Counts the numbered paragraphs of a document, in order."""

    def __init__(self, numberings: Mapping[int, Sequence[NumberingLevel]]) -> None:
        self._numberings = numberings
        self._counts: dict[tuple[HeadKind, int], dict[int, int]] = defaultdict(dict)

    def number_paragraph(self, head: ParagraphHead) -> str:
        """Advance the counters and return the paragraph's number; empty for unnumbered levels."""
        if head.kind is HeadKind.BULLET:
            return BULLET
        levels = self._numberings.get(head.list_id, ())
        if head.level >= len(levels):
            return ""
        counts = self._counts[head.kind, head.list_id]
        for deeper in [level for level in counts if level > head.level]:
            del counts[deeper]
        counts[head.level] = counts.get(head.level, levels[head.level].start - 1) + 1
        return _PLACE.sub(
            lambda place: _format_place(place[1], head.level, levels, counts),
            levels[head.level].text,
        )


class HwpWriter:
    """Takes paragraphs in order.

    `margins` gathers running headers and footers, each once; `images` the parts of pictures, each
    with its place in the text.
    """

    def __init__(self, builder: PageBuilder, numberer: ParagraphNumberer) -> None:
        self._builder = builder
        self._numberer = numberer
        self.margins: list[str] = []
        self.images: list[tuple[str, int]] = []

    def write(self, paragraphs: Iterable[HwpParagraph]) -> None:
        """Write paragraphs with all that hangs on them."""
        for paragraph in paragraphs:
            self._write_paragraph(paragraph)
            for block in paragraph.anchored:
                self._write_block(block)

    def _write_paragraph(self, paragraph: HwpParagraph) -> None:
        text, head = paragraph.text.strip(), paragraph.head
        if not text:
            return
        if head is None:
            self._builder.add_paragraph(text)
            return
        marked = f"{self._numberer.number_paragraph(head)} {text}".strip()
        if head.kind is HeadKind.OUTLINE and len(marked) <= MAX_HEADING_CHARACTERS:
            self._builder.add_heading(head.level + 1, marked)
        elif head.kind is HeadKind.OUTLINE:
            self._builder.add_paragraph(marked)
        else:
            self._builder.add_list_item(marked, depth=head.level)

    def _write_block(self, block: AnchoredBlock) -> None:
        match block:
            case HwpTable():
                self._write_table(block)
            case TextFrame():
                self.write(block.blocks)
            case RunningText():
                self._write_margin(block)
            case PictureAnchor():
                self.images.append((block.part, self._builder.length))

    def _write_margin(self, margin: RunningText) -> None:
        text = "\n".join(self._iterate_texts(margin.blocks))
        if text and text not in self.margins:
            self.margins.append(text)

    def _write_table(self, table: HwpTable) -> None:
        """A grid as Markdown; a frame of one row or column as its content."""
        self.write(table.caption)
        rows = 1 + max((cell.row for cell in table.cells), default=-1)
        columns = 1 + max((cell.column for cell in table.cells), default=-1)
        if rows <= 1 or columns <= 1 or rows * columns > _MAX_GRID_CELLS:
            for cell in table.cells:
                self.write(cell.blocks)
            return
        tallest = max((cell.row_span for cell in table.cells if cell.row == 0), default=1)
        headers = min(max(table.header_rows, tallest), _MAX_HEADER_ROWS, rows - 1)
        self._builder.add_table(self._build_grid(table.cells, rows, columns), header_rows=headers)

    def _build_grid(self, cells: Iterable[HwpCell], rows: int, columns: int) -> list[list[str]]:
        """Texts by row and column; a merged cell has its text in its first place."""
        grid = [[""] * columns for _ in range(rows)]
        for cell in cells:
            text = "\n".join(self._iterate_texts(cell.blocks))
            taken = grid[cell.row][cell.column]
            grid[cell.row][cell.column] = f"{taken}\n{text}" if taken else text
        return grid

    def _iterate_texts(self, paragraphs: Iterable[HwpParagraph]) -> Iterator[str]:
        """The text of a cell or margin, nested content included."""
        for paragraph in paragraphs:
            text = paragraph.text.strip()
            if text:
                mark = self._numberer.number_paragraph(paragraph.head) if paragraph.head else ""
                yield f"{mark} {text}".strip()
            for block in paragraph.anchored:
                yield from self._iterate_block_texts(block)

    def _iterate_block_texts(self, block: AnchoredBlock) -> Iterator[str]:
        match block:
            case HwpTable():
                yield from self._iterate_texts(block.caption)
                for cell in block.cells:
                    yield from self._iterate_texts(cell.blocks)
            case TextFrame():
                yield from self._iterate_texts(block.blocks)
            case RunningText():
                self._write_margin(block)
            case PictureAnchor():
                self.images.append((block.part, self._builder.length))


def _format_place(
    place: str, own: int, levels: Sequence[NumberingLevel], counts: Mapping[int, int]
) -> str:
    """One number of a mark; `^n` and `^N` mean all levels down to this one."""
    if not place.isdigit():
        numbers = (_format_level(level, levels, counts) for level in range(own + 1))
        return ".".join(numbers) + ("." if place == "N" else "")
    return _format_level(int(place) - 1, levels, counts)


def _format_level(level: int, levels: Sequence[NumberingLevel], counts: Mapping[int, int]) -> str:
    if not 0 <= level < len(levels):
        return ""
    return format_hangul_number(counts.get(level, levels[level].start), levels[level].format)


_NOTICE = "상위 버전의 배포용 문서"


class HangulParser(ABC):
    """A document of Hangul as one page: pages exist only when it is laid out."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The whole document as one page. Raises `Encrypted` for what is locked, by its lock."""
        builder = PageBuilder(context)
        margins = self.write(path, context, builder)
        page = builder.build_page(margins)
        if _NOTICE in page.text[:1000]:
            raise Encrypted(lock="distribution")
        yield page

    @abstractmethod
    def write(self, path: Path, context: ReadingContext, builder: PageBuilder) -> list[str]:
        """Write the file into the builder; its running headers and footers come back."""

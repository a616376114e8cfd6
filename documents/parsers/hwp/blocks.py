"""The blocks of a Hangul document, common to both of its formats, and how they become a page.

Paragraphs get their numbers, which the file stores only as patterns such as "제^1장" or "^1.^2)",
counted level by level; equations are LaTeX (`documents.parsers.formulas`).
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
"""A longer outline paragraph is text, not a heading."""
_MAX_HEADER_ROWS = 3
_MAX_GRID_CELLS = 200_000
"""Cells of a table; a larger declared grid is not built."""

BULLET = "-"
_LEVEL_REFERENCE = re.compile(r"\^(\d+|n|N)")


class HeadKind(StrEnum):
    """What precedes a paragraph: an outline number, a list number or a bullet."""

    OUTLINE = "outline"
    NUMBER = "number"
    BULLET = "bullet"


@dataclass(frozen=True, slots=True)
class ParagraphHead:
    """The head of a paragraph: `level` counts from 0, `list_id` is its numbering or bullet."""

    kind: HeadKind
    level: int
    list_id: int


@dataclass(slots=True)
class HwpParagraph:
    """A paragraph; `anchored` are its tables, frames, notes and pictures, in order."""

    text: str = ""
    head: ParagraphHead | None = None
    anchored: "list[AnchoredBlock]" = field(default_factory=list)


@dataclass(slots=True)
class HwpCell:
    """A cell and its position in the grid."""

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
    """Text outside the body: a text box, a picture's caption, a note."""

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


def find_note_mark(paragraphs: list[HwpParagraph]) -> str:
    """The number that a note begins with, to be repeated where it is referred to; may be ""."""
    match = re.match(r"\s*(\S{1,6}?\))", paragraphs[0].text) if paragraphs else None
    return match[1] if match else ""


def format_ruby(word: str, ruby: str) -> str:
    """A word with its ruby text, if any, in brackets."""
    return f"{word}({ruby})" if ruby else word


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
        for deeper_level in [level for level in counts if level > head.level]:
            del counts[deeper_level]
        counts[head.level] = counts.get(head.level, levels[head.level].start - 1) + 1
        return _LEVEL_REFERENCE.sub(
            lambda match: _format_reference(match[1], head.level, levels, counts),
            levels[head.level].text,
        )


class HwpWriter:
    """Writes the paragraphs of a document, in order, and builds its page.

    `pictures` collects the part of each picture with its offset in the text.
    """

    def __init__(self, context: ReadingContext) -> None:
        self._builder = PageBuilder(context)
        self._numberer = ParagraphNumberer({})
        self._margins: list[str] = []
        """Running headers and footers, each once."""
        self.pictures: list[tuple[str, int]] = []

    def start_numbering(self, numberings: Mapping[int, Sequence[NumberingLevel]]) -> None:
        """Number the paragraphs that follow by the numberings of the document."""
        self._numberer = ParagraphNumberer(numberings)

    def build_page(self) -> Page:
        """The page of what was written; running headers and footers are its margins."""
        return self._builder.build_page(self._margins)

    def write(self, paragraphs: Iterable[HwpParagraph]) -> None:
        """Write paragraphs, each followed by what is anchored to it."""
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
        numbered = f"{self._numberer.number_paragraph(head)} {text}".strip()
        if head.kind is HeadKind.OUTLINE and len(numbered) <= MAX_HEADING_CHARACTERS:
            self._builder.add_heading(head.level + 1, numbered)
        elif head.kind is HeadKind.OUTLINE:
            self._builder.add_paragraph(numbered)
        else:
            self._builder.add_list_item(numbered, depth=head.level)

    def _write_block(self, block: AnchoredBlock) -> None:
        match block:
            case HwpTable():
                self._write_table(block)
            case TextFrame():
                self.write(block.blocks)
            case RunningText():
                self._write_margin(block)
            case PictureAnchor():
                self.pictures.append((block.part, self._builder.length))

    def _write_margin(self, margin: RunningText) -> None:
        text = "\n".join(self._iterate_texts(margin.blocks))
        if text and text not in self._margins:
            self._margins.append(text)

    def _write_table(self, table: HwpTable) -> None:
        """Write a table; one with a single row or column is a frame: only its content."""
        self.write(table.caption)
        rows = 1 + max((cell.row for cell in table.cells), default=-1)
        columns = 1 + max((cell.column for cell in table.cells), default=-1)
        if rows <= 1 or columns <= 1 or rows * columns > _MAX_GRID_CELLS:
            for cell in table.cells:
                self.write(cell.blocks)
            return
        first_row_span = max((cell.row_span for cell in table.cells if cell.row == 0), default=1)
        header_rows = min(max(table.header_rows, first_row_span), _MAX_HEADER_ROWS, rows - 1)
        self._builder.add_table(
            self._build_grid(table.cells, rows, columns), header_rows=header_rows
        )

    def _build_grid(self, cells: Iterable[HwpCell], rows: int, columns: int) -> list[list[str]]:
        """Texts by row and column; a merged cell has its text in its first position."""
        grid = [[""] * columns for _ in range(rows)]
        for cell in cells:
            text = "\n".join(self._iterate_texts(cell.blocks))
            existing = grid[cell.row][cell.column]
            grid[cell.row][cell.column] = f"{existing}\n{text}" if existing else text
        return grid

    def _iterate_texts(self, paragraphs: Iterable[HwpParagraph]) -> Iterator[str]:
        """The text of a cell or margin, nested content included."""
        for paragraph in paragraphs:
            text = paragraph.text.strip()
            if text:
                number = self._numberer.number_paragraph(paragraph.head) if paragraph.head else ""
                yield f"{number} {text}".strip()
            for block in paragraph.anchored:
                yield from self._read_block(block)

    def _read_block(self, block: AnchoredBlock) -> Iterator[str]:
        """The texts in a table or frame; margins and pictures are written where they belong."""
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
                self.pictures.append((block.part, self._builder.length))


def _format_reference(
    level_reference: str, level: int, levels: Sequence[NumberingLevel], counts: Mapping[int, int]
) -> str:
    """One reference of a numbering pattern; `^n` and `^N` mean all levels down to this one."""
    if not level_reference.isdigit():
        numbers = (_format_level(other_level, levels, counts) for other_level in range(level + 1))
        return ".".join(numbers) + ("." if level_reference == "N" else "")
    return _format_level(int(level_reference) - 1, levels, counts)


def _format_level(level: int, levels: Sequence[NumberingLevel], counts: Mapping[int, int]) -> str:
    if not 0 <= level < len(levels):
        return ""
    return format_hangul_number(counts.get(level, levels[level].start), levels[level].format)


_DISTRIBUTION_NOTICE = "상위 버전의 배포용 문서"


class HangulParser(ABC):
    """Reads a document of Hangul as one page: it has pages only when it is laid out."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The whole document as one page. Raises `Encrypted` for a locked document."""
        writer = HwpWriter(context)
        self.write_document(path, context, writer)
        page = writer.build_page()
        if _DISTRIBUTION_NOTICE in page.text[:1000]:
            raise Encrypted(lock="distribution")
        yield page

    @abstractmethod
    def write_document(self, path: Path, context: ReadingContext, writer: HwpWriter) -> None:
        """Write the paragraphs of the file; load its pictures and metadata into the context."""

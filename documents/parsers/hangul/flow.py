"""Writes the blocks of a Hangul document into a page."""

from collections.abc import Iterable, Iterator

from documents.parsers.builder import PageBuilder
from documents.parsers.hangul.blocks import (
    Block,
    Cell,
    Frame,
    HeadKind,
    Image,
    Margin,
    Paragraph,
    Table,
)
from documents.parsers.hangul.numbering import Numberer

LONGEST_HEADING = 100
"""Characters; a longer outline paragraph is a numbered paragraph."""
_MOST_HEADERS = 3
_LARGEST_GRID = 200_000
"""Cells of a table; a larger grid exists only on paper."""


class Flow:
    """Takes paragraphs in order.

    `margins` gathers running headers and footers, each once; `images` the parts of pictures, each
    with its place in the text.
    """

    def __init__(self, builder: PageBuilder, numberer: Numberer) -> None:
        self._builder = builder
        self._numberer = numberer
        self.margins: list[str] = []
        self.images: list[tuple[str, int]] = []

    def write(self, paragraphs: Iterable[Paragraph]) -> None:
        """Write paragraphs with all that hangs on them."""
        for paragraph in paragraphs:
            self._paragraph(paragraph)
            for block in paragraph.anchored:
                self._block(block)

    def _paragraph(self, paragraph: Paragraph) -> None:
        text, head = paragraph.text.strip(), paragraph.head
        if not text:
            return
        if head is None:
            self._builder.add_paragraph(text)
            return
        marked = f"{self._numberer.mark(head)} {text}".strip()
        if head.kind is HeadKind.OUTLINE and len(marked) <= LONGEST_HEADING:
            self._builder.add_heading(head.level + 1, marked)
        elif head.kind is HeadKind.OUTLINE:
            self._builder.add_paragraph(marked)
        else:
            self._builder.add_list_item(marked, depth=head.level)

    def _block(self, block: Block) -> None:
        match block:
            case Table():
                self._table(block)
            case Frame():
                self.write(block.blocks)
            case Margin():
                self._margin(block)
            case Image():
                self.images.append((block.part, self._builder.length))

    def _margin(self, margin: Margin) -> None:
        text = "\n".join(self._texts(margin.blocks))
        if text and text not in self.margins:
            self.margins.append(text)

    def _table(self, table: Table) -> None:
        """A grid as Markdown; a frame of one row or column as what stands in it."""
        self.write(table.caption)
        rows = 1 + max((cell.row for cell in table.cells), default=-1)
        columns = 1 + max((cell.column for cell in table.cells), default=-1)
        if rows <= 1 or columns <= 1 or rows * columns > _LARGEST_GRID:
            for cell in table.cells:
                self.write(cell.blocks)
            return
        tallest = max((cell.row_span for cell in table.cells if cell.row == 0), default=1)
        headers = min(max(table.header_rows, tallest), _MOST_HEADERS, rows - 1)
        self._builder.add_table(self._grid(table.cells, rows, columns), header_rows=headers)

    def _grid(self, cells: Iterable[Cell], rows: int, columns: int) -> list[list[str]]:
        """Texts by row and column; a merged cell has its text in its first place."""
        grid = [[""] * columns for _ in range(rows)]
        for cell in cells:
            text = "\n".join(self._texts(cell.blocks))
            taken = grid[cell.row][cell.column]
            grid[cell.row][cell.column] = f"{taken}\n{text}" if taken else text
        return grid

    def _texts(self, paragraphs: Iterable[Paragraph]) -> Iterator[str]:
        """The text of a cell or margin, with what stands in it."""
        for paragraph in paragraphs:
            text = paragraph.text.strip()
            if text:
                mark = self._numberer.mark(paragraph.head) if paragraph.head else ""
                yield f"{mark} {text}".strip()
            for block in paragraph.anchored:
                yield from self._inside(block)

    def _inside(self, block: Block) -> Iterator[str]:
        match block:
            case Table():
                yield from self._texts(block.caption)
                for cell in block.cells:
                    yield from self._texts(cell.blocks)
            case Frame():
                yield from self._texts(block.blocks)
            case Margin():
                self._margin(block)
            case Image():
                self.images.append((block.part, self._builder.length))

"""Builds the one page of a format without pages, with its headings at true offsets."""

from collections.abc import Sequence

from documents.parsers.base import Context
from documents.parsers.clean import clean
from documents.parsers.errors import TooLarge
from rag.pages import Heading, Page


class PageBuilder:
    """Blocks go in, in order; `page` joins them with a blank line between."""

    def __init__(self, context: Context) -> None:
        self._limit = context.limits.characters
        self._blocks: list[str] = []
        self._headings: list[Heading] = []
        self._length = 0

    def paragraph(self, text: str) -> None:
        """Add a paragraph; a blank one adds nothing."""
        text = clean(text).strip()
        if not text:
            return
        self._blocks.append(text)
        self._length += len(text) + 2
        if self._length > self._limit:
            raise TooLarge(limit=self._limit)

    def heading(self, level: int, title: str) -> None:
        """Add a heading, as text of its own."""
        title = " ".join(clean(title).split())
        if title:
            self._headings.append(Heading(self._length, level, title[:200]))
            self.paragraph(title)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table as Markdown; one column, or one row, is text in a frame and stays text."""
        rows = [row for row in rows if any(cell.strip() for cell in row)]
        if not rows:
            return
        width = max(len(row) for row in rows)
        if width == 1 or len(rows) == 1:
            for row in rows:
                self.paragraph("\n".join(cell for cell in row if cell.strip()))
            return
        lines = [_row(row, width) for row in rows]
        lines.insert(1, "|" + " --- |" * width)
        self.paragraph("\n".join(lines))

    def page(self) -> Page:
        """All blocks as one page without a number."""
        return Page(None, "\n\n".join(self._blocks), tuple(self._headings))


def _row(cells: Sequence[str], width: int) -> str:
    """One line of a Markdown table."""
    texts = [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
    return "| " + " | ".join(texts + [""] * (width - len(texts))) + " |"

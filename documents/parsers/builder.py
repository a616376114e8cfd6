"""Builds the one page of a format without pages: its headings and regions at true offsets."""

import re
from collections.abc import Sequence
from textwrap import dedent

from documents.parsers.base import ReadingContext
from documents.parsers.errors import TooLarge
from documents.parsers.text import clean_text
from rag.pages import Heading, Kind, Page, Region

_BACKTICKS = re.compile("`+")
_INDENT = "    "
_DEEPEST_ITEM = 8


class PageBuilder:
    """Blocks go in, in order; `build_page` joins them with a blank line between.

    Items that follow each other are one list. Every method cleans what it is given; what is
    blank adds nothing. All raise TooLarge when the text grows above the limit.
    """

    def __init__(self, context: ReadingContext) -> None:
        self._limit = context.limits.characters
        self._blocks: list[str] = []
        self._headings: list[Heading] = []
        self._regions: list[Region] = []
        self._items: list[str] = []
        self._length = 0
        self._waiting = 0

    @property
    def length(self) -> int:
        """Where the next block will begin; within a list that goes on, somewhere in it."""
        return self._length + self._waiting

    def add_paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self._add(clean_text(text).strip())

    def add_heading(self, level: int, title: str) -> None:
        """Add a heading, as text of its own."""
        title = " ".join(clean_text(title).split())
        if title:
            self.end_list()
            self._headings.append(Heading(self._length, level, title[:200]))
            self._add(title)

    def add_list_item(self, text: str, depth: int = 0) -> None:
        """Add an item of a list, with its number or mark; `depth` counts from 0."""
        lines = clean_text(text).strip().split("\n")
        if lines[0]:
            indent = _INDENT * min(depth, _DEEPEST_ITEM)
            self._items.append("\n".join(indent + line.strip() for line in lines if line.strip()))
            self._waiting += len(self._items[-1]) + 1
            self._check()

    def end_list(self) -> None:
        """End the list, so that an item that follows begins another."""
        items, self._items, self._waiting = self._items, [], 0
        if items:
            self._add(dedent("\n".join(items)), Kind.LIST)

    def add_code(self, text: str) -> None:
        """Add code between fences, its white space as it is."""
        text = clean_text(text).strip("\n")
        if text.strip():
            longest = max(map(len, _BACKTICKS.findall(text)), default=0)
            fence = "`" * max(3, longest + 1)
            self._add(f"{fence}\n{text}\n{fence}", Kind.CODE)

    def add_table(self, rows: Sequence[Sequence[str]], header_rows: int = 1) -> None:
        """Add a table as Markdown; columns and rows without any text are left out.

        Of a cell over several columns or rows, the others are "". One column, or one row, is
        text in a frame and stays text.
        """
        header_rows = sum(map(_filled, rows[:header_rows]))
        rows = _without_empty_columns([row for row in rows if _filled(row)])
        if not rows:
            return
        if len(rows[0]) == 1 or len(rows) == 1:
            for row in rows:
                self.add_paragraph("\n".join(cell for cell in row if cell.strip()))
            return
        lines = [_row(row) for row in rows]
        lines.insert(1, "|" + " --- |" * len(rows[0]))
        header = len("\n".join(lines[: header_rows + 1])) if header_rows else 0
        self._add("\n".join(lines), Kind.TABLE, header)

    def build_page(self, margins: Sequence[str] = ()) -> Page:
        """All blocks as one page without a number."""
        self.end_list()
        text = "\n\n".join(self._blocks)
        headings, regions = tuple(self._headings), tuple(self._regions)
        return Page(None, text, headings, regions=regions, margins=tuple(margins))

    def _add(self, text: str, kind: Kind = Kind.TEXT, header: int = 0) -> None:
        """A block as it will stand; `header` is how much of it are header rows."""
        if not text:
            return
        self.end_list()
        start, end = self._length, self._length + len(text)
        if kind is not Kind.TEXT:
            self._regions.append(Region(start, end, kind, start + header if header else 0))
        self._blocks.append(text)
        self._length = end + 2
        self._check()

    def _check(self) -> None:
        if self._length + self._waiting > self._limit:
            raise TooLarge(limit=self._limit)


def _filled(row: Sequence[str]) -> bool:
    """Whether any cell holds text."""
    return any(cell.strip() for cell in row)


def _without_empty_columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows, all of one width; merged cells leave columns behind in which nothing stands."""
    filled = sorted({at for row in rows for at, cell in enumerate(row) if cell.strip()})
    return [[row[at] if at < len(row) else "" for at in filled] for row in rows]


def _row(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    texts = (" ".join(clean_text(cell).split()).replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(texts) + " |"

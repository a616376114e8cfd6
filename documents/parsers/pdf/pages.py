"""A page between reading and writing: its lines and tables in order, not yet one text."""

import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from documents.parsers.pdf.cells import Table, placed
from documents.parsers.pdf.glyphs import Glyphs
from documents.parsers.pdf.headings import Bookmark, bookmarked, by_size
from documents.parsers.pdf.lines import Writer
from documents.parsers.pdf.order import ordered
from documents.parsers.pdf.rows import Row
from documents.parsers.pdf.runs import HYPHEN, runs
from documents.parsers.pdf.tables import Grid
from documents.parsers.pdf.wrap import Wrapping
from rag.pages import Heading, Kind, Page, Region

_TURNED = 0.3
"""Share of text on its side or head from which a page keeps the order of the file."""


@dataclass(slots=True)
class Draft:
    """A page whose running header and footer are still in it. `plain` is text without places.

    `points` is its height as shown. `is_recognised`: its lines were read from a picture.
    """

    number: int
    items: list[Row | Table] = field(default_factory=list)
    points: float = 0.0
    bookmarks: Sequence[Bookmark] = ()
    plain: str = ""
    is_recognised: bool = False

    @property
    def rows(self) -> list[Row]:
        """Its lines outside of tables."""
        return [item for item in self.items if isinstance(item, Row)]

    @property
    def text(self) -> str:
        """All that stands on it, in order."""
        return "\n".join(item.text for item in self.items) or self.plain

    @classmethod
    def of(
        cls,
        number: int,
        glyphs: Glyphs,
        grids: Sequence[Grid],
        points: float,
        bookmarks: Sequence[Bookmark],
    ) -> "Draft":
        """The page of these glyphs, with these grids as tables."""
        items = placed(list(runs(glyphs)), grids, glyphs.em)
        if not _is_turned(items):
            items = ordered(items, glyphs.em)
        return cls(number, items, points, bookmarks)

    def page(self, margins: Collection[int], body: float) -> Page:
        """The finished page without the items at these places, which are margins.

        `body` is the height of a usual line in points; 0 where the outline names the headings.
        """
        if not self.items:
            return Page(self.number, self.plain, bookmarked(self.plain, self.bookmarks))
        if self.is_recognised:
            body = 0  # the heights of recognised lines say too little
        kept = [item for place, item in enumerate(self.items) if place not in margins]
        writer, regions, sized = Writer(), list[Region](), list[Heading]()
        wrapping = Wrapping([row for row in kept if isinstance(row, Row)])
        for is_table, group in groupby(kept, lambda item: isinstance(item, Table)):
            block = list(group)
            if is_table:
                regions += [_table(writer, table) for table in block if isinstance(table, Table)]
                continue
            rows = [row for row in block if isinstance(row, Row)]
            writer.part()
            starts = writer.rows(rows, wrapping)
            sized += by_size(rows, starts, self.points, body) if body else ()
        running = sorted((self.items[place] for place in margins), key=lambda item: item.box.y0)
        titles = tuple(item.text.replace(HYPHEN, "-") for item in running)
        text = writer.text
        if self.is_recognised:
            regions.append(Region(0, len(text), Kind.RECOGNISED))
        headings = tuple(sized) if body else bookmarked(text, self.bookmarks)
        page = Page(self.number, text, headings, tuple(writer.lines), tuple(regions), titles)
        if unicodedata.is_normalized("NFC", text):
            return page
        # Rare scripts compose in ways runs do not know: the text matters more than its places.
        text = unicodedata.normalize("NFC", text)
        return Page(self.number, text, bookmarked(text, self.bookmarks), margins=titles)


def _table(writer: Writer, table: Table) -> Region:
    """A table as a paragraph of its own."""
    start = writer.paragraph(table.text, table.lines)
    return Region(start, writer.length, Kind.TABLE, start + table.header_end)


def _is_turned(items: Sequence[Row | Table]) -> bool:
    """Whether much of the text stands on its side or its head."""
    rows = [item for item in items if isinstance(item, Row)]
    turned = sum(row.length for row in rows if not row.upright)
    return turned > _TURNED * sum(row.length for row in rows)

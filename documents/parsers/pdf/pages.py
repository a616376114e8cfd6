"""From the lines and tables of a page to its text: headings, running headers and footers.

Running lines recur in the same place on neighbouring pages. They are removed only where that is
certain: losing text of the body would be worse.
"""

import re
import unicodedata
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple

from documents.parsers.pdf.geometry import Rect
from documents.parsers.pdf.grids import Grid
from documents.parsers.pdf.layout import sort_reading_order
from documents.parsers.pdf.lines import TextRow, TextWriter, WordSpacing, Wrapping
from documents.parsers.pdf.pdfium import Bookmark
from documents.parsers.pdf.tables import RuledTable, find_aligned_grids, place_tables
from documents.parsers.pdf.text_runs import HYPHEN, Glyphs, split_runs
from rag.types import Heading, Kind, Page, Region

_MAX_TURNED_SHARE = 0.3
"""A page with a larger share of text sideways or upside down keeps the order of the file."""


@dataclass(slots=True)
class PageDraft:
    """A page that still contains its running header and footer.

    `height_points` is its height as displayed. `plain_text` is its text where it has no `items`.
    `is_recognised`: its lines were read from a picture.
    """

    number: int
    items: list[TextRow | RuledTable] = field(default_factory=list)
    height_points: float = 0.0
    bookmarks: Sequence[Bookmark] = ()
    plain_text: str = ""
    is_recognised: bool = False

    @property
    def rows(self) -> list[TextRow]:
        """Its lines outside tables."""
        return [item for item in self.items if isinstance(item, TextRow)]

    @property
    def text(self) -> str:
        """Its whole text, in order."""
        return "\n".join(item.text for item in self.items) or self.plain_text

    def lay_out(self, glyphs: Glyphs, grids: Sequence[Grid], spacing: WordSpacing) -> "PageDraft":
        """Fill the page with the lines and tables that the glyphs form, and return it.

        `grids` are its ruled tables; tables without rules are found by their alignment.
        """
        runs = list(split_runs(glyphs))
        spacing.add_lines(run.text for run in runs)
        aligned = find_aligned_grids(
            runs, grids, self.height_points / glyphs.aspect, self.height_points
        )
        items = place_tables(runs, [*grids, *aligned], glyphs.aspect, spacing)
        if not _is_turned(items):
            items = sort_reading_order(items, glyphs.aspect)
        self.items = items
        Wrapping(self.rows, spacing).count_line_ends(self.rows)
        return self

    def build_page(
        self, margin_indexes: Collection[int], body_height: float, spacing: WordSpacing
    ) -> Page:
        """The finished page; the items at `margin_indexes` become its margins.

        `body_height` is the height of a usual line in points; 0 if the outline has the headings.
        """
        if not self.items:
            return Page(
                self.number, self.plain_text, find_bookmarks(self.plain_text, self.bookmarks)
            )
        if self.is_recognised:
            body_height = 0  # heights of recognised lines are too inexact
        items = [item for index, item in enumerate(self.items) if index not in margin_indexes]
        writer, regions, large_headings = TextWriter(), list[Region](), list[Heading]()
        wrapping = Wrapping([row for row in items if isinstance(row, TextRow)], spacing)
        for is_table, group in groupby(items, lambda item: isinstance(item, RuledTable)):
            block = list(group)
            if is_table:
                regions += [
                    _write_table(writer, table) for table in block if isinstance(table, RuledTable)
                ]
                continue
            rows = [row for row in block if isinstance(row, TextRow)]
            writer.end_paragraph()
            starts = writer.write_rows(rows, wrapping)
            large_headings += (
                find_headings_by_size(rows, starts, self.height_points, body_height)
                if body_height
                else ()
            )
        margin_items = sorted(
            (self.items[index] for index in margin_indexes), key=lambda item: item.box.y0
        )
        margin_texts = tuple(item.text.replace(HYPHEN, "-") for item in margin_items)
        text = writer.text
        if self.is_recognised:
            regions.append(Region(0, len(text), Kind.RECOGNISED))
        headings = tuple(large_headings) if body_height else find_bookmarks(text, self.bookmarks)
        page = Page(self.number, text, headings, tuple(writer.lines), tuple(regions), margin_texts)
        if unicodedata.is_normalized("NFC", text):
            return page
        # Some rare scripts are not composed in runs. The text matters more than its positions.
        text = unicodedata.normalize("NFC", text)
        return Page(self.number, text, find_bookmarks(text, self.bookmarks), margins=margin_texts)


def _write_table(writer: TextWriter, table: RuledTable) -> Region:
    """Add a table as a paragraph of its own."""
    start = writer.write_paragraph(table.text, table.lines)
    return Region(start, writer.length, Kind.TABLE, start + table.header_end)


def _is_turned(items: Sequence[TextRow | RuledTable]) -> bool:
    """Whether much of the text is sideways or upside down."""
    rows = [item for item in items if isinstance(item, TextRow)]
    turned_length = sum(row.length for row in rows if not row.is_upright)
    return turned_length > _MAX_TURNED_SHARE * sum(row.length for row in rows)


_HEADING_SIZE_FACTORS = (1.8, 1.45, 1.2)
"""Height of a heading's letters by that of the body's, at least, for level 1 and on."""
_MAX_HEADING_CHARACTERS = 80
_MAX_HEADING_ROWS = 3
_SENTENCE_END = re.compile(r"[.!?。…:;,]$")
_LETTER = re.compile(r"[^\W\d_]")


def find_bookmarks(text: str, bookmarks: Iterable[Bookmark]) -> tuple[Heading, ...]:
    """Bookmarks as headings of this text; one that is not found gets the offset before it."""
    headings, position = [], 0
    for level, title in bookmarks:
        words = r"\s*".join(re.escape(character) for character in title if not character.isspace())
        if match := re.compile(words).search(text, position):
            position = match.start()
        headings.append(Heading(position, level, title))
    return tuple(headings)


class LetterHeights:
    """Heights of the letters of a document, as far as it has been read."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        """Characters by their height in half points."""

    def add(self, rows: Iterable[TextRow], page_height: float) -> None:
        """Count the characters of a page's lines; `page_height` is in points."""
        for row in rows:
            self._counts[round(row.height * page_height * 2)] += row.length

    @property
    def body_height(self) -> float:
        """The most common height, in points; 0 without letters."""
        return self._counts.most_common(1)[0][0] / 2 if self._counts else 0.0


def find_headings_by_size(
    rows: Sequence[TextRow], starts: Sequence[int], page_height: float, body_height: float
) -> tuple[Heading, ...]:
    """Short lines in larger letters than the body's; consecutive ones of a size are one heading.

    `starts` are the offsets of the rows in the text; both heights are in points.
    """
    headings = []
    for level, group in groupby(
        zip(rows, starts, strict=True), lambda line: _find_level(line[0], page_height, body_height)
    ):
        lines = list(group)
        title = " ".join(row.text for row, _ in lines)
        title = title.replace(f"{HYPHEN} ", "").replace(HYPHEN, "-")
        if (
            level
            and len(lines) <= _MAX_HEADING_ROWS
            and len(title) <= _MAX_HEADING_CHARACTERS
            and _is_title(title)
        ):
            headings.append(Heading(lines[0][1], level, title))
    return tuple(headings)


def _find_level(row: TextRow, page_height: float, body_height: float) -> int:
    """The heading level of a line by its height: from 1 for the largest; 0 for the body."""
    if not row.is_upright:
        return 0
    factor = row.height * page_height / body_height
    return next(
        (
            level
            for level, min_factor in enumerate(_HEADING_SIZE_FACTORS, 1)
            if factor >= min_factor
        ),
        0,
    )


def _is_title(text: str) -> bool:
    """Whether it has a letter and does not end like a sentence."""
    return bool(_LETTER.search(text)) and not _SENTENCE_END.search(text)


_COMPARED_PAGES = 4
"""Pages before and after a page that it is compared with; those after it wait in memory."""
_MIN_PAGES_WITH_LINE = 2
"""Compared pages that must have the same line."""
_EDGE_ZONE = 0.15
"""Share of the page, at each edge, in which running lines are looked for."""
_MAX_MARGIN_CHARACTERS = 120
_MAX_SHIFT = 0.01
"""Share of the page's height by which a running line may shift from page to page."""
_MIN_GAP = 0.6
"""Line heights between running lines and the text of the page."""
_MAX_MARGIN_LINES = 6
"""Lines at one edge. Pages that share more are copies of each other, such as forms."""
_MAX_SHORT_DOCUMENT_PAGES = 2
"""A document of so few pages has too few to compare: only page numbers count as running lines."""
_DIGITS = re.compile(r"\d+")
_ROMAN = re.compile(r"[-–—]*[ivxlc]{1,6}[-–—]*")
_PAGE_NUMBER = re.compile(r"[-–—]*0[-–—]*")
"""What becomes of "- 1 -" when 0 stands for every number."""


class _EdgeLine(NamedTuple):
    """A line near an edge of the page; `item_index` is its place in the page's items.

    `pattern` is its text with 0 for every number and without spaces; `y` is its upper side.
    """

    item_index: int
    pattern: str
    numbers: tuple[int, ...]
    y: float


class _PageEdges(NamedTuple):
    """The lines near the top and the bottom, from the edge inwards; vertical ones at the sides."""

    number: int
    top: Sequence[_EdgeLine]
    bottom: Sequence[_EdgeLine]
    sides: Sequence[_EdgeLine]


def finish_pages(
    drafts: Iterable[PageDraft], page_count: int, has_outline: bool, spacing: WordSpacing
) -> Iterator[Page]:
    """Separate the margins from the pages, each of which comes some pages after its draft.

    `has_outline`: headings come from the bookmarks, not from the size of letters.
    """
    heights = LetterHeights()
    past: deque[_PageEdges] = deque(maxlen=_COMPARED_PAGES)
    waiting: deque[tuple[PageDraft, _PageEdges]] = deque()
    for draft in drafts:
        heights.add(draft.rows, draft.height_points)
        waiting.append((draft, _find_edges(draft)))
        if len(waiting) > _COMPARED_PAGES:
            first, margin_indexes = _pop_first_page(waiting, past, page_count)
            yield first.build_page(
                margin_indexes, 0 if has_outline else heights.body_height, spacing
            )
    while waiting:
        first, margin_indexes = _pop_first_page(waiting, past, page_count)
        yield first.build_page(margin_indexes, 0 if has_outline else heights.body_height, spacing)


def _pop_first_page(
    waiting: deque[tuple[PageDraft, _PageEdges]], past: deque[_PageEdges], page_count: int
) -> tuple[PageDraft, set[int]]:
    """Remove the first waiting page and return it with the indexes of its running lines.

    Its edges are added to those of past pages.
    """
    draft, edges = waiting.popleft()
    neighbours = [*past, *(other for _, other in waiting)]
    past.append(edges)
    margin_indexes = {
        line.item_index for line in edges.sides if _is_recurring(line, edges, neighbours)
    }
    for lines in (edges.top, edges.bottom):
        margin_indexes |= _select_outermost(
            draft,
            lines,
            [
                line.item_index
                for line in lines
                if (
                    _is_recurring(line, edges, neighbours)
                    if page_count > _MAX_SHORT_DOCUMENT_PAGES
                    else _PAGE_NUMBER.fullmatch(line.pattern)
                )
            ],
        )
    return draft, margin_indexes


def _is_recurring(line: _EdgeLine, edges: _PageEdges, neighbours: Sequence[_PageEdges]) -> bool:
    """Whether enough neighbouring pages have the same line."""
    if len(line.pattern) > _MAX_MARGIN_CHARACTERS:
        return False
    return (
        sum(
            any(
                _is_same_line(line, other_line, edges.number - other.number)
                for other_line in (*other.top, *other.bottom, *other.sides)
            )
            for other in neighbours
        )
        >= _MIN_PAGES_WITH_LINE
    )


def _select_outermost(
    draft: PageDraft, lines: Sequence[_EdgeLine], running_indexes: Collection[int]
) -> set[int]:
    """The running lines at one edge that lie outside all other lines, with a gap in between.

    `lines` come from the edge inwards.
    """
    selected = [line.item_index for line in lines if line.item_index in running_indexes]
    other_boxes = [
        draft.items[line.item_index].box for line in lines if line.item_index not in running_indexes
    ]
    while selected:
        box = draft.items[selected[-1]].box
        if not any(_is_outside(other_box, box) for other_box in other_boxes) and _is_set_apart(
            draft, selected
        ):
            break
        selected.pop()
    return set(selected) if len(selected) <= _MAX_MARGIN_LINES else set()


def _find_edges(draft: PageDraft) -> _PageEdges:
    """The lines of a page near its edges."""
    rows = [(index, item) for index, item in enumerate(draft.items) if isinstance(item, TextRow)]
    rows.sort(key=lambda row: row[1].box.y0)
    top = (_to_edge_line(*row) for row in rows if row[1].box.y1 < _EDGE_ZONE)
    bottom = (_to_edge_line(*row) for row in reversed(rows) if row[1].box.y0 > 1 - _EDGE_ZONE)
    sides = (_to_edge_line(*row) for row in rows if row[1].is_vertical and _is_at_side(row[1].box))
    return _PageEdges(
        draft.number,
        *(list(islice(lines, _MAX_MARGIN_LINES + 1)) for lines in (top, bottom, sides)),
    )


def _is_at_side(box: Rect) -> bool:
    """Whether a box is near the left or the right edge."""
    return box.x1 < _EDGE_ZONE or box.x0 > 1 - _EDGE_ZONE


def _to_edge_line(index: int, row: TextRow) -> _EdgeLine:
    """What a line is compared by."""
    text = "".join(row.text.split())
    if _ROMAN.fullmatch(text):
        return _EdgeLine(index, "i", (), row.box.y0)
    # Longer lines are not compared, and int() refuses thousands of digits.
    numbers = tuple(map(int, _DIGITS.findall(text))) if len(text) <= _MAX_MARGIN_CHARACTERS else ()
    return _EdgeLine(index, _DIGITS.sub("0", text), numbers, row.box.y0)


def _is_same_line(one: _EdgeLine, other: _EdgeLine, pages_apart: int) -> bool:
    """Whether two lines are the same but for page numbers, which differ by `pages_apart`."""
    return (
        one.pattern == other.pattern
        and abs(one.y - other.y) < _MAX_SHIFT
        and all(a - b in {0, pages_apart} for a, b in zip(one.numbers, other.numbers, strict=True))
    )


def _is_outside(box: Rect, other: Rect) -> bool:
    """Whether a box lies nearer to the other's edge of the page, and not beside it."""
    if other.y0 < 0.5:
        return box.y1 <= other.y0
    return box.y0 >= other.y1


def _is_set_apart(draft: PageDraft, indexes: Sequence[int]) -> bool:
    """Whether there is a gap between these lines and all other items."""
    last = draft.items[indexes[-1]]
    distance = _MIN_GAP * last.height
    return not any(
        index not in indexes and _is_near(item, last.box, distance)
        for index, item in enumerate(draft.items)
        if not (isinstance(item, TextRow) and item.is_vertical)
    )


def _is_near(item: TextRow | RuledTable, box: Rect, distance: float) -> bool:
    """Whether an item lies within this distance above or below a box, and not on the same line."""
    other = item.box
    overlap = min(other.y1, box.y1) - max(other.y0, box.y0)
    if isinstance(item, TextRow) and overlap > item.height / 2:
        return False
    return -overlap < distance

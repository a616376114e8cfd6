"""A page from its lines and tables to its text: headings, running headers and footers, writing.

Running lines are what stands at the same place of neighbouring pages. They are taken out only
where that is certain: text of the body that were lost would be worse.
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

_TURNED = 0.3
"""Share of text on its side or head from which a page keeps the order of the file."""


@dataclass(slots=True)
class PageDraft:
    """A page whose running header and footer are still in it. `plain` is text without places.

    `points` is its height as shown. `is_recognised`: its lines were read from a picture.
    """

    number: int
    items: list[TextRow | RuledTable] = field(default_factory=list)
    points: float = 0.0
    bookmarks: Sequence[Bookmark] = ()
    plain: str = ""
    is_recognised: bool = False

    @property
    def rows(self) -> list[TextRow]:
        """Its lines outside of tables."""
        return [item for item in self.items if isinstance(item, TextRow)]

    @property
    def text(self) -> str:
        """All that stands on it, in order."""
        return "\n".join(item.text for item in self.items) or self.plain

    def lay_out(self, glyphs: Glyphs, grids: Sequence[Grid], spacing: WordSpacing) -> "PageDraft":
        """The page with these glyphs as its items; these grids, and what is aligned, are tables."""
        runs = list(split_runs(glyphs))
        spacing.add_lines(run.text for run in runs)
        aligned = find_aligned_grids(runs, grids, self.points / glyphs.em, self.points)
        items = place_tables(runs, [*grids, *aligned], glyphs.em, spacing)
        if not _is_turned(items):
            items = sort_reading_order(items, glyphs.em)
        self.items = items
        Wrapping(self.rows, spacing).count_line_ends(self.rows)
        return self

    def build_page(self, margins: Collection[int], body: float, spacing: WordSpacing) -> Page:
        """The finished page without the items at these places, which are margins.

        `body` is the height of a usual line in points; 0 where the outline names the headings.
        """
        if not self.items:
            return Page(self.number, self.plain, find_bookmarks(self.plain, self.bookmarks))
        if self.is_recognised:
            body = 0  # the heights of recognised lines say too little
        kept = [item for place, item in enumerate(self.items) if place not in margins]
        writer, regions, sized = TextWriter(), list[Region](), list[Heading]()
        wrapping = Wrapping([row for row in kept if isinstance(row, TextRow)], spacing)
        for is_table, group in groupby(kept, lambda item: isinstance(item, RuledTable)):
            block = list(group)
            if is_table:
                regions += [
                    _write_table(writer, table) for table in block if isinstance(table, RuledTable)
                ]
                continue
            rows = [row for row in block if isinstance(row, TextRow)]
            writer.end_paragraph()
            starts = writer.write_rows(rows, wrapping)
            sized += find_large_lines(rows, starts, self.points, body) if body else ()
        running = sorted((self.items[place] for place in margins), key=lambda item: item.box.y0)
        titles = tuple(item.text.replace(HYPHEN, "-") for item in running)
        text = writer.text
        if self.is_recognised:
            regions.append(Region(0, len(text), Kind.RECOGNISED))
        headings = tuple(sized) if body else find_bookmarks(text, self.bookmarks)
        page = Page(self.number, text, headings, tuple(writer.lines), tuple(regions), titles)
        if unicodedata.is_normalized("NFC", text):
            return page
        # Rare scripts compose in ways runs do not know: the text matters more than its places.
        text = unicodedata.normalize("NFC", text)
        return Page(self.number, text, find_bookmarks(text, self.bookmarks), margins=titles)


def _write_table(writer: TextWriter, table: RuledTable) -> Region:
    """Add a table as a separate paragraph."""
    start = writer.write_paragraph(table.text, table.lines)
    return Region(start, writer.length, Kind.TABLE, start + table.header_end)


def _is_turned(items: Sequence[TextRow | RuledTable]) -> bool:
    """Whether much of the text stands on its side or its head."""
    rows = [item for item in items if isinstance(item, TextRow)]
    turned = sum(row.length for row in rows if not row.is_upright)
    return turned > _TURNED * sum(row.length for row in rows)


_LEVELS = (1.8, 1.45, 1.2)
"""How much higher than the body's the letters of a heading are, by level from 1."""
_LONGEST_HEADING = 80
"""Characters of a heading."""
_MOST_HEADING_ROWS = 3
_SENTENCE = re.compile(r"[.!?。…:;,]$")
_WORD = re.compile(r"[^\W\d_]")


def find_bookmarks(text: str, bookmarks: Iterable[Bookmark]) -> tuple[Heading, ...]:
    """Bookmarks found as words of the page; one that is not found stands where the last one did."""
    found, position = [], 0
    for level, title in bookmarks:
        words = r"\s*".join(re.escape(character) for character in title if not character.isspace())
        if match := re.compile(words).search(text, position):
            position = match.start()
        found.append(Heading(position, level, title))
    return tuple(found)


class Sizes:
    """Heights of the letters of a document, as far as it is read."""

    def __init__(self) -> None:
        self._counted: Counter[int] = Counter()

    def add(self, rows: Iterable[TextRow], points: float) -> None:
        """Count the lines of a page that is so many points high."""
        for row in rows:
            self._counted[round(row.height * points * 2)] += row.length

    @property
    def body(self) -> float:
        """The height of most letters, in points; 0 without any."""
        return self._counted.most_common(1)[0][0] / 2 if self._counted else 0.0


def find_large_lines(
    rows: Sequence[TextRow], starts: Sequence[int], points: float, body: float
) -> tuple[Heading, ...]:
    """Short lines that are higher than the body's; several of one size are one heading."""
    found = []
    for level, group in groupby(
        zip(rows, starts, strict=True), lambda place: _find_level(place[0], points, body)
    ):
        lines = list(group)
        title = " ".join(row.text for row, _ in lines)
        title = title.replace(f"{HYPHEN} ", "").replace(HYPHEN, "-")
        if (
            level
            and len(lines) <= _MOST_HEADING_ROWS
            and len(title) <= _LONGEST_HEADING
            and _is_title(title)
        ):
            found.append(Heading(lines[0][1], level, title))
    return tuple(found)


def _find_level(row: TextRow, points: float, body: float) -> int:
    """1 for the largest letters, 0 for those of the body."""
    if not row.is_upright:
        return 0
    factor = row.height * points / body
    return next((level for level, least in enumerate(_LEVELS, 1) if factor >= least), 0)


def _is_title(text: str) -> bool:
    """Whether it names something rather than says it."""
    return bool(_WORD.search(text)) and not _SENTENCE.search(text)


_REACH_PAGES = 4
"""Pages before and after that are compared; those read ahead wait in memory."""
_FEWEST_PAGES = 2
"""Other pages within reach that must have the line too."""
_ZONE = 0.15
"""Share of the page at the top and at the bottom where running lines stand."""
_LONGEST_MARGIN = 120
_SAME_PLACE = 0.01
"""Share of the page's height by which they may shift."""
_APART = 0.6
"""Line heights that part them from the text of the page."""
_MOST_MARGIN_LINES = 6
"""Lines at one edge; pages that share more than that are copies of each other, as forms are."""
_SHORT_DOCUMENT = 2
"""Pages of a document in which nothing can be called repeated."""
_DIGITS = re.compile(r"\d+")
_ROMAN = re.compile(r"[-–—]*[ivxlc]{1,6}[-–—]*")
_PAGE_NUMBERS = re.compile(r"[-–—]*0[-–—]*")
"""What is left of "- 1 -" where numbers are 0."""


class _Mark(NamedTuple):
    """A line near the edge. `words` has 0 for every number, and no spaces."""

    place: int
    words: str
    numbers: tuple[int, ...]
    y: float


class _Edges(NamedTuple):
    """The lines at the top and those at the bottom, from the edge inwards; those on their side."""

    number: int
    top: Sequence[_Mark]
    bottom: Sequence[_Mark]
    beside: Sequence[_Mark]


def finish_pages(
    drafts: Iterable[PageDraft], total: int, outlined: bool, spacing: WordSpacing
) -> Iterator[Page]:
    """The pages of a document of `total`, without their margins, each some pages later."""
    sizes = Sizes()
    past: deque[_Edges] = deque(maxlen=_REACH_PAGES)
    waiting: deque[tuple[PageDraft, _Edges]] = deque()
    for draft in drafts:
        sizes.add(draft.rows, draft.points)
        waiting.append((draft, _find_edges(draft)))
        if len(waiting) > _REACH_PAGES:
            first, margins = _find_margins(waiting, past, total)
            yield first.build_page(margins, 0 if outlined else sizes.body, spacing)
    while waiting:
        first, margins = _find_margins(waiting, past, total)
        yield first.build_page(margins, 0 if outlined else sizes.body, spacing)


def _find_margins(
    waiting: deque[tuple[PageDraft, _Edges]], past: deque[_Edges], total: int
) -> tuple[PageDraft, set[int]]:
    """The first page that waits, and the places of its running lines among its items."""
    draft, edges = waiting.popleft()
    near = [*past, *(other for _, other in waiting)]
    past.append(edges)
    margins = {mark.place for mark in edges.beside if _is_recurring(mark, edges, near)}
    for marks in (edges.top, edges.bottom):
        margins |= _select_outermost(
            draft,
            marks,
            [
                mark.place
                for mark in marks
                if (
                    _is_recurring(mark, edges, near)
                    if total > _SHORT_DOCUMENT
                    else _PAGE_NUMBERS.fullmatch(mark.words)
                )
            ],
        )
    return draft, margins


def _is_recurring(mark: _Mark, edges: _Edges, near: Sequence[_Edges]) -> bool:
    """Whether a line stands on enough of the pages near."""
    if len(mark.words) > _LONGEST_MARGIN:
        return False
    return (
        sum(
            any(
                _is_same(mark, theirs, edges.number - other.number)
                for theirs in (*other.top, *other.bottom, *other.beside)
            )
            for other in near
        )
        >= _FEWEST_PAGES
    )


def _select_outermost(
    draft: PageDraft, marks: Sequence[_Mark], running: Collection[int]
) -> set[int]:
    """Of the running lines at one edge, those outside of all others and apart from them."""
    found = [mark.place for mark in marks if mark.place in running]
    others = [draft.items[mark.place].box for mark in marks if mark.place not in running]
    while found:
        box = draft.items[found[-1]].box
        if not any(_is_outside(other, box) for other in others) and _is_apart(draft, found):
            break
        found.pop()
    return set(found) if len(found) <= _MOST_MARGIN_LINES else set()


def _find_edges(draft: PageDraft) -> _Edges:
    """The lines of a page in all zones."""
    rows = [(place, item) for place, item in enumerate(draft.items) if isinstance(item, TextRow)]
    rows.sort(key=lambda row: row[1].box.y0)
    top = (_to_mark(*row) for row in rows if row[1].box.y1 < _ZONE)
    bottom = (_to_mark(*row) for row in reversed(rows) if row[1].box.y0 > 1 - _ZONE)
    beside = (_to_mark(*row) for row in rows if row[1].down and _is_aside(row[1].box))
    return _Edges(
        draft.number,
        *(list(islice(marks, _MOST_MARGIN_LINES + 1)) for marks in (top, bottom, beside)),
    )


def _is_aside(box: Rect) -> bool:
    """Whether it stands at the left or the right edge."""
    return box.x1 < _ZONE or box.x0 > 1 - _ZONE


def _to_mark(place: int, row: TextRow) -> _Mark:
    """What a line near the edge is compared by."""
    text = "".join(row.text.split())
    if _ROMAN.fullmatch(text):
        return _Mark(place, "i", (), row.box.y0)
    # Longer ones are not compared; thousands of digits would be no number to count with.
    numbers = tuple(map(int, _DIGITS.findall(text))) if len(text) <= _LONGEST_MARGIN else ()
    return _Mark(place, _DIGITS.sub("0", text), numbers, row.box.y0)


def _is_same(one: _Mark, other: _Mark, pages: int) -> bool:
    """Whether two lines, so many pages apart, are one: numbers stay or count the pages."""
    return (
        one.words == other.words
        and abs(one.y - other.y) < _SAME_PLACE
        and all(a - b in {0, pages} for a, b in zip(one.numbers, other.numbers, strict=True))
    )


def _is_outside(box: Rect, than: Rect) -> bool:
    """Whether a box lies nearer to the edge, and not on the same line."""
    if than.y0 < 0.5:
        return box.y1 <= than.y0
    return box.y0 >= than.y1


def _is_apart(draft: PageDraft, places: Sequence[int]) -> bool:
    """Whether white space parts these lines from the others."""
    last = draft.items[places[-1]]
    distance = _APART * last.height
    return not any(
        place not in places and _is_near(item, last.box, distance)
        for place, item in enumerate(draft.items)
        if not (isinstance(item, TextRow) and item.down)
    )


def _is_near(item: TextRow | RuledTable, box: Rect, distance: float) -> bool:
    """Whether something stands within a distance above or below, and not on the same line."""
    other = item.box
    level = min(other.y1, box.y1) - max(other.y0, box.y0)
    if isinstance(item, TextRow) and level > item.height / 2:
        return False
    return -level < distance

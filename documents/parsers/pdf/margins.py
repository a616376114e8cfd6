"""Running headers and footers: what stands at the same place of neighbouring pages.

They are taken out only where that is certain: text of the body that were lost would be worse.
"""

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from documents.parsers.pdf.cells import Table
from documents.parsers.pdf.geometry import Rect
from documents.parsers.pdf.headings import Sizes
from documents.parsers.pdf.pages import Draft
from documents.parsers.pdf.rows import Row
from rag.pages import Page

_REACH = 4
"""Pages before and after that are compared; those read ahead wait in memory."""
_FEWEST = 2
"""Other pages within reach that must have the line too."""
_ZONE = 0.15
"""Share of the page at the top and at the bottom where running lines stand."""
_LONGEST = 120
_SAME_PLACE = 0.01
"""Share of the page's height by which they may shift."""
_APART = 0.6
"""Line heights that part them from the text of the page."""
_MOST = 6
"""Lines at one edge; pages that share more than that are copies of each other, as forms are."""
_SHORT = 2
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


def finished(drafts: Iterable[Draft], total: int, outlined: bool) -> Iterator[Page]:
    """The pages of a document of `total`, without their margins, each some pages later."""
    sizes = Sizes()
    past: deque[_Edges] = deque(maxlen=_REACH)
    waiting: deque[tuple[Draft, _Edges]] = deque()
    for draft in drafts:
        sizes.add(draft.rows, draft.points)
        waiting.append((draft, _edges(draft)))
        if len(waiting) > _REACH:
            yield _finished(waiting, past, total, 0 if outlined else sizes.body)
    while waiting:
        yield _finished(waiting, past, total, 0 if outlined else sizes.body)


def _finished(
    waiting: deque[tuple[Draft, _Edges]], past: deque[_Edges], total: int, body: float
) -> Page:
    """The first page that waits."""
    draft, edges = waiting.popleft()
    near = [*past, *(other for _, other in waiting)]
    past.append(edges)
    margins = {mark.place for mark in edges.beside if _recurs(mark, edges, near)}
    for marks in (edges.top, edges.bottom):
        margins |= _outermost(
            draft,
            marks,
            [
                mark.place
                for mark in marks
                if (
                    _recurs(mark, edges, near)
                    if total > _SHORT
                    else _PAGE_NUMBERS.fullmatch(mark.words)
                )
            ],
        )
    return draft.page(margins, body)


def _recurs(mark: _Mark, edges: _Edges, near: Sequence[_Edges]) -> bool:
    """Whether a line stands on enough of the pages near."""
    if len(mark.words) > _LONGEST:
        return False
    return (
        sum(
            any(
                _same(mark, theirs, edges.number - other.number)
                for theirs in (*other.top, *other.bottom, *other.beside)
            )
            for other in near
        )
        >= _FEWEST
    )


def _outermost(draft: Draft, marks: Sequence[_Mark], running: Collection[int]) -> set[int]:
    """Of the running lines at one edge, those outside of all others and apart from them."""
    found = [mark.place for mark in marks if mark.place in running]
    others = [draft.items[mark.place].box for mark in marks if mark.place not in running]
    while found:
        box = draft.items[found[-1]].box
        if not any(_is_outside(other, box) for other in others) and _is_apart(draft, found):
            break
        found.pop()
    return set(found) if len(found) <= _MOST else set()


def _edges(draft: Draft) -> _Edges:
    """The lines of a page in all zones."""
    rows = [(place, item) for place, item in enumerate(draft.items) if isinstance(item, Row)]
    rows.sort(key=lambda row: row[1].box.y0)
    top = (_mark(*row) for row in rows if row[1].box.y1 < _ZONE)
    bottom = (_mark(*row) for row in reversed(rows) if row[1].box.y0 > 1 - _ZONE)
    beside = (_mark(*row) for row in rows if row[1].down and _is_aside(row[1].box))
    return _Edges(
        draft.number, *(list(islice(marks, _MOST + 1)) for marks in (top, bottom, beside))
    )


def _is_aside(box: Rect) -> bool:
    """Whether it stands at the left or the right edge."""
    return box.x1 < _ZONE or box.x0 > 1 - _ZONE


def _mark(place: int, row: Row) -> _Mark:
    """What a line near the edge is compared by."""
    text = "".join(row.text.split())
    if _ROMAN.fullmatch(text):
        return _Mark(place, "i", (), row.box.y0)
    # Longer ones are not compared; thousands of digits would be no number to count with.
    numbers = tuple(map(int, _DIGITS.findall(text))) if len(text) <= _LONGEST else ()
    return _Mark(place, _DIGITS.sub("0", text), numbers, row.box.y0)


def _same(one: _Mark, other: _Mark, pages: int) -> bool:
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


def _is_apart(draft: Draft, places: Sequence[int]) -> bool:
    """Whether white space parts these lines from the others."""
    last = draft.items[places[-1]]
    distance = _APART * last.height
    return not any(
        place not in places and _is_near(item, last.box, distance)
        for place, item in enumerate(draft.items)
        if not (isinstance(item, Row) and item.down)
    )


def _is_near(item: Row | Table, box: Rect, distance: float) -> bool:
    """Whether something stands within a distance above or below, and not on the same line."""
    other = item.box
    level = min(other.y1, box.y1) - max(other.y0, box.y0)
    if isinstance(item, Row) and level > item.height / 2:
        return False
    return -level < distance

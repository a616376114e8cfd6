"""Running headers and footers: what stands at the same place of neighbouring pages.

They are taken out only where that is certain: text of the body that were lost would be worse.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from documents.parsers.pdf_cells import Table
from documents.parsers.pdf_geometry import Rect
from documents.parsers.pdf_headings import Sizes
from documents.parsers.pdf_pages import Draft
from documents.parsers.pdf_rows import Row
from rag.pages import Page

_REACH = 4
"""Pages before and after that are compared; those read ahead wait in memory."""
_FEWEST = 2
"""Other pages within reach that must have the line too."""
_ZONE = 0.12
"""Share of the page at the top and at the bottom where running lines stand."""
_LONGEST = 120
_SAME_PLACE = 0.01
"""Share of the page's height by which they may shift."""
_APART = 0.6
"""Line heights that part them from the text of the page."""
_SHORT = 2
"""Pages of a document in which nothing can be called repeated."""
_DIGITS = re.compile(r"\d+")
_ROMAN = re.compile(r"[-–—]*[ivxlc]{1,6}[-–—]*")
_NUMBER = re.compile(r"[-–—\s]*\d{1,3}[-–—\s]*")


class _Mark(NamedTuple):
    """A line near the edge. `words` has 0 for every number, and no spaces."""

    place: int
    words: str
    numbers: tuple[int, ...]
    y: float


class _Edges(NamedTuple):
    """The lines at the top and those at the bottom of a page, from the edge inwards."""

    number: int
    sides: tuple[Sequence[_Mark], Sequence[_Mark]]


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
    margins = set()
    for side in range(2):
        others = [(other.number, other.sides[side]) for other in near]
        margins |= _running(draft, edges.sides[side], others, total)
    return draft.page(margins, body)


def _edges(draft: Draft) -> _Edges:
    """The lines of a page in both zones."""
    marks = [
        (row.box.y0, row.box.y1, place)
        for place, row in enumerate(draft.items)
        if isinstance(row, Row)
    ]
    top = [_mark(draft, place) for _, y1, place in sorted(marks) if y1 < _ZONE]
    bottom = [_mark(draft, place) for y0, _, place in sorted(marks, reverse=True) if y0 > 1 - _ZONE]
    return _Edges(draft.number, (top, bottom))


def _mark(draft: Draft, place: int) -> _Mark:
    """What a line near the edge is compared by."""
    row = draft.items[place]
    text = "".join(row.text.split()) if isinstance(row, Row) else ""
    if _ROMAN.fullmatch(text):
        return _Mark(place, "i", (), row.box.y0)
    numbers = tuple(map(int, _DIGITS.findall(text[:_LONGEST])))
    return _Mark(place, _DIGITS.sub("0", text), numbers, row.box.y0)


def _running(
    draft: Draft, marks: Sequence[_Mark], others: Sequence[tuple[int, Sequence[_Mark]]], total: int
) -> set[int]:
    """Places of the lines at one edge that run through the document, seen from the edge inwards."""
    found: list[int] = []
    for mark in marks:
        row = draft.items[mark.place]
        outer = (draft.items[other.place] for other in marks if other.place not in found)
        if any(_is_outside(other.box, row.box) for other in outer):
            break
        if total > _SHORT:
            shared = sum(
                any(_same(mark, other, draft.number - n) for other in near) for n, near in others
            )
            runs = shared >= _FEWEST
        else:
            runs = bool(_NUMBER.fullmatch(row.text)) if isinstance(row, Row) else False
        if runs:
            found.append(mark.place)
    while found and not _is_apart(draft, found):
        found.pop()
    return set(found)


def _same(one: _Mark, other: _Mark, pages: int) -> bool:
    """Whether two lines, so many pages apart, are one: numbers stay or count the pages."""
    return (
        one.words == other.words
        and len(one.words) <= _LONGEST
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

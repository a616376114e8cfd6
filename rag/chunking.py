"""Cuts a document into chunks that begin and end where its text does.

Breaks in order of strength: pages, sections, paragraphs, sentences, lines, words. No chunk reaches
over a page's end, so that the page that is cited is always the page where the passage stands.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from rag.pages import Box, Heading, Page
from rag.types import Chunk

SEPARATOR = "\n\n"
"""Stands between two pages in the whole text."""
_TINY = 5
"""A section below a fifth of the chunk size is joined with what follows it."""
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*|\n(?=\|)")
_SENTENCE = re.compile(
    r"(?<![\s(][\w])(?<![0-9])[.!?](?:[\"'”’」』)\]])*\s+"  # not behind "1." and "가."
    r"|[。！？…](?:[”’」』）])*\s*"
)
_LINE = re.compile(r"\n\s*")
_SPACE = re.compile(r"\s+")
_BREAKS = (_PARAGRAPH, _SENTENCE, _LINE, _SPACE)
_COMBINING = re.compile("[\u0300-\u036f\u1160-\u11ff\ufe00-\ufe0f\u200d]")


@dataclass(frozen=True, slots=True)
class Split:
    """A document's whole text, where each page begins in it, and its chunks."""

    text: str
    page_starts: tuple[int, ...]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading with what follows it up to the next; the text before the first has no path."""

    start: int
    end: int
    level: int
    path: tuple[str, ...]
    body: bool
    """Whether it holds more than its heading."""


def split(pages: Sequence[Page], *, size: int, overlap: int) -> Split:
    """Chunks of at most `size` characters; neighbours on a page share at most `overlap`.

    Every visible character is in a chunk, no chunk is blank, and
    `text[chunk.start:chunk.end] == chunk.text`.
    """
    overlap = max(0, min(overlap, size // 2))
    text = SEPARATOR.join(page.text for page in pages)
    lengths = (len(page.text) + len(SEPARATOR) for page in pages[:-1])
    starts = tuple(accumulate(lengths, initial=0)) if pages else ()
    sections = _sections(text, pages, starts)
    spans = (
        span
        for group in _groups(sections, size)
        for start, end in _by_page(group[0].start, group[-1].end, starts)
        for span in _spans(text, start, end, size, overlap)
    )
    cutter = _Cutter(text, pages, starts, sections)
    return Split(text, starts, tuple(cutter.chunk(i, *span) for i, span in enumerate(spans)))


def _sections(text: str, pages: Sequence[Page], starts: Sequence[int]) -> list[_Section]:
    """The sections of the whole text, in order, without gaps."""
    headings = [
        Heading(start + heading.start, heading.level, " ".join(heading.title.split()))
        for page, start in zip(pages, starts, strict=True)
        for heading in page.headings
    ]
    headings.sort(key=lambda heading: heading.start)
    ends = [*(heading.start for heading in headings), len(text)][1:]
    path: list[Heading] = []
    first = headings[0].start if headings else len(text)
    result = [_Section(0, first, 0, (), body=True)] if first else []
    for heading, end in zip(headings, ends, strict=True):
        path = [above for above in path if above.level < heading.level] + [heading]
        titles = tuple(above.title for above in path)
        words = len("".join(text[heading.start : end].split()).strip("#*="))
        body = words > len("".join(heading.title.split()))
        result.append(_Section(heading.start, end, heading.level, titles, body))
    return [section for section in result if section.end > section.start]


def _groups(sections: Sequence[_Section], size: int) -> list[list[_Section]]:
    """Sections that are cut together: a tiny one takes in what follows, but nothing above it."""
    groups: list[list[_Section]] = []
    for section in sections:
        last = groups[-1] if groups else None
        if last and section.level >= last[-1].level and _tiny(last, size):
            last.append(section)
        else:
            groups.append([section])
    return groups


def _tiny(group: Sequence[_Section], size: int) -> bool:
    """Whether a group is too small to stand alone."""
    return group[-1].end - group[0].start < size // _TINY


def _by_page(start: int, end: int, page_starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The stretch, cut where pages begin."""
    inside = page_starts[bisect_right(page_starts, start) : bisect_right(page_starts, end - 1)]
    edges = [start, *inside, end]
    yield from pairwise(edges)


def _spans(text: str, start: int, end: int, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Stretches of a group that become chunks; they begin and end with visible characters."""
    covered = start
    while (start := _visible(text, start, end)) < end:
        stop = end if end - start <= size else _stop(text, start, size, covered)
        last = stop
        while text[last - 1].isspace():
            last -= 1
        yield start, last
        covered = _visible(text, stop, end)
        start = _next_start(text, start, stop, overlap)
        if covered >= end or covered - start >= size // 2:  # nothing, or a desert, lies between
            start = covered


def _visible(text: str, start: int, end: int) -> int:
    """The first visible character from `start`, or `end`."""
    while start < end and text[start].isspace():
        start += 1
    return start


def _stop(text: str, start: int, size: int, covered: int) -> int:
    """Where to end a chunk: at the last break of the strongest kind in its second half.

    It takes in `covered`, the first character that no chunk holds yet.
    """
    lowest, highest = max(start + size // 2, covered + 1), start + size
    for pattern in _BREAKS:
        # White space may reach out of the window: what counts is where the words before it end.
        found = [
            m.start() + len(m[0].rstrip()) for m in pattern.finditer(text, lowest, highest + 1)
        ]
        found = [place for place in found if lowest <= place <= highest]
        if found:
            return found[-1]
    return _whole_character(text, highest, lowest)


def _whole_character(text: str, place: int, lowest: int) -> int:
    """`place`, moved back so that no mark is cut from its letter, but not below `lowest`."""
    best = place
    while best > lowest and _COMBINING.match(text, best):
        best -= 1
    return best if best > lowest else place


def _next_start(text: str, start: int, stop: int, overlap: int) -> int:
    """Where the next chunk begins: at the first sentence, line or word within the overlap."""
    lowest = max(stop - overlap, start + 1)
    if lowest >= stop:
        return stop
    for pattern in (_SENTENCE, _LINE, _SPACE):
        for match in pattern.finditer(text, max(lowest - 1, 0), stop):
            if lowest <= match.end() < stop:
                return match.end()
    return stop - overlap if overlap else stop


class _Cutter:
    """Makes chunks of spans: knows pages, sections and lines by offset."""

    def __init__(
        self,
        text: str,
        pages: Sequence[Page],
        starts: Sequence[int],
        sections: Sequence[_Section],
    ) -> None:
        self._text, self._pages, self._starts, self._sections = text, pages, starts, sections
        self._section_starts = [section.start for section in sections]
        self._line_starts = [[line.start for line in page.lines] for page in pages]

    def chunk(self, index: int, start: int, end: int) -> Chunk:
        """The chunk of a span."""
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, end - 1) - 1
        return Chunk(
            index=index,
            text=self._text[start:end],
            start=start,
            end=end,
            page=self._pages[first].number,
            page_end=self._pages[last].number,
            section=" > ".join(self._path(start, end)),
            boxes=tuple(
                box for number in range(first, last + 1) for box in self._boxes(number, start, end)
            ),
        )

    def _path(self, start: int, end: int) -> tuple[str, ...]:
        """The headings that all of the span stands under; bare headings do not count."""
        first = max(bisect_right(self._section_starts, start) - 1, 0)
        last = bisect_right(self._section_starts, end - 1)
        sections = self._sections[first:last]
        paths = [section.path for section in sections if section.body] or [sections[-1].path]
        shared = paths[0]
        for path in paths[1:]:
            length = sum(1 for _ in _while_equal(shared, path))
            shared = shared[:length]
        return shared

    def _boxes(self, number: int, start: int, end: int) -> Iterator[Box]:
        """One box a line of the page, clipped to the characters of the span."""
        page, offset = self._pages[number], self._starts[number]
        start, end = max(start - offset, 0), min(end - offset, len(page.text))
        at = max(bisect_right(self._line_starts[number], start) - 1, 0)
        for line in page.lines[at:]:
            if line.start >= end:
                return
            edges = line.edges[max(start - line.start, 0) : max(end - line.start, 0) + 1]
            if len(edges) > 1 and max(edges) > min(edges):
                yield Box(page.number or 1, min(edges), line.y0, max(edges), line.y1)


def _while_equal(left: Sequence[str], right: Sequence[str]) -> Iterator[str]:
    """The common beginning of two paths."""
    for one, other in zip(left, right, strict=False):
        if one != other:
            return
        yield one

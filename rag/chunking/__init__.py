"""Cuts a document into chunks that begin and end where its text does.

Breaks in order of strength: pages, pictures, sections, paragraphs, sentences, lines, words. No
chunk reaches over a page's end, so that the page that is cited is always the page where the passage
stands, and pages can be cut one by one. Tables are cut between rows, lists between items, and code
is left whole as far as it can be.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from rag.chunking.cuts import SHORT, Cuts, PageBlocks
from rag.pages import Box, Heading, Kind, Page
from rag.types import TextChunk

SEPARATOR = "\n\n"
"""Stands between two pages in the whole text."""


@dataclass(frozen=True, slots=True)
class Split:
    """A document's whole text, where each page begins in it, and its chunks."""

    text: str
    page_starts: tuple[int, ...]
    chunks: tuple[TextChunk, ...]


def split_pages(pages: Sequence[Page], *, size: int, overlap: int) -> Split:
    """All pages of a document cut at once; see `Splitter`."""
    splitter = Splitter(size=size, overlap=overlap)
    starts: list[int] = []
    chunks: list[TextChunk] = []
    for page in pages:
        starts.append(splitter.start)
        chunks += splitter.add(page)
    return Split(SEPARATOR.join(page.text for page in pages), tuple(starts), tuple(chunks))


class Splitter:
    """Makes chunks of at most `size` characters; neighbours on a page share at most `overlap`.

    Every visible character is in a chunk, no chunk is blank, and
    `text[chunk.start:chunk.end] == chunk.text` in the whole text, the pages with `SEPARATOR`
    between them. The header of a chunk counts into its size. A piece of code alone may exceed it,
    by half.
    """

    def __init__(self, *, size: int, overlap: int) -> None:
        self._size = size
        self._overlap = max(0, min(overlap, size // 2))
        self._outline = Outline(size // SHORT)
        self._count = 0
        self.start = 0
        """Where the next page begins in the whole text."""

    def add(self, page: Page) -> list[TextChunk]:
        """The chunks of the next page."""
        sections, groups = self._outline.read(page, self.start)
        blocks = PageBlocks(page.text, page.regions, self._size)
        cuts = Cuts(page.text, blocks, self._size, self._overlap)
        describe = _Describer(page, self.start, sections, blocks)
        chunks = [
            describe.chunk(index, *span)
            for index, span in enumerate(_spans(page, groups, cuts), self._count)
        ]
        self._count += len(chunks)
        self.start += len(page.text) + len(SEPARATOR)
        return chunks


@dataclass(frozen=True, slots=True)
class Section:
    """What of a section stands on one page; the text before the first heading has no path."""

    start: int
    level: int
    path: tuple[str, ...]
    body: bool
    """Whether it holds more than its heading."""


class Outline:
    """Knows the headings that a page stands under; takes the pages in order."""

    def __init__(self, shortest: int) -> None:
        self._shortest = shortest
        self._open: list[Heading] = []
        self._level = 0
        self._begun: int | None = None
        """Where in the whole text the sections began that are cut together with the last one."""

    def read(self, page: Page, offset: int) -> tuple[list[Section], list[int]]:
        """The sections of a page in order, without gaps, and the places where groups begin.

        A group is cut as one. `offset` is where the page begins in the whole text.
        """
        headings = sorted(page.headings, key=lambda heading: heading.start)
        ends = [*(heading.start for heading in headings), len(page.text)]
        sections: list[Section] = []
        groups = [0]
        if ends[0]:
            sections.append(Section(0, self._level, self._path(), body=True))
            self._begun = offset if self._begun is None else self._begun
        for heading, end in zip(headings, ends[1:], strict=True):
            self._open = [above for above in self._open if above.level < heading.level]
            self._open.append(heading)
            if heading.start == end and end < len(page.text):  # another one begins at once
                continue
            begins = offset + heading.start
            # the sections before are taken in: too short to stand alone, and not below this one
            short = self._begun is not None and begins - self._begun < self._shortest
            if not (short and heading.level >= self._level):
                self._begun = begins
                groups.append(heading.start)
            self._level = heading.level
            body = _holds_more(heading, page.text[heading.start : end])
            sections.append(Section(heading.start, heading.level, self._path(), body))
        return sections, groups

    def _path(self) -> tuple[str, ...]:
        return tuple(" ".join(heading.title.split()) for heading in self._open)


def shared_path(sections: Sequence[Section], start: int, end: int) -> tuple[str, ...]:
    """The headings that all of a stretch stands under; bare headings do not count."""
    starts = [section.start for section in sections]
    inside = sections[max(bisect_right(starts, start) - 1, 0) : bisect_right(starts, end - 1)]
    paths = [section.path for section in inside if section.body] or [inside[-1].path]
    same = takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
    return tuple(level[0] for level in same)


def _holds_more(heading: Heading, text: str) -> bool:
    words = len("".join(text.split()).strip("#*="))
    return words > len("".join(heading.title.split()))


def _spans(page: Page, groups: Sequence[int], cuts: Cuts) -> Iterator[tuple[int, int]]:
    """The chunks of a page. None reaches over the beginning of a group or the edge of a picture."""
    edges = {0, len(page.text), *groups}
    for region in page.regions:
        if region.kind is Kind.PICTURE:
            edges |= {region.start, region.end}
    for start, end in pairwise(sorted(edges)):
        yield from cuts.spans(start, end)


class _Describer:
    """Makes chunks of spans of a page: knows its sections, regions and lines by offset."""

    def __init__(
        self, page: Page, offset: int, sections: Sequence[Section], blocks: PageBlocks
    ) -> None:
        self._page, self._offset = page, offset
        self._sections, self._blocks = sections, blocks
        self._line_starts = [line.start for line in page.lines]

    def chunk(self, index: int, start: int, end: int) -> TextChunk:
        """The chunk of a span."""
        kind, picture = self._kind(start, end)
        return TextChunk(
            index=index,
            text=self._page.text[start:end],
            start=self._offset + start,
            end=self._offset + end,
            page=self._page.number,
            page_end=self._page.number,
            section=" > ".join(shared_path(self._sections, start, end)),
            boxes=(picture,) if picture else tuple(self._boxes(start, end)),
            kind=kind,
            header=self._blocks.header(start),
        )

    def _kind(self, start: int, end: int) -> tuple[Kind, Box | None]:
        """What most of the span is, and where the picture stands that it is of."""
        held: Counter[Kind] = Counter()
        box: Box | None = None
        for region in self._page.regions:
            shared = min(region.end, end) - max(region.start, start)
            if shared > 0:
                held[region.kind] += shared
                box = region.box
        held[Kind.TEXT] += end - start - held.total()
        kind = max(held, key=lambda one: held[one])
        return kind, box if kind is Kind.PICTURE else None

    def _boxes(self, start: int, end: int) -> Iterator[Box]:
        """One box a line of the page, clipped to the characters of the span."""
        at = max(bisect_right(self._line_starts, start) - 1, 0)
        for line in self._page.lines[at:]:
            if line.start >= end:
                return
            edges = line.edges[max(start - line.start, 0) : max(end - line.start, 0) + 1]
            if len(edges) > 1 and max(edges) > min(edges):
                yield Box(self._page.number or 1, min(edges), line.y0, max(edges), line.y1)

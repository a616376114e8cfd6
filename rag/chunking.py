"""Cuts a document into chunks at the natural breaks of its text.

Breaks in order of strength: pages, pictures, sections, paragraphs, sentences, lines, words. No
chunk spans two pages, so that a passage is always on the page that is cited, and pages can be cut
one by one. Tables are cut between rows, lists between items, and code is kept whole if possible.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from rag.tokenize.text import ABBREVIATIONS
from rag.types import Box, Heading, Kind, Page, Region, TextChunk

# Cutting one span of a page. Tables, lists and code are blocks: they are cut between their parts or
# not at all.


SHORT_DIVISOR = 5
"""Below this fraction of the chunk size, a lead-in is short, and a section is too short alone."""
_ANNOUNCES = re.compile(
    r"[:：]\W*$|다음(?:과|의|\s각\s?[호목])|아래(?:와|의)|\bas follows\b|\bfollowing\b",
    re.IGNORECASE,
)
_UNIT = re.compile(r"\W*단위")
_NEXT_LINE = re.compile(r"\n(?=[ \t]*\S)")
_VISIBLE = re.compile(r"\S")
_ITEM = re.compile(
    r"(?P<indent>[ \t]*)(?P<mark>[-*+•·∙‣○◦●▪■□◆◇▶▷❍❖➢ㅇ◎※](?=\s)|"
    r"[(\[]?(?:\d{1,3}(?:의\d+)?|[가-하a-zA-Z])\\?[.)\]](?=\s)|제\d+[조항호]|[①-⑳㉠-㉭ⓐ-ⓩ])"
)

MAX_CODE_FACTOR = 1.5
"""Code may be this many times as long as a chunk before it is cut."""

_SHORTENED = "".join(rf"(?<!\b{re.escape(word)}.)" for word in ABBREVIATIONS)
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*|\n(?=\|)")
SENTENCE = re.compile(
    r"(?:[!?]|\.(?<![0-9].)(?<!\b[a-zA-Z가나다라마바사아자차카타파하].)"  # not behind "1.", "가."
    rf"(?<!제\d[조항호].)(?<!제\d\d[조항호].)(?<!제\d\d\d[조항호].){_SHORTENED})"
    r"(?:[\"'”’」』)\]])*\s+"
    r"|[。！？…](?:[”’」』）])*\s*"
)
LINE = re.compile(r"\n\s*")
SPACE = re.compile(r"\s+")
BREAKS = (_PARAGRAPH, SENTENCE, LINE, SPACE)
"""Strongest first."""


@dataclass(frozen=True, slots=True)
class Block:
    """A table, list or piece of code on a page, from its first visible character to its last.

    `lead` is the offset of its caption or lead-in. `header` are the header rows of a table, and
    `header_end` is where they end. `levels` are the offsets where its parts begin, the best ones to
    cut at first.
    """

    kind: Kind
    lead: int
    start: int
    end: int
    header: str
    header_end: int
    levels: tuple[tuple[int, ...], ...]


class PageBlocks:
    """The blocks of a page by offset."""

    def __init__(self, text: str, regions: Sequence[Region], size: int) -> None:
        self._blocks = list(_find_blocks(text, regions, size))
        self._leads = [block.lead for block in self._blocks]
        self._rows = sorted(
            offset
            for block in self._blocks
            if block.kind is Kind.TABLE
            for offset in (block.lead, block.start, *block.levels[0], block.end)
        )

    def find_block_around(self, offset: int) -> Block | None:
        """The block that a cut at this offset would split, or separate from its lead-in."""
        index = bisect_right(self._leads, offset) - 1
        block = self._blocks[index] if index >= 0 else None
        return block if block and block.lead < offset < block.end else None

    def list_borders(self, lowest: int, highest: int) -> Iterator[int]:
        """The offsets where blocks begin and end, within these bounds."""
        for block in self._blocks:
            yield from (edge for edge in (block.lead, block.end) if lowest <= edge <= highest)

    def find_floor(self, start: int, room: int) -> int:
        """The lowest offset to which a chunk that begins at `start` may overlap the one before it.

        It must not overlap rows, whose header it repeats, nor so much that code exceeds `room`.
        """
        index = bisect_right(self._rows, start)
        floor = self._rows[index - 1] if index else 0
        index = bisect_right(self._leads, start)
        block = self._blocks[index - 1] if index else None
        if block and block.kind is Kind.CODE and start < block.end <= start + room:
            return max(floor, block.end - room)
        return floor

    def get_header(self, offset: int) -> str:
        """The header rows of the table that continues at this offset; "" if none does."""
        block = self.find_block_around(offset)
        return block.header if block and offset >= block.header_end else ""


def find_visible(text: str, start: int, end: int) -> int:
    """The offset of the first visible character from `start` on, or `end`."""
    match = _VISIBLE.search(text, start, end)
    return match.start() if match else end


def _find_blocks(text: str, regions: Sequence[Region], size: int) -> Iterator[Block]:
    previous_end = 0
    for region in sorted(regions, key=lambda region: region.start):
        start = find_visible(text, region.start, region.end)
        end = start + len(text[start : region.end].rstrip())
        if region.kind in _LEVELS and start < end:
            header = text[start : region.header_end].rstrip() if region.header_end < end else ""
            yield Block(
                region.kind,
                _find_lead(text, previous_end, start, region.kind, size // SHORT_DIVISOR),
                start,
                end,
                header if len(header) <= size // 2 else "",  # a longer one leaves rows no room
                region.header_end if header else start,
                _LEVELS[region.kind](text, max(start, region.header_end), end),
            )
        previous_end = max(previous_end, end)


def _find_lead(text: str, previous_end: int, start: int, kind: Kind, max_characters: int) -> int:
    """The offset of the lead-in of a block: its caption, or the line that introduces it."""
    lead = start
    while lead > previous_end:
        line_end = previous_end + len(text[previous_end:lead].rstrip())
        begin = find_visible(
            text, max(text.rfind("\n", previous_end, line_end) + 1, previous_end), line_end
        )
        line = text[begin:line_end]
        if not line or start - begin > max_characters:
            return lead
        if kind is not Kind.TABLE and not _ANNOUNCES.search(line):
            return lead
        lead = begin
        if not _UNIT.match(line):  # "(단위: 백만 원)" is between a caption and its table
            return lead
    return lead


def _find_line_starts(text: str, start: int, end: int) -> list[int]:
    """The offsets where lines that are not blank begin; the first is `start`."""
    return [start, *(match.end() for match in _NEXT_LINE.finditer(text, start, end))]


def _find_row_breaks(text: str, start: int, end: int) -> tuple[tuple[int, ...], ...]:
    """The offsets of all rows but the first."""
    return (tuple(_find_line_starts(text, start, end)[1:]),)


def _find_item_breaks(text: str, start: int, end: int) -> tuple[tuple[int, ...], ...]:
    """The offsets of items like the first one, of all items and of all lines, but not the first."""
    lines = _find_line_starts(text, start, end)
    lines[0] -= len(text[:start]) - len(text[:start].rstrip(" \t"))
    marked = [
        (offset, _to_list_shape(match))
        for offset in lines
        if (match := _ITEM.match(text, offset, end))
    ]
    like_first = tuple(offset for offset, shape in marked[1:] if shape == marked[0][1])
    return like_first, tuple(offset for offset, _ in marked[1:]), tuple(lines[1:])


def _to_list_shape(match: re.Match[str]) -> tuple[int, str]:
    """What the items of one list share: their indentation and the form of their marks."""
    mark = re.sub(r"\d+", "0", match["mark"])
    mark = re.sub(r"[가-하a-zA-Z](?=\W)", "a", mark)
    return len(match["indent"].expandtabs(4)), re.sub(r"[①-⑳㉠-㉭ⓐ-ⓩ]", "①", mark)


def _find_line_breaks(text: str, start: int, end: int) -> tuple[tuple[int, ...], ...]:
    """The offsets of lines after a blank one, and of all lines, but not the first."""
    lines = _find_line_starts(text, start, end)
    after_blank = [
        line_start
        for previous_start, line_start in pairwise(lines)
        if text[previous_start : line_start - 1].rstrip(" \t\r").endswith("\n")
    ]
    return tuple(after_blank), tuple(lines[1:])


_LEVELS = {Kind.TABLE: _find_row_breaks, Kind.LIST: _find_item_breaks, Kind.CODE: _find_line_breaks}


class Cuts:
    """Cuts the text of a page into chunks of at most `size` characters, including headers."""

    def __init__(self, text: str, blocks: PageBlocks, size: int, overlap: int) -> None:
        self._text, self._blocks = text, blocks
        self._size, self._overlap = size, overlap

    def cut(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Start and end of each chunk of `start:end`; all begin and end with visible characters."""
        covered = start
        while (start := find_visible(self._text, start, end)) < end:
            room = self._compute_room(start)
            stop = end if end - start <= room else min(end, self._find_stop(start, room, covered))
            last = stop
            while self._text[last - 1].isspace():
                last -= 1
            yield start, last
            covered = find_visible(self._text, stop, end)
            start = self._find_next_start(start, stop, covered)
            if covered >= end or covered - start >= self._size // 2:  # mostly white space
                start = covered

    def _compute_room(self, start: int) -> int:
        """The size of a chunk that begins here, without the header that it repeats."""
        header = self._blocks.get_header(start)
        return self._size - len(header) - 1 if header else self._size

    def _find_stop(self, start: int, room: int, covered: int) -> int:
        """The end of a chunk: the last break of the strongest kind in its second half.

        The chunk includes `covered`, the first character that is in no chunk yet.
        """
        lowest, highest = max(start + room // 2, covered + 1), start + room
        block = self._blocks.find_block_around(highest)
        if block:
            stop = self._find_stop_beside(block, start, lowest, covered) or self._find_stop_within(
                block, lowest, highest
            )
            if stop:
                return stop
        borders = list(self._blocks.list_borders(lowest, highest))
        for kind in BREAKS:
            breaks = [
                offset
                for offset in find_breaks(kind, self._text, lowest, highest)
                if self._blocks.find_block_around(offset) in {None, block}
            ]
            if candidates := breaks + borders:
                return max(candidates)
        character_ends = (
            offset for offset in range(highest, lowest, -1) if not _is_joined(self._text, offset)
        )
        return next(character_ends, highest)

    def _find_stop_beside(self, block: Block, start: int, lowest: int, covered: int) -> int | None:
        """The end of a chunk that leaves a block whole: before it or, for code, after it."""
        room = int(self._size * MAX_CODE_FACTOR) if block.kind is Kind.CODE else self._size
        if block.end - block.lead > room:
            return None
        if block.lead >= lowest:
            return block.lead
        if block.kind is Kind.CODE and block.end - start <= room:
            return block.end
        is_long_enough = block.lead - start >= self._size // SHORT_DIVISOR and block.lead > covered
        return block.lead if is_long_enough else None

    def _find_stop_within(self, block: Block, lowest: int, highest: int) -> int | None:
        """The last offset between two parts of a block, or else the one before it."""
        for level in block.levels:
            if candidates := [offset for offset in level if lowest <= offset <= highest]:
                return candidates[-1]
        return block.lead if block.lead >= lowest else None

    def _find_next_start(self, start: int, stop: int, covered: int) -> int:
        """The start of the next chunk: the first sentence, line or word within the overlap.

        `covered` is the first character that is in no chunk yet.
        """
        floor = self._blocks.find_floor(covered, int(self._size * MAX_CODE_FACTOR))
        lowest = max(stop - self._overlap, start + 1, floor)
        if lowest >= stop:
            return stop
        for kind in (SENTENCE, LINE, SPACE):
            for match in kind.finditer(self._text, max(lowest - 1, 0), stop):
                if lowest <= match.end() < stop:
                    return match.end()
        offsets = range(max(stop - self._overlap, floor), stop)
        return next((offset for offset in offsets if not _is_joined(self._text, offset)), stop)


def find_breaks(kind: re.Pattern[str], text: str, lowest: int, highest: int) -> Iterator[int]:
    """The ends of the words before breaks of this kind, from `lowest` to `highest`.

    The white space after them may reach further.
    """
    for match in kind.finditer(text, lowest, highest + 1):
        end = match.start() + len(match[0].rstrip())
        if lowest <= end <= highest:
            yield end


def _is_joined(text: str, offset: int) -> bool:
    """Whether the character at an offset belongs to the one before it, as a mark to its letter."""
    if offset >= len(text):
        return False
    letter = text[offset]
    return (
        unicodedata.category(letter)[0] == "M"
        or "\u1160" <= letter <= "\u11ff"  # vowels and ends of Korean syllables in parts
        or letter == "\u200d"
        or text[offset - 1] == "\u200d"
    )


# The document, page by page


SEPARATOR = "\n\n"
"""Separates two pages in the whole text."""


@dataclass(frozen=True, slots=True)
class Split:
    """A document's whole text, the offset of each page in it, and its chunks."""

    text: str
    page_starts: tuple[int, ...]
    chunks: tuple[TextChunk, ...]


def split_pages(pages: Sequence[Page], *, size: int, overlap: int) -> Split:
    """Cut all pages of a document; see `Splitter`."""
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
    between them. The header of a chunk counts towards its size. Only code may exceed it, by half.
    """

    def __init__(self, *, size: int, overlap: int) -> None:
        self._size = size
        self._overlap = max(0, min(overlap, size // 2))
        self._outline = Outline(size // SHORT_DIVISOR)
        self._count = 0
        self.start = 0
        """Offset of the next page in the whole text."""

    def add(self, page: Page) -> list[TextChunk]:
        """The chunks of the next page."""
        sections, groups = self._outline.split_sections(page, self.start)
        blocks = PageBlocks(page.text, page.regions, self._size)
        cuts = Cuts(page.text, blocks, self._size, self._overlap)
        describe = _Describer(page, self.start, sections, blocks)
        chunks = [
            describe.make_chunk(index, *span)
            for index, span in enumerate(_split_spans(page, groups, cuts), self._count)
        ]
        self._count += len(chunks)
        self.start += len(page.text) + len(SEPARATOR)
        return chunks


@dataclass(frozen=True, slots=True)
class PageSection:
    """The part of a section on one page; text before the first heading has no path."""

    start: int
    level: int
    path: tuple[str, ...]
    has_body: bool
    """Whether it contains more than its heading."""


class Outline:
    """The headings above each page; takes the pages in order."""

    def __init__(self, shortest: int) -> None:
        self._shortest = shortest
        self._open: list[Heading] = []
        self._level = 0
        self._begun: int | None = None
        """Offset in the whole text of the group of sections that the last one belongs to."""

    def split_sections(self, page: Page, offset: int) -> tuple[list[PageSection], list[int]]:
        """The sections of a page in order, without gaps, and the offsets where groups begin.

        A group is cut as one. `offset` is that of the page in the whole text.
        """
        headings = sorted(page.headings, key=lambda heading: heading.start)
        ends = [*(heading.start for heading in headings), len(page.text)]
        sections: list[PageSection] = []
        groups = [0]
        if ends[0]:
            sections.append(PageSection(0, self._level, self._get_path(), has_body=True))
            self._begun = offset if self._begun is None else self._begun
        for heading, end in zip(headings, ends[1:], strict=True):
            self._open = [above for above in self._open if above.level < heading.level]
            self._open.append(heading)
            if heading.start == end and end < len(page.text):  # another heading follows at once
                continue
            start = offset + heading.start
            # preceding sections join this one if they are too short alone, and not at its level
            is_too_short = self._begun is not None and start - self._begun < self._shortest
            if not (is_too_short and heading.level >= self._level):
                self._begun = start
                groups.append(heading.start)
            self._level = heading.level
            has_body = _has_body(heading, page.text[heading.start : end])
            sections.append(PageSection(heading.start, heading.level, self._get_path(), has_body))
        return sections, groups

    def _get_path(self) -> tuple[str, ...]:
        return tuple(" ".join(heading.title.split()) for heading in self._open)


def find_shared_path(sections: Sequence[PageSection], start: int, end: int) -> tuple[str, ...]:
    """The headings that all of a span is under; sections without text do not count."""
    starts = [section.start for section in sections]
    sections_inside = sections[
        max(bisect_right(starts, start) - 1, 0) : bisect_right(starts, end - 1)
    ]
    paths = [section.path for section in sections_inside if section.has_body] or [
        sections_inside[-1].path
    ]
    shared_levels = takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
    return tuple(level[0] for level in shared_levels)


def _has_body(heading: Heading, text: str) -> bool:
    words = len("".join(text.split()).strip("#*="))
    return words > len("".join(heading.title.split()))


def _split_spans(page: Page, groups: Sequence[int], cuts: Cuts) -> Iterator[tuple[int, int]]:
    """The chunks of a page; none spans the beginning of a group or the edge of a picture."""
    edges = {0, len(page.text), *groups}
    for region in page.regions:
        if region.kind is Kind.PICTURE:
            edges |= {region.start, region.end}
    for start, end in pairwise(sorted(edges)):
        yield from cuts.cut(start, end)


class _Describer:
    """Makes chunks of spans of a page: knows its sections, regions and lines by offset."""

    def __init__(
        self, page: Page, offset: int, sections: Sequence[PageSection], blocks: PageBlocks
    ) -> None:
        self._page, self._offset = page, offset
        self._sections, self._blocks = sections, blocks
        self._line_starts = [line.start for line in page.lines]

    def make_chunk(self, index: int, start: int, end: int) -> TextChunk:
        """The chunk of a span."""
        kind, picture = self._find_kind(start, end)
        return TextChunk(
            index=index,
            text=self._page.text[start:end],
            start=self._offset + start,
            end=self._offset + end,
            page=self._page.number,
            page_end=self._page.number,
            section=" > ".join(find_shared_path(self._sections, start, end)),
            boxes=(picture,) if picture else tuple(self._list_boxes(start, end)),
            kind=kind,
            header=self._blocks.get_header(start),
        )

    def _find_kind(self, start: int, end: int) -> tuple[Kind, Box | None]:
        """The kind of most of a span; for a picture, its box."""
        characters_by_kind: Counter[Kind] = Counter()
        box: Box | None = None
        for region in self._page.regions:
            overlap = min(region.end, end) - max(region.start, start)
            if overlap > 0:
                characters_by_kind[region.kind] += overlap
                box = region.box
        characters_by_kind[Kind.TEXT] += end - start - characters_by_kind.total()
        kind = max(characters_by_kind, key=characters_by_kind.__getitem__)
        return kind, box if kind is Kind.PICTURE else None

    def _list_boxes(self, start: int, end: int) -> Iterator[Box]:
        """One box for each line of the page, clipped to the characters of the span."""
        first_line = max(bisect_right(self._line_starts, start) - 1, 0)
        for line in self._page.lines[first_line:]:
            if line.start >= end:
                return
            edges = line.edges[max(start - line.start, 0) : max(end - line.start, 0) + 1]
            if len(edges) > 1 and max(edges) > min(edges):
                yield Box(self._page.number or 1, min(edges), line.y0, max(edges), line.y1)

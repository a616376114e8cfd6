"""Where the chunks of one stretch of a page begin and end: at its breaks, the strongest first.

Tables, lists and code are blocks: they are cut between their parts or not at all.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rag.pages import Kind, Region
from rag.tokenize.text import ABBREVIATIONS

SHORT = 5
"""Below a fifth of the chunk size a lead-in is short, and a section cannot stand alone."""
_ANNOUNCES = re.compile(
    r"[:：]\W*$|다음(?:과|의|\s각\s?[호목])|아래(?:와|의)|\bas follows\b|\bfollowing\b",
    re.IGNORECASE,
)
_UNIT = re.compile(r"\W*단위")
_NEXT_LINE = re.compile(r"\n(?=[ \t]*\S)")
_VISIBLE = re.compile(r"\S")
_ITEM = re.compile(
    r"(?P<indent>[ \t]*)(?P<mark>[-*+•·∙‣○◦●▪■□◆◇▶▷❍ㅇ◎※](?=\s)|"
    r"[(\[]?(?:\d{1,3}(?:의\d+)?|[가-하a-zA-Z])\\?[.)\]](?=\s)|제\d+[조항호]|[①-⑳㉠-㉭ⓐ-ⓩ])"
)

EXCESS = 1.5
"""So many times the chunk size may a piece of code take rather than be cut."""

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
"""The strongest first."""


@dataclass(frozen=True, slots=True)
class Block:
    """A table, list or piece of code on a page, from its first visible character to its last.

    `lead` is where the lines begin that say what it is. `header` are the header rows of a table
    and `header_end` where they end. `levels` are the places where its parts begin, the best to cut
    at first.
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
        self._blocks = list(_read(text, regions, size))
        self._leads = [block.lead for block in self._blocks]
        self._rows = sorted(
            place
            for block in self._blocks
            if block.kind is Kind.TABLE
            for place in (block.lead, block.start, *block.levels[0], block.end)
        )

    def around(self, place: int) -> Block | None:
        """The block that a cut at this place would part, or part from its lead-in."""
        at = bisect_right(self._leads, place) - 1
        block = self._blocks[at] if at >= 0 else None
        return block if block and block.lead < place < block.end else None

    def borders(self, lowest: int, highest: int) -> Iterator[int]:
        """Where blocks begin and end, within these bounds."""
        for block in self._blocks:
            yield from (edge for edge in (block.lead, block.end) if lowest <= edge <= highest)

    def floor(self, place: int, room: int) -> int:
        """How far back the chunk whose own text begins here may share that of the one before it.

        Not over rows, whose header it repeats, nor so far that code is too long for its `room`.
        """
        at = bisect_right(self._rows, place)
        floor = self._rows[at - 1] if at else 0
        at = bisect_right(self._leads, place)
        block = self._blocks[at - 1] if at else None
        if block and block.kind is Kind.CODE and place < block.end <= place + room:
            return max(floor, block.end - room)
        return floor

    def header(self, place: int) -> str:
        """The header rows of the table that goes on at this place."""
        block = self.around(place)
        return block.header if block and place >= block.header_end else ""


def find_visible(text: str, start: int, end: int) -> int:
    """The first visible character from `start`, or `end`."""
    found = _VISIBLE.search(text, start, end)
    return found.start() if found else end


def _read(text: str, regions: Sequence[Region], size: int) -> Iterator[Block]:
    behind = 0
    for region in sorted(regions, key=lambda region: region.start):
        start = find_visible(text, region.start, region.end)
        end = start + len(text[start : region.end].rstrip())
        if region.kind in _LEVELS and start < end:
            header = text[start : region.header_end].rstrip() if region.header_end < end else ""
            yield Block(
                region.kind,
                _lead(text, behind, start, region.kind, size // SHORT),
                start,
                end,
                header if len(header) <= size // 2 else "",  # else it leaves the rows no room
                region.header_end if header else start,
                _LEVELS[region.kind](text, max(start, region.header_end), end),
            )
        behind = max(behind, end)


def _lead(text: str, behind: int, start: int, kind: Kind, longest: int) -> int:
    """Where the lead-in of a block begins: its caption, or the line that announces it."""
    lead = start
    while lead > behind:
        line_end = behind + len(text[behind:lead].rstrip())
        begin = find_visible(text, max(text.rfind("\n", behind, line_end) + 1, behind), line_end)
        line = text[begin:line_end]
        if not line or start - begin > longest:
            return lead
        if kind is not Kind.TABLE and not _ANNOUNCES.search(line):
            return lead
        lead = begin
        if not _UNIT.match(line):  # "(단위: 백만 원)" stands between a caption and its table
            return lead
    return lead


def _starts(text: str, start: int, end: int) -> list[int]:
    """Where the lines that hold something begin; the first at `start`."""
    return [start, *(found.end() for found in _NEXT_LINE.finditer(text, start, end))]


def _rows(text: str, start: int, end: int) -> tuple[tuple[int, ...], ...]:
    """Every row but the first."""
    return (tuple(_starts(text, start, end)[1:]),)


def _items(text: str, start: int, end: int) -> tuple[tuple[int, ...], ...]:
    """Items like the first one, then all items, then all lines; without the first of each."""
    lines = _starts(text, start, end)
    lines[0] -= len(text[:start]) - len(text[:start].rstrip(" \t"))
    marked = [(at, _shape(found)) for at in lines if (found := _ITEM.match(text, at, end))]
    like_first = tuple(at for at, shape in marked[1:] if shape == marked[0][1])
    return like_first, tuple(at for at, _ in marked[1:]), tuple(lines[1:])


def _shape(found: re.Match[str]) -> tuple[int, str]:
    """What items of one list have in common: their indentation and the form of their marks."""
    mark = re.sub(r"\d+", "0", found["mark"])
    mark = re.sub(r"[가-하a-zA-Z](?=\W)", "a", mark)
    return len(found["indent"].expandtabs(4)), re.sub(r"[①-⑳㉠-㉭ⓐ-ⓩ]", "①", mark)


def _lines(text: str, start: int, end: int) -> tuple[tuple[int, ...], ...]:
    """Lines behind a blank one, then all lines."""
    lines = _starts(text, start, end)
    apart = [
        at for before, at in pairwise(lines) if text[before : at - 1].rstrip(" \t\r").endswith("\n")
    ]
    return tuple(apart), tuple(lines[1:])


_LEVELS = {Kind.TABLE: _rows, Kind.LIST: _items, Kind.CODE: _lines}


class Cuts:
    """Cuts the text of a page into chunks of at most `size` characters, headers counted in."""

    def __init__(self, text: str, blocks: PageBlocks, size: int, overlap: int) -> None:
        self._text, self._blocks = text, blocks
        self._size, self._overlap = size, overlap

    def spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The chunks from `start` to `end`: each begins and ends with a visible character."""
        covered = start
        while (start := find_visible(self._text, start, end)) < end:
            room = self._room(start)
            stop = end if end - start <= room else min(end, self._stop(start, room, covered))
            last = stop
            while self._text[last - 1].isspace():
                last -= 1
            yield start, last
            covered = find_visible(self._text, stop, end)
            start = self._next_start(start, stop, covered)
            if covered >= end or covered - start >= self._size // 2:  # nothing, or a desert
                start = covered

    def _room(self, start: int) -> int:
        """What a chunk that begins here may hold beside the header that it repeats."""
        header = self._blocks.header(start)
        return self._size - len(header) - 1 if header else self._size

    def _stop(self, start: int, room: int, covered: int) -> int:
        """Where to end a chunk: at the last break of the strongest kind in its second half.

        It takes in `covered`, the first character that no chunk holds yet.
        """
        lowest, highest = max(start + room // 2, covered + 1), start + room
        block = self._blocks.around(highest)
        if block:
            stop = self._beside(block, start, lowest, covered) or self._within(
                block, lowest, highest
            )
            if stop:
                return stop
        borders = list(self._blocks.borders(lowest, highest))
        for kind in BREAKS:
            free = [
                place
                for place in find_breaks(kind, self._text, lowest, highest)
                if self._blocks.around(place) in {None, block}
            ]
            if found := free + borders:
                return max(found)
        whole = (at for at in range(highest, lowest, -1) if not _is_joined(self._text, at))
        return next(whole, highest)

    def _beside(self, block: Block, start: int, lowest: int, covered: int) -> int | None:
        """Where to end so that the block stays whole: before it or, with code, behind it."""
        room = int(self._size * EXCESS) if block.kind is Kind.CODE else self._size
        if block.end - block.lead > room:
            return None
        if block.lead >= lowest:
            return block.lead
        if block.kind is Kind.CODE and block.end - start <= room:
            return block.end
        worth = block.lead - start >= self._size // SHORT and block.lead > covered
        return block.lead if worth else None

    def _within(self, block: Block, lowest: int, highest: int) -> int | None:
        """The last place between two of its parts, else the one before it."""
        for level in block.levels:
            if found := [place for place in level if lowest <= place <= highest]:
                return found[-1]
        return block.lead if block.lead >= lowest else None

    def _next_start(self, start: int, stop: int, covered: int) -> int:
        """Where the next chunk begins: at the first sentence, line or word within the overlap.

        `covered` is where its own text begins.
        """
        floor = self._blocks.floor(covered, int(self._size * EXCESS))
        lowest = max(stop - self._overlap, start + 1, floor)
        if lowest >= stop:
            return stop
        for kind in (SENTENCE, LINE, SPACE):
            for match in kind.finditer(self._text, max(lowest - 1, 0), stop):
                if lowest <= match.end() < stop:
                    return match.end()
        places = range(max(stop - self._overlap, floor), stop)
        return next((at for at in places if not _is_joined(self._text, at)), stop)


def find_breaks(kind: re.Pattern[str], text: str, lowest: int, highest: int) -> Iterator[int]:
    """Where the words before a break of this kind end, from `lowest` to `highest`.

    The white space behind them may reach further.
    """
    for match in kind.finditer(text, lowest, highest + 1):
        place = match.start() + len(match[0].rstrip())
        if lowest <= place <= highest:
            yield place


def _is_joined(text: str, place: int) -> bool:
    """Whether the character at a place belongs to the one before it, as a mark to its letter."""
    if place >= len(text):
        return False
    letter = text[place]
    return (
        unicodedata.category(letter)[0] == "M"
        or "\u1160" <= letter <= "\u11ff"  # vowels and ends of Korean syllables in parts
        or letter == "\u200d"
        or text[place - 1] == "\u200d"
    )

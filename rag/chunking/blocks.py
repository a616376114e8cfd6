"""The tables, lists and code of a page: they are cut between their parts or not at all."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rag.chunking.breaks import visible
from rag.pages import Kind, Region

SHORT = 5
"""Below a fifth of the chunk size a lead-in is short, and a section cannot stand alone."""
_ANNOUNCES = re.compile(
    r"[:：]\W*$|다음(?:과|의|\s각\s?[호목])|아래(?:와|의)|\bas follows\b|\bfollowing\b",
    re.IGNORECASE,
)
_UNIT = re.compile(r"\W*단위")
_NEXT_LINE = re.compile(r"\n(?=[ \t]*\S)")
_ITEM = re.compile(
    r"(?P<indent>[ \t]*)(?P<mark>[-*+•·∙‣○◦●▪■□◆◇▶▷❍ㅇ◎※](?=\s)|"
    r"[(\[]?(?:\d{1,3}(?:의\d+)?|[가-하a-zA-Z])\\?[.)\]](?=\s)|제\d+[조항호]|[①-⑳㉠-㉭ⓐ-ⓩ])"
)


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


class Blocks:
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


def _read(text: str, regions: Sequence[Region], size: int) -> Iterator[Block]:
    behind = 0
    for region in sorted(regions, key=lambda region: region.start):
        start = visible(text, region.start, region.end)
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
        begin = visible(text, max(text.rfind("\n", behind, line_end) + 1, behind), line_end)
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

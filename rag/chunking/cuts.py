"""Where the chunks of one stretch of a page begin and end."""

from collections.abc import Iterator

from rag.chunking.blocks import SHORT, Block, Blocks
from rag.chunking.breaks import (
    BREAKS,
    LINE,
    SENTENCE,
    SPACE,
    ends,
    visible,
    whole_before,
    whole_behind,
)
from rag.pages import Kind

EXCESS = 1.5
"""So many times the chunk size may a piece of code take rather than be cut."""


class Cuts:
    """Cuts the text of a page into chunks of at most `size` characters, headers counted in."""

    def __init__(self, text: str, blocks: Blocks, size: int, overlap: int) -> None:
        self._text, self._blocks = text, blocks
        self._size, self._overlap = size, overlap

    def spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The chunks from `start` to `end`: each begins and ends with a visible character."""
        covered = start
        while (start := visible(self._text, start, end)) < end:
            room = self._room(start)
            stop = end if end - start <= room else min(end, self._stop(start, room, covered))
            last = stop
            while self._text[last - 1].isspace():
                last -= 1
            yield start, last
            covered = visible(self._text, stop, end)
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
                for place in ends(kind, self._text, lowest, highest)
                if self._blocks.around(place) in {None, block}
            ]
            if found := free + borders:
                return max(found)
        return whole_before(self._text, highest, lowest)

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
        return whole_behind(self._text, max(stop - self._overlap, floor), stop)

"""Numbers of paragraphs: formats such as "제^1장" or "^1.^2)", counted level by level."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from documents.parsers.hangul.blocks import Head, HeadKind
from documents.parsers.numerals import format_hangul_number

BULLET = "-"
_PLACE = re.compile(r"\^(\d+|n|N)")


@dataclass(frozen=True, slots=True)
class Level:
    """How one level is numbered; `text` holds `^1` for the number of level 1 and so on."""

    text: str
    format: str = "DIGIT"
    start: int = 1


class Numberer:
    """Counts the numbered paragraphs of a document, in order."""

    def __init__(self, numberings: Mapping[int, Sequence[Level]]) -> None:
        self._numberings = numberings
        self._counts: dict[tuple[HeadKind, int], dict[int, int]] = defaultdict(dict)

    def mark(self, head: Head) -> str:
        """What stands before the paragraph; it counts. Empty for a level without a number."""
        if head.kind is HeadKind.BULLET:
            return BULLET
        levels = self._numberings.get(head.list_id, ())
        if head.level >= len(levels):
            return ""
        counts = self._counts[head.kind, head.list_id]
        for deeper in [level for level in counts if level > head.level]:
            del counts[deeper]
        counts[head.level] = counts.get(head.level, levels[head.level].start - 1) + 1
        return _PLACE.sub(
            lambda place: _number(place[1], head.level, levels, counts), levels[head.level].text
        )


def _number(place: str, own: int, levels: Sequence[Level], counts: Mapping[int, int]) -> str:
    """One number of a mark; `^n` and `^N` stand for all levels down to this one."""
    if not place.isdigit():
        numbers = (_shown(level, levels, counts) for level in range(own + 1))
        return ".".join(numbers) + ("." if place == "N" else "")
    return _shown(int(place) - 1, levels, counts)


def _shown(level: int, levels: Sequence[Level], counts: Mapping[int, int]) -> str:
    if not 0 <= level < len(levels):
        return ""
    return format_hangul_number(counts.get(level, levels[level].start), levels[level].format)

"""The numbers and marks that Word puts before paragraphs; they stand in no text of the file."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from documents.parsers.docx.package import attribute, is_on
from documents.parsers.numerals import format_number

BULLET = "-"
_PLACE = re.compile(r"%([1-9])")


@dataclass(frozen=True, slots=True)
class _Level:
    """How one level of a list counts."""

    start: int
    form: str
    pattern: str
    style: str
    joined: bool
    arabic: bool

    def label(self, text: str) -> str:
        """The label with what parts it from the paragraph."""
        return text if self.joined or not text else f"{text} "


@dataclass(frozen=True, slots=True)
class _List:
    """One list (`w:num`): whose counters it shares, its levels, and where it starts anew."""

    counters: str
    levels: dict[int, _Level]
    starts: dict[int, int]


class Numbering:
    """Counts along the document; each numbered paragraph must be asked for once, in order."""

    def __init__(self, root: Any | None = None) -> None:
        self._lists = dict(_lists(root)) if root is not None else {}
        self._counts: dict[str, dict[int, int]] = {}
        self._begun: set[tuple[str, int]] = set()

    def depth(self, number: str, style_id: str) -> int:
        """The level that a list has for a style; 0 where it names none."""
        levels = self._lists[number].levels if number in self._lists else {}
        return next((at for at, level in levels.items() if level.style == style_id), 0)

    def label(self, number: str, depth: int) -> str | None:
        """What stands before the next paragraph of this list, up to its text; "" for nothing.

        None where there is no such list.
        """
        found = self._lists.get(number)
        if found is None or depth not in found.levels:
            return None
        counts = self._counted(number, found, depth)
        level = found.levels[depth]
        if level.form == "bullet":
            return level.label(BULLET)

        def place(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            if at not in found.levels:
                return ""
            form = "decimal" if level.arabic else found.levels[at].form
            return format_number(counts.get(at, 0), form)

        return level.label(_PLACE.sub(place, level.pattern).strip())

    def _counted(self, number: str, found: _List, depth: int) -> dict[int, int]:
        """The counters after one more paragraph at this depth; deeper ones begin again."""
        counts = self._counts.setdefault(found.counters, {})
        if depth in found.starts and (number, depth) not in self._begun:
            counts[depth] = found.starts[depth]
        elif depth in counts:
            counts[depth] += 1
        else:
            counts[depth] = found.levels[depth].start
        self._begun.add((number, depth))
        # A level that was skipped counts as begun: 2., 2.1.1., 2.2.
        skipped = {at: level.start for at, level in found.levels.items() if at < depth}
        self._counts[found.counters] = skipped | {at: n for at, n in counts.items() if at <= depth}
        return self._counts[found.counters]


def _lists(root: Any) -> Iterator[tuple[str, _List]]:
    """The lists by id; one that only names a list style takes the levels of that style."""
    kinds = {attribute(one, "abstractNumId"): one for one in root.iter("{*}abstractNum")}
    styled = {
        attribute(one.find("{*}styleLink")): key
        for key, one in kinds.items()
        if one.find("{*}styleLink") is not None
    }
    for one in root.iter("{*}num"):
        key = attribute(one.find("{*}abstractNumId"))
        if key in kinds:
            key = styled.get(attribute(kinds[key].find("{*}numStyleLink")), key)
            yield attribute(one, "numId"), _list(one, key, kinds[key])


def _list(number: Any, counters: str, kind: Any) -> _List:
    """A list with its own changes to the levels of its kind."""
    levels = dict(map(_level, kind.iter("{*}lvl")))
    starts = {}
    for change in number.iter("{*}lvlOverride"):
        levels |= dict(map(_level, change.iter("{*}lvl")))
        start = change.find("{*}startOverride")
        if start is not None:
            starts[_whole(attribute(change, "ilvl"))] = _whole(attribute(start))
    return _List(counters, levels, starts)


def _level(element: Any) -> tuple[int, _Level]:
    """A level and its depth."""
    form = attribute(element.find("{*}numFmt")) or "decimal"
    pattern = attribute(element.find("{*}lvlText"))
    return _whole(attribute(element, "ilvl")), _Level(
        start=_whole(attribute(element.find("{*}start"))),
        form=form,
        pattern=pattern,
        style=attribute(element.find("{*}pStyle")),
        joined=attribute(element.find("{*}suff")) == "nothing",
        arabic=is_on(element.find("{*}isLgl")),
    )


def _whole(value: str) -> int:
    """A number of the file; 0 where it is none, or beyond reason."""
    return int(value) if value.isdecimal() and len(value) < 10 else 0

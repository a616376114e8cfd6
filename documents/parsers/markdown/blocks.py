"""Finds headings, lists, tables and code in Markdown, line by line.

A parser of all of CommonMark takes up to 0.2 ms a line, a minute for a table of 4 MB; what is
needed here are places only, and each line is looked at a fixed number of times.
"""

import re

from rag.pages import Heading, Kind, Region

_FENCE = re.compile(r"((?:[ \t]|>)*)(`{3,}(?=[^`]*$)|~{3,})")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|(\d{1,9})[.)])(?:[ \t]|$)")
_PIPE = re.compile(r"(?<!\\)\|")
_RULED = re.compile(r":?-+:?")
_MARKS = re.compile(r"[*`]|\[([^\]]*)\]\([^)]*\)")
_NO_PARAGRAPH = ("|", ">", "#")
_LONGEST_TITLE = 200


class Blocks:
    """The headings and regions of a text from `start` on, at offsets in the whole of it."""

    def __init__(self, text: str, start: int = 0) -> None:
        self.headings: list[Heading] = []
        self.regions: list[Region] = []
        self._lines = text[start:].split("\n")
        self._starts = [start]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._in_list = False
        self._list: list[int] = []
        """First and last line of the part of a list that is no region yet."""
        at = 0
        while at < len(self._lines):
            at = self._code(at) or self._table(at) or self._heading(at) or self._line(at)
        self._end_list()

    def _code(self, at: int) -> int:
        """A block between fences; the line behind it, or 0 where none begins here."""
        opening = _FENCE.match(self._lines[at])
        if opening is None:
            return 0
        prefix, fence = opening.groups()
        end = at + 1
        while end < len(self._lines):
            line = self._lines[end].strip(" \t>")
            if ">" in prefix and not self._lines[end].startswith(">"):
                end -= 1  # the quotation has ended, and its code with it
                break
            if len(line) >= len(fence) and not line.strip(fence[0]):
                break
            end += 1
        last = min(end, len(self._lines) - 1)
        self._region(at, last, Kind.CODE, indented=bool(prefix))
        return last + 1

    def _table(self, at: int) -> int:
        """Rows with pipes around a ruled line; the line behind them, or 0."""
        if "|" not in self._lines[at] or at + 1 >= len(self._lines):
            return 0
        ruled = _cells(self._lines[at + 1])
        if not all(_RULED.fullmatch(cell) for cell in ruled) or len(ruled) != len(
            _cells(self._lines[at])
        ):
            return 0
        end = at + 2
        while end < len(self._lines) and "|" in self._lines[end]:
            end += 1
        indented = self._lines[at][:1] in {" ", "\t"}
        self._region(at, end - 1, Kind.TABLE, self._ends(at + 1), indented=indented)
        return end

    def _heading(self, at: int) -> int:
        """A heading of either kind; the line behind it, or 0."""
        line = self._lines[at]
        if match := _ATX.match(line):
            self._end_list()
            self._head(at, len(match[1]), _unhashed(match[2] or ""))
            return at + 1
        under = self._lines[at + 1] if at + 1 < len(self._lines) else ""
        marks = set(under.strip())
        if marks not in ({"="}, {"-"}) or under.startswith("    "):
            return 0
        if (
            not line.strip()
            or line.startswith(_NO_PARAGRAPH)
            or _ITEM.match(line)
            or _is_rule(line)
        ):
            return 0
        if self._in_list and line[:1] in {" ", "\t"}:
            return 0
        self._end_list()
        self._head(at, 1 if marks == {"="} else 2, line)
        return at + 2

    def _line(self, at: int) -> int:
        """Any other line; it begins a list, goes on with one, or ends it."""
        line = self._lines[at]
        if _is_rule(line):
            self._end_list()
        elif (item := _ITEM.match(line)) and (self._in_list or self._may_begin(at, item[1])):
            self._in_list = True
            self._list = [self._list[0] if self._list else at, at]
        elif self._in_list and line.strip():
            apart = not self._lines[at - 1].strip()
            if apart and line[:1] not in {" ", "\t"}:
                self._end_list()
            else:
                self._list = [self._list[0] if self._list else at, at]
        return at + 1

    def _may_begin(self, at: int, number: str | None) -> bool:
        """Whether an item may begin a list: within a paragraph, no number but 1 does.

        Four spaces deep, it is a layout of the author's own.
        """
        in_paragraph = at > 0 and bool(self._lines[at - 1].strip())
        deep = self._lines[at].startswith(("    ", "\t"))
        return not deep and (number in {None, "1"} or not in_paragraph)

    def _head(self, at: int, level: int, title: str) -> None:
        title = _MARKS.sub(lambda match: match[1] or "", title[: 5 * _LONGEST_TITLE]).strip()
        if title:
            self.headings.append(Heading(self._starts[at], level, title[:_LONGEST_TITLE]))

    def _region(
        self, first: int, last: int, kind: Kind, header_end: int = 0, *, indented: bool
    ) -> None:
        """A region of whole lines; one that is not indented ends the list before it."""
        self._end_part()
        self._in_list = self._in_list and indented
        self.regions.append(Region(self._starts[first], self._ends(last), kind, header_end))

    def _end_part(self) -> None:
        """What there is of a list becomes a region."""
        if self._list:
            first, last = self._list
            self._list = []
            self.regions.append(Region(self._starts[first], self._ends(last), Kind.LIST))

    def _end_list(self) -> None:
        self._end_part()
        self._in_list = False

    def _ends(self, at: int) -> int:
        """Where a line ends, its line end not included."""
        return self._starts[at + 1] - 1


def _cells(line: str) -> list[str]:
    """The cells of a row; a line without a pipe is none."""
    line = line.strip()
    cells = _PIPE.split(line.removeprefix("|").removesuffix("|")) if "|" in line else []
    return [cell.strip() for cell in cells]


def _is_rule(line: str) -> bool:
    """Whether it is a line across the page: three or more of `-`, `*` or `_`."""
    marks = "".join(line.split())
    return len(marks) >= 3 and marks[0] in "-*_" and not marks.strip(marks[0])


def _unhashed(title: str) -> str:
    """A title without the marks that may close it."""
    title = title.strip()
    bare = title.rstrip("#")
    return bare if not bare or bare[-1].isspace() else title

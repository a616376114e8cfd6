"""The lines of a passage: what each is, and whether it goes on in the next."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag.generation.extractive import tables
from rag.generation.extractive.visible import visible

FULL = 0.75
"""A line at least so full, against the widest, was broken by the margin: the next continues it."""
NARROW = 32
"""Characters below which nothing can be told from a line's width."""
WIDEST = 0.8
"""The share of lines that are no wider than the text: a few may stick out."""

_FRONT_MATTER = re.compile(r"\A---\s*\n.*?\n---\s*(?:\n|\Z)", re.DOTALL)
_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.+?)\s*#*$")
_HEADING_ID = re.compile(r"\s*\{[#/][^{}]*\}\s*$")
_QUOTED = re.compile(r"^\s{0,3}(?:>\s?)+")
_STRESSED = re.compile(r"^(\s*)\*\*([①-⑳])\*\*")
_ESCAPED_NUMBER = re.compile(r"^(\s*\d{1,9})\\([.)])")
_MARK = re.compile(
    r"^(\s*)(?:"
    r"(?P<bullet>[-*+•·∙‣○◦●▪■□◆◇▶▷❍ㅇ※])|(?P<number>\(?\d{1,3}(?:의\d+)?[.)])|"
    r"(?P<letter>\(?[가나다라마바사아자차카타파하][.)])|(?P<latin>\(?[a-z][.)])"
    r")\s+(?=\S)"
)
_GLUED = re.compile(r"^(\s*)(?:(?P<circle>[①-⑳])|(?P<article>제\d+조(?:의\d+)?)(?=\s*\())\s*")
_ENDED = re.compile(r"[.!?。？！…:：;][\"'”’」』)\]]*$")
_OPEN_END = re.compile(
    r"(?:[,，·]|(?:을|를|으로|에서|에게|및|또는|하는|있는|되는|된|하여|되어|하고|하며|위한|대한|관한|따른|등의)|"
    r"\b(?:the|an?|of|to|in|and|or|as|for|by|with|at|on|from|that|which|is|are|was|be))$",
    re.IGNORECASE,
)
"""Ends of lines after which something must follow."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it is read: `text` without its mark, `kind` of the mark to tell lists apart."""

    raw: str
    text: str
    indent: int = 0
    mark: str = ""
    kind: str = ""
    heading: bool = False
    row: bool = False

    @property
    def blank(self) -> bool:
        """Nothing on it."""
        return not self.text and not self.row


def lines_of(text: str) -> list[Line]:
    """The lines of a passage, without front matter and code."""
    body = _FRONT_MATTER.sub("", text)
    shown = visible("\n".join(map(_numbered, _without_code(body))))
    return [_line(raw) for raw in shown.split("\n")]


def continues(line: Line, following: Line, full: int) -> bool:
    """Whether a line goes on in the following one; `full` is how wide the text is."""
    if _ENDED.search(line.text):
        return False
    if _OPEN_END.search(line.text):
        return True
    if following.indent > line.indent and line.mark:
        return True
    return full >= NARROW and len(line.raw.strip()) >= full * FULL


def width(lines: Sequence[Line]) -> int:
    """How wide the text is, in characters."""
    widths = sorted(len(line.raw.strip()) for line in lines)
    return widths[round(WIDEST * (len(widths) - 1))] if len(widths) > 4 else widths[-1]


def _without_code(text: str) -> Iterator[str]:
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
            yield ""
        elif not fenced:
            yield line


def _numbered(line: str) -> str:
    """A line whose number or circle was written so that Markdown leaves it alone."""
    return _STRESSED.sub(r"\1\2", _ESCAPED_NUMBER.sub(r"\1\2", line))


def _line(raw: str) -> Line:
    if tables.is_row(raw):
        return Line(raw, "", row=True)
    if found := _HEADING.match(raw):
        return Line(raw, _HEADING_ID.sub("", found[1]), heading=True)
    text = _QUOTED.sub("", raw)
    if found := _MARK.match(text) or _GLUED.match(text):
        kind = str(found.lastgroup)
        mark = found[found.lastgroup or 0]
        if kind == "bullet":
            kind = mark
        elif kind in {"number", "letter", "latin"}:
            kind = f"{kind}{mark[0] == '('}{mark[-1]}"
        indent = len(found[1].expandtabs(4))
        return Line(raw, text[found.end() :].strip(), indent, mark, kind)
    return Line(raw, text.strip(), len(text.expandtabs(4)) - len(text.expandtabs(4).lstrip()))

"""Cuts a passage into what can be quoted: sentences, list items, rows of tables with their columns.

Headings are not quoted; they say what the units below them are about.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag import sentences

_FRONT_MATTER = re.compile(r"\A---\s*\n.*?\n---\s*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^\s*#{1,6}\s+(.+?)\s*#*$")
_ROW = re.compile(r"^\s*\|(.*)\|\s*$")
_RULE = re.compile(r"^[\s|:\-]+$")
_ITEM = re.compile(r"^\s*(?:[-*•·○●□■]|\d+[.)]|[가-하][.)]|[①-⑳]|제\d+조)\s*")
_ENDED = re.compile(r"[.!?。？！…:;][\"'”’」』)\]]*$")
_FULL = 0.75
"""A line at least so full, against the widest, was broken by the margin: the next continues it."""
_NARROW = 32
"""Characters below which nothing can be told from a line's width."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Something to quote, and the heading it stands under."""

    text: str
    heading: str


def cut(text: str) -> list[Unit]:
    """The units of a passage, in order."""
    heading = ""
    units: list[Unit] = []
    for block in _blocks(_FRONT_MATTER.sub("", text)):
        found = _HEADING.match(block[0])
        heading = found[1] if found else heading
        units.extend(Unit(quote, heading) for quote in _quotes(block[1:] if found else block))
    return units


def _blocks(text: str) -> Iterator[list[str]]:
    """Runs of lines of one kind: a table, or prose; a heading begins a run."""
    block: list[str] = []
    for line in text.split("\n"):
        row = bool(_ROW.match(line))
        starts = _HEADING.match(line) or (block and bool(_ROW.match(block[-1])) != row)
        if block and (not line.strip() or starts):
            yield block
            block = []
        if line.strip():
            block.append(line)
    if block:
        yield block


def _quotes(lines: Sequence[str]) -> Iterator[str]:
    if lines and _ROW.match(lines[0]):
        yield from _rows([_cells(line) for line in lines if not _RULE.match(line)])
        return
    for paragraph in _paragraphs(lines):
        yield from sentences.split(paragraph)


def _cells(line: str) -> list[str]:
    found = _ROW.match(line)
    return [cell.strip() for cell in found[1].split("|")] if found else []


def _rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each row in words: its first cell, then every other one behind the name of its column."""
    header, *body = rows or [[]]
    for row in body or [header]:
        names = header if body else [""] * len(row)
        pairs = [
            f"{name}: {cell}" if name and name != cell else cell
            for name, cell in zip([*names, *[""] * len(row)], row, strict=False)
            if cell
        ]
        if pairs:
            first, rest = row[0] or pairs[0], pairs[1:]
            yield f"{first} — {' · '.join(rest)}" if rest else first


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    """Lines joined where the margin broke them, apart where the author did."""
    widest = max((len(line.strip()) for line in lines), default=0)
    held = ""
    for line in lines:
        clean = line.strip()
        if held and (_ITEM.match(clean) or not _continues(held, widest)):
            yield held
            held = ""
        held = f"{held}\n{clean}" if held else clean
    if held:
        yield held


def _continues(held: str, widest: int) -> bool:
    last = held.rsplit("\n", 1)[-1]
    return widest >= _NARROW and len(last) >= widest * _FULL and not _ENDED.search(last)

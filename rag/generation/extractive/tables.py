"""Tables of a passage: rows with the names of their columns, headers of several lines as one."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_ROW = re.compile(r"^\s*\|(.*)\|\s*$")
_RULE = re.compile(r"^[\s|:\-]+$")
_SPLIT = re.compile(r"(?<!\\)\|")
_SPACE = re.compile(r"\s+")
_FIGURE = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Table:
    """`columns` names the cells of every row; empty where the passage begins below the header."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def is_row(line: str) -> bool:
    """Whether a line is one of a table."""
    return bool(_ROW.match(line))


def read(lines: Sequence[str]) -> Table:
    """The table that the lines are."""
    ruled = next((place for place, line in enumerate(lines) if _RULE.match(line)), None)
    rows = [_cells(line) for line in lines if not _RULE.match(line)]
    if ruled is None or ruled == 0 or not rows:
        return Table((), _named(rows))
    heads, body = rows[:ruled], rows[ruled:]
    while len(body) > 1 and _goes_on(heads[-1], body[0]):
        heads.append(body.pop(0))
    if not body:
        return Table((), _named(rows))
    return Table(_columns(heads), _named(body))


def told(table: Table, row: Sequence[str]) -> str:
    """A row in words: its first cell, then every other one behind the name of its column."""
    names = [*table.columns, *[""] * len(row)]
    pairs = [
        f"{name}: {value}" if name and name != value else value
        for name, value in zip(names, row, strict=False)
        if value
    ]
    if not pairs:
        return ""
    first, rest = row[0] or pairs[0], pairs[1:]
    return f"{first} — {' · '.join(rest)}" if rest else first


def _cells(line: str) -> tuple[str, ...]:
    found = _ROW.match(line)
    inner = _SPLIT.split(found[1]) if found else []
    return tuple(_SPACE.sub(" ", value.replace("\\|", "|")).strip() for value in inner)


def _goes_on(head: Sequence[str], row: Sequence[str]) -> bool:
    """Whether a row is a second line of the header: it names what stands below joined cells."""
    joined = len(head) > 2 and any(not cell for cell in head[1:])
    return joined and not row[0] and any(row) and not any(map(_is_figure, row))


def _is_figure(value: str) -> bool:
    return bool(_FIGURE.search(value)) and not re.search(r"[가-힣A-Za-z]", value)


def _columns(heads: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """One name a column; a cell that spans several stands over each of them."""
    *above, last = heads
    spread = [_spread(row) for row in above] + [last]
    width = max(map(len, spread))
    lines = [[*row, *[""] * (width - len(row))] for row in spread]
    return tuple(" ".join(dict.fromkeys(filter(None, parts))) for parts in zip(*lines, strict=True))


def _spread(row: Sequence[str]) -> list[str]:
    filled = list(row)
    for place, (before, here) in enumerate(pairwise(row), 1):
        if not here and place > 1:
            filled[place] = filled[place - 1] or before
    return filled


def _named(rows: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The rows; one without a name carries that of the row above, as merged cells do."""
    found: list[tuple[str, ...]] = []
    for row in rows:
        above = found[-1][0] if found else ""
        if row and any(row):
            found.append((row[0] or above, *row[1:]))
    return tuple(found)

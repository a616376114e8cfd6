"""Tables of a page as rows of texts; cells over several columns or rows hold their text once."""

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

_MOST_COLUMNS = 200
"""Beyond these, cells are no longer merged: each merged cell costs its empty places."""
_MOST_HEADERS = 3
_ALL_ROWS = 1 << 30
_LAYOUT = {"presentation", "none"}


def holds_data(table: Any) -> bool:
    """Whether it is a table and not a way to place things: those hold tables themselves."""
    inner = any(one is not table for one in table.iter("table"))
    return not inner and table.get("role") not in _LAYOUT


def rows(table: Any, text: Callable[[Any], str]) -> list[list[str]]:
    """The texts of all cells, from left to right; "" where a cell goes on."""
    reaching: dict[int, int] = {}
    return [list(_texts(row, reaching, text)) for row in table.iter("tr")]


def header_rows(table: Any) -> int:
    """How many rows are headers: what the page says, or the first with what it reaches into."""
    listed = list(table.iter("tr"))
    heads = sum(1 for row in listed if row.getparent().tag == "thead")
    named = sum(
        1 for _ in takewhile(lambda row: all(one.tag == "th" for one in _cells(row)), listed)
    )
    if heads or named:
        return max(heads, named if named < len(listed) else 0, 1)
    reach = max((_span(cell, "rowspan") for row in listed[:1] for cell in _cells(row)), default=1)
    return reach if reach <= _MOST_HEADERS else 1


def _texts(row: Any, reaching: dict[int, int], text: Callable[[Any], str]) -> Iterator[str]:
    """One row; `reaching` counts for each column how many rows a cell above still takes."""
    column = 0
    for cell in _cells(row):
        while reaching.get(column):
            reaching[column] -= 1
            column += 1
            yield ""
        width, height = _span(cell, "colspan"), _span(cell, "rowspan")
        if column + width > _MOST_COLUMNS:
            width, height = 1, 1
        for at in range(width):
            reaching[column + at] = height - 1
            yield "" if at else text(cell)
        column += width
    while reaching.get(column):
        reaching[column] -= 1
        column += 1
        yield ""


def _cells(row: Any) -> Iterator[Any]:
    yield from row.iterchildren("td", "th")


def _span(cell: Any, name: str) -> int:
    """Over how many columns or rows a cell goes; 0 rows are all that follow."""
    value = cell.get(name) or "1"
    number = int(value) if value.isdecimal() and len(value) < 10 else 1
    return number or (_ALL_ROWS if name == "rowspan" else 1)

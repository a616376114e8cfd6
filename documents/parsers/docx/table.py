"""Tables of Word as rows of texts; merged cells keep their columns, tables in cells are lines."""

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

from documents.parsers.docx.package import attribute, is_on, local
from documents.parsers.docx.text import SKIPPED, boxes

_MOST_HEADERS = 3
_MOST_COLUMNS = 64
"""Word itself has no more than 63."""

Read = Callable[[Any], str]
"""The text of a paragraph, with its number."""


def rows(table: Any, read: Read) -> list[list[str]]:
    """The texts of all cells, from left to right; "" where a merged cell goes on."""
    return [list(_cells(row, read)) for row in _rows(table)]


def header_rows(table: Any) -> int:
    """How many rows are headers: those that Word repeats on each page, else the first.

    Cells of the first row that reach down make those rows headers, too.
    """
    rows = list(_rows(table))
    repeated = takewhile(lambda row: is_on(row.find("{*}trPr/{*}tblHeader")), rows)
    merged = takewhile(_goes_on, rows[1:])
    reached = 1 + sum(1 for _ in merged)
    return sum(1 for _ in repeated) or (reached if reached <= _MOST_HEADERS else 1)


def _goes_on(row: Any) -> bool:
    """Whether a cell of the row above reaches into this one."""
    merges = row.findall("{*}tc/{*}tcPr/{*}vMerge")
    return any(attribute(merge) != "restart" for merge in merges)


def paragraphs(container: Any) -> Iterator[Any]:
    """All paragraphs of the cells, those of tables within them included."""
    for child in container:
        if local(child) == "p":
            yield child
        elif local(child) not in SKIPPED:
            yield from paragraphs(child)


def _rows(table: Any) -> Iterator[Any]:
    """Rows of a table, deleted ones left out, wrappers looked into."""
    for child in table:
        name = local(child)
        if name == "tr":
            if child.find("{*}trPr/{*}del") is None:
                yield child
        elif name not in SKIPPED:
            yield from _rows(child)


def _cells(row: Any, read: Read) -> Iterator[str]:
    """Texts of a row by columns of the grid; what a row leaves free at its left is empty, too."""
    yield from [""] * _count(row.find("{*}trPr/{*}gridBefore"), 0)
    yield from _filled_cells(row, read)


def _filled_cells(row: Any, read: Read) -> Iterator[str]:
    for child in row:
        name = local(child)
        if name == "tc":
            merge = child.find("{*}tcPr/{*}vMerge")
            goes_on = merge is not None and attribute(merge) != "restart"
            yield "" if goes_on else "\n".join(_lines(child, read))
            yield from [""] * (_count(child.find("{*}tcPr/{*}gridSpan"), 1) - 1)
        elif name not in SKIPPED:
            yield from _filled_cells(child, read)


def _count(element: Any | None, usual: int) -> int:
    """How many columns; `usual` where the file does not say."""
    value = attribute(element)
    return min(int(value), _MOST_COLUMNS) if value.isdecimal() and len(value) < 10 else usual


def _lines(container: Any, read: Read) -> Iterator[str]:
    """Lines of a cell; a table within it has one for each row."""
    for child in container:
        name = local(child)
        if name == "p":
            if text := read(child).strip():
                yield text
            for box in boxes(child):
                yield from _lines(box, read)
        elif name == "tbl":
            for row in rows(child, read):
                yield " ".join(cell for cell in row if cell)
        elif name not in SKIPPED:
            yield from _lines(child, read)

"""What stands on the pages that readers are tried on, and how near a reading comes to it."""

import json
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
ANNOTATED = Path(__file__).parent / "pages.json"
"""Real pages, written down from their pictures by eye: no reader had a say in it."""

Rows = Sequence[Sequence[str]]
Place = tuple[int, int, str]
"""Row, column and text of a cell."""


@dataclass(frozen=True, slots=True)
class TrueTable:
    """Rows of cells, text of merged ones in the first place; `style` is how it is drawn."""

    rows: Rows
    header_rows: int
    style: str = "ruled"


@dataclass(frozen=True, slots=True)
class TruePage:
    """A page of a file. `order` are words that begin its blocks, in the order of reading.

    `tables` is None where nobody wrote them down.
    """

    path: Path
    number: int
    order: tuple[str, ...]
    tables: tuple[TrueTable, ...] | None
    kind: str


@dataclass(slots=True)
class Reading:
    """What a reader finds on a page: its text in order, and its tables as rows of cells.

    `header_rows` has a figure for each table, where a reader tells it.
    """

    text: str
    tables: list[Rows]
    header_rows: list[int] = field(default_factory=list)


@dataclass(slots=True)
class CellCount:
    """Cells that agree in text, row and column, those found and those that are there."""

    right: int = 0
    found: int = 0
    there: int = 0

    def add(self, other: "CellCount") -> None:
        """Count both."""
        self.right += other.right
        self.found += other.found
        self.there += other.there

    @property
    def f1(self) -> float:
        """Of all cells."""
        return 2 * self.right / max(self.found + self.there, 1)


def load_real_pages() -> list[TruePage]:
    """The annotated pages of the shared data."""
    return [
        TruePage(
            DATA / page["file"],
            page["page"],
            tuple(page["order"]),
            None
            if page["tables"] is None
            else tuple(TrueTable(table["rows"], table["header_rows"]) for table in page["tables"]),
            "real",
        )
        for page in json.loads(ANNOTATED.read_text(encoding="utf-8"))
    ]


def squash(text: str) -> str:
    """Letters, digits and signs of numbers: blanks, bullets, quotes and old Hangul are left out."""
    kept = unicodedata.normalize("NFKC", text).replace("\\", "")
    return "".join(c for c in kept if (c.isalnum() and not _is_old(c)) or c in "-.+%△×=~")


def _is_old(character: str) -> bool:
    """Whether it is a letter of old Hangul, which files write in ways of their own."""
    return "\u1100" <= character <= "\u11ff" or "\ud7a4" <= character <= "\ud7ff"


def count_cells(found: Sequence[Rows], truth: Sequence[TrueTable]) -> CellCount:
    """Cells by place, each table beside the found one that is most like it.

    A found table of a single row or column is counted where there is one: readers tell frames and
    drawings from tables in different ways, and either is right.
    """
    left = [_places(rows) for rows in found]
    total = CellCount()
    for table in truth:
        cells = _places(table.rows)
        best = max(left, key=lambda other: (cells & other).total(), default=Counter[Place]())
        right = (cells & best).total()
        if right:
            left.remove(best)
        total.add(CellCount(right, best.total() if right else 0, cells.total()))
    total.found += sum(cells.total() for cells in left if _is_grid(cells))
    return total


def _places(rows: Rows) -> Counter[Place]:
    """Cells with text; rows and columns without any are not counted."""
    squashed = [[squash(cell or "") for cell in row] for row in rows]
    lines = [row for row in squashed if any(row)]
    columns = sorted({at for row in lines for at, cell in enumerate(row) if cell})
    return Counter(
        (number, columns.index(at), cell)
        for number, row in enumerate(lines)
        for at, cell in enumerate(row)
        if cell
    )


def _is_grid(cells: Counter[Place]) -> bool:
    rows, columns = {row for row, _, _ in cells}, {column for _, column, _ in cells}
    return len(rows) > 1 and len(columns) > 1


def measure_order(text: str, order: Sequence[str]) -> float:
    """Share of the pairs of blocks that come in their order; what is not found is in none."""
    whole, place, places = squash(text), 0, list[int]()
    for words in map(squash, order):
        at = whole.find(words, place)
        at = at if at >= 0 else whole.find(words)
        places.append(at)
        place = at + 1 if at >= 0 else place
    pairs = list(combinations(places, 2))
    return sum(0 <= one < other for one, other in pairs) / max(len(pairs), 1)

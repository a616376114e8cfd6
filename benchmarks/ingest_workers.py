"""Korean PDFs read by one documents process and by two: do pages a second grow with the cores?

First with an endpoint that makes vectors of all passages and costs nearly nothing, on one core and
on both; then with the model that comes along, which makes vectors of those passages that hold
enough English, in one process that all documents processes share. Without text recognition.
"""

import contextlib
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil

from benchmarks import report
from benchmarks.ingest import endpoint, pdfs
from benchmarks.ingest.spent import list_processes, read_cpu
from benchmarks.ingest_queue import count_left, time_reading
from tests.product.client import Client
from tests.support import Product, wait_until

PDFS, PAGES = report.choose_size((6, 60), quick=(2, 5))
"""How many files, and pages of each at the least."""
LONG = report.choose_size((100, 101, 102), quick=(10,))
"""Pages of files that are uploaded one by one, when nothing else is to be done."""
CASES: dict[int, tuple[int, ...]] = report.choose_size({1: (1, 2), 2: (2,)}, quick={2: (2,)})
"""Documents processes of a product, and how many cores it has, one case after the other."""
LOCAL_CASES: dict[int, tuple[int, ...]] = report.choose_size({1: (2,), 2: (2,)}, quick={})
"""The same with the model that comes along."""
SHOWN = ("documents", "models", "postgres", "web")
AIM = {"times_faster": 1.8, "long_seconds": 2.0}


def main() -> None:
    if not pdfs.available():
        print("\ningest_workers: left out, as the data it reads does not lie beside the project")
        return
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as place, endpoint.serving() as url:
        paths = [
            pdfs.long(pdfs.korean(), count, Path(place) / f"{count}.pdf")
            for count in (*range(PAGES, PAGES + PDFS), *LONG)
        ]
        for source, settings, cases in (
            ("endpoint", endpoint.settings(url), CASES),
            ("local model", {}, LOCAL_CASES),
        ):
            for workers, all_cores in cases.items():
                told = {"NURA_DOCUMENT_WORKERS": str(workers), "NURA_OCR_PAGES": "0"}
                with Product(**settings, **told) as product:
                    for cores in all_cores:
                        name = f"{workers} at a time, {cores} cores"
                        found.setdefault(source, {})[name] = _measure(product, paths, cores)
    for source, measured in found.items():
        report.table(
            f"{PDFS} Korean PDFs, {source} (aim: {AIM['times_faster']} x)",
            ("documents", *next(iter(measured.values()))),
            [(name, *one.values()) for name, one in measured.items()],
        )
    report.write("ingest_workers", {"aim": AIM, **found})


def _measure(product: Product, paths: list[Path], cores: int) -> dict[str, float]:
    wait_until(lambda: "engine_warm" in product.log, 120, step=0.5)  # models are loaded
    client = Client(product.url, product.create_user(f"reader-{cores}"))  # knows no file yet
    lent = sorted(os.sched_getaffinity(0))[:cores]
    for process in list_processes(product):  # and what they will fork
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            for thread in process.threads():
                os.sched_setaffinity(thread.id, lent)
    for number in range(4):  # each process has loaded the analyser
        time_reading(client, f"warm {number}.md")
    many, single = paths[:PDFS], paths[PDFS:]
    alone = median(_read(client, [path], 0.1) for path in single)
    spent, pages = read_cpu(product), sum(map(pdfs.pages, many))
    took, after = _read(client, many, 0.5), read_cpu(product)
    cpu = {name: after[name] - spent[name] for name in after}
    return {
        f"seconds_of_{LONG[0]}_pages": round(alone, 2),
        "pages_per_second": round(pages / took, 1),
        "cores_busy": round(sum(cpu.values()) / took, 2),
        "cpu_ms_a_page": round(1000 * sum(cpu.values()) / pages, 1),
        **{f"{name}_ms": round(1000 * cpu[name] / pages, 1) for name in SHOWN},
    }


def _read(client: Client, paths: list[Path], step: float) -> float:
    """Seconds from the upload of the first until all can be asked about, which is seen in steps."""
    begun = time.perf_counter()
    for path in paths:
        client.upload(path.name, path.read_bytes())
    wait_until(lambda: not count_left(client)[0], len(paths) * 60, step)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()

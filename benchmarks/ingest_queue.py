"""A thousand small files of one user: time a file, how the pages feel meanwhile, who else waits.

`python -m benchmarks.ingest_queue 10000` takes as many. All text is Korean, of which the model that
comes along makes no vectors: the figures are those of everything around it.
"""

import http.client
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from typing import Self

from benchmarks import report
from benchmarks.footprint import measure_settled
from benchmarks.ingest.spent import read_cpu
from tests.product.client import Client
from tests.support import Product, wait_until

USUAL = report.choose_size(1_000, quick=40)
FILES = int(sys.argv[1]) if sys.argv[1:] else USUAL
UPLOADERS = 4
OTHERS = report.choose_size(5, quick=2)
"""Files that the second user uploads one after the other while the first one's wait."""
AIM = {"newcomer_seconds": 3.0}
LOOKS_EVERY = 0.5
PATIENCE = 5.0
"""Seconds a file, at the most."""
SENTENCE = "해솔시는 통합돌봄 정보시스템을 구축하고 담당자를 둔다. "
LOOKS = ("/documents", "/documents?status=COMPLETED&q=9", "/documents/queue")


def main() -> None:
    with Product() as product:
        first = Client(product.url, product.create_user("first"))
        second = Client(product.url, product.create_user("second"))
        time_reading(second, "warm.md")
        memory = [measure_settled(product)["documents"]]
        spent = read_cpu(product)
        figures = _measured(first, second)
        after = read_cpu(product)
        memory.append(measure_settled(product)["documents"])
    each = {name: round((after[name] - spent[name]) * 1000 / FILES, 1) for name in after}
    figures["cpu_milliseconds_a_file"] = each
    figures["documents_memory_mb"] = dict(zip(("before", "after"), memory, strict=True))
    report.table(f"{FILES} files of one user", ("figure", "value"), list(figures.items()))
    name = "ingest_queue" if FILES == USUAL else f"ingest_queue_{FILES}"
    report.write(name, {"aim": AIM, **figures})


def _measured(first: Client, second: Client) -> dict[str, object]:
    begun = time.perf_counter()
    with ThreadPoolExecutor(UPLOADERS) as pool:
        list(pool.map(lambda number: first.upload(*_small(number)), range(FILES)))
    uploaded = time.perf_counter() - begun
    with _Looking(first) as looking:
        waited = [time_reading(second, f"other {number}.md") for number in range(OTHERS)]
        ahead, reckoned = count_left(first)
        asked = time.perf_counter()
        wait_until(lambda: not count_left(first)[0], FILES * PATIENCE, LOOKS_EVERY)
        took = time.perf_counter() - asked
    whole = time.perf_counter() - begun
    completed = first.call("GET", "/documents?status=COMPLETED&page_size=1")[1]["count"]
    return {
        "files": FILES,
        "completed": completed,
        "upload_seconds": round(uploaded, 1),
        "seconds_a_file": round(whole / FILES, 3),
        "other_user_waited_seconds": {
            "median": round(median(waited), 1),
            "max": round(max(waited), 1),
        },
        "left_when_others_were_served": ahead,
        "seconds_left_told": reckoned,
        "seconds_left_true": round(took, 1),
        "milliseconds": looking.figures(),
    }


class _Looking:
    """Asks for lists and the queue in a thread, as an open page and a program do."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._took: dict[str, list[float]] = {path: [] for path in LOOKS}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def figures(self) -> dict[str, dict[str, float]]:
        """Percentiles of each path."""
        return {path: _percentiles(took) for path, took in self._took.items()}

    def _run(self) -> None:
        while not self._over.wait(LOOKS_EVERY):
            for path, took in self._took.items():
                took.append(_timed(lambda path=path: self._client.call("GET", path)))


def _timed(call: Callable[[], tuple[int, object]]) -> float:
    """Milliseconds of a call that must succeed."""
    begun = time.perf_counter()
    status, _body = call()
    if status != http.client.OK:
        raise RuntimeError(status)
    return (time.perf_counter() - begun) * 1000


def _percentiles(values: list[float]) -> dict[str, float]:
    cuts = quantiles(values, n=100, method="inclusive")
    return {name: round(cuts[at - 1], 1) for name, at in (("p50", 50), ("p95", 95), ("p99", 99))}


def _small(number: int) -> tuple[str, bytes]:
    text = SENTENCE * 40
    return f"{number}.md", f"# {number}호 공고\n\n{text}{number}\n".encode()


def count_left(client: Client) -> tuple[int, float | None]:
    """Documents that are not done, and the seconds that they are said to take."""
    body = client.call("GET", "/documents/queue")[1]
    return int(body["waiting"] + body["working"]), body["seconds_left"]


def time_reading(client: Client, name: str) -> float:
    """Seconds from the upload of a short file until it can be asked about."""
    begun = time.perf_counter()
    key = client.upload(name, f"# {name}\n\nOne short file.".encode())["id"]
    wait_until(lambda: client.call("GET", f"/documents/{key}")[1]["status"] == "COMPLETED", 300)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()

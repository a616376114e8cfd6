"""Hundreds of small files of one user: time a file, how the pages feel meanwhile, who else waits.

`python -m benchmarks.ingest_queue 10000` takes as many. They are Markdown, text, web pages, Word
files and PDFs in turn, all Korean, of which the model that comes along makes no vectors: figures
are those of everything around it. Then scans, which take seconds a page, and who waits for them.
"""

import functools
import http.client
import io
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Self

import docx
from PIL import Image, ImageDraw, ImageFont

from benchmarks import report
from benchmarks.footprint import measure_settled
from benchmarks.ingest import pdfs
from benchmarks.ingest.spent import read_cpu
from tests.product.client import Client
from tests.support import Product, wait_until

USUAL = report.choose_size(500, quick=40)
FILES = int(sys.argv[1]) if sys.argv[1:] else USUAL
UPLOADERS = 4
OTHERS = report.choose_size(10, quick=2)
"""Files of the second user, one after each tenth of the first one's that are left."""
SCANS, SCANNED_PAGES = report.choose_size((4, 10), quick=(2, 1))
"""Scanned files of the first user, and pages of each."""
AIM = {"newcomer_seconds": 3.0}
LOOKS_EVERY = 0.5
LEAST_LEFT = 3.0
"""Seconds; less is not worth telling."""
PATIENCE = 5.0
"""Seconds a file, at the most."""
SENTENCE = "해솔시는 통합돌봄 정보시스템을 구축하고 담당자를 둔다. "
LOOKS = ("/documents", "/documents?status=COMPLETED&q=9", "/documents/queue")


def main() -> None:
    with Product() as product:
        first = Client(product.url, product.create_user("first"))
        second = Client(product.url, product.create_user("second"))
        time_reading(second, "warm.md")
        memory = [measure_settled(product)]
        spent = read_cpu(product)
        figures = _measure(first, second)
        after = read_cpu(product)
        memory.append(measure_settled(product))
        figures["cpu_milliseconds_a_file"] = {
            name: round((after[name] - spent[name]) * 1000 / FILES, 1) for name in after
        }
        for name in ("documents", "postgres"):
            before, now = (one[name] for one in memory)
            figures[f"{name}_memory_mb"] = {"before": before, "after": now}
        figures["scans"] = _measure_scans(first, second)
    report.table(f"{FILES} files of one user", ("figure", "value"), list(figures.items()))
    name = "ingest_queue" if FILES == USUAL else f"ingest_queue_{FILES}"
    report.write(name, {"aim": AIM, **figures})


def _measure(first: Client, second: Client) -> dict[str, object]:
    begun = time.perf_counter()
    with ThreadPoolExecutor(UPLOADERS) as pool:
        list(pool.map(lambda number: first.upload(*_small(number)), range(FILES)))
    uploaded = time.perf_counter() - begun
    waited, marks = [], []
    with _Looking(first) as looking:
        ahead, reckoned = count_left(first)
        asked = time.perf_counter()
        marks.append((asked, ahead))
        for tenth in range(1, OTHERS + 1):
            waited.append(time_reading(second, f"other {tenth}.md"))
            wanted = ahead - ahead * tenth // OTHERS
            wait_until(
                lambda wanted=wanted: count_left(first)[0] <= wanted, FILES * PATIENCE, LOOKS_EVERY
            )
            marks.append((time.perf_counter(), count_left(first)[0]))
        took = time.perf_counter() - asked
    whole = time.perf_counter() - begun
    completed = first.call("GET", "/documents?status=COMPLETED&page_size=1")[1]["count"]
    return {
        "files": FILES,
        "completed": completed,
        "upload_seconds": round(uploaded, 1),
        "seconds_a_file": round(whole / FILES, 3),
        "files_per_second": [
            round((left - later) / (end - start), 1)
            for (start, left), (end, later) in pairwise(marks)
        ],
        "other_user_waited_seconds": _summarise(waited),
        "left_when_others_were_served": ahead,
        "seconds_left_told": reckoned,
        "seconds_left_true": round(took, 1),
        "milliseconds": looking.figures(),
    }


def _measure_scans(first: Client, second: Client) -> dict[str, object]:
    """How long files of a second user wait while scans of the first are recognised.

    First files of text, then scans of one page; and how true the time is that the first is told.
    """
    with TemporaryDirectory() as place:
        text = _read_beside_scans(
            first, place, SCANS, lambda name: time_reading(second, f"{name}.md")
        )
        scans = _read_beside_scans(
            first, place, SCANS // 2, lambda name: _time_scan(second, place, name)
        )
    return {**text, "other_user_scans": scans}


def _read_beside_scans(
    first: Client, place: str, files: int, read_other: Callable[[str], float]
) -> dict[str, object]:
    """Read others, each named, by what says how long it took, until so many scans are done."""
    for number in range(files):
        path = _draw_scan(Path(place) / f"scan {number}.pdf", f"{files}.{number}", SCANNED_PAGES)
        first.upload(path.name, path.read_bytes())
    begun, waited, told, left = time.perf_counter(), [], [], files
    while left:
        waited.append(read_other(f"beside {files} scans {len(waited)}"))
        left, reckoned = count_left(first)
        told.append((time.perf_counter(), reckoned))
    return {
        "files": files,
        "pages": files * SCANNED_PAGES,
        "seconds": round(time.perf_counter() - begun, 1),
        "other_user_waited_seconds": _summarise(waited),
        "other_user_files": len(waited),
        "seconds_left_told_by_true": _compare_told(told, time.perf_counter()),
    }


def _compare_told(told: list[tuple[float, float | None]], end: float) -> dict[str, float]:
    """The time that was told by the time that it took, leaving out the last seconds."""
    ratios = [
        reckoned / (end - at)
        for at, reckoned in told
        if reckoned is not None and end - at >= LEAST_LEFT
    ]
    if not ratios:
        return {}
    named = {"min": min(ratios), "median": median(ratios), "max": max(ratios)}
    return {name: round(ratio, 2) for name, ratio in named.items()}


def _time_scan(client: Client, place: str, name: str) -> float:
    """Seconds from the upload of a scan of one page until it can be asked about."""
    path = _draw_scan(Path(place) / f"{name}.pdf", name, 1)
    return _time_upload(client, path.name, path.read_bytes())


def _summarise(waited: list[float]) -> dict[str, float]:
    return {"median": round(median(waited), 1), "max": round(max(waited), 1)}


def _draw_scan(path: Path, name: str, count: int) -> Path:
    font = ImageFont.load_default(size=32)
    pages = []
    for page in range(count):
        picture = Image.new("L", (1240, 1754), 255)
        lines = "\n".join(f"Line {line} of page {page} in file {name}" for line in range(30))
        ImageDraw.Draw(picture).multiline_text((150, 100), lines, 0, font, spacing=15)
        pages.append(picture)
    pages[0].save(path, save_all=True, append_images=pages[1:], resolution=150)
    return path


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
    """Name and content of the file with this number, unlike all others."""
    title, text = f"{number}호 공고", SENTENCE * 40 + str(number)
    kind = ("md", "txt", "html", "docx", "pdf")[number % 5]
    if kind == "docx":
        document, file = docx.Document(), io.BytesIO()
        document.add_heading(title)
        document.add_paragraph(text)
        document.save(file)
        return f"{number}.docx", file.getvalue()
    if kind == "pdf" and pdfs.available():
        return f"{number}.pdf", _read_page_of_pdf() + f"% {number}\n".encode()
    if kind == "html":
        return f"{number}.html", f"<h1>{title}</h1><p>{text}</p>".encode()
    return f"{number}.{'txt' if kind == 'txt' else 'md'}", f"# {title}\n\n{text}\n".encode()


@functools.cache
def _read_page_of_pdf() -> bytes:
    with TemporaryDirectory() as place:
        return pdfs.long(pdfs.korean(), 1, Path(place) / "page.pdf").read_bytes()


def count_left(client: Client) -> tuple[int, float | None]:
    """Documents that are not done, and the seconds that they are said to take."""
    body = client.call("GET", "/documents/queue")[1]
    return int(body["waiting"] + body["working"]), body["seconds_left"]


def time_reading(client: Client, name: str) -> float:
    """Seconds from the upload of a short file until it can be asked about."""
    return _time_upload(client, name, f"# {name}\n\nOne short file.".encode())


def _time_upload(client: Client, name: str, content: bytes) -> float:
    """The same of a file of this content."""
    begun = time.perf_counter()
    key = client.upload(name, content)["id"]
    wait_until(lambda: client.call("GET", f"/documents/{key}")[1]["status"] == "COMPLETED", 300)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()

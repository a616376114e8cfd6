"""From PDF to searchable: pages a second a core, the share of the model, memory, a long document.

Every case is a process of its own. Product and rival take the same files by turns, on one core
where pages are counted, so that what else the machine does meets both alike.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.ingest import pdfs, product, rival

ROUNDS = report.choose_size(3, quick=1)
RIVAL_ROUNDS = report.choose_size(2, quick=1)
"""Its times hardly differ, and are most of what a round takes."""
AIM = {"pages_per_second": 300, "times_faster": 20, "share_in_model": 0.9, "long_seconds": 2.0}
FILES = report.choose_size(None, quick=1)
"""Of each language, the first; None: all."""
PAGES = report.choose_size(None, quick=8)
"""Of each file, the first; None: all."""
EMBEDDED_ROUNDS = 1
"""The model's own time hardly changes, and takes a minute and a half a round."""
LONG = report.choose_size((50, 1_000), quick=(20,))
ANSWERABLE_PAGES = report.choose_size(100, quick=10)


def main() -> None:
    if len(sys.argv) > 2:
        print(json.dumps(CASES[sys.argv[2]](*sys.argv[3:])))
        return
    if not pdfs.available():
        print("\ningest: left out, as the data it reads does not lie beside the project")
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    figures = {name: _alone(name) for name in ("korean", "english", "embedding", "answerable")}
    figures["memory"] = {str(count): _alone("memory", str(count)) for count in LONG}
    report.write("ingest", {"aim": AIM, **figures})
    _show(figures)


def _alone(name: str, *arguments: str) -> Any:
    """What a case finds in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.ingest.run", "case", name, *arguments]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    print(f"{name} {' '.join(arguments)} is measured", flush=True)
    return json.loads(found.stdout.strip().splitlines()[-1])


def reading(language: str) -> dict[str, Any]:
    """Pages a second of one core without the embedding, and the rival's.

    Text recognition counts apart: a scanned page takes a second, and the rival leaves it out.
    """
    os.sched_setaffinity(0, {0})  # what is started from here on, too: readers and Postgres
    ours: list[float] = []
    recognised: list[float] = []
    theirs: list[float] = []
    with product.running(product.Unembedded()) as owner, tempfile.TemporaryDirectory() as folder:
        files = _shorten(pdfs.korean() if language == "korean" else pdfs.english(), folder)
        count = sum(map(pdfs.pages, files))
        straight = rival.Straight(Path(folder), product.Unembedded().embed_passages)
        product.ingested(owner, files[0])  # the analyser loads
        for number in range(ROUNDS):
            with product.unrecognised():
                ours.append(sum(product.ingested(owner, path) for path in files))
            recognised.append(sum(product.ingested(owner, path) for path in files))
            if number < RIVAL_ROUNDS:
                theirs.append(sum(_timed(lambda path=path: straight.add(path)) for path in files))
        with product.unrecognised():
            stages = _stages(owner, files)
    median = statistics.median
    return {
        "files": len(files),
        "pages": count,
        "pages_per_second": round(count / median(ours), 1),
        "rival_pages_per_second": round(count / median(theirs), 1),
        "times_faster": round(median(theirs) / median(ours), 1),
        "share_in_recognition": round(1 - median(ours) / median(recognised), 3),
        "seconds": {
            "ours": _rounded(ours),
            "recognised": _rounded(recognised),
            "rival": _rounded(theirs),
        },
        "stages": stages,
    }


def _shorten(files: list[Path], folder: str) -> list[Path]:
    """What a run of this size takes of them; files that are cut go into the folder."""
    if PAGES is None:
        return files[:FILES]
    return [pdfs.long([path], PAGES, Path(folder) / path.name) for path in files[:FILES]]


def _stages(owner: Any, files: list[Path]) -> dict[str, float]:
    """Seconds of each stage over all files."""
    from documents.models import Document

    total: dict[str, float] = {}
    for path in files:
        product.ingested(owner, path)
        for stage, seconds in Document.objects.get().seconds.items():
            total[stage] = round(total.get(stage, 0.0) + seconds, 3)
    return total


def embedding() -> dict[str, Any]:
    """With the model that comes along, which here embeds everything: its share of the time."""
    model = product.Timed()
    shares, ours, theirs = [], [], []
    with product.running(model) as owner, tempfile.TemporaryDirectory() as folder:
        files = _shorten([*pdfs.english(), *pdfs.korean()], folder)
        straight = rival.Straight(Path(folder), model.embed_passages)
        product.ingested(owner, files[0])
        for _ in range(EMBEDDED_ROUNDS):
            model.seconds = 0.0
            ours.append(sum(product.ingested(owner, path) for path in files))
            shares.append(model.seconds / ours[-1])
            theirs.append(sum(_timed(lambda path=path: straight.add(path)) for path in files))
        count = sum(map(pdfs.pages, files))
    return {
        "pages": count,
        "pages_per_second": round(count / statistics.median(ours), 1),
        "rival_pages_per_second": round(count / statistics.median(theirs), 1),
        "share_in_model": round(statistics.median(shares), 3),
        "seconds": {"ours": _rounded(ours), "rival": _rounded(theirs)},
    }


def answerable() -> dict[str, Any]:
    """A Korean document of 100 pages, with both cores: until it is found, without the model."""
    with product.running(product.Unembedded()) as owner, tempfile.TemporaryDirectory() as folder:
        path = pdfs.long(pdfs.korean(), ANSWERABLE_PAGES, Path(folder) / "long.pdf")
        product.ingested(owner, path)  # the analyser loads
        took = [product.ingested(owner, path) for _ in range(ROUNDS)]
        with product.unrecognised():
            unrecognised = [product.ingested(owner, path) for _ in range(ROUNDS)]
    return {
        "pages": ANSWERABLE_PAGES,
        "seconds": _rounded(took),
        "seconds_without_recognition": _rounded(unrecognised),
    }


def memory(count: str) -> dict[str, Any]:
    """Peak memory of the worker for a document of so many pages."""
    with product.running(product.Unembedded()) as owner, tempfile.TemporaryDirectory() as folder:
        sources = pdfs.korean()
        product.ingested(owner, pdfs.long(sources, 2, Path(folder) / "warm.pdf"))
        before = _peak()
        path = Path(folder) / "long.pdf"
        writer = [sys.executable, "-c", WRITE, str(count), str(path)]
        subprocess.run(writer, check=True)  # elsewhere: writing it takes memory, too
        took = product.ingested(owner, path)
        worker = _peak()
    return {
        "worker_before_mb": before,
        "worker_mb": worker,
        "grown_mb": worker - before,
        "seconds": round(took, 2),
    }


WRITE = (
    "import sys; from pathlib import Path; from benchmarks.ingest import pdfs; "
    "pdfs.long(pdfs.korean(), int(sys.argv[1]), Path(sys.argv[2]))"
)


def _peak() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _rounded(values: list[float]) -> list[float]:
    return [round(value, 2) for value in values]


CASES: dict[str, Callable[..., Any]] = {
    "korean": lambda: reading("korean"),
    "english": lambda: reading("english"),
    "embedding": embedding,
    "answerable": answerable,
    "memory": memory,
}


def _show(figures: dict[str, Any]) -> None:
    rows = [
        (name, found["pages"], found["pages_per_second"], found["rival_pages_per_second"])
        for name, found in figures.items()
        if name in {"korean", "english", "embedding"}
    ]
    columns = ("PDF to searchable", "pages", "pages/s", "straight pipeline")
    report.table("Ingest (without the embedding: one core; aim 300)", columns, rows)
    print(f"share of the time in the model: {figures['embedding']['share_in_model']} (aim .9)")
    for language in ("korean", "english"):
        share = figures[language]["share_in_recognition"]
        print(f"{language}: text recognition would have {share} of the time")
    answerable = figures["answerable"]
    print(f"100 Korean pages: {answerable['seconds']} s (aim 2)")
    print(f"- without text recognition: {answerable['seconds_without_recognition']} s")
    peaks = [
        (count, found["grown_mb"], found["seconds"]) for count, found in figures["memory"].items()
    ]
    report.table("Memory", ("pages", "worker grows by MB", "seconds"), peaks)


if __name__ == "__main__":
    main()

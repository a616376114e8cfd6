"""What people who search feel of 20 documents that somebody uploads at once.

Fifty members of a library search it, each every few seconds, first alone and then while another
account's documents are read, embedded and indexed. A search begins when it is due, whether those
before it have ended or not, and is timed from then. The product runs with its limits as they come.
Aim: p95 stays within twice that of the time alone. Takes less than two minutes.
"""

import asyncio
import itertools
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from benchmarks import corpus, report
from tests.e2e.people import Person
from tests.support import Product

PEOPLE = report.choose_size(50, quick=10)
EVERY_SECONDS = 6.0
"""Between two searches of one person."""
LIBRARY = report.choose_size({"korean": 12, "english": 4}, quick={"korean": 2, "english": 1})
UPLOADED = report.choose_size({"korean": 10, "english": 10}, quick={"korean": 2, "english": 1})
WARM_UP_SECONDS, ALONE_SECONDS, BESIDE_SECONDS = report.choose_size(
    (4.0, 20.0, 40.0), quick=(1.0, 2.0, 5.0)
)
"""How long people search; beside the ingest no longer than that takes."""
READ_SECONDS = 60.0
"""For the library to be read, before anybody searches."""
AIM_RATIO = 2.0


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Product(limited=True) as product:
        figures = asyncio.run(_measure(product, Path(folder)))
    report.write("search_beside_ingest", figures)
    _show(figures)


async def _measure(product: Product, folder: Path) -> dict[str, Any]:
    keeper, uploader = Person(product, "keeper"), Person(product, "uploader")
    places = folder / "library", folder / "uploaded"
    for place in places:
        place.mkdir()
    paths, facts = corpus.write(places[0], **LIBRARY)
    library = keeper.api("libraries", {"name": "조례"})["id"]
    for path in paths:
        document = keeper.upload(path)
        keeper.api(f"documents/{document['id']}", {"library_id": library}, "PATCH")
    people = [f"person-{number}" for number in range(PEOPLE)]
    keys = [product.add_user(name) for name in people]
    for name in people:
        keeper.api(f"libraries/{library}/members", {"user": name, "role": "reader"})
    async with asyncio.timeout(READ_SECONDS):
        await _until_read(keeper)
    questions = [fact.question for pair in zip(*facts.values(), strict=False) for fact in pair]
    found: dict[str, Any] = {}
    async with httpx2.AsyncClient(base_url=product.url, timeout=60) as web:
        await _search(web, keys, questions, WARM_UP_SECONDS)
        found["alone"] = await _search(web, keys, questions, ALONE_SECONDS)
        paths, _ = corpus.write(places[1], **UPLOADED)
        ingest = asyncio.create_task(_ingest(uploader, paths))
        found["beside"] = await _search(web, keys, questions, BESIDE_SECONDS, ingest)
        ingest.cancel()
        with suppress(asyncio.CancelledError):
            await ingest
        read = await asyncio.to_thread(uploader.api, "documents?status=COMPLETED&page_size=1")
    return {
        "people": PEOPLE,
        "every_seconds": EVERY_SECONDS,
        "documents_read": read["count"],
        **found,
    }


async def _ingest(uploader: Person, paths: list[Path]) -> None:
    for path in paths:
        await asyncio.to_thread(uploader.upload, path)
    await _until_read(uploader)


async def _until_read(person: Person) -> None:
    while (await asyncio.to_thread(person.api, "documents?status=PROCESSING&page_size=1"))["count"]:
        await asyncio.sleep(0.5)


async def _search(
    web: httpx2.AsyncClient,
    keys: list[str],
    questions: list[str],
    seconds: float,
    beside: "asyncio.Task[None] | None" = None,
) -> dict[str, Any]:
    """Everybody searches in turn for so long, or until what they search beside has ended."""
    took: list[float] = []
    refused: dict[str, int] = {}

    async def search(number: int, due: float) -> None:
        headers = {"Authorization": f"Token {keys[number % len(keys)]}"}
        body = {"query": questions[number % len(questions)]}
        status = (await web.post("/api/v1/search", json=body, headers=headers)).status_code
        if status == httpx2.codes.OK:
            took.append((time.perf_counter() - due) * 1000)
        else:
            refused[str(status)] = refused.get(str(status), 0) + 1

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as searches:
        for number in itertools.count():
            due = begun + number * EVERY_SECONDS / len(keys)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if due > begun + seconds or (beside and beside.done()):
                break
            searches.create_task(search(number, due))
    spent = round(time.perf_counter() - begun, 1)
    return {
        "searches": len(took),
        "refused": refused,
        "seconds": spent,
        "ms": report.percentiles(took),
    }


def _show(figures: dict[str, Any]) -> None:
    alone = figures["alone"]["ms"]
    rows = [
        [name, one["searches"], *one["ms"].values(), round(one["ms"]["p95"] / alone["p95"], 2)]
        for name in ("alone", "beside")
        for one in (figures[name],)
    ]
    report.table(
        f"{PEOPLE} people search beside an ingest, ms (aim: p95 x {AIM_RATIO:g})",
        ("", "searches", "p50", "p95", "max", "p95 x"),
        rows,
    )
    beside = figures["beside"]
    print(f"{figures['documents_read']} documents were read in {beside['seconds']} s meanwhile")


if __name__ == "__main__":
    main()

"""How long a question waits for its first words: 1,000 chunks, no model configured."""

import asyncio
import json
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect

from benchmarks import corpus, report
from tests.e2e.people import Person
from tests.support import Product, wait_until

LIBRARY = report.choose_size({"korean": 26, "english": 12}, quick={"korean": 2, "english": 1})
LEAST_CHUNKS = report.choose_size(1_000, quick=20)
QUESTIONS = report.choose_size({"ko": 80, "en": 40}, quick={"ko": 6, "en": 4})
WARM_UP = 6
PACE = 0.25
"""Seconds between questions at the least: a socket that asks faster is held to be a machine."""
AIM_MS = {"p50": 80, "p95": 200}


@dataclass(frozen=True, slots=True)
class Answered:
    """One question: milliseconds from its sending, and whether the answer holds the fact."""

    language: str
    first_delta: float
    completed: float
    right: bool


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Product() as product:
        person = Person(product, "bench")
        facts = _fill(person, Path(folder))
        chunks = sum(row["chunk_count"] for row in person.api("documents?page_size=100")["results"])
        assert chunks >= LEAST_CHUNKS, chunks
        answers = asyncio.run(_ask_all(product, person.key, _questions(facts)))
    _report(answers, chunks)


def _fill(person: Person, folder: Path) -> dict[str, list[corpus.Fact]]:
    paths, facts = corpus.write(folder, **LIBRARY)
    for path in paths:
        person.upload(path)
    wait_until(lambda: not person.api("documents?status=PROCESSING")["count"], 900, step=1.0)
    assert not person.api("documents?status=FAILED")["count"]
    return facts


def _questions(facts: dict[str, list[corpus.Fact]]) -> list[tuple[str, corpus.Fact]]:
    chance = random.Random(7)
    chosen = [
        (lang, fact) for lang, n in QUESTIONS.items() for fact in chance.sample(facts[lang], n)
    ]
    chance.shuffle(chosen)
    return chosen


async def _ask_all(
    product: Product, key: str, questions: list[tuple[str, corpus.Fact]]
) -> list[Answered]:
    url = f"ws://127.0.0.1:{product.port}/ws/chat/"
    async with connect(url, subprotocols=["nura.v1", f"token.{key}"]) as socket:  # type: ignore[list-item]
        for language, fact in questions[:WARM_UP]:
            await _ask(socket, language, fact)
        return [await _ask(socket, language, fact) for language, fact in questions]


async def _ask(socket: ClientConnection, language: str, fact: corpus.Fact) -> Answered:
    begun = time.perf_counter()
    first, text = 0.0, ""
    await socket.send(json.dumps({"v": 1, "type": "send", "content": fact.question}))
    async for raw in socket:
        frame = json.loads(raw)
        if frame["type"] == "delta":
            first = first or (time.perf_counter() - begun) * 1000
            text += frame["data"]["text"]
        assert frame["type"] not in {"error", "run.error"}, frame
        if frame["type"] == "run.completed":
            break
    completed = (time.perf_counter() - begun) * 1000
    await asyncio.sleep(max(0.0, PACE - completed / 1000))
    return Answered(language, first, completed, fact.answer in text)


def _report(answers: list[Answered], chunks: int) -> None:
    figures: dict[str, object] = {"chunks": chunks, "questions": len(answers), "aim_ms": AIM_MS}
    rows = []
    for name in ("all", "ko", "en"):
        some = [one for one in answers if name in {"all", one.language}]
        first = report.percentiles([one.first_delta for one in some])
        whole = report.percentiles([one.completed for one in some])
        right = sum(one.right for one in some) / len(some)
        figures[name] = {
            "first_delta_ms": first, "completed_ms": whole, "right": round(right, 3)
        }  # fmt: skip
        rows.append([name, len(some), *first.values(), *whole.values(), f"{right:.1%}"])
    report.write("first_delta", figures)
    head = ["questions", "n", "first p50", "p95", "max", "whole p50", "p95", "max", "right"]
    title = f"Send to first delta and to completed, ms, extractive, {chunks} chunks"
    report.table(f"{title} (aim 80 / 200)", head, rows)


if __name__ == "__main__":
    main()

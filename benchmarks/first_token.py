"""How much later the first words come than from the language model itself.

A model that answers at once is asked directly and through the product, by turns, so that what else
the machine does meets both alike.
"""

import http.client
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from websockets.sync.client import ClientConnection, connect

from benchmarks import corpus, report
from benchmarks.streams import run as streams
from tests.e2e.people import Person
from tests.support import Product, wait_until

LIBRARY = report.choose_size({"korean": 26, "english": 12}, quick={"korean": 2, "english": 1})
QUESTIONS = report.choose_size(120, quick=15)
WARM_UP = 6
PACE = 0.1
"""Seconds between questions: nobody asks again at once."""
GENERAL = "바다에 대해 짧게 이야기해 주세요."
AIM_MS = {"general": {"p50": 15, "p95": 30}, "documents": {"p50": 30, "p95": 55}}


def main() -> None:
    with _model() as port:
        endpoint = {
            "NURA_LLM_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "NURA_LLM_MODEL": "bench",
            "NURA_LLM_MAX_TOKENS": "1000",
        }
        with Product(**endpoint) as product, tempfile.TemporaryDirectory() as folder:
            wait_until(lambda: "engine_warm" in product.log, 120, step=0.5)
            person = Person(product, "bench")
            cases = {"general": _asked(product, person, port, [GENERAL] * QUESTIONS)}
            questions, chunks = _documents(person, Path(folder))
            cases["documents"] = _asked(product, person, port, questions)
    _report(cases, chunks)


@contextmanager
def _model() -> Iterator[int]:
    """Few tokens a reply, the first at once."""
    with streams.model(100, tokens=3) as (_, port):
        yield port


def _documents(person: Person, folder: Path) -> tuple[list[str], int]:
    paths, facts = corpus.write(folder, **LIBRARY)
    for path in paths:
        person.upload(path)
    wait_until(lambda: not person.api("documents?status=PROCESSING")["count"], 900, step=1.0)
    rows = person.api("documents?page_size=100")["results"]
    asked = [fact.question for some in facts.values() for fact in some]
    return random.Random(7).sample(asked, QUESTIONS), sum(row["chunk_count"] for row in rows)


def _asked(
    product: Product, person: Person, model: int, questions: Sequence[str]
) -> list[tuple[float, float]]:
    """Milliseconds to the first words: of the model itself and through the product."""
    url = f"ws://127.0.0.1:{product.port}/ws/chat/"
    with connect(url, subprotocols=["nura.v1", f"token.{person.key}"]) as socket:  # type: ignore[list-item]
        found = [(_bare(model), _through(socket, question)) for question in questions]
    return found[WARM_UP:]


def _bare(port: int) -> float:
    body = json.dumps({"model": "bench", "stream": True, "messages": []})
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/v1/chat/completions", body)
    response = connection.getresponse()
    response.readline()
    took = time.perf_counter() - begun
    response.read()
    connection.close()
    return took * 1000


def _through(socket: ClientConnection, question: str) -> float:
    time.sleep(PACE)
    begun = time.perf_counter()
    socket.send(json.dumps({"v": 1, "type": "send", "content": question}))
    first = 0.0
    for raw in socket:
        frame = json.loads(raw)
        assert frame["type"] not in {"error", "run.error"}, frame
        if frame["type"] == "delta":
            first = first or (time.perf_counter() - begun) * 1000
        if frame["type"] == "run.completed":
            break
    return first


def _report(cases: dict[str, list[tuple[float, float]]], chunks: int) -> None:
    figures: dict[str, object] = {"aim_ms": AIM_MS, "chunks": chunks}
    rows = []
    for name, times in cases.items():
        bare = report.percentiles([one for one, _ in times])
        whole = report.percentiles([two for _, two in times])
        added = report.percentiles([two - one for one, two in times])
        figures[name] = {"bare_ms": bare, "through_ms": whole, "added_ms": added}
        rows.append([name, len(times), *bare.values(), *whole.values(), *added.values()])
    report.write("first_token", figures)
    head = ["questions", "n", *(f"{a} {b}" for a in ("bare", "Nura", "added") for b in SHARES)]
    report.table(f"First words, ms ({chunks} chunks; aim added 15/30, 30/55)", head, rows)


SHARES = ("p50", "p95", "max")

if __name__ == "__main__":
    main()

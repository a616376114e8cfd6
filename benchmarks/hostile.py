"""What one account feels of another that asks for all it can, each way of asking by itself.

The victim searches and asks one after the other, well below her own limits, first alone and then
beside each hostility; the product runs with its limits as they come. The hostile clients, which
never wait for `Retry-After`, are a process of their own on the same machine, so their work counts
against the product, too. Aim: her p95 stays within twice that of the time alone. It takes four
minutes; seven, where nothing of hers is ever answered.
"""

import asyncio
import itertools
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from benchmarks import corpus, report
from tests.e2e.people import Person
from tests.servers.llm import LLMServer, Stream
from tests.support import Product, wait_until

ROUNDS = report.choose_size(15, quick=3)
PACE_SECONDS = 1.2
"""Between the beginnings of two rounds, a search and a question each."""
WARM_UP = report.choose_size(4, quick=1)
PATIENCE_SECONDS = 5.0
UNANSWERED_MS = PATIENCE_SECONDS * 1000
"""What a search or question counts that was refused, or not answered within that time."""
MAX_VISIT_SECONDS = 30.0
AIM_RATIO = 2.0
BEGIN_SECONDS = 1.0
"""For a hostility to be under way."""
REST_SECONDS = 5.0
"""For what a hostility has left to end, before the next one begins, and for itself to end."""


def main() -> None:
    """Measure, or, called with a way and an address, be hostile until ended."""
    if len(sys.argv) > 3:
        way, url, key = sys.argv[-3:]
        asyncio.run(_attack(way, url, key))
        return
    with tempfile.TemporaryDirectory() as folder, LLMServer() as model:
        model.default = Stream(["답은 ", "이렇습니다. ", "끝."], first_delay=0.05, delay=0.02)
        told = {"NURA_LLM_BASE_URL": model.url, "NURA_LLM_MODEL": "stand-in"}
        with Product(limited=True, **told) as product:
            figures = _measure(product, Path(folder))
    report.write("hostile", figures)
    _show(figures)


def _measure(product: Product, folder: Path) -> dict[str, Any]:
    victim = Person(product, "victim")
    paths, facts = corpus.write(folder, korean=12, english=4)
    for path in paths:
        victim.upload(path)
    wait_until(lambda: not victim.api("documents?status=PROCESSING")["count"], 90, step=0.5)
    questions = [fact.question for fact in facts["ko"]]
    asyncio.run(_visit(product, victim.key, questions, WARM_UP))
    figures: dict[str, Any] = {"alone": _feel(product, victim.key, questions)}
    for way in itertools.islice(WAYS, TRIED):
        hostile = product.add_user(f"hostile-{way}")
        command = [sys.executable, "-m", "benchmarks.hostile", way, product.url, hostile]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attack:
            time.sleep(BEGIN_SECONDS)
            figures[way] = _feel(product, victim.key, questions)
            said = _end(attack)
        figures[way]["hostile"] = json.loads(said.splitlines()[-1]) if said.strip() else {}
        print(way, figures[way], file=sys.stderr, flush=True)
        time.sleep(REST_SECONDS)
    figures["alone again"] = _feel(product, victim.key, questions)
    return figures


def _end(attack: "subprocess.Popen[str]") -> str:
    """What it says at its end."""
    attack.terminate()
    try:
        return attack.communicate(timeout=REST_SECONDS)[0]
    except subprocess.TimeoutExpired:
        attack.kill()
        return attack.communicate()[0]


def _feel(product: Product, key: str, questions: list[str]) -> dict[str, Any]:
    searches, words = asyncio.run(_visit(product, key, questions, ROUNDS))
    unanswered = [*searches, *words].count(UNANSWERED_MS)
    felt = {"search_ms": report.percentiles(searches), "word_ms": report.percentiles(words)}
    return {**felt, "rounds": len(searches), "unanswered": unanswered}


async def _visit(
    product: Product, key: str, questions: list[str], rounds: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of searches, and from questions to their first words.

    Takes no longer than `MAX_VISIT_SECONDS`: there are fewer rounds where each is slow.
    """
    searches, words = [], []
    headers = {"Authorization": f"Token {key}"}
    last_begins = time.perf_counter() + MAX_VISIT_SECONDS - 2 * PATIENCE_SECONDS
    async with httpx2.AsyncClient(
        base_url=product.url, headers=headers, timeout=PATIENCE_SECONDS
    ) as web:
        for number in range(rounds):
            ends = time.perf_counter() + PACE_SECONDS
            question = questions[number % len(questions)]
            searches.append(await _wait(_search_once(web, question)))
            words.append(await _wait(_ask(product, key, question)))
            await asyncio.sleep(max(0.0, ends - time.perf_counter()))
            if time.perf_counter() > last_begins:
                break
    return searches, words


async def _wait(answer: Awaitable[float]) -> float:
    """The milliseconds of an answer; one that does not come within our patience took all of it."""
    with suppress(TimeoutError, httpx2.HTTPError, OSError, WebSocketException, Unanswered):
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await answer
    return UNANSWERED_MS


class Unanswered(Exception):
    """Something else came than what was asked for."""


async def _search_once(web: httpx2.AsyncClient, question: str) -> float:
    begun = time.perf_counter()
    found = await web.post("/api/v1/search", json={"query": question})
    if found.status_code != httpx2.codes.OK:
        raise Unanswered(found.text)
    return (time.perf_counter() - begun) * 1000


async def _ask(product: Product, key: str, question: str) -> float:
    address = product.url.replace("http", "ws") + "/ws/chat/"
    protocols: Any = ["nura.v1", f"token.{key}"]
    async with connect(address, subprotocols=protocols) as socket:
        begun, first = time.perf_counter(), 0.0
        await socket.send(json.dumps({"type": "send", "content": question}))
        async for text in socket:
            frame = json.loads(text)
            if frame["type"] in {"error", "run.error"}:
                raise Unanswered(frame)
            if frame["type"] == "delta" and not first:
                first = (time.perf_counter() - begun) * 1000
            if frame["type"] == "run.completed":
                return first
    raise Unanswered("the socket was closed")


# The hostile side

Count = Callable[[object], None]


async def _attack(way: str, url: str, key: str) -> None:
    """Do it until the process is ended; then print how often it was answered what."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    told: dict[str, int] = {}

    def count(outcome: object) -> None:
        told[str(outcome)] = told.get(str(outcome), 0) + 1

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    many, act = WAYS[way]
    limits = httpx2.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {key}" if way == "embeddings" else f"Token {key}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60, limits=limits) as web:
        acts = [asyncio.create_task(_again(act, web, count)) for _ in range(many)]
        await ended.wait()
        for one in acts:
            one.cancel()
        await asyncio.gather(*acts, return_exceptions=True)
    print(json.dumps(told))


async def _again(
    act: Callable[[httpx2.AsyncClient, Count], Awaitable[None]],
    web: httpx2.AsyncClient,
    count: Count,
) -> None:
    while True:
        try:
            await act(web, count)
        except (httpx2.HTTPError, OSError, EOFError) as error:
            count(type(error).__name__)
            await asyncio.sleep(0.05)


async def _embed(web: httpx2.AsyncClient, count: Count) -> None:
    texts = [f"text number {number} of many. " * 20 for number in range(64)]
    count((await web.post("/v1/embeddings", json={"model": "nura", "input": texts})).status_code)


async def _question(web: httpx2.AsyncClient, count: Count) -> None:
    body = {"content": "생활 조례는 무엇을 정하고 있나요?"}
    count((await web.post("/api/v1/messages?wait=false", json=body)).status_code)


async def _search(web: httpx2.AsyncClient, count: Count) -> None:
    body = {"query": "생활 조례는 무엇을 정하고 있나요?"}
    count((await web.post("/api/v1/search", json=body)).status_code)


async def _upload(web: httpx2.AsyncClient, count: Count) -> None:
    text = f"{time.perf_counter_ns()} " + "생활 조례의 한 문단입니다. " * 400
    files = {"file": ("a.txt", text.encode())}
    count((await web.post("/api/v1/documents", files=files)).status_code)


async def _socket(web: httpx2.AsyncClient, count: Count) -> None:
    key = web.headers["authorization"].removeprefix("Token ")
    address = str(web.base_url).replace("http", "ws").rstrip("/") + "/ws/chat/"
    protocols: Any = ["nura.v1", f"token.{key}"]
    with suppress(Exception):  # refused: tried again
        async with connect(
            address, subprotocols=protocols, open_timeout=60, close_timeout=1
        ) as socket:
            count("open")
            async for _frame in socket:
                pass
    count("closed or refused")


async def _half(web: httpx2.AsyncClient, count: Count, said: bytes) -> None:
    reader, writer = await asyncio.open_connection(web.base_url.host, web.base_url.port)
    try:
        writer.write(said)
        await reader.read()
        count("ended by the server")
    finally:
        writer.close()


async def _head(web: httpx2.AsyncClient, count: Count) -> None:
    await _half(web, count, b"GET /api/v1/chats HTTP/1.1\r\nHost: localhost\r\nX-A: b")


async def _body(web: httpx2.AsyncClient, count: Count) -> None:
    key = web.headers["authorization"]
    head = (
        f"POST /api/v1/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
    )
    await _half(web, count, head.encode())


WAYS = {
    "embeddings": (12, _embed),
    "questions": (200, _question),
    "searches": (200, _search),
    "uploads": (200, _upload),
    "sockets": (1200, _socket),
    "half heads": (600, _head),
    "half bodies": (600, _body),
}


TRIED = report.choose_size(len(WAYS), quick=2)


def _show(figures: dict[str, Any]) -> None:
    alone = figures["alone"]
    rows = []
    for name, one in figures.items():
        ratios = [
            round(one[kind]["p95"] / max(alone[kind]["p95"], 0.1), 2)
            for kind in ("search_ms", "word_ms")
        ]
        rows.append(
            [
                name,
                *(
                    one[kind][place]
                    for kind in ("search_ms", "word_ms")
                    for place in ("p50", "p95")
                ),
                *ratios,
            ]
        )
    head = ["beside", "search p50", "p95", "first word p50", "p95", "search x", "word x"]
    report.table(
        f"A second account beside a hostile one, ms (aim: p95 x {AIM_RATIO:g})", head, rows
    )


if __name__ == "__main__":
    main()

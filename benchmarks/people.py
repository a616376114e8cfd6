"""A thousand people who are signed in and say nothing, and 300 of them who ask once a minute.

These play whole sessions: they upload, ask, reload the chat, leaf through their chats and stop an
answer now and then. The language model is a stand-in each of whose tokens is the time at which it
was sent, so that what is measured of the first word is what comes before and after the model.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

import psutil
from websockets.asyncio.client import ClientConnection, connect

from benchmarks import report
from benchmarks.footprint import measure_settled
from benchmarks.streams.model import sent_at
from benchmarks.streams.run import create_readers, model
from tests.product.client import Client
from tests.support import Product, wait_until

SOCKETS, ASKING = report.choose_size((1_000, 300), quick=(50, 20))
MINUTE, MINUTES = report.choose_size((60.0, 2), quick=(5.0, 1))
TOKENS_PER_SECOND, TOKENS = 30, 60
UPLOADS_EVERY, STOPS_EVERY = 10, 10
"""Of those who ask, one in so many begins with a file; one in so many answers is stopped."""
OPENED_AT_ONCE = 50
AIM = {"idle_mb": 150, "first_word_p95_ms": 400}
TERMINAL = frozenset({"run.completed", "run.stopped", "run.error"})


@dataclass
class Asked:
    """Milliseconds of one question: until the model was asked and after it had spoken; the rest."""

    before: float
    after: float
    end: str
    pages: list[float] = field(default_factory=list)


def main() -> None:
    with (
        model(TOKENS_PER_SECOND, TOKENS) as (_, port),
        Product(
            NURA_LLM_BASE_URL=f"http://127.0.0.1:{port}/v1",
            NURA_LLM_MODEL="bench",
            NURA_LLM_MAX_TOKENS="1000",
        ) as product,
    ):
        wait_until(lambda: "engine_warm" in product.log, 120, step=0.5)
        keys = create_readers(product, SOCKETS)
        memory, asked, cpu = asyncio.run(_play(product, keys))
    _report(memory, asked, cpu)


async def _play(
    product: Product, keys: list[str]
) -> tuple[dict[str, dict[str, float]], list[Asked], float]:
    """Memory by process without sockets and with them, what came of questions, and cores used."""
    people = [Person(product, key, number) for number, key in enumerate(keys)]
    await people[0].ask_alone()
    memory = {"no sockets": await asyncio.to_thread(measure_settled, product)}
    for first in range(0, SOCKETS, OPENED_AT_ONCE):
        await asyncio.gather(*(one.open() for one in people[first : first + OPENED_AT_ONCE]))
    memory[f"{SOCKETS} sockets"] = await asyncio.to_thread(measure_settled, product)
    began, cpu = time.monotonic(), _cpu_seconds(product)
    asked = await asyncio.gather(*(one.live(random.Random(one.number)) for one in people[:ASKING]))
    cores = (_cpu_seconds(product) - cpu) / (time.monotonic() - began)
    memory["after questions"] = await asyncio.to_thread(measure_settled, product)
    await asyncio.gather(*(one.socket.close() for one in people))
    return memory, [one for some in asked for one in some], cores


class Person:
    """One of them, with a key and a socket."""

    socket: ClientConnection

    def __init__(self, product: Product, key: str, number: int) -> None:
        self.number = number
        self._client = Client(product.url, key)
        self._url = f"ws://127.0.0.1:{product.port}/ws/chat/"

    async def open(self) -> None:
        """Sign in and stay."""
        offered = ["nura.v1", f"token.{self._client.token}"]
        self.socket = await connect(self._url, subprotocols=offered, ping_interval=None)  # type: ignore[arg-type]

    async def ask_alone(self) -> None:
        """One question over a socket that is closed again: everything is loaded then."""
        await self.open()
        await self._ask(stops=False)
        await self.socket.close()

    async def live(self, chance: random.Random) -> list[Asked]:
        """Ask once a minute, at a moment of one's own."""
        begun = time.monotonic()
        if self.number % UPLOADS_EVERY == 0:
            text = f"{self.number}번 부서의 회의는 {self.number}시에 시작한다."
            await asyncio.to_thread(self._client.upload, f"{self.number}.md", text.encode())
        asked = []
        for minute in range(MINUTES):
            at = begun + (minute + chance.random()) * MINUTE
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            asked.append(await self._ask(stops=chance.randrange(STOPS_EVERY) == 0))
        return asked

    async def _ask(self, *, stops: bool) -> Asked:
        begun = time.monotonic()
        question = {"v": 1, "type": "send", "content": f"{self.number}번 회의는 언제 시작해?"}
        await self.socket.send(json.dumps(question))
        found: Asked | None = None
        async for raw in self.socket:
            frame, now = json.loads(raw), time.monotonic()
            if frame["type"] == "delta" and found is None:
                spoke = sent_at(frame["data"]["text"][:8], now)
                found = Asked((spoke - begun) * 1000, (now - spoke) * 1000, "")
                if stops:
                    stop = {"v": 1, "type": "stop", "run_id": frame["run_id"]}
                    await self.socket.send(json.dumps(stop))
            if frame["type"] in TERMINAL and found is not None:
                found.end = frame["type"]
                for path in (f"/chats/{frame['chat_id']}/messages", "/chats"):
                    found.pages.append(await self._look(path))
                return found
            assert frame["type"] not in {"error", "run.error"}, frame
        raise AssertionError("the socket was closed")

    async def _look(self, path: str) -> float:
        begun = time.monotonic()
        status, _ = await asyncio.to_thread(self._client.call, "GET", path)
        assert status == 200, path
        return (time.monotonic() - begun) * 1000


def _cpu_seconds(product: Product) -> float:
    total = 0.0
    for process in product.processes():
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.Error:
            continue
    return total


def _report(memory: dict[str, dict[str, float]], asked: list[Asked], cores: float) -> None:
    stages = {stage: round(sum(sizes.values())) for stage, sizes in memory.items()}
    idle = stages[f"{SOCKETS} sockets"] - stages["no sockets"]
    measured = {
        "first word beyond the model": report.percentiles(
            [one.before + one.after for one in asked]
        ),
        "until the model speaks": report.percentiles([one.before for one in asked]),
        "from the model to the page": report.percentiles([one.after for one in asked]),
        "a chat or the list of chats": report.percentiles(
            [ms for one in asked for ms in one.pages]
        ),
    }
    ends = {end: sum(one.end == end for one in asked) for end in sorted({one.end for one in asked})}
    figures = {
        "aim": AIM,
        "sockets": SOCKETS,
        "idle_mb": idle,
        "memory_mb": {stage: {"all": stages[stage], **sizes} for stage, sizes in memory.items()},
        "questions": len(asked),
        "ends": ends,
        "cores": round(cores, 2),
        "ms": measured,
    }
    report.write("people", figures)
    print(f"\n{SOCKETS} sockets that say nothing take {idle} MB (aim {AIM['idle_mb']}): {stages}")
    print(f"{len(asked)} questions ({ends}) took {cores:.2f} cores")
    rows = [[name, *values.values()] for name, values in measured.items()]
    report.table("ms (aim for the first word: p95 400)", ["", "p50", "p95", "max"], rows)


if __name__ == "__main__":
    main()

"""People who ask at given moments, in one process: `python -m benchmarks.streams.asking`.

Reads a plan as JSON on standard input and leaves what each asker heard in the plan's file. All
sockets stand open before the first question; a request to `/v1` opens its connection when it asks,
as a client does that was idle.
"""

import asyncio
import contextlib
import json
import pickle
import re
import sys
import time
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypedDict

import uvloop

from benchmarks.streams.heard import LAST, Heard
from benchmarks.streams.readers import Reader

QUESTION = "안녕하세요"
OPENED_AT_ONCE = 20
PATIENCE_SECONDS = 60.0
"""After the last question; the aims are a few seconds."""
DONE = b"data: [DONE]"
ENDING = re.compile(rb'"type": ?"(%b)"' % b"|".join(re.escape(name.encode()) for name in LAST))
DEFLATE_TAIL = b"\0\0\xff\xff"
"""What senders leave out of each deflated message (RFC 7692, 7.2.1)."""


class Plan(TypedDict):
    """Who asks how and when."""

    way: str
    """`socket`, `v1`, or `v1 stored`."""
    keys: list[str]
    """Of each asker; somebody who has several pages open stands here as often."""
    seconds: float
    """Over which the questions are spread; 0: all in one instant, -1: one after the other."""


class Play(Plan):
    """A plan with where the product listens and where to leave what was heard."""

    port: int
    out: str


class Asker(Protocol):
    """Asks one question when told to."""

    heard: Heard

    def ask(self) -> None:
        """Send the question now."""
        ...

    async def end(self) -> None:
        """Return when the answer is whole or the connection lost."""
        ...


class Page(Reader):
    """A page whose socket is open long before its question."""

    def __init__(self, port: int, key: str) -> None:
        super().__init__(port, key)
        self.opened = asyncio.Event()
        self._ended = asyncio.Event()
        self._inflate = zlib.decompressobj(wbits=-15).decompress

    async def open(self) -> None:
        """Return once the server has taken the socket."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", self.port)
        await self.opened.wait()

    def on_open(self) -> None:
        """Wait for the word to ask."""
        self.opened.set()

    def ask(self) -> None:
        self.send_question(QUESTION)

    def data_received(self, data: bytes) -> None:
        """Keep frames, and see the last one of the answer."""
        before = len(self.heard.frames)
        super().data_received(data)
        for _, deflated, payload in self.heard.frames[before:]:
            text = self._inflate(payload + DEFLATE_TAIL) if deflated else payload
            if ENDING.search(text):
                self._ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.opened.set()
        self._ended.set()

    async def end(self) -> None:
        await self._ended.wait()


class Caller(asyncio.Protocol):
    """One request to `/v1/chat/completions`, streamed."""

    def __init__(self, port: int, key: str, chat: str) -> None:
        self.heard = Heard(lost=True)
        self._port, self._key, self._chat = port, key, chat
        self._rest = b""
        self._ended = asyncio.Event()
        self._connecting: asyncio.Task[object] | None = None

    def ask(self) -> None:
        self.heard.asked_at = time.monotonic()
        connecting = asyncio.get_running_loop().create_connection(
            lambda: self, "127.0.0.1", self._port
        )
        self._connecting = asyncio.ensure_future(connecting)
        self._connecting.add_done_callback(self._give_up)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request whole."""
        messages = [{"role": "user", "content": QUESTION}]
        body = json.dumps({"model": "nura", "stream": True, "messages": messages}).encode()
        head = [
            "POST /v1/chat/completions HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Authorization: Bearer {self._key}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *([f"X-Chat-Id: {self._chat}"] if self._chat else []),
        ]
        whole = "\r\n".join((*head, "", "")).encode() + body
        transport.write(whole)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Keep the events; chunks of the transfer are whole events here."""
        now = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.heard.frames += [(now, False, line) for line in lines if line.startswith(b"data:")]
        self.heard.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Judge whether the stream was whole."""
        self.heard.lost = not self.heard.frames or not self.heard.frames[-1][2].startswith(DONE)
        self._ended.set()

    async def end(self) -> None:
        await self._ended.wait()

    def _give_up(self, connecting: asyncio.Future[object]) -> None:
        """Refused: no connection will ever be lost."""
        if not connecting.cancelled() and connecting.exception():
            self._ended.set()


async def ask_all(plan: Play) -> list[Heard]:
    """Open what is to be open, ask at the given moments, wait for all answers."""
    keys = plan["keys"]
    askers: list[Asker] = []
    if plan["way"] == "socket":
        pages = [Page(plan["port"], key) for key in keys]
        async with asyncio.timeout(PATIENCE_SECONDS):
            for at in range(0, len(pages), OPENED_AT_ONCE):
                await asyncio.gather(*(page.open() for page in pages[at : at + OPENED_AT_ONCE]))
        await asyncio.sleep(1.0)  # pages are open for a while before somebody asks
        askers += pages
    else:
        play = uuid.uuid4().hex
        chats = [f"{play}-{n}" if plan["way"] == "v1 stored" else "" for n in range(len(keys))]
        askers += [Caller(plan["port"], *one) for one in zip(keys, chats, strict=True)]
    print("begun", flush=True)
    with contextlib.suppress(TimeoutError):  # who has heard no end by then counts as faulty
        async with asyncio.timeout(PATIENCE_SECONDS + max(0.0, plan["seconds"])):
            await _ask_in_time(askers, plan["seconds"])
    return [asker.heard for asker in askers]


async def _ask_in_time(askers: Sequence[Asker], seconds: float) -> None:
    if seconds < 0:
        for asker in askers:
            asker.ask()
            await asker.end()
        return
    begun = time.monotonic()
    for number, asker in enumerate(askers):
        due = begun + seconds * number / len(askers)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        asker.ask()
    await asyncio.gather(*(asker.end() for asker in askers))


if __name__ == "__main__":
    given: Play = json.loads(sys.stdin.readline())
    Path(given["out"]).write_bytes(pickle.dumps(uvloop.run(ask_all(given))))
    print("ended", flush=True)
    sys.stdin.read()

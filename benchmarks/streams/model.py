"""A language model that costs next to nothing: `python -m benchmarks.streams.model RATE`.

RATE is in tokens a second and stream. `RATE TOKENS` ends each reply after so many tokens; `RATE
TOKENS PORT` listens there.

Every token is the time it was sent at, so that whoever reads it knows how long it was under way.
All streams hang on one wheel that turns once a token; each has its place on it. Prints its port.
`GET /state` tells what it does, `POST /finish` lets all streams end one after the other.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence

import uvloop

SLOTS = 32
"""Places on the wheel: streams that stand in the same one send together."""
TOKEN_CHARACTERS = 8
CYCLE = 16**7
"""Microseconds after which tokens come again: a token may not be longer under way."""
ENDS_A_TURN = 1
"""Streams that end with every turn of the wheel once they shall."""
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)


def chunk(delta: dict[str, str], reason: str | None = None) -> bytes:
    """A chunk of the stream as the wire has it."""
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    kind = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    event = f"data: {json.dumps({**kind, 'choices': [choice]})}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def stamp(moment: float) -> str:
    """A token: microseconds of the monotonic clock, in as many letters always.

    The blank stands inside, as one at the end may be held back until the next token.
    """
    digits = f"{int(moment * 1e6) % CYCLE:07x}"
    return f"{digits[:3]} {digits[3:]}"


def sent_at(token: str, about: float) -> float:
    """When a token was sent, by the clock's time at which it was read."""
    sent = int(token.replace(" ", ""), 16) / 1e6
    return about - (about - sent) % (CYCLE / 1e6)


BEFORE, AFTER = chunk({"content": "#" * TOKEN_CHARACTERS}).split(b"#" * TOKEN_CHARACTERS)
END = chunk({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Wheel:
    """Sends a token to each stream at its place, once a turn."""

    def __init__(self, tokens_per_second: float, tokens: int) -> None:
        self.tokens = tokens
        """Of each reply; 0: it goes on until told to end."""
        self.slots: list[set[Stream]] = [set() for _ in range(SLOTS)]
        self.sent = 0
        self.late = 0.0
        self.ending = False
        self._places = self._next_places()
        self._step = 1 / tokens_per_second / SLOTS

    def __len__(self) -> int:
        return sum(map(len, self.slots))

    def place(self) -> int:
        """Where the next stream stands."""
        return next(self._places)

    def turn(self, number: int, due: float) -> None:
        """Serve one place and come back for the next."""
        loop = asyncio.get_running_loop()
        self.late = max(self.late, loop.time() - due)
        streams = self.slots[number % SLOTS]
        if self.ending and number % SLOTS == 0:
            self._end_some()
        if streams:
            self.send_to(list(streams))
        loop.call_at(due + self._step, self.turn, number + 1, due + self._step)

    def send_to(self, streams: Sequence["Stream"]) -> None:
        """A token to each of these."""
        self.sent += len(streams)
        data = b"%b%b%b" % (BEFORE, stamp(time.monotonic()).encode(), AFTER)
        for stream in streams:
            stream.transport.write(data)
            stream.sent += 1
            if stream.sent == self.tokens:
                stream.end()

    def _end_some(self) -> None:
        standing = (stream for streams in self.slots for stream in streams)
        for stream, _ in zip(list(standing), range(ENDS_A_TURN), strict=False):
            stream.end()

    @staticmethod
    def _next_places() -> Iterator[int]:
        while True:
            yield from range(SLOTS)


class Stream(asyncio.Protocol):
    """One connection: a request, and the reply to it."""

    def __init__(self, wheel: Wheel) -> None:
        self.sent = 0
        self._wheel = wheel
        self._received = b""
        self._slot: set[Stream] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to write."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Answer once the request is whole."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._received = b""
        if b"/chat/completions" in head.partition(b"\r\n")[0]:
            self.transport.write(HEAD)
            self._slot = self._wheel.slots[self._wheel.place()]
            self._slot.add(self)
            self._wheel.send_to([self])
            return
        if b"/finish" in head.partition(b"\r\n")[0]:
            self._wheel.ending = True
        wheel = self._wheel
        told = {"data": [{"id": "bench"}], "streams": len(wheel), "sent": wheel.sent}
        text = json.dumps(told | {"late_ms": round(wheel.late * 1000, 1)}).encode()
        wheel.late = 0.0
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))

    def end(self) -> None:
        """Say that the reply is whole."""
        self._leave()
        self.transport.write(END)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Send no more."""
        self._leave()

    def _leave(self) -> None:
        if self._slot is not None:
            self._slot.discard(self)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def _serve(tokens_per_second: float, tokens: int = 0, port: int = 0) -> None:
    wheel = Wheel(tokens_per_second, tokens)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stream(wheel), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    wheel.turn(0, loop.time())
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(float(sys.argv[1]), *map(int, sys.argv[2:])))

"""Many readers in one process, which keep what they hear and look at it later.

`python -m benchmarks.streams.readers PORT PER_SECOND OUT` reads a key a line, opens a socket for
each at that pace and asks a question there. When its input ends it leaves all frames in OUT.
"""

import asyncio
import json
import pickle
import struct
import sys
import time
from pathlib import Path

import uvloop

from benchmarks.streams.heard import Heard

QUESTION = "바다에 대한 긴 이야기를 하나 들려주세요."
PING, PONG, TEXT = 0x9, 0xA, 0x1
DEFLATED = 0x40
QUIET_SECONDS = 10.0
"""All has been said when no socket says anything for so long."""
MASK = b"\0\0\0\0"
"""It hides nothing, but costs nothing either."""


class Reader(asyncio.Protocol):
    """One socket that asks one question."""

    def __init__(self, port: int, key: str) -> None:
        self.heard = Heard()
        self.port, self._key = port, key
        self._rest = b""
        self._open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Shake hands as a browser does."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        head = (
            "GET /ws/chat/ HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: nura.v1, token.{self._key}",
            "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
        )
        self.transport.write("\r\n".join((*head, "", "")).encode())

    def data_received(self, data: bytes) -> None:
        """Cut frames out and keep them."""
        now = time.monotonic()
        data = self._rest + data if self._rest else data
        if not self._open:
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._rest = head
                return
            self._open, self._rest = True, b""
            self.on_open()
        self.heard.received += len(data) - len(self._rest)
        self._rest = self._cut(data, now)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever looks later."""
        self.heard.lost = True

    def on_open(self) -> None:
        """Ask at once."""
        self.send_question(QUESTION)

    def send_question(self, question: str) -> None:
        """Ask in a new chat."""
        self.heard.asked_at = time.monotonic()
        frame = {"v": 1, "type": "send", "content": question}
        self._send(TEXT, json.dumps(frame, ensure_ascii=False).encode())

    def _send(self, kind: int, payload: bytes) -> None:
        assert len(payload) < 126
        frame = bytes((0x80 | kind, 0x80 | len(payload))) + MASK + payload
        self.heard.sent += len(frame)
        self.transport.write(frame)

    def _cut(self, data: bytes, now: float) -> bytes:
        at, end = 0, len(data)
        while end - at >= 2:
            first, length, begin = data[at], data[at + 1], at + 2
            if length == 126:
                length, begin = int.from_bytes(data[begin : begin + 2]), begin + 2
            elif length == 127:
                length, begin = struct.unpack("!Q", data[begin : begin + 8])[0], begin + 8
            if begin + length > end:
                break
            at = begin + length
            payload = data[begin:at]
            if first & 0xF == PING:
                self._send(PONG, payload)
            else:
                self.heard.frames.append((now, bool(first & DEFLATED), payload))
        return data[at:]


async def _read(port: int, per_second: float) -> list[Heard]:
    loop = asyncio.get_running_loop()
    keys = json.loads(sys.stdin.readline())
    readers = []
    for key in keys:
        due = loop.time() + 1 / per_second
        reader = Reader(port, key)
        await loop.create_connection(lambda one=reader: one, "127.0.0.1", port)  # type: ignore[misc]
        readers.append(reader)
        await asyncio.sleep(due - loop.time())
    await asyncio.to_thread(sys.stdin.read)
    heard = -1
    while heard != (heard := sum(len(reader.heard.frames) for reader in readers)):
        await asyncio.sleep(QUIET_SECONDS)
    return [reader.heard for reader in readers]


if __name__ == "__main__":
    all_heard = uvloop.run(_read(int(sys.argv[1]), float(sys.argv[2])))
    Path(sys.argv[3]).write_bytes(pickle.dumps(all_heard))

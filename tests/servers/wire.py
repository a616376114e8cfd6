"""HTTP for stand-in servers: in threads, or over asyncio with control of every byte and pause."""

import asyncio
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

POLL_SECONDS = 0.02
"""How often `serve_forever` in a thread checks whether to stop (by default every 0.5 s)."""


class ThreadedServer:
    """An HTTP server on a free local port, in threads that end with the process or `close`."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True
        ).start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


@dataclass(slots=True)
class HttpRequest:
    """A request as received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON, None if it is empty."""
        return json.loads(self.body) if self.body else None


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request of a connection, None if the client has gone."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return HttpRequest(method, path, headers, body)


@dataclass(slots=True)
class Responder:
    """Writes one response."""

    writer: asyncio.StreamWriter
    chunked: bool = field(default=False)

    def send_head(self, status: int, headers: dict[str, str], *, length: int | None) -> None:
        """Write status line and headers; the body is chunked if `length` is None."""
        self.chunked = length is None
        lines = [f"HTTP/1.1 {status} Stand-in"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(
            "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        )
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def send(self, data: bytes) -> None:
        """Send a part of the body at once."""
        if data:
            framed = b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data
            self.writer.write(framed)
            await self.writer.drain()

    async def finish(self) -> None:
        """End the body."""
        if self.chunked:
            self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def send_response(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send a whole response."""
        self.send_head(status, headers, length=len(body))
        await self.send(body)

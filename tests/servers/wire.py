"""Just enough HTTP/1.1 over asyncio for stand-in servers.

Every byte and every pause is in our hands.
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

LOOK = 0.02
"""Seconds between two looks of a server in a thread whether it shall end (the default is 0.5)."""


@dataclass(slots=True)
class HttpRequest:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        return json.loads(self.body) if self.body else None


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request of a connection; None when the client is gone."""
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

    def head(self, status: int, headers: dict[str, str], *, length: int | None) -> None:
        """Status line and headers; chunked where the length is not known."""
        self.chunked = length is None
        lines = [f"HTTP/1.1 {status} Stand-in"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(
            "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        )
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def send(self, data: bytes) -> None:
        """Part of the body, on the wire at once."""
        if data:
            framed = b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data
            self.writer.write(framed)
            await self.writer.drain()

    async def end(self) -> None:
        """The end of the body."""
        if self.chunked:
            self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """A whole response."""
        self.head(status, headers, length=len(body))
        await self.send(body)

"""One web process: `python -m nura.web`. Under `up` it inherits the listening socket.

The heads of requests, which come before anybody has signed in, are bounded here: uvicorn's parser
takes heads of any size and waits for them for ever. `h11`, which bounds their size, does not bound
their time, and serves fewer requests a second.
"""

import asyncio
import os
import socket
import sys
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

SOCKET_FD = "NURA_SOCKET_FD"
MESSAGE_LIMIT = 1_500_000
"""Bytes of one WebSocket message. Far more than a question may have, so that the application can
answer a too long one with a sentence instead of a closed socket."""
SWITCH_SECONDS = 0.0005
"""Switch interval: how long a thread rendering a page may delay an answer's words."""


MAX_HEAD_BYTES = 64 * 1024
"""Limit for the address and headers of one request, WebSockets included."""
MAX_HEAD_SECONDS = 15.0
"""Seconds for a complete head, from the connection or the previous response on."""
LINGER_SECONDS = 2.0
"""Seconds to discard what is still being sent, so that the client reads the response."""
OVERHEAD = len(b": \r\n")

TOO_LARGE = (
    STATUS_LINE[431]
    + b"content-type: text/plain; charset=utf-8\r\ncontent-length: 31\r\nconnection: close\r\n\r\n"
    + b"Request Header Fields Too Large"
)


class HeadTooLarge(Exception):
    """Stops the parser."""


class BoundedHeads(HttpToolsProtocol):
    """One connection. A head that is too large gets a 431; one that is too slow is closed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = 0
        """Bytes of the head, and of the trailer, that the parser has handed on ..."""
        self._pending_bytes = 0
        """... and bytes that it was given since it last handed on anything."""
        self._in_head = True
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._close_after(MAX_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next head, unless it is there already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._close_after(MAX_HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Parse. What the parser buffers counts too: it buffers an endless header."""
        if self._refused:
            return
        self._pending_bytes += len(data)
        super().data_received(data)
        if self._pending_bytes > MAX_HEAD_BYTES:
            self._refuse()

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._head_bytes = self._pending_bytes = 0
        self._in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the address. Raises `HeadTooLarge`."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one behind the body is dropped, for the request has begun without it.

        Raises `HeadTooLarge`.
        """
        self._count(len(name) + len(value) + OVERHEAD)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand on a part of the body."""
        self._pending_bytes = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Respond to a request the parser rejected or was stopped at."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int) -> None:
        self._pending_bytes = 0
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge

    def _refuse(self) -> None:
        self._refused = True
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # in the middle of another answer, or of its own
            return
        self.transport.write(TOO_LARGE)
        self.transport.write_eof()
        self._close_after(LINGER_SECONDS)

    def _close_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def open_listener(host: str, port: int) -> socket.socket:
    """A bound socket. Raises `OSError` when the port is taken or the address is not ours."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(2048)
    return listener


def build_server_config() -> uvicorn.Config:
    """How a web process serves."""
    from django.conf import settings

    return uvicorn.Config(
        "nura.asgi:application",
        log_config=None,
        access_log=False,  # the middleware counts requests by route; paths hold ids
        server_header=False,
        lifespan="off",
        http=BoundedHeads,
        proxy_headers=settings.TRUSTED_PROXIES > 0,
        forwarded_allow_ips="*" if settings.TRUSTED_PROXIES > 0 else None,
        ws="websockets-sansio",
        ws_max_size=MESSAGE_LIMIT,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        timeout_graceful_shutdown=3,
    )


def main() -> None:
    """Serve until asked to stop."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")
    from django.conf import settings

    inherited = os.environ.get(SOCKET_FD)
    listener = (
        socket.socket(fileno=int(inherited))
        if inherited
        else open_listener(settings.HOST, settings.PORT)
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    uvicorn.Server(build_server_config()).run(sockets=[listener])


if __name__ == "__main__":
    main()

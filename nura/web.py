"""One web process: `python -m nura.web`. Under `up` it inherits the listening socket.

It limits what a client can do before signing in: uvicorn's parser takes request heads of any size
and waits forever for the rest of a head or body. `h11` limits the size of heads but not their time,
and serves fewer requests a second.
"""

import asyncio
import math
import os
import socket
import sys
from collections import defaultdict
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from jobs.fairness import FairThreads

SOCKET_FD = "NURA_SOCKET_FD"
MESSAGE_LIMIT = 1_500_000
"""Bytes of one WebSocket message. Far more than a question may have, so that the application can
answer one that is too long with an error instead of a closed socket."""
SWITCH_SECONDS = 0.0005
"""Switch interval: how long a thread rendering a page may delay an answer's words."""


MAX_HEAD_BYTES = 64 * 1024
"""Limit for the address and headers of one request, WebSockets included."""
MAX_HEADERS = 100
MAX_HEAD_SECONDS = 15.0
"""Seconds for a complete head, from the connection or the previous response on."""
MAX_BODY_SILENCE_SECONDS = 30.0
"""Seconds for a body to begin, and to go on ..."""
MIN_BODY_BYTES_A_SECOND = 1024
"""... and its average bytes a second, so that trickling bytes keep nothing open."""
BODY_CHECK_SECONDS = 5.0
MAX_WAITING_CONNECTIONS = 256
"""Connections of one address that have not sent a complete head, or are idle between requests; one
more closes the one that has waited longest ..."""
ENDS_APART_SECONDS = 0.02
"""... unless one was closed just now, which slows down a client that keeps reconnecting ..."""
MAX_SURPLUS_CONNECTIONS = 2048
"""... up to this many."""
IDLE_SECONDS = 5
"""After how long an idle connection is closed, also at shutdown if a proxy holds it. A proxy that
closes its own sooner, as ours do, never sends a request over one that we are closing."""
LINGER_SECONDS = 2.0
"""Seconds to read and discard what the client still sends, so that it gets to the response."""
OVERHEAD = len(b": \r\n")

TOO_LARGE = (
    STATUS_LINE[431]
    + b"content-type: text/plain; charset=utf-8\r\ncontent-length: 31\r\nconnection: close\r\n\r\n"
    + b"Request Header Fields Too Large"
)


TOO_SLOW = (
    STATUS_LINE[408]
    + b"content-type: text/plain; charset=utf-8\r\ncontent-length: 15\r\nconnection: close\r\n\r\n"
    + b"Request Timeout"
)


class HeadTooLarge(Exception):
    """Stops the parser."""


class WaitingConnections:
    """Each address's connections without a request, the one waiting longest first.

    A client that holds many silent connections open loses the oldest. Nobody is locked out: a head
    that is on its way arrives long before its connection becomes the oldest.
    """

    def __init__(self) -> None:
        self._by_address: defaultdict[str, dict[BoundedRequests, None]] = defaultdict(dict)
        self._ended_at = 0.0

    def add(self, connection: "BoundedRequests") -> None:
        """Add a connection, and close the address's oldest if there are too many."""
        address = connection.address
        waiting = self._by_address[address]
        waiting.pop(connection, None)
        waiting[connection] = None
        now = connection.loop.time()
        may_end = now >= self._ended_at + ENDS_APART_SECONDS
        if len(waiting) > (MAX_WAITING_CONNECTIONS if may_end else MAX_SURPLUS_CONNECTIONS):
            self._ended_at = now
            oldest = next(iter(waiting))
            del waiting[oldest]
            oldest.transport.close()

    def remove(self, connection: "BoundedRequests") -> None:
        """Remove a connection."""
        waiting = self._by_address.get(connection.address)
        if waiting is None:
            return
        waiting.pop(connection, None)
        if not waiting:
            del self._by_address[connection.address]


_waiting = WaitingConnections()


class BoundedRequests(HttpToolsProtocol):
    """One connection.

    A head that is too large gets a 431, a body that stops coming a 408; a head that is too slow is
    closed.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = 0
        """Bytes of the head and the trailer that the parser has delivered ..."""
        self._pending_bytes = 0
        """... and bytes fed to it since it last delivered anything."""
        self._header_count = 0
        self._in_head = True
        self._refused = self._is_last = False
        self._timer: asyncio.TimerHandle | None = None
        self._body_bytes = 0
        self._body_seconds = self._silent_seconds = 0.0
        """How long this body has been arriving, and how long it has been silent; time the
        application takes to read it does not count."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first head."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        _waiting.remove(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Shut down: the current request, or a proxy's next one, is the last to be answered.

        A proxy keeps the connection for its next request unless a response's head told it to close.
        """
        self._is_last = True
        is_behind_proxy = bool(self.config.proxy_headers)
        if self.cycle is not None and not self.cycle.response_complete:
            if not (is_behind_proxy and self.cycle.response_started):
                self.cycle.keep_alive = False
        elif is_behind_proxy:
            self._close_after(IDLE_SECONDS)
        else:  # a browser asks again by itself
            self.transport.close()

    @property
    def address(self) -> str:
        """The client's address; empty for all clients of a Unix socket."""
        return self.client[0] if self.client else ""

    def on_response_complete(self) -> None:
        """Wait for the next head, unless it is there already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Parse. What the parser buffers counts too: it would buffer an endless header."""
        if self._refused:
            return
        self._pending_bytes += len(data)
        super().data_received(data)
        if self._pending_bytes > MAX_HEAD_BYTES:
            self._reject()

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._head_bytes = self._pending_bytes = self._header_count = 0
        self._in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the address. Raises `HeadTooLarge`."""
        self._count_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer is dropped, since the request has already begun.

        Raises `HeadTooLarge`.
        """
        self._header_count += 1
        self._count_bytes(len(name) + len(value) + OVERHEAD)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        self._stop_timer()
        _waiting.remove(self)
        super().on_headers_complete()
        if self._is_last and self.cycle is not None:
            self.cycle.keep_alive = False
        self._body_bytes, self._body_seconds, self._silent_seconds = 0, 0.0, 0.0
        if not (self.parser.should_upgrade() and self._should_upgrade()):
            self._timer = self.loop.call_later(BODY_CHECK_SECONDS, self._check_body)

    def handle_websocket_upgrade(self) -> None:
        """Open a WebSocket, unless shutting down: a proxy then asks another node."""
        if self._is_last:
            self.transport.close()
        else:
            super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        """Hand on a part of the body."""
        self._pending_bytes = 0
        self._body_bytes += len(body)
        self._silent_seconds = 0.0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is whole."""
        if self.cycle is None or not self.cycle.response_complete:
            self._stop_timer()  # otherwise it already times the next head
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Respond to a request that the parser rejected, or that was too large for us."""
        if self._is_too_large():
            self._reject()
        else:
            super().send_400_response(msg)

    def _count_bytes(self, size: int) -> None:
        self._pending_bytes = 0
        self._head_bytes += size
        if self._is_too_large():
            raise HeadTooLarge

    def _is_too_large(self) -> bool:
        return self._head_bytes > MAX_HEAD_BYTES or self._header_count > MAX_HEADERS

    def _wait_for_head(self) -> None:
        _waiting.add(self)
        self._close_after(MAX_HEAD_SECONDS)

    def _check_body(self) -> None:
        """End the request if its body has stopped arriving or only trickles."""
        self._timer = None
        if self.transport.is_closing() or self.cycle is None or not self.cycle.more_body:
            return
        if not self.flow.read_paused:  # otherwise it is the application that is slow
            self._silent_seconds += BODY_CHECK_SECONDS
            self._body_seconds += BODY_CHECK_SECONDS
        max_seconds = MAX_BODY_SILENCE_SECONDS + self._body_bytes / MIN_BODY_BYTES_A_SECOND
        if self._silent_seconds < MAX_BODY_SILENCE_SECONDS and self._body_seconds < max_seconds:
            self._timer = self.loop.call_later(BODY_CHECK_SECONDS, self._check_body)
            return
        if not self.cycle.response_started:
            self.transport.write(TOO_SLOW)
        self.transport.close()

    def _reject(self) -> None:
        self._refused = True
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # in the middle of a response
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
    """A bound socket. Raises `OSError` if the port is taken or the address is not ours.

    It listens only once a web process serves it; until then a proxy gets refused and asks another
    node.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    return listener


def build_server_config() -> uvicorn.Config:
    """Uvicorn's configuration for a web process."""
    from django.conf import settings

    return uvicorn.Config(
        "nura.asgi:application",
        log_config=None,
        access_log=False,  # the middleware counts requests by route; paths hold ids
        server_header=False,
        lifespan="off",
        http=BoundedRequests,
        proxy_headers=settings.TRUSTED_PROXIES > 0,
        forwarded_allow_ips="*" if settings.TRUSTED_PROXIES > 0 else None,
        ws="websockets-sansio",
        ws_max_size=MESSAGE_LIMIT,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.SHUTDOWN_SECONDS + SETTLING_SECONDS),
    )


SETTLING_SECONDS = 4.0
"""Extra seconds at shutdown for the last events of answers that workers cut off."""
THREADS, THREADS_OF_ONE = 16, 6
"""Threads of the event loop for short database calls, and how many of them one owner may use."""


class WebServer(uvicorn.Server):
    """Shares its threads fairly between owners, and loses no request at shutdown."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until asked to stop."""
        asyncio.get_running_loop().set_default_executor(FairThreads(THREADS, THREADS_OF_ONE))
        await super().serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and answer the requests that have arrived."""
        listeners = [bound.dup() for bound in sockets or []]
        for server in self.servers:
            server.close()
        for listener in listeners:
            await self._accept_waiting(listener)
        await super().shutdown(sockets)

    async def _accept_waiting(self, listener: socket.socket) -> None:
        """Accept the connections still in the queue: closing the socket would reset them."""
        loop = asyncio.get_running_loop()
        with listener, suppress(BlockingIOError):
            listener.settimeout(0)
            while True:
                connection, _ = listener.accept()
                await loop.connect_accepted_socket(self._make_protocol, connection)

    def _make_protocol(self) -> asyncio.Protocol:
        return BoundedRequests(self.config, self.server_state, self.lifespan.state)


def main() -> None:
    """Serve until asked to stop."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")
    inherited = os.environ.get(SOCKET_FD)  # before the settings, which may clear the environment
    import django
    from django.conf import settings

    django.setup()
    from nura import schema

    schema.exit_unless_known()
    listener = (
        socket.socket(fileno=int(inherited))
        if inherited
        else open_listener(settings.HOST, settings.PORT)
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    WebServer(build_server_config()).run(sockets=[listener])


if __name__ == "__main__":
    main()

"""HTTP to servers whose addresses administrators enter: where it may end, and how much may come.

Servers of models and of tools may well stand in the own network. None stands at the addresses by
which a machine asks its provider who it is: what answers there are its keys. However such an
address is spelled, and whatever a name says a moment later, the connection itself is looked at,
before anything is sent; what a name behind a proxy says, the proxy alone knows. An answer is read
up to a size, packed or not.
"""

from collections.abc import AsyncIterator, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import AI_NUMERICHOST, gaierror, getaddrinfo, socket
from typing import Any, cast

import httpcore2
import httpx2

MAX_ANSWER_BYTES = 64 * 2**20
"""Vectors of a whole batch are some ten million."""
NEVER_ASKED = (
    *(ip_network("169.254.0.0/16"), ip_network("fe80::/10")),  # of the link; clouds tell keys there
    *(ip_network("fd00:ec2::/64"), ip_network("100.100.100.200/32")),  # the same of AWS and Alibaba
    ip_network("192.0.0.192/32"),  # and of Oracle
)
_CARRIERS = (
    *(ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48")),
    *(ip_network("::/96"), ip_network("::ffff:0:0:0/96")),  # of before, and of translators
)
"""IPv6 addresses whose last four bytes are an IPv4 address that a gateway connects to."""


class AddressNeverAsked(httpcore2.ConnectError, OSError):
    """It is one of a machine's own surroundings."""


class AnswerTooLong(httpx2.ReadError):
    """A server says more than may be read."""


def find_carried(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for, if it does."""
    if not isinstance(address, IPv6Address):
        return None
    if any(address in network for network in _CARRIERS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


def is_never_asked(address: str) -> bool:
    """Whether an IP address is none that a server of anybody's may have."""
    known = ip_address(address.partition("%")[0])
    carried = find_carried(known)
    return any(one in network for one in (known, carried) if one for network in NEVER_ASKED)


def is_never_asked_host(host: str) -> bool:
    """The same of a host as it is written, in whatever form; a name is known when it is asked."""
    try:
        found = getaddrinfo(host.strip("[]"), None, flags=AI_NUMERICHOST)
    except (gaierror, UnicodeError, ValueError):
        return False
    return any(is_never_asked(str(entry[4][0])) for entry in found)


def open_socket(found: tuple[Any, ...]) -> socket:
    """A socket for what a name was resolved to, as aiohttp asks for one.

    Raises `AddressNeverAsked`.
    """
    family, kind, protocol, _name, where = found
    if is_never_asked(str(where[0])):
        raise AddressNeverAsked(str(where[0]))
    return socket(family, kind, protocol)


def _check_peer(stream: Any) -> None:
    peer = stream.get_extra_info("server_addr")
    if isinstance(peer, tuple) and is_never_asked(str(peer[0])):
        raise AddressNeverAsked(str(peer[0]))


def _check_target(request: httpx2.Request) -> None:
    """Refuse an address by how it is written: behind a proxy the connection is one to the proxy."""
    if is_never_asked_host(request.url.host):
        raise httpx2.ConnectError(request.url.host, request=request)


def _look_at(step: str, told: dict[str, Any]) -> None:
    """Follow a connection being made: whom it has reached."""
    if step.endswith("connect_tcp.complete"):
        try:
            _check_peer(told["return_value"])
        except AddressNeverAsked:
            told["return_value"].close()
            raise


async def _look_at_async(step: str, told: dict[str, Any]) -> None:
    if step.endswith("connect_tcp.complete"):
        try:
            _check_peer(told["return_value"])
        except AddressNeverAsked:
            await told["return_value"].aclose()
            raise


class _BoundedBody(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """What comes of an answer, unpacked piece by piece, up to a size."""

    def __init__(self, answer: httpx2.Response, max_bytes: int, *, packed: bool) -> None:
        self._answer, self._left, self._packed = answer, max_bytes, packed

    def _count(self, part: bytes) -> bytes:
        self._left -= len(part)
        if self._left < 0:
            raise AnswerTooLong("more than is read")
        return part

    def __iter__(self) -> Iterator[bytes]:
        source = self._answer.iter_bytes() if self._packed else self._answer.stream
        for part in cast("Iterator[bytes]", source):
            yield self._count(part)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        source = self._answer.aiter_bytes() if self._packed else self._answer.stream
        async for part in cast("AsyncIterator[bytes]", source):
            yield self._count(part)

    def close(self) -> None:
        """Close the connection, or give it back."""
        self._answer.close()

    async def aclose(self) -> None:
        """The same."""
        await self._answer.aclose()


PACKED = "packed"
"""The extension of an answer that tells whether its body came packed."""


def bound_answer(
    answer: httpx2.Response, request: httpx2.Request, max_bytes: int = MAX_ANSWER_BYTES
) -> httpx2.Response:
    """An answer that ends in `AnswerTooLong` where more comes."""
    answer.request, headers = request, answer.headers.raw
    packed = "content-encoding" in answer.headers
    if packed:
        packing = {b"content-encoding", b"content-length"}
        headers = [one for one in headers if one[0].lower() not in packing]
    body = _BoundedBody(answer, max_bytes, packed=packed)
    extensions = {**answer.extensions, PACKED: packed}
    return httpx2.Response(answer.status_code, headers=headers, stream=body, extensions=extensions)


CONTENT = "aiohttp_content"
"""The extension of an answer by aiohttp that holds the body as aiohttp reads it."""


class AnswerBody:
    """The body of an answer by aiohttp, read part by part.

    Read past the client, whose iterators within iterators cost a token as much as aiohttp itself.
    """

    def __init__(self, answer: httpx2.Response, max_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._content = answer.extensions[CONTENT]
        self._left = max_bytes
        self._unpacked = answer.aiter_bytes() if answer.extensions[PACKED] else None

    async def read(self) -> bytes:
        """More of it as soon as it is there; nothing at its end. Raises `AnswerTooLong`."""
        if self._unpacked is not None:
            return await anext(self._unpacked, b"")
        part: bytes = await self._content.readany()
        self._left -= len(part)
        if self._left < 0:
            raise AnswerTooLong("more than is read")
        return part

    def give_up(self) -> None:
        """Let who reads it hear a `TimeoutError`."""
        self._content.set_exception(TimeoutError())


class BoundedByAiohttp(httpx2.AsyncBaseTransport):
    """The transport by aiohttp of the models' client, with the same bounds."""

    def __init__(self, transport: Any) -> None:
        """`transport` is one that has not been used: it opens its session when it is."""
        self._transport = transport
        transport.client = self._open_session

    def _open_session(self) -> Any:
        import aiohttp

        given = self._transport
        connector = aiohttp.TCPConnector(
            limit=given.limits.max_connections or 0,
            keepalive_timeout=given.limits.keepalive_expiry,
            ssl=given.ssl_context,
            socket_factory=open_socket,
        )
        return aiohttp.ClientSession(connector=connector)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `httpx2.ConnectError` for an address that is never asked."""
        _check_target(request)
        answer = await self._transport.handle_async_request(request)
        answer.extensions[CONTENT] = answer.stream._aiohttp_response.content  # noqa: SLF001
        return bound_answer(answer, request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


class BoundedTransport(httpx2.HTTPTransport):
    """Waits for its answers, and bounds them."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `httpx2.ConnectError` for an address that is never asked."""
        _check_target(request)
        request.extensions = {**request.extensions, "trace": _look_at}
        return bound_answer(super().handle_request(request), request)


class BoundedClient(httpx2.Client):
    """A client whose connections are looked at and whose answers end; redirects are not followed.

    Proxies of the environment are used as always.
    """

    def _init_transport(self, **given: Any) -> httpx2.BaseTransport:  # type: ignore[override]
        return given.pop("transport", None) or BoundedTransport(**given)

    def _init_proxy_transport(self, proxy: httpx2.Proxy, **given: Any) -> httpx2.BaseTransport:  # type: ignore[override]
        return BoundedTransport(proxy=proxy, **given)


class BoundedAsyncTransport(httpx2.AsyncHTTPTransport):
    """The same within a loop, for answers of at most `max_bytes`."""

    def __init__(self, *, max_bytes: int = MAX_ANSWER_BYTES, **given: Any) -> None:
        super().__init__(**given)
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `httpx2.ConnectError` for an address that is never asked."""
        _check_target(request)
        request.extensions = {**request.extensions, "trace": _look_at_async}
        return bound_answer(await super().handle_async_request(request), request, self._max_bytes)


class BoundedAsyncClient(httpx2.AsyncClient):
    """As `BoundedClient`."""

    def __init__(self, *, max_bytes: int = MAX_ANSWER_BYTES, **given: Any) -> None:
        self._max_bytes = max_bytes
        super().__init__(**given)

    def _init_transport(self, **given: Any) -> httpx2.AsyncBaseTransport:  # type: ignore[override]
        wanted = given.pop("transport", None)
        return wanted or BoundedAsyncTransport(max_bytes=self._max_bytes, **given)

    def _init_proxy_transport(self, proxy: httpx2.Proxy, **given: Any) -> httpx2.AsyncBaseTransport:  # type: ignore[override]
        return BoundedAsyncTransport(max_bytes=self._max_bytes, proxy=proxy, **given)

"""HTTP to servers whose addresses administrators enter: which addresses are refused, size limits.

Servers of models and tools may well be in the internal network, but never at link-local and
metadata addresses, where cloud providers hand out keys. The connection itself is checked before
anything is sent, so the spelling of an address or a changing DNS entry makes no difference; behind
a proxy, only addresses written as such can be checked. Responses are limited in size, compressed or
not.
"""

from collections.abc import AsyncIterator, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import AI_NUMERICHOST, gaierror, getaddrinfo, socket
from typing import Any, cast

import httpcore2
import httpx2

MAX_ANSWER_BYTES = 64 * 2**20
"""The vectors of a whole batch take some ten million bytes."""
FORBIDDEN_NETWORKS = (
    *(
        ip_network("169.254.0.0/16"),
        ip_network("fe80::/10"),
    ),  # link-local; clouds hand out keys there
    *(ip_network("fd00:ec2::/64"), ip_network("100.100.100.200/32")),  # AWS and Alibaba
    ip_network("192.0.0.192/32"),  # Oracle
)
_CARRIERS = (
    *(ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48")),
    *(ip_network("::/96"), ip_network("::ffff:0:0:0/96")),  # IPv4-compatible and IPv4-mapped
)
"""IPv6 addresses whose last four bytes are an IPv4 address that a gateway connects to."""


class ForbiddenAddress(httpcore2.ConnectError, OSError):
    """The address is link-local or that of a metadata service."""


class AnswerTooLong(httpx2.ReadError):
    """A response exceeds its size limit."""


def find_embedded_ipv4(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """The IPv4 address embedded in an IPv6 address, if any."""
    if not isinstance(address, IPv6Address):
        return None
    if any(address in network for network in _CARRIERS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


def is_forbidden_address(address: str) -> bool:
    """Whether an IP address must not be connected to."""
    known = ip_address(address.partition("%")[0])
    embedded = find_embedded_ipv4(known)
    return any(one in network for one in (known, embedded) if one for network in FORBIDDEN_NETWORKS)


def is_forbidden_host(host: str) -> bool:
    """The same for a host, however an address is spelled; False for names: those need a look-up."""
    try:
        addresses = getaddrinfo(host.strip("[]"), None, flags=AI_NUMERICHOST)
    except (gaierror, UnicodeError, ValueError):
        return False
    return any(is_forbidden_address(str(entry[4][0])) for entry in addresses)


def open_socket(resolved: tuple[Any, ...]) -> socket:
    """A socket for a resolved address, as aiohttp requests it.

    Raises `ForbiddenAddress`.
    """
    family, kind, protocol, _name, address = resolved
    if is_forbidden_address(str(address[0])):
        raise ForbiddenAddress(str(address[0]))
    return socket(family, kind, protocol)


def _check_peer(stream: Any) -> None:
    peer = stream.get_extra_info("server_addr")
    if isinstance(peer, tuple) and is_forbidden_address(str(peer[0])):
        raise ForbiddenAddress(str(peer[0]))


def _check_target(request: httpx2.Request) -> None:
    """Refuse an address by its spelling: behind a proxy, the connection goes to the proxy."""
    if is_forbidden_host(request.url.host):
        raise httpx2.ConnectError(request.url.host, request=request)


def _check_connected_peer(step: str, info: dict[str, Any]) -> None:
    """Check the peer of a new connection."""
    if step.endswith("connect_tcp.complete"):
        try:
            _check_peer(info["return_value"])
        except ForbiddenAddress:
            info["return_value"].close()
            raise


async def _check_connected_peer_async(step: str, info: dict[str, Any]) -> None:
    if step.endswith("connect_tcp.complete"):
        try:
            _check_peer(info["return_value"])
        except ForbiddenAddress:
            await info["return_value"].aclose()
            raise


class _BoundedBody(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A response body, decompressed piece by piece, limited in size."""

    def __init__(self, response: httpx2.Response, max_bytes: int, *, packed: bool) -> None:
        self._answer, self._left, self._packed = response, max_bytes, packed

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
"""Extension of a response: whether its body was compressed."""


def bound_answer(
    response: httpx2.Response, request: httpx2.Request, max_bytes: int = MAX_ANSWER_BYTES
) -> httpx2.Response:
    """The response with a body that raises `AnswerTooLong` beyond `max_bytes`."""
    response.request, headers = request, response.headers.raw
    packed = "content-encoding" in response.headers
    if packed:
        packing = {b"content-encoding", b"content-length"}
        headers = [one for one in headers if one[0].lower() not in packing]
    body = _BoundedBody(response, max_bytes, packed=packed)
    extensions = {**response.extensions, PACKED: packed}
    return httpx2.Response(
        response.status_code, headers=headers, stream=body, extensions=extensions
    )


CONTENT = "aiohttp_content"
"""Extension of a response by aiohttp: its own content stream."""


class AnswerBody:
    """The body of a response by aiohttp, read part by part.

    It bypasses the client, whose nested iterators cost as much per token as aiohttp itself.
    """

    def __init__(self, response: httpx2.Response, max_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._content = response.extensions[CONTENT]
        self._left = max_bytes
        self._unpacked = response.aiter_bytes() if response.extensions[PACKED] else None

    async def read(self) -> bytes:
        """The next bytes as soon as they arrive; empty at the end. Raises `AnswerTooLong`."""
        if self._unpacked is not None:
            return await anext(self._unpacked, b"")
        part: bytes = await self._content.readany()
        self._left -= len(part)
        if self._left < 0:
            raise AnswerTooLong("more than is read")
        return part

    def abort(self) -> None:
        """Make the pending read raise `TimeoutError`."""
        self._content.set_exception(TimeoutError())


class BoundedByAiohttp(httpx2.AsyncBaseTransport):
    """The aiohttp transport of the models' client, with the same checks and limits."""

    def __init__(self, transport: Any) -> None:
        """`transport` must be unused: it opens its session on first use."""
        self._transport = transport
        transport.client = self._open_session

    def _open_session(self) -> Any:
        import aiohttp

        transport = self._transport
        connector = aiohttp.TCPConnector(
            limit=transport.limits.max_connections or 0,
            keepalive_timeout=transport.limits.keepalive_expiry,
            ssl=transport.ssl_context,
            socket_factory=open_socket,
        )
        return aiohttp.ClientSession(connector=connector)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `httpx2.ConnectError` for a forbidden address."""
        _check_target(request)
        response = await self._transport.handle_async_request(request)
        response.extensions[CONTENT] = response.stream._aiohttp_response.content  # noqa: SLF001
        return bound_answer(response, request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


class BoundedTransport(httpx2.HTTPTransport):
    """A synchronous transport with these checks and limits."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `httpx2.ConnectError` for a forbidden address."""
        _check_target(request)
        request.extensions = {**request.extensions, "trace": _check_connected_peer}
        return bound_answer(super().handle_request(request), request)


class BoundedClient(httpx2.Client):
    """A client with checked connections and limited responses; it does not follow redirects.

    Proxies from the environment are used as usual.
    """

    def _init_transport(self, **options: Any) -> httpx2.BaseTransport:  # type: ignore[override]
        return options.pop("transport", None) or BoundedTransport(**options)

    def _init_proxy_transport(self, proxy: httpx2.Proxy, **options: Any) -> httpx2.BaseTransport:  # type: ignore[override]
        return BoundedTransport(proxy=proxy, **options)


class BoundedAsyncTransport(httpx2.AsyncHTTPTransport):
    """An asynchronous transport, for responses of at most `max_bytes`."""

    def __init__(self, *, max_bytes: int = MAX_ANSWER_BYTES, **options: Any) -> None:
        super().__init__(**options)
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `httpx2.ConnectError` for a forbidden address."""
        _check_target(request)
        request.extensions = {**request.extensions, "trace": _check_connected_peer_async}
        return bound_answer(await super().handle_async_request(request), request, self._max_bytes)


class BoundedAsyncClient(httpx2.AsyncClient):
    """The asynchronous `BoundedClient`."""

    def __init__(self, *, max_bytes: int = MAX_ANSWER_BYTES, **options: Any) -> None:
        self._max_bytes = max_bytes
        super().__init__(**options)

    def _init_transport(self, **options: Any) -> httpx2.AsyncBaseTransport:  # type: ignore[override]
        transport = options.pop("transport", None)
        return transport or BoundedAsyncTransport(max_bytes=self._max_bytes, **options)

    def _init_proxy_transport(  # type: ignore[override]
        self, proxy: httpx2.Proxy, **options: Any
    ) -> httpx2.AsyncBaseTransport:
        return BoundedAsyncTransport(max_bytes=self._max_bytes, proxy=proxy, **options)

"""Fetches addresses that people name, and never lets them reach into the own network.

A name is resolved when a connection is made, every address that it has is looked at, and the
connection goes to the very address that was looked at: a name that answers differently a moment
later changes nothing. Each redirect makes a request of its own, with the same look. Proxies of the
environment are not used, since behind one nobody sees where a request ends.

Hosts that `NURA_INTERNAL_HOSTS` names may stand inside.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import AF_UNSPEC, IPPROTO_TCP, SOCK_STREAM, gaierror, getaddrinfo
from typing import Any, Self
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpcore2
from django.conf import settings

from rag.errors import NuraError

MAX_REDIRECTS = 5
CONNECT_SECONDS = 10.0
READ_SECONDS = 20.0
"""The longest silence."""
REDIRECTS = frozenset((301, 302, 303, 307, 308))
PORTS = {"http": 80, "https": 443}
USER_AGENT = "NuraBot/1.0"
_SHARED = (
    ip_network("100.64.0.0/10"),  # of providers, for their customers
    ip_network("192.0.0.0/24"),
    ip_network("198.18.0.0/15"),
    ip_network("fec0::/10"),  # the site-local addresses of before
)
_CARRIERS = (
    *(ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48")),
    *(ip_network("::/96"), ip_network("::ffff:0:0:0/96")),  # of before, and of translators
)
"""IPv6 addresses whose last four bytes are an IPv4 address that a gateway connects to."""


class AddressInvalid(NuraError):
    """It is no http or https address of a host."""

    code = "address_invalid"


class AddressForbidden(NuraError):
    """The address stands inside the own network and is not allowed by name."""

    code = "address_forbidden"


class AddressUnreachable(NuraError):
    """There is no such host, nobody answers there, or not in time."""

    code = "address_unreachable"
    retryable = True


class AnswerTooLarge(NuraError):
    """There is more behind the address than may be read."""

    code = "answer_too_large"


@dataclass(frozen=True, slots=True)
class FetchedAnswer:
    """What an address answered. `url` is the one behind all redirects; header names are small."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes


def is_inside(address: str) -> bool:
    """Whether an IP address is no public one: private, local, shared, reserved, multicast."""
    known = ip_address(address.partition("%")[0])
    if isinstance(known, IPv6Address):
        carried = known.ipv4_mapped or known.sixtofour or (known.teredo or (None, None))[1]
        if any(known in network for network in _CARRIERS):
            carried = IPv4Address(int(known) & 0xFFFFFFFF)
        if carried is not None and is_inside(str(carried)):
            return True
    return not known.is_global or known.is_multicast or any(known in one for one in _SHARED)


def is_allowed_by_name(host: str, port: int) -> bool:
    """Whether the administrator lets this host stand inside; `.example.com` allows all below."""
    names = {host.lower().rstrip("."), f"{host.lower().rstrip('.')}:{port}"}
    for allowed in settings.INTERNAL_HOSTS:
        if allowed in names or (allowed.startswith(".") and host.lower().endswith(allowed)):
            return True
    return False


def resolve_address(host: str, port: int) -> list[str]:
    """The IP addresses of a host, all of which may be connected to.

    One inside is enough to refuse the name. Raises `AddressForbidden`, `AddressUnreachable`.
    """
    try:
        found = getaddrinfo(host, port, AF_UNSPEC, SOCK_STREAM, IPPROTO_TCP)
    except (gaierror, UnicodeError) as error:
        raise AddressUnreachable(f"no address of {host}", host=host) from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not is_allowed_by_name(host, port) and any(map(is_inside, addresses)):
        raise AddressForbidden(f"{host} is inside", host=host)
    return addresses


class _CheckedBackend(httpcore2.NetworkBackend):
    """Connects to the addresses that were looked at, to no name, and for no longer than `ends_at`.

    `ends_at` is a time of the monotonic clock, of the request that is under way.
    """

    def __init__(self) -> None:
        self._sockets = httpcore2.SyncBackend()
        self.ends_at = 0.0

    def cut(self, seconds: float | None) -> float:
        """As many of these seconds as are left. Raises httpcore's time-out where none are."""
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("too slow")
        return left if seconds is None else min(seconds, left)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect to the first address that answers."""
        refused: Exception | None = None
        for address in resolve_address(host, port):
            try:
                stream = self._sockets.connect_tcp(
                    address, port, self.cut(timeout), local_address, socket_options
                )
                return _BoundedStream(stream, self)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                refused = error
        raise AddressUnreachable(f"{host}: {refused}", host=host) from refused


class _BoundedStream(httpcore2.NetworkStream):
    """A connection whose every wait ends with the time of the request.

    A time-out of the library is one of a single wait: who sends a byte now and then, of the headers
    too, would keep a worker for days.
    """

    def __init__(self, stream: httpcore2.NetworkStream, backend: _CheckedBackend) -> None:
        self._stream, self._backend = stream, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what has come."""
        return self._stream.read(max_bytes, self._backend.cut(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        self._stream.write(buffer, self._backend.cut(timeout))

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        """The same within TLS."""
        inner = self._stream.start_tls(ssl_context, server_hostname, self._backend.cut(timeout))
        return _BoundedStream(inner, self._backend)

    def get_extra_info(self, info: str) -> Any:
        """What the library asks of a connection."""
        return self._stream.get_extra_info(info)


@cache
def _get_trust() -> ssl.SSLContext:
    return ssl.create_default_context()


class OutgoingClient:
    """Reads addresses with GET, within bounds. Used within a `with`."""

    def __init__(self, *, max_bytes: int, seconds: float) -> None:
        """`max_bytes` of one answer and `seconds` for one address, its redirects included.

        What a caller does before a request, such as a pause, takes nothing of these seconds.
        """
        self._max_bytes, self._seconds = max_bytes, seconds
        self._backend = _CheckedBackend()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=_get_trust(), network_backend=self._backend, max_connections=4
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def fetch(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        before: Callable[[str], object] = lambda _url: None,
    ) -> FetchedAnswer:
        """What the address answers at last; `before` each request it may be refused by an error.

        Raises `AddressInvalid`, `AddressForbidden`, `AddressUnreachable`, `AnswerTooLarge`.
        """
        left = self._seconds
        for _hop in range(MAX_REDIRECTS + 1):
            before(url)
            began = time.monotonic()
            self._backend.ends_at = began + left
            answer = self._fetch_once(url, headers or {})
            left -= time.monotonic() - began
            target = answer.headers.get("location")
            if answer.status not in REDIRECTS or not target:
                return answer
            url = urljoin(url, target)
        raise AddressUnreachable(f"{url}: too many redirects", host=urlsplit(url).hostname or url)

    def _fetch_once(self, url: str, headers: Mapping[str, str]) -> FetchedAnswer:
        host, _port, target = split_address(url)
        sent = {
            "Host": urlsplit(target).netloc,
            "User-Agent": USER_AGENT,
            "Accept": "*/*",
            "Accept-Encoding": "identity",  # packed bytes would have to be bounded twice
            **headers,
        }
        limits = {"connect": CONNECT_SECONDS, "read": READ_SECONDS, "write": READ_SECONDS}
        with (
            _in_own_words(host),
            self._pool.stream(
                "GET", target, headers=list(sent.items()), extensions={"timeout": limits}
            ) as response,
        ):
            known = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in response.headers
            }
            body = b"" if response.status in REDIRECTS else self._read(response, host)
            return FetchedAnswer(target, response.status, known, body)

    def _read(self, response: httpcore2.Response, host: str) -> bytes:
        body = bytearray()
        for piece in response.iter_stream():
            body += piece
            if len(body) > self._max_bytes:
                raise AnswerTooLarge(host, limit_mb=round(self._max_bytes / 1024 / 1024, 1))
        return bytes(body)


def split_address(url: str) -> tuple[str, int, str]:
    """Host, port and the address as it is sent: ASCII, without user and fragment.

    Raises `AddressInvalid`.
    """
    try:
        parts = urlsplit(url.strip())
        scheme, host = parts.scheme.lower(), (parts.hostname or "").rstrip(".")
        port = parts.port or PORTS[scheme]
        ascii_host = host.encode("idna").decode() if not host.isascii() else host
    except (ValueError, KeyError) as error:
        raise AddressInvalid(url, address=url) from error
    if not host or parts.username is not None:
        raise AddressInvalid(url, address=url)
    shown = f"[{ascii_host}]" if ":" in ascii_host else ascii_host
    netloc = shown if port == PORTS[scheme] else f"{shown}:{port}"
    path = _quote(parts.path) or "/"
    return ascii_host, port, urlunsplit((scheme, netloc, path, _quote(parts.query), ""))


def _quote(text: str) -> str:
    """What stands in an address: other characters by their bytes, what is quoted stays."""
    allowed = b"!#$%&'()*+,/:;=?@[]~-._"
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte in allowed else f"%{byte:02X}"
        for byte in text.encode()
    )


@contextmanager
def _in_own_words(host: str) -> Iterator[None]:
    try:
        yield
    except (
        httpcore2.NetworkError,
        httpcore2.TimeoutException,
        httpcore2.ProtocolError,
        httpcore2.UnsupportedProtocol,
        OSError,
    ) as error:
        raise AddressUnreachable(f"{host}: {error or type(error).__name__}", host=host) from error

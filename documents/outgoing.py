"""Fetches addresses that people name, and never lets them reach into the own network.

A name is resolved when a connection is made, every address that it has is looked at, and the
connection goes to the very address that was looked at: a name that answers differently a moment
later changes nothing. Each redirect makes a request of its own, with the same look. Proxies of the
environment are not used, since behind one nobody sees where a request ends.

Hosts that `NURA_INTERNAL_HOSTS` names may stand inside, and so may what an administrator entered
(`is_entered`): that is asked by way of the environment's proxies, where there are any. What is
never asked at all, `rag.adapters.wire` says.
"""

import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address, ip_network
from socket import AF_UNSPEC, IPPROTO_TCP, SOCK_STREAM, getaddrinfo
from typing import Any, Self
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import httpcore2
from django.conf import settings

from rag.adapters.wire import find_carried, is_never_asked, is_never_asked_host
from rag.errors import NuraError

MAX_REDIRECTS = 5
CONNECT_SECONDS = 10.0
READ_SECONDS = 20.0
"""The longest silence."""
RESOLVE_SECONDS = 10.0
"""For the addresses of a name: the system's own look-up has no bound that all its ways keep."""
REDIRECTS = frozenset((301, 302, 303, 307, 308))
PORTS = {"http": 80, "https": 443}
USER_AGENT = "NuraBot/1.0"
_SHARED = (
    ip_network("100.64.0.0/10"),  # of providers, for their customers
    ip_network("192.0.0.0/24"),
    ip_network("198.18.0.0/15"),
    ip_network("fec0::/10"),  # the site-local addresses of before
)


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


def is_private_address(address: str) -> bool:
    """Whether an IP address is no public one: private, local, shared, reserved, multicast."""
    known = ip_address(address.partition("%")[0])
    carried = find_carried(known)
    if carried is not None and is_private_address(str(carried)):
        return True
    return not known.is_global or known.is_multicast or any(known in one for one in _SHARED)


def is_allowed_by_name(host: str, port: int) -> bool:
    """Whether the administrator lets this host stand inside; `.example.com` allows all below."""
    names = {host.lower().rstrip("."), f"{host.lower().rstrip('.')}:{port}"}
    for allowed in settings.INTERNAL_HOSTS:
        if allowed in names or (allowed.startswith(".") and host.lower().endswith(allowed)):
            return True
    return False


def resolve_address(
    host: str, port: int, *, is_entered: bool = False, seconds: float = RESOLVE_SECONDS
) -> list[str]:
    """The IP addresses of a host, all of which may be connected to; known in so many seconds.

    One inside is enough to refuse the name, or where an administrator entered it one that is never
    asked. Raises `AddressForbidden`, `AddressUnreachable`.
    """
    try:
        found = _look_up(host, port, seconds)
    except (OSError, UnicodeError) as error:
        raise AddressUnreachable(f"no address of {host}", host=host) from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    is_refused = is_never_asked if is_entered else is_private_address
    if not is_allowed_by_name(host, port) and any(map(is_refused, addresses)):
        raise AddressForbidden(f"{host} is inside", host=host)
    return addresses


def _look_up(host: str, port: int, seconds: float) -> list[Any]:
    """What the system says of a name. Raises `OSError`, a time-out too, and `UnicodeError`."""
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            told.put(getaddrinfo(host, port, AF_UNSPEC, SOCK_STREAM, IPPROTO_TCP))
        except (OSError, UnicodeError) as error:
            told.put(error)

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    try:
        found = told.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(host) from None
    if isinstance(found, Exception):
        raise found
    return list(found)


class _CheckedBackend(httpcore2.NetworkBackend):
    """Connects to the addresses that were looked at, to no name, and for no longer than `ends_at`.

    `ends_at` is a time of the monotonic clock, of the request that is under way.
    """

    def __init__(self, *, is_entered: bool) -> None:
        self._sockets, self._is_entered = httpcore2.SyncBackend(), is_entered
        self.ends_at = 0.0

    def limit_wait(self, seconds: float | None) -> float:
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
        seconds = self.limit_wait(RESOLVE_SECONDS)
        addresses = resolve_address(host, port, is_entered=self._is_entered, seconds=seconds)
        while True:
            try:
                stream = self._sockets.connect_tcp(
                    addresses.pop(0), port, self.limit_wait(timeout), local_address, socket_options
                )
                return _BoundedStream(stream, self)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                if not addresses:
                    raise AddressUnreachable(f"{host}: {error}", host=host) from error


class _BoundedStream(httpcore2.NetworkStream):
    """A connection whose every wait ends with the time of the request.

    A time-out of the library is one of a single wait: who sends a byte now and then, of the headers
    too, would keep a worker for days.
    """

    def __init__(self, stream: httpcore2.NetworkStream, backend: _CheckedBackend) -> None:
        self._stream, self._backend = stream, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what has come."""
        return self._stream.read(max_bytes, self._backend.limit_wait(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        self._stream.write(buffer, self._backend.limit_wait(timeout))

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
        inner = self._stream.start_tls(
            ssl_context, server_hostname, self._backend.limit_wait(timeout)
        )
        return _BoundedStream(inner, self._backend)

    def get_extra_info(self, info: str) -> Any:
        """What the library asks of a connection."""
        return self._stream.get_extra_info(info)


@cache
def _get_trust(bundle: str) -> ssl.SSLContext:
    """The authorities of this machine and those that browsers know, and those of a file."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if bundle:
        context.load_verify_locations(bundle)
    return context


class OpenAnswer:
    """An answer that is being read. `headers` have small names."""

    def __init__(self, response: httpcore2.Response, host: str, max_bytes: int) -> None:
        self._parts, self._held, self._host = response.iter_stream(), bytearray(), host
        self._left, self._max_bytes = max_bytes, max_bytes
        self.status = response.status
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }

    def read(self, amount: int | None = None) -> bytes:
        """So many bytes, fewer at the end only; all that is left without a number.

        Raises `AnswerTooLarge`, `AddressUnreachable`.
        """
        with _raise_own_errors(self._host):
            while amount is None or len(self._held) < amount:
                part = next(self._parts, b"")
                if not part:
                    break
                self._left -= len(part)
                if self._left < 0:
                    limit_mb = round(self._max_bytes / 1024 / 1024, 1)
                    raise AnswerTooLarge(self._host, host=self._host, limit_mb=limit_mb)
                self._held += part
        amount = len(self._held) if amount is None else amount
        given = bytes(self._held[:amount])
        del self._held[:amount]
        return given


class OutgoingClient:
    """Asks addresses within bounds, one after the other. Used within a `with`."""

    def __init__(
        self,
        *,
        max_bytes: int,
        seconds: float,
        silence_seconds: float = READ_SECONDS,
        is_entered: bool = False,
        authorities: str = "",
    ) -> None:
        """`max_bytes` of one answer and `seconds` for one address, its redirects included.

        What a caller does before a request, such as a pause, takes nothing of these seconds.
        `authorities` is a file with further ones for certificates.
        """
        self._max_bytes, self._seconds, self._is_entered = max_bytes, seconds, is_entered
        self._silence_seconds = silence_seconds
        self._trust = _get_trust(authorities)
        self._backend = _CheckedBackend(is_entered=is_entered)
        self._pools: dict[str, httpcore2.ConnectionPool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools.values():
            pool.close()

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
            with self.open("GET", url, headers or {}, seconds=left) as opened:
                is_redirect = opened.status in REDIRECTS
                body = b"" if is_redirect else opened.read()
            answer = FetchedAnswer(split_address(url)[2], opened.status, opened.headers, body)
            left -= time.monotonic() - began
            target = answer.headers.get("location")
            if not is_redirect or not target:
                return answer
            url = urljoin(url, target)
        raise AddressUnreachable(f"{url}: too many redirects", host=urlsplit(url).hostname or url)

    @contextmanager
    def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        seconds: float | None = None,
    ) -> Iterator[OpenAnswer]:
        """The answer to one request, a redirect as it is; all of it ends with these seconds.

        Raises as `fetch`, `AnswerTooLarge` while it is read.
        """
        host, port, target = split_address(url)
        self._backend.ends_at = time.monotonic() + (self._seconds if seconds is None else seconds)
        # packed bytes would have to be bounded twice
        sent = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity", **headers}
        if "host" not in {name.lower() for name in sent}:
            sent = {"Host": urlsplit(target).netloc, **sent}
        silence = self._silence_seconds
        limits = {"connect": CONNECT_SECONDS, "read": silence, "write": silence}
        asked = self._find_pool(target, host, port).stream(
            method, target, headers=list(sent.items()), content=body, extensions={"timeout": limits}
        )
        with ExitStack() as stack:
            with _raise_own_errors(host):  # what its reader does is none of the network's faults
                response = stack.enter_context(asked)
            yield OpenAnswer(response, host, self._max_bytes)

    def _find_pool(self, url: str, host: str, port: int) -> httpcore2.ConnectionPool:
        """The connections that lead to an address, through a proxy or not."""
        proxy = ""
        if self._is_entered and not proxy_bypass(f"{host}:{port}"):
            known = getproxies()
            proxy = known.get(urlsplit(url).scheme) or known.get("all", "")
        if proxy and is_never_asked_host(host) and not is_allowed_by_name(host, port):
            raise AddressForbidden(f"{host} is inside", host=host)  # only the proxy is connected to
        if proxy not in self._pools:
            self._pools[proxy] = httpcore2.ConnectionPool(
                ssl_context=self._trust,
                network_backend=self._backend,
                max_connections=4,
                proxy=_to_proxy(proxy) if proxy else None,
            )
        return self._pools[proxy]


def _to_proxy(address: str) -> httpcore2.Proxy:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    named = f"{parts.scheme}://{parts.hostname}:{parts.port or PORTS.get(parts.scheme, 1080)}"
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return httpcore2.Proxy(named, auth=auth)


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
def _raise_own_errors(host: str) -> Iterator[None]:
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

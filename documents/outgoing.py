"""Fetches addresses that people enter, without letting them reach the internal network (SSRF).

A host name is resolved when the connection is made, all its addresses are checked, and the
connection goes to a checked address, so that a name that resolves differently a moment later (DNS
rebinding) changes nothing. Each redirect is a request of its own, checked the same way. Proxies of
the environment are not used, since nobody sees where a request ends behind one.

Hosts listed in `NURA_INTERNAL_HOSTS` may be internal, and so may addresses that an administrator
entered (`is_entered`); the latter are requested through the environment's proxies, if there are
any. `rag.adapters.wire` lists what is never requested.
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

from rag.adapters.wire import find_embedded_ipv4, is_forbidden_address, is_forbidden_host
from rag.errors import NuraError

MAX_REDIRECTS = 5
CONNECT_SECONDS = 10.0
READ_SECONDS = 20.0
"""Maximum time without data."""
RESOLVE_SECONDS = 10.0
"""For resolving a name: the system's resolver has no reliable time limit."""
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
    """Not an http or https address with a host."""

    code = "address_invalid"


class AddressForbidden(NuraError):
    """The address is inside the internal network and not allowed by name."""

    code = "address_forbidden"


class AddressUnreachable(NuraError):
    """There is no such host, or it does not answer in time."""

    code = "address_unreachable"
    retryable = True


class AnswerTooLarge(NuraError):
    """The response is larger than allowed."""

    code = "answer_too_large"


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """A response. `url` is the address after all redirects; header names are lower-case."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes


def is_private_address(address: str) -> bool:
    """Whether an IP address is not public: private, local, shared, reserved or multicast."""
    parsed = ip_address(address.partition("%")[0])
    embedded = find_embedded_ipv4(parsed)
    if embedded is not None and is_private_address(str(embedded)):
        return True
    return (
        not parsed.is_global or parsed.is_multicast or any(parsed in network for network in _SHARED)
    )


def is_allowed_by_name(host: str, port: int) -> bool:
    """Whether the settings allow this internal host; `.example.com` allows all subdomains."""
    names = {host.lower().rstrip("."), f"{host.lower().rstrip('.')}:{port}"}
    for entry in settings.INTERNAL_HOSTS:
        if entry in names or (entry.startswith(".") and host.lower().endswith(entry)):
            return True
    return False


def resolve_address(
    host: str, port: int, *, is_entered: bool = False, seconds: float = RESOLVE_SECONDS
) -> list[str]:
    """The IP addresses of a host, all of which may be connected to, within `seconds`.

    One internal address is enough to refuse the name; if an administrator entered it, only one that
    is never requested. Raises `AddressForbidden`, `AddressUnreachable`.
    """
    try:
        entries = _look_up(host, port, seconds)
    except (OSError, UnicodeError) as error:
        raise AddressUnreachable(f"no address of {host}", host=host) from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    is_refused = is_forbidden_address if is_entered else is_private_address
    if not is_allowed_by_name(host, port) and any(map(is_refused, addresses)):
        raise AddressForbidden(f"{host} is inside", host=host)
    return addresses


def _look_up(host: str, port: int, seconds: float) -> list[Any]:
    """Resolve a name with the system's resolver. Raises `OSError` or `UnicodeError`."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(getaddrinfo(host, port, AF_UNSPEC, SOCK_STREAM, IPPROTO_TCP))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(host) from None
    if isinstance(answer, Exception):
        raise answer
    return list(answer)


class _CheckedBackend(httpcore2.NetworkBackend):
    """Connects to checked addresses only, and for no longer than `ends_at`.

    `ends_at` is the end of the current request on the monotonic clock.
    """

    def __init__(self, *, is_entered: bool) -> None:
        self._sockets, self._is_entered = httpcore2.SyncBackend(), is_entered
        self.ends_at = 0.0

    def limit_wait(self, seconds: float | None) -> float:
        """The seconds, capped to what the request has left. Raises `ReadTimeout` if none."""
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
    """A connection on which every wait ends with the time of the request.

    The library's time-outs apply to single waits: a server that sends a byte now and then, even of
    the headers, could keep a worker for days.
    """

    def __init__(self, stream: httpcore2.NetworkStream, backend: _CheckedBackend) -> None:
        self._stream, self._backend = stream, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read the next data."""
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
        """The connection within TLS, bounded as well."""
        inner = self._stream.start_tls(
            ssl_context, server_hostname, self._backend.limit_wait(timeout)
        )
        return _BoundedStream(inner, self._backend)

    def get_extra_info(self, info: str) -> Any:
        """Pass on what the library asks about a connection."""
        return self._stream.get_extra_info(info)


@cache
def _get_ssl_context(bundle: str) -> ssl.SSLContext:
    """Trusts the authorities of this machine, those of browsers, and those of the file `bundle`."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if bundle:
        context.load_verify_locations(bundle)
    return context


class ResponseStream:
    """A response that is being read. Names of `headers` are lower-case."""

    def __init__(self, response: httpcore2.Response, host: str, max_bytes: int) -> None:
        self._parts, self._buffer, self._host = response.iter_stream(), bytearray(), host
        self._left, self._max_bytes = max_bytes, max_bytes
        self.status = response.status
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }

    def read(self, amount: int | None = None) -> bytes:
        """Read `amount` bytes, fewer only at the end; without it everything that is left.

        Raises `AnswerTooLarge`, `AddressUnreachable`.
        """
        with _raise_own_errors(self._host):
            while amount is None or len(self._buffer) < amount:
                part = next(self._parts, b"")
                if not part:
                    break
                self._left -= len(part)
                if self._left < 0:
                    limit_mb = round(self._max_bytes / 1024 / 1024, 1)
                    raise AnswerTooLarge(self._host, host=self._host, limit_mb=limit_mb)
                self._buffer += part
        amount = len(self._buffer) if amount is None else amount
        data = bytes(self._buffer[:amount])
        del self._buffer[:amount]
        return data


class OutgoingClient:
    """An HTTP client with limits, for one request at a time. A context manager."""

    def __init__(
        self,
        *,
        max_bytes: int,
        seconds: float,
        silence_seconds: float = READ_SECONDS,
        is_entered: bool = False,
        authorities: str = "",
    ) -> None:
        """`max_bytes` limits one response, `seconds` one address including its redirects.

        What the caller does before a request, such as a pause, does not count. `authorities` is a
        file with further certificate authorities.
        """
        self._max_bytes, self._seconds, self._is_entered = max_bytes, seconds, is_entered
        self._silence_seconds = silence_seconds
        self._ssl_context = _get_ssl_context(authorities)
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
        before_request: Callable[[str], object] = lambda _url: None,
    ) -> FetchedResponse:
        """The response after all redirects. `before_request` may refuse each address by raising.

        Raises `AddressInvalid`, `AddressForbidden`, `AddressUnreachable`, `AnswerTooLarge`.
        """
        left = self._seconds
        for _hop in range(MAX_REDIRECTS + 1):
            before_request(url)
            started_at = time.monotonic()
            with self.open("GET", url, headers or {}, seconds=left) as response:
                is_redirect = response.status in REDIRECTS
                body = b"" if is_redirect else response.read()
            answer = FetchedResponse(split_address(url)[2], response.status, response.headers, body)
            left -= time.monotonic() - started_at
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
    ) -> Iterator[ResponseStream]:
        """The response to one request, without following redirects, limited to these seconds.

        Raises like `fetch`; `AnswerTooLarge` while it is read.
        """
        host, port, target = split_address(url)
        self._backend.ends_at = time.monotonic() + (self._seconds if seconds is None else seconds)
        # compressed bodies would have to be limited twice
        all_headers = {
            "User-Agent": USER_AGENT,
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            **headers,
        }
        if "host" not in {name.lower() for name in all_headers}:
            all_headers = {"Host": urlsplit(target).netloc, **all_headers}
        silence = self._silence_seconds
        limits = {"connect": CONNECT_SECONDS, "read": silence, "write": silence}
        exchange = self._find_pool(target, host, port).stream(
            method,
            target,
            headers=list(all_headers.items()),
            content=body,
            extensions={"timeout": limits},
        )
        with ExitStack() as stack:
            with _raise_own_errors(host):  # errors of the reader are not the network's
                response = stack.enter_context(exchange)
            yield ResponseStream(response, host, self._max_bytes)

    def _find_pool(self, url: str, host: str, port: int) -> httpcore2.ConnectionPool:
        """The connection pool for an address, with or without a proxy."""
        proxy = ""
        if self._is_entered and not proxy_bypass(f"{host}:{port}"):
            proxies = getproxies()
            proxy = proxies.get(urlsplit(url).scheme) or proxies.get("all", "")
        if proxy and is_forbidden_host(host) and not is_allowed_by_name(host, port):
            raise AddressForbidden(f"{host} is inside", host=host)  # only the proxy is connected to
        if proxy not in self._pools:
            self._pools[proxy] = httpcore2.ConnectionPool(
                ssl_context=self._ssl_context,
                network_backend=self._backend,
                max_connections=4,
                proxy=_to_proxy(proxy) if proxy else None,
            )
        return self._pools[proxy]


def _to_proxy(address: str) -> httpcore2.Proxy:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    address_text = (
        f"{parts.scheme}://{parts.hostname}:{parts.port or PORTS.get(parts.scheme, 1080)}"
    )
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return httpcore2.Proxy(address_text, auth=auth)


def split_address(url: str) -> tuple[str, int, str]:
    """Host, port and the address to request: ASCII, without user and fragment.

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
    display_host = f"[{ascii_host}]" if ":" in ascii_host else ascii_host
    netloc = display_host if port == PORTS[scheme] else f"{display_host}:{port}"
    path = _quote(parts.path) or "/"
    return ascii_host, port, urlunsplit((scheme, netloc, path, _quote(parts.query), ""))


def _quote(text: str) -> str:
    """Percent-encode characters that are not allowed in an address; what is encoded stays."""
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

"""The gate of the web process: how much one account, one key and one address may request.

An ASGI application around the whole product. It comes before Django, before any body is read and
before any thread is taken, so that excessive requests cost little:

- Questions, searches, uploads, exports and sockets are rate limited (`settings.LIMITS`,
  `jobs.limiter`), visitors by address. A refusal is a 429 that says when to retry. Refusals to one
  caller are spaced out, since making and logging thousands of them would slow down everybody else.
- Each account has only a few requests at work in each part of the product. The rest wait here, in
  the event loop, where they hold neither a thread nor a database connection.
- An upload is refused before its body is read if the disk has no room for it.
"""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from ipaddress import IPv6Address, ip_address
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpResponse
from django.template.loader import render_to_string
from django.utils import translation
from knox.crypto import hash_token
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from structlog.contextvars import bound_contextvars

from chats import access
from chats.access import Credential
from chats.errors import RateLimited
from documents.api.transfers import is_upload
from documents.files import check_free_disk
from jobs import fairness, limiter
from jobs.connections import in_database
from jobs.fairness import FairPlaces, TooManyWaitingError
from jobs.limiter import LimitVerdict, Pace
from nura.errors import to_problem
from nura.middleware import (
    REQUEST_ID,
    choose_language_by_header,
    choose_request_id,
    is_api,
    log_refusal,
)
from rag.errors import NuraError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[..., Awaitable[None]]

OPEN_PATHS = ("/static/", "/healthz", "/readyz", "/favicon.ico", "/manifest")
"""Not limited: served from memory, or meant for monitoring."""
SENDING = frozenset({"POST", "PUT", "PATCH"})
FILES_PREFIX = "/api/"

ASK, SEARCH, UPLOAD, EXPORT, EMBED, REST = "ask", "search", "upload", "export", "embed", "rest"
"""Parts of the product. The first four are limited by requests; embedding is limited by tokens, in
its view."""
RATED = frozenset({ASK, SEARCH, UPLOAD, EXPORT})

REMEMBERED_SECONDS = 15.0
"""How long the account behind a credential is cached here; access itself is always checked."""
MAX_REMEMBERED = 10_000
MAX_WAITING = 200
"""Requests of one account that may wait for a place in one part."""
CROWDED_SECONDS = 5
"""`Retry-After` when too many requests wait or too many sockets are open."""
PACE_SECONDS = 0.05
"""Seconds between two refusals to one caller ..."""
MAX_DELAYED_REFUSALS = 1000
"""... of which this many may wait; further ones get a bare 429 at once."""
TOO_MANY_REQUESTS = HTTPStatus.TOO_MANY_REQUESTS
BEGUN, CALLER = "nura.begun", "nura.caller"
"""Keys of the ASGI scope: when the request arrived, and its `Caller`."""
MAX_DRAIN_BYTES = 32 * 1024 * 1024
"""Bytes of a refused body that are read and discarded."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request: an account, by key or session, or else an address."""

    address: str
    account: int | None = None
    key: str = ""

    @property
    def name(self) -> str:
        """The key by which limits and turns are counted."""
        return f"address:{self.address}" if self.account is None else f"user:{self.account}"


class RequestGate:
    """Admits requests and sockets to the application of one process."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._accounts: dict[Credential, tuple[float, int]] = {}
        self._lookups: dict[Credential, asyncio.Task[int | None]] = {}
        self._places: dict[tuple[str, int], FairPlaces] = {}
        self._sockets: defaultdict[int, int] = defaultdict(int)
        self._refusal_pace = Pace()
        self._delayed: defaultdict[str, int] = defaultdict(int)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request or socket."""
        if scope["type"] not in {"http", "websocket"} or scope["path"].startswith(OPEN_PATHS):
            await self._application(scope, receive, send)
            return
        scope = {**scope, BEGUN: time.perf_counter(), CALLER: Caller(read_address(scope))}
        try:
            scope[CALLER] = caller = await self._identify(scope)
        except DatabaseError as error:
            await _refuse(scope, receive, send, error)
            return
        with fairness.work_for(caller.name):
            try:
                if scope["type"] == "websocket":
                    await self._let_socket_in(caller, scope, receive, send)
                else:
                    await self._let_request_in(caller, scope, receive, send)
            except _Refused as refused:
                if await self._delay_refusal(caller):
                    await _refuse(scope, receive, send, refused.error)
                else:
                    await _refuse_silently(scope, receive, send)

    # Identification

    async def _identify(self, scope: Message) -> Caller:
        address = read_address(scope)
        credential = read_credential(scope)
        if credential == Credential():
            return Caller(address)
        remembered = self._accounts.get(credential)
        if remembered is not None and time.monotonic() < remembered[0]:
            return Caller(address, remembered[1], credential.token)
        if credential not in self._lookups:  # a flood from one caller causes one lookup
            lookup = asyncio.create_task(self._find_account(credential, address))
            self._lookups[credential] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(credential))
        account = await asyncio.shield(self._lookups[credential])
        return Caller(address) if account is None else Caller(address, account, credential.token)

    async def _find_account(self, credential: Credential, address: str) -> int | None:
        """The account of a credential, cached for a while; None if it is not valid."""
        with fairness.work_for(f"address:{address}"):
            (holder,) = await in_database(access.find_principals, [credential])
        if holder is None:
            self._accounts.pop(credential, None)
            return None
        if len(self._accounts) >= MAX_REMEMBERED:
            self._accounts.clear()
        account: int = holder.user.pk
        self._accounts[credential] = (time.monotonic() + REMEMBERED_SECONDS, account)
        return account

    # Admission

    async def _let_request_in(
        self, caller: Caller, scope: Message, receive: Receive, send: Send
    ) -> None:
        part = find_part(scope["method"], scope["path"])
        verdict = await self._count_request(caller, part)
        if part == UPLOAD:
            _check_upload(caller, scope)
        async with self._hold_place(caller, part) as leave:

            async def send_with_limits(message: Message) -> None:
                if message["type"] == "http.response.start":
                    if part == EMBED and message["status"] == TOO_MANY_REQUESTS:
                        await self._delay_refusal(caller)
                    leave()  # only sending is left, which holds no resources
                    if verdict is not None:
                        message = {**message, "headers": _add_limit_headers(message, verdict)}
                await send(message)

            await self._application(scope, receive, send_with_limits)

    async def _let_socket_in(
        self, caller: Caller, scope: Message, receive: Receive, send: Send
    ) -> None:
        account = caller.account
        if account is None:
            await self._count_request(caller, REST)
            await self._application(scope, receive, send)
            return
        if settings.LIMITS["sockets"] and self._sockets[account] >= settings.LIMITS["sockets"]:
            raise _Refused(RateLimited(retry_after=CROWDED_SECONDS))
        self._sockets[account] += 1
        try:
            await self._application(scope, receive, send)
        finally:
            self._sockets[account] -= 1
            if not self._sockets[account]:
                del self._sockets[account]

    async def _count_request(self, caller: Caller, part: str) -> LimitVerdict | None:
        """Count the request. Raises `_Refused`."""
        if caller.account is None:
            rule = "visitor"
        elif part in RATED:
            rule = part
        else:
            return None
        verdict = await limiter.consume_by_rule(rule, caller.name, key=caller.key)
        if verdict is not None and not verdict.allowed:
            raise _Refused(RateLimited.from_verdict(verdict))
        return verdict

    @asynccontextmanager
    async def _hold_place(self, caller: Caller, part: str) -> AsyncIterator[Callable[[], None]]:
        """Hold one of the caller's places in a part of the product. Raises `_Refused`."""
        at_once = settings.LIMITS["at_once"]
        if caller.account is None or not at_once:
            yield lambda: None
            return
        places = self._places.get((part, at_once))
        if places is None:
            places = FairPlaces(MAX_REMEMBERED, at_once, MAX_WAITING)
            self._places[part, at_once] = places
        try:
            await places.acquire(caller.name)
        except TooManyWaitingError:
            raise _Refused(RateLimited(retry_after=CROWDED_SECONDS)) from None
        with fairness.hold_place(partial(places.release, caller.name)) as leave:
            yield leave

    async def _delay_refusal(self, caller: Caller) -> bool:
        """Space out the caller's refusals; False if too many of them wait already."""
        if self._delayed[caller.name] >= MAX_DELAYED_REFUSALS:
            return False
        self._delayed[caller.name] += 1
        try:
            await asyncio.sleep(self._refusal_pace.reserve_seconds(caller.name, PACE_SECONDS))
        finally:
            self._delayed[caller.name] -= 1
            if not self._delayed[caller.name]:
                del self._delayed[caller.name]
        return True


class _Refused(Exception):
    """Carries the error that the caller gets instead of a response."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


_ROUTES = (
    (SENDING, re.compile(r"/api/v1/messages(/[^/]+/(regenerate|edit))?"), ASK),
    (SENDING, re.compile(r"/v1/chat/completions"), ASK),
    (SENDING, re.compile(r"/v1/embeddings"), EMBED),
    (SENDING, re.compile(r"/api/v1/search"), SEARCH),
    (SENDING, re.compile(r"/api/v1/(messages/[^/]+/speech|me/export)"), EXPORT),
    (frozenset({"GET"}), re.compile(r"/api/v1/chats/[^/]+/export"), EXPORT),
)


def find_part(method: str, path: str) -> str:
    """The part of the product that a request is for."""
    for methods, route, part in _ROUTES:
        if method in methods and route.fullmatch(path):
            return part
    is_file = method in SENDING and path.startswith(FILES_PREFIX) and is_upload(method, path)
    return UPLOAD if is_file else REST


def _check_upload(caller: Caller, scope: Message) -> None:
    """Refuse an upload before its body: from a visitor, or if the disk has no room for it."""
    if caller.account is None:
        key = _read_header(scope, b"authorization") or _read_header(scope, b"x-api-key")
        raise _Refused(AuthenticationFailed() if key else NotAuthenticated())
    content_length = _read_header(scope, b"content-length")
    size = int(content_length) if content_length.isdigit() and len(content_length) < 19 else 0
    try:
        check_free_disk(size)
    except NuraError as error:
        raise _Refused(error) from error


def read_credential(scope: Message) -> Credential:
    """The key or session that a request or socket carries, not yet verified."""
    if scope["type"] == "websocket":
        return access.read_credential(scope)
    key = _read_header(scope, b"x-api-key").strip()
    if not key:
        scheme, _, rest = _read_header(scope, b"authorization").partition(" ")
        key = rest.strip() if scheme.lower() in {"token", "bearer"} else ""
    if key:
        return Credential(token=hash_token(key)) if key.isascii() else Credential()
    return Credential(session=_read_cookie(scope, settings.SESSION_COOKIE_NAME))


def read_address(scope: Message) -> str:
    """The client's address, as the trusted proxies report it if there are any.

    For IPv6 the first 64 bits: a household has as many addresses as it likes.
    """
    client = scope.get("client")
    address = str(client[0]) if client else ""
    if settings.TRUSTED_PROXIES:
        forwarded = [part.strip() for part in _read_header(scope, b"x-forwarded-for").split(",")]
        address = forwarded[-settings.TRUSTED_PROXIES :][0] or address
    try:
        ip = ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped:
            return str(ip.ipv4_mapped)
        return f"{ip.exploded[:19]}::/64"
    return str(ip)


async def drain_body(receive: Receive) -> None:
    """Read and discard the body: the client reads the response only after sending it."""
    remaining = MAX_DRAIN_BYTES
    while remaining > 0:
        message = await receive()
        remaining -= len(message.get("body", b""))
        if not message.get("more_body"):
            return


async def _refuse(scope: Message, receive: Receive, send: Send, error: Exception) -> None:
    if scope["type"] == "http":
        await drain_body(receive)
    else:
        await receive()
    await send_refusal(scope, send, await _to_response(scope, error))


async def _refuse_silently(scope: Message, receive: Receive, send: Send) -> None:
    """Refuse, without a page or a log line, a caller who asks faster than refusals are paced."""
    await receive()
    if scope["type"] == "http":
        headers = [(b"retry-after", str(CROWDED_SECONDS).encode()), (b"connection", b"close")]
        start = {"type": "http.response.start", "status": TOO_MANY_REQUESTS, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": b""})
    else:
        await send({"type": "websocket.close"})


async def send_refusal(scope: Message, send: Send, response: HttpResponse) -> None:
    """Send a response made outside Django, close the connection, and log it like any other."""
    request_id = choose_request_id(_read_header(scope, REQUEST_ID.lower().encode()))
    response[REQUEST_ID] = request_id
    headers = [(k.encode(), v.encode()) for k, v in response.items()]
    start: Message = {"status": response.status_code, "headers": headers}
    body: Message = {"body": response.content}
    if scope["type"] == "http":
        headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", **start})
        await send({"type": "http.response.body", **body})
    elif "websocket.http.response" in scope.get("extensions", {}):
        await send({"type": "websocket.http.response.start", **start})
        await send({"type": "websocket.http.response.body", **body})
    else:
        await send({"type": "websocket.close"})
    with bound_contextvars(request_id=request_id):
        caller = scope[CALLER]
        log_refusal(
            scope,
            response.status_code,
            user_id=caller.account,
            address=caller.address,
            started=scope[BEGUN],
        )


async def _to_response(scope: Message, error: Exception) -> HttpResponse:
    if is_api(scope["path"]) or scope["type"] == "websocket":  # no page to show
        accept_language = _read_header(scope, b"accept-language")
        with translation.override(choose_language_by_header(accept_language)):
            return to_problem(error).to_response_at(scope["path"])
    language = _read_cookie(scope, settings.LANGUAGE_COOKIE_NAME)
    page_language = language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE
    return await asyncio.to_thread(_to_page, error, page_language)


def _to_page(error: Exception, language: str) -> HttpResponse:
    with translation.override(language):
        problem = to_problem(error)
        page = render_to_string("errors/error.html", problem.to_json())
    return HttpResponse(page, status=problem.status, headers=dict(problem.headers))


def _add_limit_headers(message: Message, verdict: LimitVerdict) -> Sequence[tuple[bytes, bytes]]:
    limit_headers = [(k.lower().encode(), v.encode()) for k, v in verdict.headers.items()]
    return [*message["headers"], *limit_headers]


def _read_header(scope: Message, name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope["headers"] if k == name), "")


def _read_cookie(scope: Message, name: str) -> str:
    header = _read_header(scope, b"cookie")
    if name not in header:
        return ""
    try:
        cookie = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie else ""

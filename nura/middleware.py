"""Middleware: request id, access log, locale, compression, security headers.

Under ASGI Django runs synchronous middleware in a thread, twice per request. Here those that only
look at headers and cookies run in the event loop, and use a thread only where they have to.
"""

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import structlog
from allauth.core.internal import httpkit
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from csp.constants import SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.middleware import CSPMiddleware
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.common import CommonMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.middleware.gzip import GZipMiddleware
from django.middleware.security import SecurityMiddleware
from django.shortcuts import resolve_url
from django.urls import Resolver404, ResolverMatch, resolve
from django.utils import timezone, translation
from django.utils.cache import patch_vary_headers
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin
from django.utils.functional import SimpleLazyObject
from django.utils.translation.trans_real import parse_accept_lang_header
from structlog.contextvars import bound_contextvars

from documents import audit
from jobs import replica
from jobs.fairness import get_owner
from nura.accounts import services

GetResponse = Callable[[HttpRequest], Any]
"""The next layer; returns a response, or an awaitable of one under ASGI."""

GATEWAY_PREFIX = "/v1/"
API_PREFIXES = ("/api/", GATEWAY_PREFIX, "/ws/")


def is_api(path: str) -> bool:
    """Whether the path is for programs, not people."""
    return path.startswith(API_PREFIXES)


def is_gateway(path: str) -> bool:
    """Whether the path is part of the OpenAI-compatible API."""
    return path.startswith(GATEWAY_PREFIX)


def choose_language_by_header(accepted: str) -> str:
    """The first supported language of an Accept-Language header, else the default."""
    for tag, _quality in parse_accept_lang_header(accepted.lower()):
        code = tag.partition("-")[0]
        if code in dict(settings.LANGUAGES):
            return code
    return settings.LANGUAGE_CODE


def choose_language(request: HttpRequest) -> str:
    """For pages the language chosen there, whatever the browser accepts; else Accept-Language."""
    if is_api(request.path_info):
        return choose_language_by_header(request.headers.get("Accept-Language", ""))
    language = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
    return language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


ZONE_COOKIE = "zone"
"""The browser's time zone, as `front/js/zone.js` tells it."""


def choose_zone(request: HttpRequest) -> ZoneInfo | None:
    """The browser's time zone; None where none is told, or one that is not known here."""
    try:
        return ZoneInfo(request.COOKIES[ZONE_COOKIE])
    except (KeyError, ValueError, OSError):  # a zone that is not found is a KeyError, too
        return None


class LocaleMiddleware:
    """Sets the request's language and time zone for everything below; sync and async."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Answer in the request's language and time zone."""
        if self.is_async:
            return self._answer_async(request)
        language = _activate_locale(request)
        return _set_language_headers(request, self.get_response(request), language)

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        language = _activate_locale(request)
        return _set_language_headers(request, await self.get_response(request), language)


def _activate_locale(request: HttpRequest) -> str:
    language = choose_language(request)
    translation.activate(language)
    if zone := choose_zone(request):
        timezone.activate(zone)
    else:
        timezone.deactivate()
    request.LANGUAGE_CODE = language
    return language


def _set_language_headers(
    request: HttpRequest, response: HttpResponseBase, language: str
) -> HttpResponseBase:
    name = "Accept-Language" if is_api(request.path_info) else "Cookie"
    patch_vary_headers(response, (name,))
    response.headers.setdefault("Content-Language", language)
    return response


ADMIN_PREFIX = "/admin/"
RELAXED = {
    "script-src": [SELF, UNSAFE_EVAL],
    "style-src": [SELF, UNSAFE_INLINE],
}
"""Unfold's pages use Alpine, which evaluates attributes as code, and inline styles without a nonce.
Only administrators open them; all other pages have the strict policy."""


@sync_and_async_middleware
def relax_admin_policy(get_response: GetResponse) -> GetResponse:
    """Middleware below `ContentPolicy`: relaxes the policy of the administration's pages."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            return _relax_policy(request, await get_response(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        return _relax_policy(request, get_response(request))

    return answer


def _relax_policy(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if request.path_info.startswith(ADMIN_PREFIX):
        vars(response)["_csp_replace"] = RELAXED  # read by django-csp
    return response


REQUEST_ID = "X-Request-ID"
_SAFE_ID = re.compile(r"[\w.-]{8,64}", re.ASCII)
"""Ids accepted from a proxy; any other is replaced."""


@sync_and_async_middleware
def request_id(get_response: GetResponse) -> GetResponse:
    """Middleware: gives a request its id, which all its log lines carry, in whichever process.

    The audit log records it with the address, and here the access log gets its line. A proxy may
    set the id (`X-Request-ID`); the response returns it.
    """
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            name = choose_request_id(request.headers.get(REQUEST_ID, ""))
            address = find_address(request)
            started = time.perf_counter()
            with _bind_origin(address, name):
                response = await get_response(request)
                log_response(request, response, address, started)
                return _set_request_id(response, name)

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        name = choose_request_id(request.headers.get(REQUEST_ID, ""))
        address = find_address(request)
        started = time.perf_counter()
        with _bind_origin(address, name):
            response = get_response(request)
            log_response(request, response, address, started)
            return _set_request_id(response, name)

    return answer


@contextmanager
def _bind_origin(address: str, name: str) -> Iterator[None]:
    with bound_contextvars(request_id=name), audit.use_origin(address, name):
        yield


def find_address(request: HttpRequest) -> str:
    """The client's IP address, behind the trusted proxies; empty if unknown."""
    try:
        return httpkit.get_client_ip(request) or ""
    except ImproperlyConfigured:  # it did not come through the proxies
        return httpkit.clean_client_ip(request.META.get("REMOTE_ADDR", "")) or ""


def choose_request_id(proposal: str) -> str:
    """The id set by a proxy if it is acceptable, else a new one."""
    return proposal if _SAFE_ID.fullmatch(proposal) else uuid4().hex


def _set_request_id(response: HttpResponseBase, name: str) -> HttpResponseBase:
    response[REQUEST_ID] = name
    return response


THREAD = "nura.thread"
"""Key of a request's `LentThread` in its ASGI scope."""


@sync_and_async_middleware
def release_connection(get_response: GetResponse) -> GetResponse:
    """Outermost middleware: a streaming response holds no database connection and no thread.

    Django would return them only after the last byte, and the pool has few connections.
    """
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            response: HttpResponseBase = await get_response(request)
            if response.streaming:
                await sync_to_async(_release_connections)()
                if thread := getattr(request, "scope", {}).get(THREAD):
                    thread.give_back()
            return response

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = get_response(request)
        if response.streaming:
            _release_connections()
        return response

    return answer


@sync_and_async_middleware
def note_own_writes(get_response: GetResponse) -> GetResponse:
    """Middleware: after a request that wrote, its caller's next one reads nothing older."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            with replica.watch_writes() as write_noted:
                response: HttpResponseBase = await get_response(request)
            if write_noted.is_set() and replica.has_replica():
                await sync_to_async(replica.note_write)(get_owner())
            return response

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        with replica.watch_writes() as write_noted:
            response: HttpResponseBase = get_response(request)
        if write_noted.is_set():
            replica.note_write(get_owner())
        return response

    return answer


def _release_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


class AsyncMiddlewareMixin:
    """Runs a Django middleware in the event loop.

    Its `process_response` runs in a thread if `needs_thread` says that it uses the database or
    computes for long.
    """

    get_response: GetResponse

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer one request."""
        begin: Any = getattr(self, "process_request", None)
        end: Any = getattr(self, "process_response", None)
        response: HttpResponseBase | None = begin(request) if begin else None
        if response is None:
            response = await self.get_response(request)
        if end is None:
            return response
        if self.needs_thread(request, response):
            end = sync_to_async(end)
            return await end(request, response)  # type: ignore[no-any-return]
        return end(request, response)  # type: ignore[no-any-return]

    def needs_thread(self, request: HttpRequest, response: HttpResponseBase) -> bool:
        """Whether `process_response` must run in a thread."""
        return False


class SecurityHeaders(AsyncMiddlewareMixin, SecurityMiddleware):
    """Redirect to HTTPS, HSTS and similar headers."""


class ContentPolicy(AsyncMiddlewareMixin, CSPMiddleware):
    """The Content-Security-Policy."""


class CommonHeaders(AsyncMiddlewareMixin, CommonMiddleware):
    """Content-Length, and redirects to URLs with a slash at the end."""


class FrameOptions(AsyncMiddlewareMixin, XFrameOptionsMiddleware):
    """Forbids showing pages in a frame."""


class LazyUser(AsyncMiddlewareMixin, AuthenticationMiddleware):
    """`request.user`, loaded when first used."""


class Sessions(AsyncMiddlewareMixin, SessionMiddleware):
    """`request.session`, loaded when first used."""

    def needs_thread(self, request: HttpRequest, response: HttpResponseBase) -> bool:
        """A changed session is saved."""
        return bool(request.session.modified or settings.SESSION_SAVE_EVERY_REQUEST)


class SeenSessions(AsyncMiddlewareMixin, MiddlewareMixin):
    """Records when and from where a session was last used, for the list of devices."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Record the session of a request that used `request.user`."""
        if self.needs_thread(request, response):
            services.record_session_seen(
                # the session's user: `request.user` of a refused API call is anonymous by now
                user=request._cached_user,  # type: ignore[attr-defined] # noqa: SLF001
                session_key=request.session.session_key or "",
                address=find_address(request),
                user_agent=request.headers.get("User-Agent", ""),
            )
        return response

    def needs_thread(self, request: HttpRequest, response: HttpResponseBase) -> bool:
        """It is recorded once a minute."""
        user = getattr(request, "_cached_user", None)
        key = request.session.session_key
        signed_in = user is not None and user.is_authenticated and SESSION_KEY in request.session
        return bool(signed_in and key and services.is_seen_due(key))


class SignedOutParts(AsyncMiddlewareMixin, MiddlewareMixin):
    """Answers requests for a part of a page with 401 once the user is signed out.

    htmx would follow the redirect and show the sign-in page in place of the part.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Replace a redirect to the sign-in page by 401."""
        is_part = request.headers.get("HX-Request") == "true"
        target = response.headers.get("Location", "").partition("?")[0]
        if is_part and target == resolve_url(settings.LOGIN_URL):
            return HttpResponse(status=401)
        return response


class FlashMessages(AsyncMiddlewareMixin, MessageMiddleware):
    """Django's messages, which survive a redirect."""

    def needs_thread(self, request: HttpRequest, response: HttpResponseBase) -> bool:
        """Long messages are stored in the session."""
        messages = getattr(request, "_messages", None)
        return messages is not None and (messages.used or messages.added_new)


class CsrfProtection(AsyncMiddlewareMixin, CsrfViewMiddleware):
    """CSRF protection; the check runs in a thread if it may read the body for a form's token."""

    def __init__(self, get_response: GetResponse) -> None:
        super().__init__(get_response)
        if self.async_mode:
            self.process_view = self._check_async  # type: ignore[assignment, method-assign]

    async def _check_async(self, request: HttpRequest, view: Any, *arguments: Any) -> Any:
        check = super().process_view
        if request.method in {"GET", "HEAD"} or getattr(view, "csrf_exempt", False):
            return check(request, view, *arguments)
        return await sync_to_async(check)(request, view, *arguments)


class HtmlGZipMiddleware(AsyncMiddlewareMixin, GZipMiddleware):
    """Compresses pages only; Django's middleware adds random padding against BREACH.

    Files are compressed already, and streams must be delivered event by event.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """The response, compressed if it is a page."""
        if not self.needs_thread(request, response):
            return response
        return super().process_response(request, response)

    def needs_thread(self, request: HttpRequest, response: HttpResponseBase) -> bool:
        """A page is compressed."""
        is_page = response.get("Content-Type", "").startswith("text/html")
        return is_page and not response.streaming


# The access log: one line per request, written when the response has been sent.
#
# User, address, method, path, status and duration; no query strings, bodies or headers. A path is
# logged only if all its parameters are ids: links for a new password or an invitation have secrets.

logger = structlog.get_logger()

QUIET_PATHS = frozenset({"/healthz", "/readyz"})
MAX_PATH_CHARACTERS = 200
_ID = re.compile(r"[0-9a-fA-F-]{32,36}|\d{1,18}")


def log_response(
    request: HttpRequest, response: HttpResponseBase, address: str, started: float
) -> None:
    """Write the line now, or after the last part of a stream."""
    if not settings.ACCESS_LOG or _is_quiet(request.path):
        return

    def write() -> None:
        logger.info(
            "request",
            method=request.method,
            path=describe_path(request.path, request.resolver_match),
            status=response.status_code,
            ms=round((time.perf_counter() - started) * 1000),
            user_id=find_user_id(request),
            address=address,
        )

    if not isinstance(response, StreamingHttpResponse):
        write()
    elif response.is_async:
        response.streaming_content = _stream_then_write_async(response.streaming_content, write)
    else:
        response.streaming_content = _stream_then_write(response.streaming_content, write)


def log_refusal(
    scope: Mapping[str, Any], status: int, *, user_id: int | None, address: str, started: float
) -> None:
    """Write the line of a request that was refused before it reached Django."""
    if not settings.ACCESS_LOG:
        return
    path = scope["path"]
    try:
        match = resolve(path)
    except Resolver404:
        match = None
    logger.info(
        "request",
        method=scope.get("method", "GET"),  # a WebSocket handshake has none
        path=describe_path(settings.URL_PREFIX + path, match),
        status=status,
        ms=round((time.perf_counter() - started) * 1000),
        user_id=user_id,
        address=address,
    )


def describe_path(path: str, match: ResolverMatch | None) -> str:
    """The path, or its route if a parameter is not an id."""
    if match is not None and not all(_is_id(value) for value in match.kwargs.values()):
        return f"/{match.route}"[:MAX_PATH_CHARACTERS]
    return path[:MAX_PATH_CHARACTERS]


def find_user_id(request: HttpRequest) -> int | None:
    """The id of the user if it is known already; no query is made for it."""
    if key := getattr(request, "auth", None):  # the gateway's
        return getattr(key, "user_id", None)
    user: Any = getattr(request, "_cached_user", None) or vars(request).get("user")
    if user is None or isinstance(user, SimpleLazyObject):  # not loaded
        return None
    return user.pk  # type: ignore[no-any-return]


def _is_id(value: Any) -> bool:
    return isinstance(value, UUID | int) or bool(_ID.fullmatch(str(value)))


def _is_quiet(path: str) -> bool:
    return path in QUIET_PATHS or path.startswith(settings.STATIC_URL)


def _stream_then_write(parts: Any, write: Any) -> Iterator[bytes]:
    try:
        yield from parts
    finally:
        write()


async def _stream_then_write_async(parts: Any, write: Any) -> AsyncIterator[bytes]:
    try:
        async for part in parts:
            yield part
    finally:
        write()

"""The access log: one line a request, written when its response has ended.

Who, from where, what, how it ended, how long it took. No query strings, no bodies, no headers; of a
path only what are ids: the secret of a link (a new password, an invitation) is none.
"""

import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import Resolver404, ResolverMatch, resolve
from django.utils.functional import SimpleLazyObject

logger = structlog.get_logger()

QUIET_PATHS = frozenset({"/healthz", "/readyz"})
MAX_PATH_CHARACTERS = 200
_ID = re.compile(r"[0-9a-fA-F-]{32,36}|\d{1,18}")


def log_response(
    request: HttpRequest, response: HttpResponseBase, address: str, started: float
) -> None:
    """Write the line now, or behind the last part of a stream."""
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
        response.streaming_content = _then_async(response.streaming_content, write)
    else:
        response.streaming_content = _then(response.streaming_content, write)


def log_refusal(
    scope: Mapping[str, Any], status: int, *, user_id: int | None, address: str, started: float
) -> None:
    """The line of a request that was refused at the door, before Django saw it."""
    if not settings.ACCESS_LOG:
        return
    path = scope["path"]
    try:
        match = resolve(path)
    except Resolver404:
        match = None
    logger.info(
        "request",
        method=scope.get("method", "GET"),  # a socket's handshake
        path=describe_path(settings.URL_PREFIX + path, match),
        status=status,
        ms=round((time.perf_counter() - started) * 1000),
        user_id=user_id,
        address=address,
    )


def describe_path(path: str, match: ResolverMatch | None) -> str:
    """The path; its route where something else than an id stands in it."""
    if match is not None and not all(_is_id(value) for value in match.kwargs.values()):
        return f"/{match.route}"[:MAX_PATH_CHARACTERS]
    return path[:MAX_PATH_CHARACTERS]


def find_user_id(request: HttpRequest) -> int | None:
    """Whose request it was, as far as somebody has asked; a request without is not looked up."""
    if key := getattr(request, "auth", None):  # the gateway's
        return getattr(key, "user_id", None)
    user: Any = getattr(request, "_cached_user", None) or vars(request).get("user")
    if user is None or isinstance(user, SimpleLazyObject):  # nobody has asked for it
        return None
    return user.pk  # type: ignore[no-any-return]


def _is_id(value: Any) -> bool:
    return isinstance(value, UUID | int) or bool(_ID.fullmatch(str(value)))


def _is_quiet(path: str) -> bool:
    return path in QUIET_PATHS or path.startswith(settings.STATIC_URL)


def _then(parts: Any, write: Any) -> Iterator[bytes]:
    try:
        yield from parts
    finally:
        write()


async def _then_async(parts: Any, write: Any) -> AsyncIterator[bytes]:
    try:
        async for part in parts:
            yield part
    finally:
        write()

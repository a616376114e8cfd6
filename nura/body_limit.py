"""A bound on request bodies before Django sees them: it would spool any amount to disk first."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import RequestDataTooBig

from documents.api.uploads import is_upload
from nura.errors import problem_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[..., Awaitable[None]]

SENDING = frozenset({"POST", "PUT", "PATCH"})
"""Methods that may bring a file; for the others no route is looked up."""
OVERHEAD = 1024 * 1024
"""What a multipart body may be larger than its file."""
DRAIN = 32 * 1024 * 1024
"""Bytes read and thrown away of a body that grew too large."""


class BodyLimit:
    """Refuses with 413 what is declared too large, and what turns out to be while it comes in."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        limit, seen, started = _limit(scope), 0, False

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise RequestDataTooBig
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        if _declared(scope) > limit:
            await _refuse(RequestDataTooBig(), scope["path"], send)
            return
        try:
            await self._application(scope, counted, noted)
        except RequestDataTooBig as error:
            if started:
                raise
            await _drain(receive)
            await _refuse(error, scope["path"], send)


def _limit(scope: Message) -> int:
    if scope["method"] in SENDING and is_upload(scope["method"], scope["path"]):
        return int(settings.MAX_UPLOAD_MB) * 1024 * 1024 + OVERHEAD
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE) + OVERHEAD


def _declared(scope: Message) -> int:
    value = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
    return int(value) if value.isdigit() and len(value) < 19 else 0


async def _drain(receive: Receive) -> None:
    """Let a client that is still sending come to its end: it reads the answer only then."""
    left = DRAIN
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if not message.get("more_body"):
            return


async def _refuse(error: RequestDataTooBig, path: str, send: Send) -> None:
    response = await sync_to_async(lambda: problem_of(error).response_at(path))()
    headers = [(k.encode(), v.encode()) for k, v in response.items()]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})

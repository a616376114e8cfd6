"""The ASGI application: HTTP by Django, `/ws/chat/` by Channels.

The consumer decides who may connect; rate limits of accounts and addresses apply before that
(`nura.limits`). The size of request bodies is limited before Django, which would write any amount
to disk first.
"""

import os
import warnings
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.exceptions import RequestDataTooBig
from django.core.signals import request_started
from django.db import close_old_connections, reset_queries
from django.utils import translation
from rest_framework.exceptions import NotAuthenticated

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")
# WhiteNoise streams its small files in a thread, about which Django warns once.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")
django_application = get_asgi_application()
for receiver in (close_old_connections, reset_queries):
    # Each request returns its connection at its end. At the beginning there is none to check, and
    # Django would use a thread for that.
    request_started.disconnect(receiver)

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402 - needs loaded apps
from django.urls import path, re_path  # noqa: E402

from chats import access  # noqa: E402
from chats.socket import ChatSocket  # noqa: E402
from documents.api.transfers import is_upload  # noqa: E402
from jobs.connections import in_database  # noqa: E402
from nura.errors import to_problem  # noqa: E402
from nura.limits import CALLER, RequestGate, drain_body, send_refusal  # noqa: E402
from nura.metrics import CountedSockets  # noqa: E402
from nura.middleware import THREAD, choose_language_by_header  # noqa: E402

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[..., Awaitable[None]]

SENDING = frozenset({"POST", "PUT", "PATCH"})
"""Methods that may upload a file ..."""
FILES_PREFIX = "/api/"
"""... to a path below this; for other requests no route is resolved."""
MCP_PATH = "/mcp"
MAX_OVERHEAD_BYTES = 1024 * 1024
"""What a multipart body may have in addition to its file."""
MAX_IDLE_THREADS = 16
"""Threads kept for later requests; any more end with their request."""


class LentThread(Executor):
    """An executor for one request: it takes a thread at the first call, until `give_back`."""

    def __init__(self, idle: list[ThreadPoolExecutor]) -> None:
        self._idle = idle
        self._thread: ThreadPoolExecutor | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in the request's thread."""
        if self._thread is None:
            self._thread = self._idle.pop() if self._idle else ThreadPoolExecutor(1, "request")
        return self._thread.submit(function, *args, **kwargs)

    def give_back(self) -> None:
        """Return the thread; a later call takes another one."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if len(self._idle) < MAX_IDLE_THREADS:
            self._idle.append(thread)
        else:
            thread.shutdown(wait=False)


class RequestThreads:
    """Lends each request a thread for Django's synchronous code; streams hold none.

    Django would start and end a thread for each request, which takes several times as long as what
    a stream does in it.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._idle: list[ThreadPoolExecutor] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request with a thread of its own."""
        thread = LentThread(self._idle)
        try:
            async with ThreadSensitiveContext(executor=thread):
                await self._application({**scope, THREAD: thread}, receive, send)
        finally:
            thread.give_back()


class BodyLimit:
    """Rejects request bodies that are too large with 413, by their declared and actual size."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request within its limit."""
        limit, seen, started = _get_limit(scope), 0, False

        async def receive_counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise RequestDataTooBig
            return message

        async def send_noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        if _read_declared_size(scope) > limit:
            await _refuse(RequestDataTooBig(), scope, send)
            return
        try:
            await self._application(scope, receive_counted, send_noted)
        except RequestDataTooBig as error:
            if started:
                raise
            await drain_body(receive)
            await _refuse(error, scope, send)


def _get_limit(scope: Message) -> int:
    method, path = scope["method"], scope["path"]
    if method in SENDING and path.startswith(FILES_PREFIX) and is_upload(method, path):
        return int(settings.MAX_UPLOAD_MB) * 1024 * 1024 + MAX_OVERHEAD_BYTES
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE) + MAX_OVERHEAD_BYTES


def _read_declared_size(scope: Message) -> int:
    value = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
    return int(value) if value.isdigit() and len(value) < 19 else 0


async def _refuse(error: Exception, scope: Message, send: Send) -> None:
    path = scope["path"]
    response = await sync_to_async(lambda: to_problem(error).to_response_at(path))()
    await send_refusal(scope, send, response)


async def serve_mcp(scope: Message, receive: Receive, send: Send) -> None:
    """Serve `/mcp` if the key, which the gate has found in the request, is still valid."""
    digest = scope[CALLER].key
    key = (await in_database(access.find_keys, [digest])).get(digest) if digest else None
    if key is None:
        await drain_body(receive)
        await _refuse(NotAuthenticated(), scope, send)
        return
    from chats.gateway import mcp  # here, so that only processes that serve it load the library

    await in_database(access.record_key_use, key)
    header = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"accept-language"), "")
    with translation.override(choose_language_by_header(header)):
        await mcp.serve(scope, receive, send, key=key)


def route_by_path(application: Application) -> Application:
    """Route requests to `/mcp` or to Django."""

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        target = serve_mcp if scope["path"] == MCP_PATH else application
        await target(scope, receive, send)

    return answer


async def _refuse_socket(_scope: Message, receive: Receive, send: Send) -> None:
    """Refuse a WebSocket at any other path; closing it before accepting results in a 403."""
    await receive()
    await send({"type": "websocket.close"})


def strip_prefix(application: Application) -> Application:
    """Remove `NURA_URL_PREFIX` from the path, unless a proxy has done so already."""
    prefix = settings.URL_PREFIX

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.startswith(f"{prefix}/") or path == prefix:
            scope = {**scope, "path": path.removeprefix(prefix)}
        await application(scope, receive, send)

    return answer if prefix else application


def restore_prefix(application: Application) -> Application:
    """Put the prefix back: Django, whose `FORCE_SCRIPT_NAME` it is, expects it in the path."""
    prefix = settings.URL_PREFIX

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        await application({**scope, "path": prefix + scope["path"]}, receive, send)

    return answer if prefix else application


application = strip_prefix(
    RequestGate(
        ProtocolTypeRouter(
            {
                "http": BodyLimit(
                    route_by_path(restore_prefix(RequestThreads(django_application)))
                ),
                "websocket": URLRouter(
                    [
                        path("ws/chat/", CountedSockets(ChatSocket.as_asgi())),  # type: ignore[arg-type]
                        re_path("", _refuse_socket),  # type: ignore[arg-type]
                    ]
                ),
            }
        )
    )
)

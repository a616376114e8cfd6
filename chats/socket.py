"""The WebSocket `/ws/chat/`: authenticates, and relays runs and notices.

Channels delivers a client's frames one at a time. Each run is relayed by a task of its own, so that
"stop" is read meanwhile. There is no channel layer, which would encode and decode each notice once
per page: a notice (sent by `chats.services.chats` and `documents.notices`) reaches each process
once, and all pages of a user get the same text.
"""

import asyncio
import functools
import json
import time
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import structlog
from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles.storage import staticfiles_storage
from django.utils import timezone, translation
from rest_framework import serializers
from structlog.contextvars import bound_contextvars

from chats import access
from chats.errors import InvalidFrame, NotFound, RateLimited
from chats.models import ChatShare, KeyScope, Run
from chats.runs import log, reader
from chats.serializers import SendRequest, to_frame
from chats.services import turns
from documents import notices
from documents.errors import explain_code
from documents.libraries import list_held_roles
from documents.models import Document
from jobs import connections, limiter
from jobs.background import LoopTask
from jobs.connections import in_database
from rag.errors import NuraError

logger = structlog.get_logger()

CLOSE_UNAUTHENTICATED = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_TOO_MANY = 4429
SUBPROTOCOL = "nura.v1"
MAX_FRAMES = 60
"""A client may send this many frames at once; as many again ..."""
REFILL_SECONDS = 10.0
"""... are allowed after this time."""
MAX_WAITING_NOTICES = 100
"""Notices queued for a page that reads none; older ones are dropped."""
SUBSCRIBE_SECONDS = 2.0
"""A socket opens without notices if Redis does not answer in this time."""

Message = Mapping[str, Any]
Fields = dict[str, Any]


class RunFrame(serializers.Serializer[Any]):
    """`stop` and `resume`."""

    run_id = serializers.UUIDField()
    after_seq = serializers.IntegerField(min_value=0, max_value=10**12, default=0)


def open_turn(user: User, frame: Fields, language: str, asked_with: str) -> tuple[UUID, UUID]:
    """Open the turn that a `send` frame asks for; returns the ids of its run and chat."""
    fields = _validate(SendRequest, frame)
    fields |= {name: fields[name] or () for name in ("document_ids", "library_ids")}
    turn = turns.open_turn(user=user, language=language, asked_with=asked_with, **fields)
    return turn.run.pk, turn.user_message.chat_id


def find_run(user: User, frame: Fields) -> tuple[UUID, UUID, int]:
    """The ids of a user's run and its chat, and the last `seq` received. Raises `NotFound`."""
    fields = _validate(RunFrame, frame)
    run = Run.objects.visible_to(user).filter(pk=fields["run_id"]).select_related("message").first()
    if run is None:
        raise NotFound
    return run.pk, run.message.chat_id, fields["after_seq"]


def stop_run(user: User, frame: Fields) -> None:
    """Stop a run of this user. Raises `NotFound`."""
    fields = _validate(RunFrame, frame)
    if not Run.objects.owned_by(user).filter(pk=fields["run_id"]).exists():
        raise NotFound
    log.request_stop(fields["run_id"])


class WatchFrame(serializers.Serializer[Any]):
    """`watch`."""

    share_id = serializers.UUIDField()


def find_live_shares(watched: Collection[tuple[User, UUID]]) -> set[tuple[int, UUID]]:
    """The shared chats that their readers may still read, as pairs of user id and share id."""
    share_ids: defaultdict[User, set[UUID]] = defaultdict(set)
    for user, share_id in watched:
        share_ids[user].add(share_id)
    return {
        (user.pk, pk)
        for user, ids in share_ids.items()
        for pk in ChatShare.objects.visible_to(user).filter(pk__in=ids).values_list("pk", flat=True)
    }


def read_release() -> str:
    """The digest of all static files; a page with a different one comes from another release.

    Empty in development, where files have no digests.
    """
    return getattr(staticfiles_storage, "manifest_hash", "")


def _validate(shape: type[serializers.Serializer[Any]], frame: Fields) -> Fields:
    try:
        return dict(_get_serializer(shape).run_validation(frame))
    except serializers.ValidationError as error:
        raise InvalidFrame(errors=error.detail) from error


@functools.cache
def _get_serializer(shape: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """A shared serializer: creating its fields takes longer than validating a frame."""
    return shape()


class NoticeListener(LoopTask):
    """Receives the notices of all users and sends them to the pages open in this process."""

    TROUBLE = "notices_not_heard"

    def __init__(self) -> None:
        self.pages: defaultdict[int, set[ChatSocket]] = defaultdict(set)
        self.is_listening = asyncio.Event()
        self._pending_broadcasts: set[str] = set()
        """Frames for all pages that are about to be sent."""

    async def run_round(self) -> None:
        """Listen until the connection breaks; notices sent while it is down are lost."""
        try:
            async with connections.get_async_client().pubsub() as channel:
                await channel.subscribe(notices.get_channel())
                async for message in channel.listen():
                    if message["type"] == "subscribe":
                        self.is_listening.set()
                        self.note_success()
                    else:
                        self._dispatch(message["data"])
        finally:
            self.is_listening.clear()

    def _dispatch(self, message: str) -> None:
        user_id, kind, encoded = message.split(" ", 2)
        if int(user_id) == notices.EVERYBODY:
            self._broadcast_soon(log.to_frame(kind, encoded))
        elif pages := self.pages.get(int(user_id)):
            frame = log.to_frame(kind, encoded)
            for page in pages:
                page.send_soon(frame)

    def _broadcast_soon(self, frame: str) -> None:
        """Send equal frames in quick succession once: importing a list changes many rights."""
        if frame not in self._pending_broadcasts:
            self._pending_broadcasts.add(frame)
            loop = asyncio.get_running_loop()
            loop.call_later(CHECK_PAUSE_SECONDS, self._broadcast, frame)

    def _broadcast(self, frame: str) -> None:
        self._pending_broadcasts.discard(frame)
        for page in chain.from_iterable(self.pages.values()):
            page.send_soon(frame)

    async def add(self, page: "ChatSocket") -> None:
        """Send the page its user's notices from now on."""
        self.pages[page.user.pk].add(page)
        with suppress(TimeoutError):
            async with asyncio.timeout(SUBSCRIBE_SECONDS):
                await self.is_listening.wait()

    def remove(self, page: "ChatSocket") -> None:
        """Send the page no more notices."""
        pages = self.pages.get(page.user.pk, set())
        pages.discard(page)
        if not pages:
            self.pages.pop(page.user.pk, None)


class ShareWatcher(LoopTask):
    """Checks whether the shared chats open in this process may still be read, else closes them."""

    TROUBLE = "shares_not_checked"

    def __init__(self) -> None:
        self.pages: dict[ChatSocket, UUID] = {}
        self._changed = asyncio.Event()

    async def run_round(self) -> None:
        """Check once. No page is closed because the database is down."""
        access.RightsListener.of_running_loop().waiting.add(self._changed)
        await access.wait_for_change(self._changed)
        pages = dict(self.pages)
        if not pages:
            return
        watched = {(page.user, share_id) for page, share_id in pages.items()}
        live = await in_database(find_live_shares, watched)
        for page, share_id in pages.items():
            if (page.user.pk, share_id) not in live and self.pages.get(page) == share_id:
                del self.pages[page]
                page.send_soon(log.to_json(to_frame("share.ended", {"id": str(share_id)})))


RIGHTS_CHECK_SECONDS = 5.0
"""How often rights to read are checked if no change is announced."""
CHECK_PAUSE_SECONDS = 0.5
"""The shortest time between two checks, so that a burst of changes causes few frames."""


class RightsWatcher(LoopTask):
    """Tells open pages that their user may read less or more than before, or has another role.

    Requests are refused already; the pages also hide what they still show, and offer what is new.
    """

    TROUBLE = "readers_not_checked"

    def __init__(self) -> None:
        self._roles_by_user: dict[int, set[tuple[UUID, str]]] = {}
        self._seen_moves: set[tuple[UUID, datetime]] = set()
        self._changed = asyncio.Event()

    async def add(self, user_id: int) -> None:
        """Remember what a user who opens a page may read."""
        if user_id not in self._roles_by_user:
            roles = await in_database(list_held_roles, [user_id])
            self._roles_by_user.setdefault(user_id, roles[user_id])

    async def run_round(self) -> None:
        """Check once."""
        access.RightsListener.of_running_loop().waiting.add(self._changed)
        await access.wait_for_change(self._changed, RIGHTS_CHECK_SECONDS)
        pages = NoticeListener.of_running_loop().pages
        known = {pk: roles for pk, roles in self._roles_by_user.items() if pk in pages}
        roles, moved_documents = await in_database(find_roles_and_moves, [*known])
        new_moves = [
            document
            for document in moved_documents
            if (document.pk, document.moved_at) not in self._seen_moves
        ]
        self._seen_moves = {(document.pk, document.moved_at) for document in moved_documents}
        for user_id, had_roles in known.items():
            readable = {library_id for library_id, _role in roles[user_id]}
            has_changed = had_roles != roles[user_id] or any(
                had_roles and not document.is_readable_by(user_id, readable)
                for document in new_moves
            )
            for page in pages.get(user_id, ()) if has_changed else ():
                page.send_soon(log.to_json(to_frame("rights.changed", {})))
        # `add` has entered the users of pages opened meanwhile.
        self._roles_by_user = {
            pk: roles.get(pk, had_roles)
            for pk, had_roles in self._roles_by_user.items()
            if pk in pages
        }
        await asyncio.sleep(CHECK_PAUSE_SECONDS)  # the next check sees what is announced meanwhile


class MovedDocument(NamedTuple):
    """The place of a document that has just been moved."""

    pk: UUID
    moved_at: datetime
    owner_id: int
    library_id: UUID | None

    def is_readable_by(self, user_id: int, library_ids: Collection[UUID]) -> bool:
        """Whether a user who may read these libraries may read it; see `Document.visible_to`."""
        return (
            self.owner_id == user_id if self.library_id is None else self.library_id in library_ids
        )


def find_roles_and_moves(
    user_ids: Collection[int],
) -> tuple[dict[int, set[tuple[UUID, str]]], list[MovedDocument]]:
    """The libraries that each user may read, with roles, and the documents moved just now."""
    since = timezone.now() - timedelta(seconds=RIGHTS_CHECK_SECONDS) - access.MAX_CLOCK_SKEW
    rows = Document.objects.filter(moved_at__gt=since)
    places = rows.values_list("pk", "moved_at", "owner_id", "library_id", named=True)
    return list_held_roles(user_ids), [
        MovedDocument._make(row) for row in places
    ] if user_ids else []


class FrameLimit:
    """A token bucket of `MAX_FRAMES` that refills over `REFILL_SECONDS`."""

    def __init__(self) -> None:
        self._frames_left = float(MAX_FRAMES)
        self._refilled_at = time.monotonic()

    def take_frame(self) -> bool:
        """Take one frame from the bucket; False if it is empty."""
        now = time.monotonic()
        refilled = (now - self._refilled_at) * MAX_FRAMES / REFILL_SECONDS
        self._frames_left = min(MAX_FRAMES, self._frames_left + refilled) - 1.0
        self._refilled_at = now
        return self._frames_left >= 0.0


class ChatSocket(AsyncConsumer):  # type: ignore[misc]
    """The connection of one page or program."""

    user: User
    language: str
    holder: access.Principal
    credential: access.Credential

    def __init__(self) -> None:
        self._limit = FrameLimit()
        self._relays: dict[UUID, asyncio.Task[None]] = {}
        self._notices: deque[str] = deque(maxlen=MAX_WAITING_NOTICES)
        self._sending: asyncio.Task[None] | None = None
        self._handlers = {
            "ping": self._handle_ping,
            "send": self._handle_send,
            "resume": self._handle_resume,
            "stop": self._handle_stop,
            "watch": self._handle_watch,
        }

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Serve until the client disconnects or the server stops."""
        started = time.monotonic()
        try:
            await super().__call__(scope, receive, send)
        finally:
            access.unwatch_credential(self._end)
            self._unsubscribe()
            if settings.ACCESS_LOG:
                logger.info(
                    "socket",
                    path=scope["path"],
                    seconds=round(time.monotonic() - started, 1),
                    user_id=self.user.pk if hasattr(self, "user") else None,
                    address=(scope.get("client") or [""])[0],
                )

    async def websocket_connect(self, _message: Message) -> None:
        """Accept a client with a session (from our own pages) or a token."""
        credential = access.read_credential(self.scope)
        holder = await in_database(access.authenticate, credential)
        subprotocols = self.scope.get("subprotocols") or ()
        subprotocol = SUBPROTOCOL if SUBPROTOCOL in subprotocols else None
        await self.send({"type": "websocket.accept", "subprotocol": subprotocol})
        if holder is None:
            await self._close(CLOSE_UNAUTHENTICATED)
            raise StopConsumer
        if not holder.scopes & {KeyScope.READ, KeyScope.ASK}:
            await self._close(CLOSE_FORBIDDEN)
            raise StopConsumer
        self.holder, self.credential = holder, credential
        self.user = holder.user
        self.language = access.read_language(self.scope)
        if KeyScope.READ in holder.scopes:
            await NoticeListener.of_running_loop().add(self)
            await RightsWatcher.of_running_loop().add(self.user.pk)
        access.watch_credential(credential, self._end)

    async def websocket_receive(self, message: Message) -> None:
        """Handle one frame."""
        if not self._limit.take_frame():
            await self._refuse("too_many_frames", None)
            await self._close(CLOSE_TOO_MANY)
            raise StopConsumer
        await self._handle_frame(message.get("text"))

    async def websocket_disconnect(self, _message: Message) -> None:
        """The client has disconnected."""
        raise StopConsumer

    def send_soon(self, frame: str) -> None:
        """Queue a frame; the caller never waits for a page that does not read."""
        self._notices.append(frame)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_notices())

    async def _send_notices(self) -> None:
        while self._notices:
            await self._send_text(self._notices.popleft())

    async def _handle_frame(self, text: str | None) -> None:
        frame = _parse_frame(text)
        handle = self._handlers.get(frame["type"]) if frame else None
        if frame is None or handle is None:
            await self._refuse("bad_frame", None)
            return
        try:
            with bound_contextvars(request_id=uuid4().hex):
                await handle(frame)
        except NuraError as error:
            await self._refuse(error.code, frame, error.params)

    async def _handle_ping(self, _frame: Fields) -> None:
        await self._send_text(log.to_json(to_frame("pong", {"release": read_release()})))

    async def _handle_send(self, frame: Fields) -> None:
        self.holder.require(KeyScope.ASK)
        key = self.credential.token
        verdict = await limiter.consume_by_rule("ask", f"user:{self.user.pk}", key=key)
        if verdict is not None and not verdict.allowed:
            raise RateLimited.from_verdict(verdict)
        run_id, chat_id = await in_database(open_turn, self.user, frame, self.language, key)
        self._start_relay(run_id, chat_id, 0)

    async def _handle_resume(self, frame: Fields) -> None:
        self.holder.require(KeyScope.READ)
        run_id, chat_id, after_seq = await in_database(find_run, self.user, frame)
        self._start_relay(run_id, chat_id, after_seq)

    async def _handle_stop(self, frame: Fields) -> None:
        self.holder.require(KeyScope.ASK)
        await in_database(stop_run, self.user, frame)

    async def _handle_watch(self, frame: Fields) -> None:
        self.holder.require(KeyScope.READ)
        share_id = _validate(WatchFrame, frame)["share_id"]
        if not await in_database(find_live_shares, {(self.user, share_id)}):
            raise NotFound
        ShareWatcher.of_running_loop().pages[self] = share_id
        await self._send_text(log.to_json(to_frame("share.open", {"id": str(share_id)})))

    def _start_relay(self, run_id: UUID, chat_id: UUID, after_seq: int) -> None:
        previous = self._relays.pop(run_id, None)
        if previous is not None:
            previous.cancel()
        self._relays[run_id] = asyncio.create_task(self._relay_run(run_id, chat_id, after_seq))

    async def _relay_run(self, run_id: UUID, chat_id: UUID, after_seq: int) -> None:
        framer = reader.Framer(chat_id, run_id)
        async for event in reader.follow_run(run_id, after_seq):
            if event is not None:
                await self._send_text(framer.to_frame(event))
        if self._relays.get(run_id) is asyncio.current_task():
            del self._relays[run_id]

    def _unsubscribe(self) -> None:
        if not hasattr(self, "user"):
            return
        NoticeListener.of_running_loop().remove(self)
        ShareWatcher.of_running_loop().pages.pop(self, None)
        for task in (*self._relays.values(), *filter(None, [self._sending])):
            task.cancel()

    async def _end(self) -> None:
        """Close the connection: the credential is no longer valid."""
        self._unsubscribe()
        await self._close(CLOSE_UNAUTHENTICATED)

    async def _refuse(
        self, code: str, frame: Fields | None, params: dict[str, object] | None = None
    ) -> None:
        with translation.override(self.language):
            data: Fields = {"code": code, "detail": explain_code(code, params)}
        if frame is not None:
            data |= {"in_reply_to": frame.get("type"), "client_id": frame.get("client_id")}
            data |= {"errors": (params or {}).get("errors"), "run_id": frame.get("run_id")}
            data |= {"retry_after": (params or {}).get("retry_after")}
        await self._send_text(log.to_json(to_frame("error", data)))

    async def _send_text(self, frame: str) -> None:
        with suppress(OSError):  # the client has gone; Channels reports that as well
            await self.send({"type": "websocket.send", "text": frame})

    async def _close(self, code: int) -> None:
        with suppress(OSError):
            await self.send({"type": "websocket.close", "code": code})


def _parse_frame(text: str | None) -> Fields | None:
    try:
        frame = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) and isinstance(frame.get("type"), str) else None

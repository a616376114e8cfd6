"""The socket `/ws/chat/`: authenticates, relays runs and notices, decides nothing.

Runs are relayed by tasks of their own, since a socket handles one frame at a time: "stop" must be
read meanwhile.
"""

import asyncio
import json
from typing import Any
from uuid import UUID

import structlog
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.models import User
from django.utils import translation

from chats import access, commands
from chats.calls import in_database
from chats.limits import FrameLimit
from chats.runs import reader
from chats.runs.log import to_json
from chats.runs.reader import Framer
from chats.serializers import envelope
from documents.errors import explain_code
from rag.errors import NuraError

logger = structlog.get_logger()

CLOSE_UNAUTHENTICATED = 4401
CLOSE_TOO_MANY = 4429
SUBPROTOCOL = "nura.v1"


class ChatConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One open page or program."""

    user: User

    async def connect(self) -> None:
        """Let in who has a session (from our own pages) or a token."""
        self.relays: dict[str, asyncio.Task[None]] = {}
        self.limit = FrameLimit()
        credential = access.read_credential(self.scope)
        (user,) = await in_database(access.find_users, [credential])
        offered = self.scope.get("subprotocols") or []
        await self.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        if user is None:
            await self.close(CLOSE_UNAUTHENTICATED)
            return
        self.user = user
        self.language = access.read_language(self.scope)
        await self.channel_layer.group_add(self.group, self.channel_name)
        access.watch_credential(credential, self._leave)

    async def disconnect(self, code: int) -> None:
        """Stop relaying; the runs go on."""
        self._stop_relays()
        access.forget_credential(self._leave)
        if hasattr(self, "user"):
            await self.channel_layer.group_discard(self.group, self.channel_name)

    @property
    def group(self) -> str:
        """The channel-layer group of the user's notices."""
        return f"user.{self.user.pk}"

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """One frame of the client."""
        if not hasattr(self, "user"):
            return
        if not self.limit.allows():
            await self._refuse("too_many_frames", None)
            await self.close(CLOSE_TOO_MANY)
            return
        frame = _parsed(text_data)
        handler = getattr(self, f"on_{frame.get('type')}", None) if frame else None
        if frame is None or handler is None:
            await self._refuse("bad_frame", None)
            return
        try:
            await handler(frame)
        except NuraError as error:
            await self._refuse(error.code, frame, error.params)

    async def on_ping(self, frame: dict[str, Any]) -> None:
        """Answer a sign of life."""
        await self._send(envelope("pong", {}))

    async def on_send(self, frame: dict[str, Any]) -> None:
        """Open a turn and relay its run."""
        run_id, chat_id = await in_database(commands.send, self.user, frame, self.language)
        self._relay(run_id, chat_id, 0)

    async def on_resume(self, frame: dict[str, Any]) -> None:
        """Relay a run from where the client left off."""
        run_id, chat_id, after_seq = await in_database(commands.resume, self.user, frame)
        self._relay(run_id, chat_id, after_seq)

    async def on_stop(self, frame: dict[str, Any]) -> None:
        """Ask for the end of a run."""
        await in_database(commands.stop, self.user, frame)

    async def notice(self, message: dict[str, Any]) -> None:
        """A notice from the channel layer: a document or a chat has changed."""
        payload = message["payload"]
        await self._send(envelope(payload["type"], payload["data"]))

    def _stop_relays(self) -> None:
        for task in self.relays.values():
            task.cancel()

    def _relay(self, run_id: UUID, chat_id: UUID, after_seq: int) -> None:
        before = self.relays.pop(str(run_id), None)
        if before is not None:
            before.cancel()
        self.relays[str(run_id)] = asyncio.create_task(self._follow(run_id, chat_id, after_seq))

    async def _follow(self, run_id: UUID, chat_id: UUID, after_seq: int) -> None:
        framer = Framer(chat_id, run_id)
        async for event in reader.follow_run(run_id, after_seq):
            if event is not None:
                await self.send(text_data=framer.frame(event))
        if self.relays.get(str(run_id)) is asyncio.current_task():
            del self.relays[str(run_id)]

    async def _leave(self) -> None:
        """The user's rights have ended: nothing more is told."""
        self._stop_relays()
        await self.close(CLOSE_UNAUTHENTICATED)

    async def _refuse(
        self, code: str, frame: dict[str, Any] | None, params: dict[str, object] | None = None
    ) -> None:
        with translation.override(self.language):
            data: dict[str, Any] = {"code": code, "detail": explain_code(code, params)}
        if frame is not None:
            data |= {"in_reply_to": frame.get("type"), "client_id": frame.get("client_id")}
            data |= {"errors": (params or {}).get("errors"), "run_id": frame.get("run_id")}
        await self._send(envelope("error", data))

    async def _send(self, frame: dict[str, Any]) -> None:
        await self.send(text_data=to_json(frame))


def _parsed(text: str | None) -> dict[str, Any] | None:
    try:
        frame = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) and isinstance(frame.get("type"), str) else None

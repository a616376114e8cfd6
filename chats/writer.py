"""The writing end of a run's log: what one run has to say, and what of it stands in Redis."""

import asyncio
from contextlib import suppress
from typing import Any
from uuid import UUID

import structlog
from redis.exceptions import RedisError

from chats import flushing, runs
from chats.errors import RunLost
from chats.runs import RunEvent
from jobs import connections

logger = structlog.get_logger()

CLOSE_SECONDS = 20.0
"""How long `close` waits for a Redis that is away.

After that readers are served from the database.
"""


class Said:
    """Text that grows: joined when somebody asks for it, and each part of it only once."""

    def __init__(self, text: str = "") -> None:
        self._parts = [text]

    def add(self, text: str) -> None:
        """More of it."""
        self._parts.append(text)

    def replace(self, text: str) -> None:
        """Another text in its place."""
        self._parts = [text]

    def __str__(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]


class RunWriter:
    """Keeps all events of its run: what Redis loses is written again, same `seq`."""

    def __init__(self, run_id: UUID) -> None:
        self.run_id = run_id
        self.key = runs.key(run_id)
        self.events: list[RunEvent] = []
        self.written = 0
        """How many of them Redis has confirmed."""
        self.prolonged = False
        self.lost = False
        """Somebody else writes this log."""
        self._text, self._reasoning = Said(), Said()
        self._flowing = ""
        self._unsealed: list[str] = []
        self._settled = asyncio.Event()
        self._flusher: flushing.Flusher | None = None
        self._speaking = False

    async def open(self) -> None:
        """Take over what was written before (opening, earlier attempt)."""
        with suppress(RedisError):  # then the log is written whole at the first flush
            self.events = await self.stored()
        self.written = len(self.events)
        self._text = Said(runs.text_of(self.events))
        self._reasoning = Said(runs.reasoning_of(self.events))
        self._flusher = flushing.of_this_loop()

    @property
    def text(self) -> str:
        """The answer so far."""
        return str(self._text)

    @property
    def reasoning(self) -> str:
        """What the model thought aloud so far."""
        return str(self._reasoning)

    def add(self, kind: str, data: Any) -> None:
        """Append an event; a delta joins an unsent one before it."""
        if kind in runs.FLOWING:
            self._flow(kind, _storable(data["text"]))
        else:
            self.seal()
            if kind == runs.REPLACE:
                self._text.replace(data["text"])
            self.events.append(RunEvent(len(self.events) + 1, kind, data))
        if self._flusher is not None and not self.lost:
            self._settled.clear()
            self._flusher.add(self)

    def _flow(self, kind: str, text: str) -> None:
        if kind != self._flowing:
            self.seal()
            self._flowing = kind
        self._unsealed.append(text)
        (self._text if kind == runs.DELTA else self._reasoning).add(text)
        if kind == runs.DELTA and not self._speaking:
            self._speaking = True
            if self._flusher is not None:
                self._flusher.hurry()

    def seal(self) -> None:
        """Make an event of the text that has gathered."""
        if self._unsealed:
            encoded = runs.text_json("".join(self._unsealed))
            self.events.append(RunEvent.stored(len(self.events) + 1, self._flowing, encoded))
            self._unsealed = []
        self._flowing = ""

    @property
    def attached(self) -> bool:
        """True until it was closed or abandoned."""
        return self._flusher is not None

    @property
    def unwritten(self) -> list[RunEvent]:
        """What Redis has not confirmed yet."""
        return self.events[self.written :]

    def confirm(self, count: int) -> None:
        """That many events stand in the log."""
        self.written = count
        self.prolonged = True
        if self._whole:
            self._settled.set()

    @property
    def _whole(self) -> bool:
        return self.written == len(self.events) and not self._unsealed

    async def agree(self) -> None:
        """Look what stands in the log: ours as far as it goes, or somebody else's."""
        stored = await self.stored()
        if stored == self.events[: len(stored)]:
            self.written, self.prolonged = len(stored), False
        else:
            self.lost = True
            self._settled.set()

    async def close(self) -> None:
        """Write what is left. Gives up after `CLOSE_SECONDS`; raises `RunLost`."""
        if self._flusher is not None and not self._whole:
            self._flusher.hurry()
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._settled.wait()
            except TimeoutError:
                logger.warning("run_log_not_closed", run_id=str(self.run_id))
        await self.abandon()
        if self.lost:
            raise RunLost

    async def abandon(self) -> None:
        """Stop writing."""
        if self._flusher is not None:
            self._flusher.forget(self)
            self._flusher = None

    async def stored(self) -> list[RunEvent]:
        """What stands in the log."""
        rows = await connections.asynchronous().xrange(self.key)
        return [runs.decode(*entry) for entry in rows]


def _storable(text: str) -> str:
    """Without what neither Redis nor the database takes: halves of characters and NUL."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "")

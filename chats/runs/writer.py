"""The writing end of a run's log: what one run has to say, and what of it stands in Redis.

An event loop sends Redis what all its runs have to say in one call. Text gathers for a moment
between two calls, and what is told of the preparations before one; the first words of an answer do
not wait, and take along what gathered.
"""

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.utils import timezone
from redis.exceptions import RedisError

from chats.errors import RunLost
from chats.runs import log
from chats.runs.log import RunEvent
from jobs import connections
from jobs.background import LoopTask
from jobs.connections import Script

logger = structlog.get_logger()

CLOSE_SECONDS = 20.0
"""How long `close` waits for a Redis that is away.

After that readers are served from the database.
"""
COALESCE_SECONDS = 0.025
PREPARING_SECONDS = 0.1
"""So long, which nobody notices, what is told of the preparations waits for the first words.

Where these come sooner, a page is told everything at once, and nothing is sent while they are
prepared.
"""

APPEND = Script("""
local at, found = 1, {}
for number, key in ipairs(KEYS) do
  local known, seconds, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local there = redis.call('XLEN', key)
  found[number] = there
  if there == known then
    for entry = 1, count do
      local place = at + 1 + 2 * entry
      redis.call('XADD', key, (known + entry) .. '-0', 'type', ARGV[place], 'data', ARGV[place + 1])
    end
    if seconds > 0 then redis.call('EXPIRE', key, seconds) end
  end
  at = at + 3 + 2 * count
end
return found
""")
"""Appends to each log that is as long as its writer believes, and tells how long each was.

A log that is shorter lost something, one that is longer was written by somebody else as well; both
are left as they are.
"""


class GrowingText:
    """Text that grows: joined when somebody asks for it, and each part of it only once.

    The heartbeat's thread asks too, while the loop adds.
    """

    def __init__(self, text: str = "") -> None:
        self._parts = [text]

    def add(self, text: str) -> None:
        """More of it."""
        self._parts.append(text)

    def replace(self, text: str) -> None:
        """Another text in its place."""
        self._parts = [text]

    def __str__(self) -> str:
        parts = self._parts
        count = len(parts)
        text = "".join(parts[:count])
        parts[:count] = [text]  # what was added meanwhile stays behind it
        return text


class RunWriter:
    """Keeps all events of its run: what Redis loses is written again, same `seq`."""

    def __init__(self, run_id: UUID, *, closed_seconds: int = log.CLOSED_SECONDS) -> None:
        self.run_id = run_id
        self.closed_seconds = closed_seconds
        """The log is kept so long behind its last event."""
        self.key = log.make_log_key(run_id)
        self.events: list[RunEvent] = []
        self.written = 0
        """How many of them Redis has confirmed."""
        self.prolonged = False
        self.lost = False
        """Somebody else writes this log."""
        self._text, self._reasoning = GrowingText(), GrowingText()
        self._text_kind = ""
        self._unsealed: list[str] = []
        self._settled = asyncio.Event()
        self._flusher: Flusher | None = None
        self.spoke_at: datetime | None = None
        """When the first word of the answer came."""

    async def open(self) -> None:
        """Take over what was written before (opening, earlier attempt)."""
        with suppress(RedisError):  # then the log is written whole at the first flush
            self.events = await self.read_log()
        self.written = len(self.events)
        self._text = GrowingText(log.join_text(self.events))
        self._reasoning = GrowingText(log.join_reasoning(self.events))
        self._flusher = Flusher.of_running_loop()

    def begin(self, *events: RunEvent) -> None:
        """Write a log that is known to hold these events, and to be young."""
        self.events = [*events]
        self.written, self.prolonged = len(events), bool(events)
        self._flusher = Flusher.of_running_loop()

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
        if kind in log.FLOWING:
            self._add_text(kind, _drop_unstorable(data["text"]))
        else:
            self.seal()
            if kind == log.REPLACE:
                self._text.replace(data["text"])
            self.events.append(RunEvent(len(self.events) + 1, kind, data))
        if self._flusher is not None and not self.lost:
            self._settled.clear()
            self._flusher.add(self, soon=kind not in log.PREPARING)

    def _add_text(self, kind: str, text: str) -> None:
        if kind != self._text_kind:
            self.seal()
            self._text_kind = kind
        self._unsealed.append(text)
        (self._text if kind == log.DELTA else self._reasoning).add(text)
        if kind == log.DELTA and self.spoke_at is None:
            self.spoke_at = timezone.now()
            if self._flusher is not None:
                self._flusher.flush_soon()

    def seal(self) -> None:
        """Make an event of the text that has gathered."""
        if self._unsealed:
            encoded = log.to_text_json("".join(self._unsealed))
            self.events.append(
                RunEvent.from_encoded(len(self.events) + 1, self._text_kind, encoded)
            )
            self._unsealed = []
        self._text_kind = ""

    @property
    def is_attached(self) -> bool:
        """True until it was closed or abandoned."""
        return self._flusher is not None

    def confirm(self, count: int) -> None:
        """Note how many events the log has."""
        self.written = count
        self.prolonged = True
        if self._is_whole:
            self._settled.set()

    @property
    def _is_whole(self) -> bool:
        return self.written == len(self.events) and not self._unsealed

    async def compare_with_log(self) -> None:
        """Check whether the log holds our events, or another writer's."""
        stored = await self.read_log()
        if stored == self.events[: len(stored)]:
            self.written, self.prolonged = len(stored), False
        else:
            self.lost = True
            self._settled.set()

    async def close(self) -> None:
        """Write what is left. Gives up after `CLOSE_SECONDS`; raises `RunLost`."""
        if self._flusher is not None and not self._is_whole:
            self._flusher.flush_soon()
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

    async def read_log(self) -> list[RunEvent]:
        """The events that the log holds."""
        rows = await connections.asynchronous().xrange(self.key)
        return [log.from_entry(log.to_seq(entry_id), fields) for entry_id, fields in rows]


def _drop_unstorable(text: str) -> str:
    """The text without what neither Redis nor the database takes: lone surrogates and NUL."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "")


class Flusher(LoopTask):
    """Writes for all runs of an event loop."""

    TROUBLE = "run_logs_unwritable"

    def __init__(self) -> None:
        self._dirty: dict[RunWriter, None] = {}
        self._has_work = asyncio.Event()
        self._urgent = asyncio.Event()

    def add(self, writer: RunWriter, *, soon: bool = True) -> None:
        """The writer has something new, which may wait for more unless it is to be told `soon`."""
        self._dirty[writer] = None
        if soon:
            self._has_work.set()
        else:
            asyncio.get_running_loop().call_later(PREPARING_SECONDS, self._has_work.set)

    def flush_soon(self) -> None:
        """Send without waiting for more: somebody is waiting."""
        self._urgent.set()

    def forget(self, writer: RunWriter) -> None:
        """Write nothing more for this writer."""
        self._dirty.pop(writer, None)

    async def run_round(self) -> None:
        """Send what has gathered, once there is something."""
        await self._has_work.wait()
        self._has_work.clear()
        self._urgent.clear()  # what is urgent so far goes along
        writers, self._dirty = list(self._dirty), {}
        if not writers:
            return  # they went along with something else
        try:
            await self._flush(writers)
        except (RedisError, OSError):
            self._requeue(writers)
            raise
        await self._wait_for_more()

    async def _wait_for_more(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(COALESCE_SECONDS):
                await self._urgent.wait()
        self._urgent.clear()

    async def _flush(self, writers: list[RunWriter]) -> None:
        keys: list[str] = []
        arguments: list[Any] = []
        counts: list[int] = []
        for writer in writers:
            writer.seal()
            keys.append(writer.key)
            counts.append(len(writer.events))
            arguments += _build_arguments(writer)
        lengths = await APPEND.run(keys, arguments)
        unclear = []
        for writer, length, count in zip(writers, lengths, counts, strict=True):
            if length == writer.written:
                writer.confirm(count)
            else:
                unclear.append(writer)
        for writer in unclear:  # Redis forgot, an answer of it got lost, or somebody else writes
            await writer.compare_with_log()
            logger.warning("run_log_differs", run_id=str(writer.run_id), lost=writer.lost)
        self._requeue([writer for writer in unclear if not writer.lost])

    def _requeue(self, writers: list[RunWriter]) -> None:
        for writer in writers:
            if writer.is_attached:
                self.add(writer)


def _build_arguments(writer: RunWriter) -> list[Any]:
    """Length that the log should have, seconds to keep it (0: as it is), entries with their parts.

    A log that was emptied lost its time to live too.
    """
    events = writer.events[writer.written :]  # what Redis has not confirmed yet
    seconds = 0 if writer.prolonged else log.OPEN_SECONDS
    if events and events[-1].terminal:
        seconds = writer.closed_seconds
    parts: list[Any] = [writer.written, seconds, len(events)]
    for event in events:
        parts += (event.type, event.encoded)
    return parts

"""Writing the logs of runs: each run's events, and how many of them Redis has.

An event loop sends the new events of all its runs to Redis in one call. Text is collected for a
moment between two calls, and so are the events of the steps before the text; the first words of an
answer do not wait, and take the collected events along.
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
"""How long `close` waits while Redis is down; then readers are served from the database."""
COALESCE_SECONDS = 0.025
"""How long text is collected after a write ..."""
CROWD, CROWDED_SECONDS = range(24, 256), 0.05
"""... and after a write to so many logs.

Each write wakes Redis and every web process, whatever is in it. A write to more logs than these
takes so long that enough is collected meanwhile.
"""
PREPARING_SECONDS = 0.1
"""How long the events of the steps before the text wait for the first words; too short to notice.

If these come sooner, a page gets everything at once, and nothing is sent while the prompt is built.
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
"""Appends to each log that is as long as its writer believes, and returns how long each was.

A shorter log has lost entries, a longer one has another writer; both are left as they are.
"""


class GrowingText:
    """Text that grows by parts; each part is joined once, when `str()` is called.

    The heartbeat's thread calls that while the loop adds parts.
    """

    def __init__(self, text: str = "") -> None:
        self._parts = [text]

    def add(self, text: str) -> None:
        """Append a part."""
        self._parts.append(text)

    def replace(self, text: str) -> None:
        """Replace all of the text."""
        self._parts = [text]

    def __str__(self) -> str:
        parts = self._parts
        count = len(parts)
        text = "".join(parts[:count])
        parts[:count] = [text]  # parts added meanwhile stay behind it
        return text


class RunWriter:
    """Holds all events of a run; entries that Redis loses are written again with the same `seq`."""

    def __init__(self, run_id: UUID, *, closed_seconds: int = log.CLOSED_SECONDS) -> None:
        self.run_id = run_id
        self.closed_seconds = closed_seconds
        """How long the log is kept after its last event."""
        self.key = log.make_log_key(run_id)
        self.events: list[RunEvent] = []
        self.written = 0
        """How many of them Redis has confirmed."""
        self.has_expiry = False
        """The log is known to have its expiry."""
        self.has_other_writer = False
        self._text, self._reasoning = GrowingText(), GrowingText()
        self._text_kind = ""
        self._unsealed: list[str] = []
        self._settled = asyncio.Event()
        """Set while Redis has all events, and once there is another writer."""
        self._flusher: Flusher | None = None
        self.first_word_at: datetime | None = None

    async def open(self) -> None:
        """Load what has been written already: the opening, an earlier attempt."""
        with suppress(RedisError):  # then the log is written whole at the first flush
            self.events = await self.read_log()
        self.written = len(self.events)
        self._text = GrowingText(log.join_text(self.events))
        self._reasoning = GrowingText(log.join_reasoning(self.events))
        self._flusher = Flusher.of_running_loop()

    def begin(self, *events: RunEvent) -> None:
        """Begin with a log that is known to hold these events, and to have its expiry."""
        self.events = [*events]
        self.written, self.has_expiry = len(events), bool(events)
        self._flusher = Flusher.of_running_loop()

    @property
    def text(self) -> str:
        """The answer so far."""
        return str(self._text)

    @property
    def reasoning(self) -> str:
        """The model's reasoning so far."""
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
        if self._flusher is not None and not self.has_other_writer:
            self._settled.clear()
            self._flusher.add(self, soon=kind not in log.PREPARING)

    def _add_text(self, kind: str, text: str) -> None:
        if kind != self._text_kind:
            self.seal()
            self._text_kind = kind
        self._unsealed.append(text)
        (self._text if kind == log.DELTA else self._reasoning).add(text)
        if kind == log.DELTA and self.first_word_at is None:
            self.first_word_at = timezone.now()
            if self._flusher is not None:
                self._flusher.flush_soon()

    def seal(self) -> None:
        """Turn the collected text into an event."""
        if self._unsealed:
            encoded = log.to_text_json("".join(self._unsealed))
            self.events.append(
                RunEvent.from_encoded(len(self.events) + 1, self._text_kind, encoded)
            )
            self._unsealed = []
        self._text_kind = ""

    @property
    def is_attached(self) -> bool:
        """True until it is closed or abandoned."""
        return self._flusher is not None

    def confirm(self, count: int) -> None:
        """Note that the log has `count` events, and its expiry."""
        self.written = count
        self.has_expiry = True
        if self._is_whole:
            self._settled.set()

    @property
    def _is_whole(self) -> bool:
        return self.written == len(self.events) and not self._unsealed

    async def compare_with_log(self) -> None:
        """Check whether the log still begins with our events, or has another writer's."""
        stored = await self.read_log()
        if stored == self.events[: len(stored)]:
            self.written, self.has_expiry = len(stored), False
        else:
            self.has_other_writer = True
            self._settled.set()

    async def close(self) -> None:
        """Write what is left, waiting at most `CLOSE_SECONDS`. Raises `RunLost`."""
        if self._flusher is not None and not self._is_whole:
            self._flusher.flush_soon()
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._settled.wait()
            except TimeoutError:
                logger.warning("run_log_not_closed", run_id=str(self.run_id))
        await self.abandon()
        if self.has_other_writer:
            raise RunLost

    async def abandon(self) -> None:
        """Stop writing."""
        if self._flusher is not None:
            self._flusher.forget(self)
            self._flusher = None

    async def read_log(self) -> list[RunEvent]:
        """The events that the log holds."""
        rows = await connections.get_async_client().xrange(self.key)
        return [log.from_entry(log.to_seq(entry_id), fields) for entry_id, fields in rows]


def _drop_unstorable(text: str) -> str:
    """The text without NUL, and with `?` for lone surrogates: neither can be stored."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "")


class Flusher(LoopTask):
    """Writes the logs of all runs of an event loop."""

    TROUBLE = "run_logs_unwritable"

    def __init__(self) -> None:
        self._dirty: dict[RunWriter, None] = {}
        self._has_work = asyncio.Event()
        self._urgent = asyncio.Event()

    def add(self, writer: RunWriter, *, soon: bool = True) -> None:
        """Note that the writer has new events; unless `soon`, they may wait for more."""
        self._dirty[writer] = None
        if soon:
            self._has_work.set()
        else:
            asyncio.get_running_loop().call_later(PREPARING_SECONDS, self._has_work.set)

    def flush_soon(self) -> None:
        """Send without collecting more: somebody is waiting."""
        self._urgent.set()

    def forget(self, writer: RunWriter) -> None:
        """Write nothing more for this writer."""
        self._dirty.pop(writer, None)

    async def run_round(self) -> None:
        """Wait for new events, then send all that have been collected."""
        await self._has_work.wait()
        self._has_work.clear()
        self._urgent.clear()  # whatever is urgent by now is sent in this round
        writers, self._dirty = list(self._dirty), {}
        if not writers:
            return  # they were sent in an earlier round
        try:
            await self._flush(writers)
        except (RedisError, OSError):
            self._requeue(writers)
            raise
        is_crowded = len(writers) in CROWD
        await self._wait_for_more(CROWDED_SECONDS if is_crowded else COALESCE_SECONDS)

    async def _wait_for_more(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
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
        for writer in unclear:  # Redis lost entries, its reply was lost, or there is another writer
            await writer.compare_with_log()
            logger.warning(
                "run_log_differs", run_id=str(writer.run_id), lost=writer.has_other_writer
            )
        self._requeue([writer for writer in unclear if not writer.has_other_writer])

    def _requeue(self, writers: list[RunWriter]) -> None:
        for writer in writers:
            if writer.is_attached:
                self.add(writer)


def _build_arguments(writer: RunWriter) -> list[Any]:
    """Arguments of `APPEND`: the expected length, the new expiry in seconds (0: none), the entries.

    A log that Redis lost has lost its expiry too.
    """
    events = writer.events[writer.written :]  # what Redis has not confirmed yet
    seconds = 0 if writer.has_expiry else log.OPEN_SECONDS
    if events and events[-1].terminal:
        seconds = writer.closed_seconds
    parts: list[Any] = [writer.written, seconds, len(events)]
    for event in events:
        parts += (event.type, event.encoded)
    return parts

"""Writing many logs at once: an event loop sends Redis what all its runs have to say in one call.

Text gathers for a moment between two calls; the first words of an answer do not wait.
"""

import asyncio
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import structlog
from redis.exceptions import RedisError

from chats import runs
from jobs import connections

if TYPE_CHECKING:
    from chats.writer import RunWriter

logger = structlog.get_logger()

COALESCE_SECONDS = 0.025
RETRY_SECONDS = 0.5

APPEND = """
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
"""
"""Appends to each log that is as long as its writer believes, and tells how long each was.

A log that is shorter lost something, one that is longer was written by somebody else as well; both
are left as they are.
"""


class Flusher:
    """Writes for all runs of an event loop."""

    def __init__(self) -> None:
        self._dirty: dict[RunWriter, None] = {}
        self._something = asyncio.Event()
        self._urgent = asyncio.Event()
        self._append = connections.asynchronous().register_script(APPEND)
        # A context of its own: it serves all runs, not only the one that came first.
        self._task = asyncio.create_task(self._run(), context=Context())

    def add(self, writer: "RunWriter") -> None:
        """The writer has something new."""
        self._dirty[writer] = None
        self._something.set()

    def hurry(self) -> None:
        """Somebody waits for the next call."""
        self._urgent.set()

    def forget(self, writer: "RunWriter") -> None:
        """The writer wants nothing written any more."""
        self._dirty.pop(writer, None)

    async def _run(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            writers, self._dirty = list(self._dirty), {}
            try:
                await self._flush(writers)
            except (RedisError, OSError) as error:
                logger.warning("run_logs_unwritable", runs=len(writers), error=str(error)[:200])
                await asyncio.sleep(RETRY_SECONDS)
                self._again(writers)
                continue
            await self._coalesce()

    async def _coalesce(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(COALESCE_SECONDS):
                await self._urgent.wait()
        self._urgent.clear()

    async def _flush(self, writers: list["RunWriter"]) -> None:
        keys: list[str] = []
        arguments: list[Any] = []
        sealed: list[int] = []
        for writer in writers:
            writer.seal()
            keys.append(writer.key)
            sealed.append(len(writer.events))
            arguments += _arguments(writer)
        found = await self._append(keys=keys, args=arguments)
        unclear = []
        for writer, length, count in zip(writers, found, sealed, strict=True):
            if length == writer.written:
                writer.confirm(count)
            else:
                unclear.append(writer)
        for writer in unclear:  # Redis forgot, an answer of it got lost, or somebody else writes
            await writer.agree()
            logger.warning("run_log_differs", run_id=str(writer.run_id), lost=writer.lost)
        self._again([writer for writer in unclear if not writer.lost])

    def _again(self, writers: list["RunWriter"]) -> None:
        for writer in writers:
            if writer.attached:
                self.add(writer)


def _arguments(writer: "RunWriter") -> list[Any]:
    """Length that the log should have, seconds to keep it (0: as it is), entries with their parts.

    A log that was emptied lost its time to live too.
    """
    events = writer.unwritten
    seconds = 0 if writer.prolonged else runs.OPEN_SECONDS
    if events and events[-1].terminal:
        seconds = runs.CLOSED_SECONDS
    parts: list[Any] = [writer.written, seconds, len(events)]
    for event in events:
        parts += (event.type, event.encoded)
    return parts


_flushers: WeakKeyDictionary[asyncio.AbstractEventLoop, Flusher] = WeakKeyDictionary()


def of_this_loop() -> Flusher:
    """The one that writes for the running loop."""
    loop = asyncio.get_running_loop()
    flusher = _flushers.get(loop)
    if flusher is None:
        flusher = _flushers[loop] = Flusher()
    return flusher

"""The writing end of a run's log: coalesces deltas, survives a Redis that goes away or forgets."""

import asyncio
from contextlib import suppress
from typing import Any
from uuid import UUID

import structlog
from redis.exceptions import RedisError, ResponseError

from chats import connections, runs
from chats.errors import RunLost
from chats.runs import RunEvent

logger = structlog.get_logger()

COALESCE_SECONDS = 0.025
RETRY_SECONDS = 0.5
CLOSE_SECONDS = 20.0
"""How long `close` waits for a Redis that is away.

After that readers are served from the database.
"""


class RunWriter:
    """Keeps all events of its run: what Redis loses is written again, same `seq`."""

    def __init__(self, run_id: UUID) -> None:
        self.run_id = run_id
        self.events: list[RunEvent] = []
        self._written = 0
        self._sealed = 0
        self._dirty = asyncio.Event()
        self._first_words = asyncio.Event()
        self._speaking = False
        self._flusher: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take over what was written before (opening, earlier attempt); start the flusher."""
        with suppress(RedisError):  # then the log is written whole at the first flush
            self.events = [runs.decode(*entry) for entry in await self._stored()]
        self._written = self._sealed = len(self.events)
        self._flusher = asyncio.create_task(self._flush_when_dirty())

    @property
    def text(self) -> str:
        """The answer so far."""
        return runs.text_of(self.events)

    @property
    def reasoning(self) -> str:
        """What the model thought aloud so far."""
        return runs.reasoning_of(self.events)

    def add(self, kind: str, data: Any) -> None:
        """Append an event; a delta joins an unsent one before it."""
        last = self.events[-1] if len(self.events) > self._sealed else None
        if kind in runs.FLOWING and last is not None and last.type == kind:
            text = last.data["text"] + data["text"]
            self.events[-1] = RunEvent(last.seq, kind, {"text": text})
        else:
            self.events.append(RunEvent(len(self.events) + 1, kind, runs.plain(data)))
        if kind == runs.DELTA and not self._speaking:
            self._speaking = True
            self._first_words.set()
        self._dirty.set()

    async def close(self) -> None:
        """Write what is left. Gives up after `CLOSE_SECONDS`."""
        await self.abandon()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while not await self._flush():
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            logger.warning("run_log_not_closed", run_id=str(self.run_id))

    async def abandon(self) -> None:
        """Stop writing."""
        if self._flusher is not None:
            self._flusher.cancel()
            with suppress(asyncio.CancelledError, RunLost):
                await self._flusher
            self._flusher = None

    async def _flush_when_dirty(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if await self._flush():
                await self._coalesce()
            else:
                self._dirty.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _coalesce(self) -> None:
        """Let deltas gather for a moment; the first one of an answer does not wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(COALESCE_SECONDS):
                await self._first_words.wait()
        self._first_words.clear()

    async def _flush(self) -> bool:
        """Write all unsent events; False when Redis did not take them."""
        self._sealed = len(self.events)
        try:
            length = await self._append(self.events[self._written : self._sealed])
            if length < self._sealed:  # Redis forgot: restarted without its file, or flushed
                await self._rewrite()
        except ResponseError:  # an id was taken: a write whose answer got lost, or another worker's
            self._written = await self._agreed()
            return False
        except (RedisError, OSError) as error:
            logger.warning("run_log_unwritable", run_id=str(self.run_id), error=str(error)[:200])
            return False
        self._written = self._sealed
        return True

    async def _append(self, events: list[RunEvent]) -> int:
        async with connections.asynchronous().pipeline(transaction=True) as pipe:
            for event in events:
                pipe.xadd(self._key, runs.encode(event), id=f"{event.seq}-0")
            ended = bool(self.events) and self.events[-1].terminal
            pipe.expire(self._key, runs.CLOSED_SECONDS if ended else runs.OPEN_SECONDS)
            pipe.xlen(self._key)
            return int((await pipe.execute())[-1])

    async def _rewrite(self) -> None:
        async with connections.asynchronous().pipeline(transaction=True) as pipe:
            pipe.delete(self._key)
            for event in self.events[: self._sealed]:
                pipe.xadd(self._key, runs.encode(event), id=f"{event.seq}-0")
            pipe.expire(self._key, runs.OPEN_SECONDS)
            await pipe.execute()

    async def _agreed(self) -> int:
        """How many of our events stand in the log.

        Raises `RunLost` when it holds somebody else's.
        """
        stored = [runs.decode(*entry) for entry in await self._stored()]
        if stored != self.events[: len(stored)]:
            raise RunLost
        return len(stored)

    async def _stored(self) -> list[Any]:
        return list(await connections.asynchronous().xrange(self._key))

    @property
    def _key(self) -> str:
        return runs.key(self.run_id)

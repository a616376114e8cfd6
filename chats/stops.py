"""Stop requests as a worker hears them.

One subscription an event loop, and the flag for those who come late.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from redis.exceptions import RedisError

from chats.runs import log
from jobs import connections

logger = structlog.get_logger()

RETRY_SECONDS = 0.5


class Listener:
    """Hears the stop channel and wakes the runs that wait for their name."""

    def __init__(self) -> None:
        self.waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        # A context of its own: it serves all runs, not only the one that came first.
        self.task = asyncio.create_task(self._listen(), context=Context())

    async def _listen(self) -> None:
        deaf = False
        while True:
            try:
                async with connections.asynchronous().pubsub() as channel:
                    await channel.subscribe(log.STOP_CHANNEL)
                    await self._catch_up()
                    deaf = False
                    async for message in channel.listen():
                        self._wake(str(message["data"]))
            except (RedisError, OSError) as error:
                if not deaf:  # once an outage
                    logger.warning("stops_not_heard", error=str(error)[:200])
                deaf = True
                await asyncio.sleep(RETRY_SECONDS)

    async def _catch_up(self) -> None:
        """Requests made while nobody listened left their flag."""
        for run_id in list(self.waiting):
            if await connections.asynchronous().exists(log.stop_flag_key(UUID(run_id))):
                self._wake(run_id)

    def _wake(self, run_id: str) -> None:
        for event in self.waiting.get(run_id, ()):
            event.set()


_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, Listener] = WeakKeyDictionary()


@asynccontextmanager
async def watch(run_id: UUID) -> AsyncIterator[asyncio.Event]:
    """An event that is set as soon as a stop of the run is asked for, or was before."""
    loop = asyncio.get_running_loop()
    if loop not in _listeners:
        _listeners[loop] = Listener()
    listener = _listeners[loop]
    event = asyncio.Event()
    listener.waiting[str(run_id)].add(event)
    try:
        try:
            if await connections.asynchronous().exists(log.stop_flag_key(run_id)):
                event.set()
        except RedisError as error:
            logger.warning("stop_flag_unreadable", error=str(error)[:200])
        yield event
    finally:
        listener.waiting[str(run_id)].discard(event)
        if not listener.waiting[str(run_id)]:
            del listener.waiting[str(run_id)]

"""Reading many logs with one connection: an event loop asks Redis once for all its followers.

A follower says from which `seq` on it reads and takes entries as they come. What it does not take
waits in Redis and not here, so that a slow reader costs nobody anything.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import structlog
from redis.exceptions import RedisError

from jobs import connections

logger = structlog.get_logger()

BLOCK_SECONDS = 2.0
"""How long Redis is asked to wait for something new."""
HANGING_SECONDS = 3.0
"""A Redis that is so late with an answer hangs."""
RETRY_SECONDS = 0.5
AT_ONCE = 200
"""Entries of one log that are read together."""
HELD = 400
"""Entries that wait for one follower at the most, give or take one reading."""
PAUSE_SECONDS = 10e-6
"""Pause after a reading for each log in it, as the next one costs that much again."""
KNOCK_SECONDS = 3600

Entry = tuple[int, Mapping[str, str]]


class Follower:
    """One reader of one log."""

    def __init__(self, relay: "Relay", key: str, after_seq: int) -> None:
        self.key = key
        self.seq = after_seq
        """The last entry that was handed over to it."""
        self._relay = relay
        self._entries: deque[Entry] = deque()
        self._arrival: asyncio.Future[None] | None = None

    @property
    def full(self) -> bool:
        """True while it has enough to do."""
        return len(self._entries) >= HELD

    async def next(self, patience: float) -> Entry | None:
        """The next entry; None when nothing came for `patience` seconds."""
        if not self._entries:
            loop = asyncio.get_running_loop()
            self._arrival = loop.create_future()
            over = loop.call_later(patience, self._wake)
            try:
                await self._arrival
            finally:
                over.cancel()
                self._arrival = None
            if not self._entries:
                return None
        was_full = self.full
        entry = self._entries.popleft()
        if was_full and not self.full:
            self._relay.look_again()
        return entry

    def take(self, entries: list[Entry], after_seq: int) -> None:
        """Keep what it has not had yet of all entries behind `after_seq`.

        Nothing when it stands before that: it came, or became free, while they were asked for.
        """
        if self.full or self.seq < after_seq:
            return
        for entry in entries:
            if entry[0] > self.seq:
                self.seq = entry[0]
                self._entries.append(entry)
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


class Relay:
    """Reads the logs that somebody on this loop follows."""

    def __init__(self) -> None:
        self._followers: defaultdict[str, list[Follower]] = defaultdict(list)
        self._door = f"nura:door:{uuid4()}"
        """A stream that only ends our own waiting."""
        self._knocked = "0-0"
        self._knocking: asyncio.Task[None] | None = None
        self._waits = False
        # A context of its own: it serves all readers, not only the one that came first.
        self._task = asyncio.create_task(self._run(), context=Context())

    def add(self, follower: Follower) -> None:
        """Read for it from now on."""
        self._followers[follower.key].append(follower)
        self.look_again()

    def remove(self, follower: Follower) -> None:
        """Read for it no longer."""
        self._followers[follower.key].remove(follower)
        if not self._followers[follower.key]:
            del self._followers[follower.key]

    def look_again(self) -> None:
        """Somebody wants more than Redis is asked for at the moment."""
        if self._waits and (self._knocking is None or self._knocking.done()):
            self._knocking = asyncio.create_task(self._knock(), context=Context())

    async def _knock(self) -> None:
        try:
            async with connections.asynchronous().pipeline(transaction=False) as pipe:
                pipe.xadd(self._door, {"": ""}, maxlen=1, approximate=False)
                pipe.expire(self._door, KNOCK_SECONDS)
                await pipe.execute()
        except (RedisError, OSError):
            return  # the reading fails as well, and begins anew with all there are

    async def _run(self) -> None:
        deaf = False
        while True:
            try:
                read = await self._read()
                deaf = False
                await asyncio.sleep(read * PAUSE_SECONDS)
            except (RedisError, OSError) as error:  # a time-out is an OSError too
                if not deaf:  # once an outage
                    logger.warning("run_logs_unreadable", error=type(error).__name__)
                deaf = True
                await asyncio.sleep(RETRY_SECONDS)

    async def _read(self) -> int:
        """Ask once and hand out what came; the number of logs asked for."""
        wanted = self._wanted()
        asked: dict[Any, Any] = {key: f"{seq}-0" for key, seq in wanted.items()}
        asked[self._door] = self._knocked
        self._waits = True
        try:
            async with asyncio.timeout(BLOCK_SECONDS + HANGING_SECONDS):
                answer = await connections.asynchronous().xread(
                    asked, count=AT_ONCE, block=int(BLOCK_SECONDS * 1000)
                )
        finally:
            self._waits = False
        for key, entries in answer:
            if key == self._door:
                self._knocked = entries[-1][0]
                continue
            found = [(_seq(entry_id), fields) for entry_id, fields in entries]
            for follower in self._followers.get(key, ()):
                follower.take(found, wanted[key])
        return len(asked)

    def _wanted(self) -> dict[str, int]:
        """Where the last of each log's followers stands, of those that can take more."""
        wanted = {}
        for key, followers in self._followers.items():
            ready = [follower.seq for follower in followers if not follower.full]
            if ready:
                wanted[key] = min(ready)
        return wanted


def _seq(entry_id: str) -> int:
    return int(entry_id[: entry_id.index("-")])


_relays: WeakKeyDictionary[asyncio.AbstractEventLoop, Relay] = WeakKeyDictionary()


@contextmanager
def following(key: str, after_seq: int) -> Iterator[Follower]:
    """A reader of the log at `key` from behind `after_seq` on."""
    loop = asyncio.get_running_loop()
    relay = _relays.get(loop)
    if relay is None:
        relay = _relays[loop] = Relay()
    follower = Follower(relay, key, after_seq)
    relay.add(follower)
    try:
        yield follower
    finally:
        relay.remove(follower)

"""Following runs: one connection reads many logs, and every kind of client follows the same way.

An event loop asks Redis once for all its followers. A follower says from which `seq` on it reads
and receives entries as they come. What it does not take waits in Redis and not here, so that a slow
reader costs the others nothing. The log of a run that ended without a last event is repaired.
"""

import asyncio
import time
import zlib
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import Context
from dataclasses import dataclass
from uuid import UUID, uuid4

import structlog
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from chats.models import Message, Run
from chats.runs import log
from chats.runs.log import RunEvent
from chats.serializers import to_started_data, to_terminal_event
from jobs import connections
from jobs.background import LoopTask
from jobs.connections import in_database

logger = structlog.get_logger()

BLOCK_SECONDS = 2.0
"""How long Redis is asked to wait for something new."""
MAX_ENTRIES_A_READING = 200
"""Entries of one log that are read together."""
MAX_WAITING_ENTRIES = 400
"""Entries queued for one follower at most, give or take one reading."""
PAUSE_SECONDS = 10e-6
"""Pause after a reading, for each log in it: the next reading costs that much again."""
WAKE_STREAM_SECONDS = 3600
IDLE_SECONDS = 2.0
"""After so long without an event a reader checks whether the run ended without a last event."""
MAX_REDIS_ABSENCE_SECONDS = 10.0
"""How long a caller waits for an answer while Redis is away."""
GZIP = 16
WINDOW_BITS, MEMORY_LEVEL = 12, 5
"""As for sockets: 32 kB of memory each, and the repeated envelope compresses to almost nothing."""


class Follower:
    """One reader of one log."""

    def __init__(self, relay: "Relay", key: str, after_seq: int) -> None:
        self.key = key
        self.seq = after_seq
        """The `seq` of the last entry queued for it."""
        self._relay = relay
        self._entries: deque[RunEvent] = deque()
        self._arrival: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """True while its queue is full."""
        return len(self._entries) >= MAX_WAITING_ENTRIES

    async def get_next(self, patience: float) -> RunEvent | None:
        """The next entry; None when nothing came for `patience` seconds."""
        if not self._entries:
            loop = asyncio.get_running_loop()
            self._arrival = loop.create_future()
            timer = loop.call_later(patience, self._wake)
            try:
                await self._arrival
            finally:
                timer.cancel()
                self._arrival = None
            if not self._entries:
                return None
        entry = self._entries.popleft()
        if len(self._entries) == MAX_WAITING_ENTRIES - 1:  # it was full
            self._relay.request_reading()
        return entry

    def add_entries(self, entries: list[RunEvent], after_seq: int) -> None:
        """Queue the entries that are new to it, of all those after `after_seq`.

        Does nothing if its position is before that: it joined, or got room, during the reading.
        """
        if self.is_full or self.seq < after_seq:
            return
        for entry in entries:
            if entry.seq > self.seq:
                self.seq = entry.seq
                self._entries.append(entry)
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


class Relay(LoopTask):
    """Reads the logs that somebody on this loop follows."""

    TROUBLE = "run_logs_unreadable"

    def __init__(self) -> None:
        self._followers: defaultdict[str, list[Follower]] = defaultdict(list)
        self._wake_stream = f"nura:door:{uuid4()}"
        """A stream that is written only to end this loop's own blocking read."""
        self._wake_id = "0-0"
        self._waking: asyncio.Task[None] | None = None
        self._is_reading = self._is_late = False
        """A read is blocking; a follower has come since that it does not cover."""

    def add(self, follower: Follower) -> None:
        """Read its log from now on."""
        self._followers[follower.key].append(follower)
        self.request_reading()

    def remove(self, follower: Follower) -> None:
        """Stop reading its log."""
        self._followers[follower.key].remove(follower)
        if not self._followers[follower.key]:
            del self._followers[follower.key]

    def request_reading(self) -> None:
        """Have Redis asked again, if the read under way does not cover a follower."""
        self._is_late = self._is_reading
        if self._is_late and (self._waking is None or self._waking.done()):
            self._waking = asyncio.create_task(self._interrupt_reading(), context=Context())

    async def _interrupt_reading(self) -> None:
        """Interrupt the blocking read; again if somebody has come during the next one."""
        while self._is_late:
            self._is_late = False
            try:
                command = ("XADD", self._wake_stream, "MAXLEN", 1, "*", "", "")
                await connections.execute_all(
                    command, ("EXPIRE", self._wake_stream, WAKE_STREAM_SECONDS)
                )
            except (RedisError, OSError):
                return  # the read fails as well, and the next one covers all followers

    async def run_round(self) -> None:
        """Ask once, and pause in proportion to what was asked."""
        log_count = await self._read()
        self.note_success()
        await asyncio.sleep(log_count * PAUSE_SECONDS)

    async def _read(self) -> int:
        """Ask once and hand out what came; the number of logs asked for."""
        positions = self._list_positions()
        after_ids = [f"{seq}-0" for seq in positions.values()]
        command = (
            "XREAD",
            "BLOCK",
            int(BLOCK_SECONDS * 1000),
            "COUNT",
            MAX_ENTRIES_A_READING,
            "STREAMS",
        )
        self._is_reading, self._is_late = True, False
        try:
            async with asyncio.timeout(BLOCK_SECONDS + connections.HANGING_SECONDS):
                answer = await connections.execute(
                    *command, *positions, self._wake_stream, *after_ids, self._wake_id
                )
        finally:
            self._is_reading = False
        for key, entries in answer or ():
            if key == self._wake_stream:
                self._wake_id = entries[-1][0]
                continue
            events = [log.read_entry(*entry) for entry in entries]
            for follower in self._followers.get(key, ()):
                follower.add_entries(events, positions[key])
        return len(positions)

    def _list_positions(self) -> dict[str, int]:
        """Where to read each log from: the position of its last follower with room for more."""
        positions = {}
        for key, followers in self._followers.items():
            ready = [follower.seq for follower in followers if not follower.is_full]
            if ready:
                positions[key] = min(ready)
        return positions


@contextmanager
def follow_log(key: str, after_seq: int) -> Iterator[Follower]:
    """A follower of the log at `key`, reading what comes after `after_seq`."""
    relay = Relay.of_running_loop()
    follower = Follower(relay, key, after_seq)
    relay.add(follower)
    try:
        yield follower
    finally:
        relay.remove(follower)


async def is_redis_reachable() -> bool:
    """Whether Redis answers now."""
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return bool(await connections.get_async_client().ping())
    except (RedisError, OSError, TimeoutError):
        return False


async def read_events(run_id: UUID, after_seq: int = 0) -> AsyncIterator[RunEvent | None]:
    """Events after `after_seq` as they come, up to the last one. None: nothing for `IDLE_SECONDS`.

    The caller decides on None whether to go on; a Redis that is away for a while only delays.
    """
    with follow_log(log.make_log_key(run_id), after_seq) as follower:
        while True:
            event = await follower.get_next(IDLE_SECONDS)
            yield event
            if event is not None and event.terminal:
                return


@dataclass
class ReadPosition:
    """How far a reader has read a run: up to which `seq`, and how many characters of the answer.

    `characters` is None for one who came back: how much he has is not known here.
    """

    seq: int
    characters: int | None
    repaired: int = 0
    """The `seq` from which on he has read a repaired log; 0 if not."""

    def note(self, event: RunEvent) -> None:
        """Move past an event that was sent to him."""
        self.seq = event.seq
        if event.repaired == event.seq:
            self.repaired = event.seq
        if event.type == log.REPLACE:
            self.characters = log.count_characters(event.encoded)
        elif event.type == log.DELTA and self.characters is not None:
            self.characters += log.count_characters(event.encoded)

    def is_continued_by(self, event: RunEvent) -> bool:
        """Whether the log has lost nothing between this position and the event.

        If it has, the repaired part reuses the numbers of what was lost.
        """
        return event.repaired in {0, event.seq, self.repaired}


async def follow_run(run_id: UUID, after_seq: int = 0) -> AsyncGenerator[RunEvent | None, None]:
    """Events after `after_seq` until the last.

    None: nothing happened for a while (time for a heartbeat).
    """
    position, is_lost = ReadPosition(after_seq, None if after_seq else 0), False
    with follow_log(log.make_log_key(run_id), after_seq) as follower:
        while True:
            event = await follower.get_next(IDLE_SECONDS)
            if event is not None and not is_lost and position.is_continued_by(event):
                position.note(event)
                yield event
                if event.terminal:
                    return
                continue
            is_lost = is_lost or event is not None
            ended, rest = await _find_end(run_id, position, is_lost=is_lost)
            for missed_event in rest:
                yield missed_event
            if ended:
                return
            yield None


async def wait_for_end(run_id: UUID) -> bool:
    """Wait for the end of a run; False if Redis stays away, so that the end would go unnoticed."""
    heard_at = time.monotonic()
    async for event in follow_run(run_id):
        if event is not None or await is_redis_reachable():
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > MAX_REDIS_ABSENCE_SECONDS:
            return False
    return True


async def _find_end(
    run_id: UUID, position: ReadPosition, *, is_lost: bool
) -> tuple[bool, Sequence[RunEvent]]:
    """Whether a run whose log has gone silent has ended, and the events still to be sent."""
    try:
        return await in_database(_load_end, run_id, position, is_lost)
    except DatabaseError as error:
        logger.warning("run_state_unknown", run_id=str(run_id), error=str(error)[:200])
        return False, ()


def _load_end(
    run_id: UUID, position: ReadPosition, is_lost: bool
) -> tuple[bool, Sequence[RunEvent]]:
    run = Run.objects.select_related("message__parent", "message__chat").get(pk=run_id)
    if run.message.status == Message.Status.STREAMING:
        return False, ()
    try:
        if _has_come_back_after_the_end(run_id, position):
            return True, ()
        finish_log(run_id)
        if not is_lost and log.load_events(run_id)[-1].seq > position.seq:
            return False, ()  # the reader finds it in the log
    except RedisError as error:
        logger.warning("run_log_unreadable", run_id=str(run_id), error=str(error)[:200])
    return True, _make_rest(run, position)


def _make_rest(run: Run, position: ReadPosition) -> list[RunEvent]:
    """The events that a reader lacks of an ended run whose log can no longer provide them."""
    content, rest = run.message.content, []
    if position.characters is None or position.characters > len(content):
        rest = [(log.REPLACE, {"text": content})]
    elif position.characters < len(content):
        rest = [(log.DELTA, {"text": content[position.characters :]})]
    rest.append(to_terminal_event(run))
    return [RunEvent(position.seq + number, *event) for number, event in enumerate(rest, 1)]


def finish_log(run_id: UUID) -> None:
    """Complete the log of an ended run from the database."""
    run = Run.objects.select_related("message__parent", "message__chat").get(pk=run_id)
    if run.message.status == Message.Status.STREAMING:
        return
    kind, data = to_terminal_event(run)
    log.repair_log(
        run_id,
        started=to_started_data(run),
        content=run.message.content,
        terminal_type=kind,
        terminal=data,
    )


def _has_come_back_after_the_end(run_id: UUID, position: ReadPosition) -> bool:
    events = log.load_events(run_id)
    if position.characters is not None or not events:
        return False
    return events[-1].terminal and not events[-1].repaired and events[-1].seq == position.seq


class Framer:
    """Puts the events of one run into the public envelope."""

    def __init__(self, chat_id: UUID, run_id: UUID) -> None:
        self._ids = f'"chat_id": "{chat_id}", "run_id": "{run_id}"'

    def to_frame(self, event: RunEvent) -> str:
        """The frame, built without parsing the data."""
        return log.to_frame(event.type, event.encoded, f'{self._ids}, "seq": {event.seq}')


async def stream_server_events(
    chat_id: UUID, run_id: UUID, after_seq: int
) -> AsyncGenerator[bytes, None]:
    """The events of a run as server-sent events, with a comment where nothing happens."""
    framer = Framer(chat_id, run_id)
    yield b": nura\n\n"
    async for event in follow_run(run_id, after_seq):
        if event is None:
            yield b": still here\n\n"
            continue
        frame = framer.to_frame(event)
        yield f"id: {event.seq}\nevent: {event.type}\ndata: {frame}\n\n".encode()


async def compress_stream(parts: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """The stream gzipped and flushed after each part, so that each can be read at once."""
    compressor = zlib.compressobj(wbits=GZIP + WINDOW_BITS, memLevel=MEMORY_LEVEL)
    async with aclosing(parts) as source:
        async for part in source:
            yield compressor.compress(part) + compressor.flush(zlib.Z_SYNC_FLUSH)
    yield compressor.flush()

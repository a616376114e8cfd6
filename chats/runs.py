"""The log of a run: one Redis Stream, whose entry ids are the `seq` numbers.

One worker writes it, anybody reads it.
Every client, new or returning, socket or server-sent events, reads from its last `seq`; there is no
other way to follow an answer. What the log loses (Redis restarted, worker killed) is made good from
the database by `repair`.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from django.core.serializers.json import DjangoJSONEncoder
from redis.exceptions import RedisError, ResponseError

from chats import connections
from chats.errors import Unavailable

logger = structlog.get_logger()

OPEN_SECONDS = 24 * 3600
"""A log lives that long after its last event while the run is open ..."""
CLOSED_SECONDS = 3600
"""... and that long after its end; then clients fetch the message instead."""
IDLE_SECONDS = 2.0
"""A reader that saw nothing for so long looks whether the run has ended without a word."""
HANGING_SECONDS = 3.0
"""A Redis that is so late with an answer hangs."""
STOP_CHANNEL = "nura:stops"

STARTED = "run.started"
DELTA = "delta"
REASONING = "reasoning"
REPLACE = "replace"
FLOWING = frozenset({DELTA, REASONING})
"""Events of text that may be joined with the one before."""
SOURCES = "sources"
COMPLETED = "run.completed"
STOPPED = "run.stopped"
ERROR = "run.error"
TERMINAL = frozenset({COMPLETED, STOPPED, ERROR})


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run; `seq` counts from 1 without a gap."""

    seq: int
    type: str
    data: Any

    @property
    def terminal(self) -> bool:
        """True for the last event of a run."""
        return self.type in TERMINAL


def key(run_id: UUID) -> str:
    """Redis key of the log."""
    return f"nura:run:{run_id}"


def stop_key(run_id: UUID) -> str:
    """Redis key of the stop flag."""
    return f"nura:run:{run_id}:stop"


def dumps(data: Any) -> str:
    """JSON of ids, times and translated words too."""
    return json.dumps(data, cls=DjangoJSONEncoder, ensure_ascii=False)


def plain(data: Any) -> Any:
    """The data as it will be read back: only what JSON knows."""
    return json.loads(dumps(data))


def encode(event: RunEvent) -> dict[str, str]:
    """The event as fields of a stream entry."""
    return {"type": event.type, "data": dumps(event.data)}


def decode(entry_id: str, fields: Mapping[str, str]) -> RunEvent:
    """The event of a stream entry."""
    return RunEvent(int(entry_id.partition("-")[0]), fields["type"], json.loads(fields["data"]))


def text_of(events: Sequence[RunEvent]) -> str:
    """The answer: the joined text of all deltas, or what has replaced it."""
    parts: list[str] = []
    for event in events:
        if event.type == REPLACE:
            parts.clear()
        if event.type in {DELTA, REPLACE}:
            parts.append(event.data["text"])
    return "".join(parts)


def reasoning_of(events: Sequence[RunEvent]) -> str:
    """What the model thought aloud."""
    return "".join(event.data["text"] for event in events if event.type == REASONING)


def load(run_id: UUID) -> list[RunEvent]:
    """All events written so far."""
    return [decode(*entry) for entry in connections.sync().xrange(key(run_id))]


def append(run_id: UUID, events: Sequence[RunEvent]) -> None:
    """Write events whose `seq` follow those in the log.

    A `seq` that is taken raises `ResponseError`.
    """
    with connections.sync().pipeline(transaction=True) as pipe:
        for event in events:
            pipe.xadd(key(run_id), encode(event), id=f"{event.seq}-0")
        closed = bool(events) and events[-1].terminal
        pipe.expire(key(run_id), CLOSED_SECONDS if closed else OPEN_SECONDS)
        pipe.execute()


def repair(run_id: UUID, *, started: Any, content: str, terminal_type: str, terminal: Any) -> None:
    """Complete the log of a run that has ended in the database: missing text, then the last event.

    Does nothing when the last event is there. Whoever comes second loses quietly: the entries are
    the same.
    """
    events = load(run_id)
    if events and events[-1].terminal:
        return
    missing: list[tuple[str, Any]] = [] if events else [(STARTED, started)]
    said = text_of(events)
    if content.startswith(said) and len(content) > len(said):
        missing.append((DELTA, {"text": content[len(said) :]}))
    missing.append((terminal_type, terminal))
    first = events[-1].seq + 1 if events else 1
    try:
        append(run_id, [RunEvent(first + i, *event) for i, event in enumerate(missing)])
    except ResponseError:
        logger.info("run_log_repaired_elsewhere", run_id=str(run_id))


def request_stop(run_id: UUID) -> None:
    """Raise the stop flag and wake the worker that holds the run. Raises `Unavailable`."""
    try:
        with connections.sync().pipeline(transaction=True) as pipe:
            pipe.set(stop_key(run_id), "1", ex=OPEN_SECONDS)
            pipe.publish(STOP_CHANNEL, str(run_id))
            pipe.execute()
    except RedisError as error:
        raise Unavailable from error


def stop_requested(run_id: UUID) -> bool:
    """Whether somebody asked to stop."""
    return bool(connections.sync().exists(stop_key(run_id)))


async def readable() -> bool:
    """Whether Redis answers now."""
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return bool(await connections.asynchronous().ping())
    except (RedisError, OSError, TimeoutError):
        return False


async def read(run_id: UUID, after_seq: int = 0) -> AsyncIterator[RunEvent | None]:
    """Events after `after_seq` as they come, up to the last one. None: nothing for `IDLE_SECONDS`.

    The caller decides on None whether to go on; a Redis that is away for a while only delays.
    """
    redis = connections.asynchronous()
    while True:
        started = time.monotonic()
        try:
            async with asyncio.timeout(IDLE_SECONDS + HANGING_SECONDS):
                answer = await redis.xread(
                    {key(run_id): f"{after_seq}-0"}, count=500, block=int(IDLE_SECONDS * 1000)
                )
        except (RedisError, OSError) as error:  # a time-out is an OSError too
            logger.warning("run_log_unreadable", run_id=str(run_id), error=type(error).__name__)
            await asyncio.sleep(max(0.0, 0.5 - (time.monotonic() - started)))
            yield None
            continue
        for entry in answer[0][1] if answer else ():
            event = decode(*entry)
            after_seq = event.seq
            yield event
            if event.terminal:
                return
        if not answer:
            yield None

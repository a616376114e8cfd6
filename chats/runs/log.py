"""The log of a run: one Redis Stream, whose entry ids are the `seq` numbers.

One worker writes it, anybody reads it.
Every client, new or returning, socket or server-sent events, reads from its last `seq`; there is no
other way to follow an answer. What the log loses (Redis restarted, worker killed) is restored from
the database by `repair_log`.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from json.encoder import encode_basestring
from typing import Any, Self
from uuid import UUID

import structlog
from django.core.serializers.json import DjangoJSONEncoder
from redis.exceptions import RedisError, ResponseError

from chats.errors import Unavailable
from jobs import connections
from jobs.background import LoopTask

logger = structlog.get_logger()

OPEN_SECONDS = 24 * 3600
"""A log lives that long after its last event while the run is open ..."""
CLOSED_SECONDS = 3600
"""... and that long after its end; then clients fetch the message instead."""
LAST_SEQ = 2**62
"""Higher than any event's: after it a log takes none."""
STOP_CHANNEL = "nura:stops"

STARTED = "run.started"
DELTA = "delta"
REASONING = "reasoning"
REPLACE = "replace"
FLOWING = frozenset({DELTA, REASONING})
"""Events of text that may be joined with the one before."""
STATUS = "status"
SOURCES = "sources"
PREPARING = frozenset({STATUS, SOURCES})
"""Events of the steps before the text, which may wait a moment to be sent."""
COMPLETED = "run.completed"
STOPPED = "run.stopped"
ERROR = "run.error"
TERMINAL = frozenset({COMPLETED, STOPPED, ERROR})
NO_IDS = '"chat_id": null, "run_id": null, "seq": null'
"""Of a frame that belongs to no run."""


class RunEvent:
    """One event of a run; `seq` counts from 1 without a gap.

    It holds its data as JSON: most events are passed on without being parsed. `repaired` is the
    `seq` from which on the log was completed from the database; 0 for a writer's own events.
    """

    __slots__ = ("encoded", "repaired", "seq", "type")

    def __init__(self, seq: int, kind: str, data: Any, repaired: int = 0) -> None:
        self.seq = seq
        self.type = kind
        self.encoded = to_json(data)
        self.repaired = repaired

    @classmethod
    def from_encoded(cls, seq: int, kind: str, encoded: str, repaired: int = 0) -> Self:
        """An event whose data is JSON already."""
        event = cls.__new__(cls)
        event.seq, event.type, event.encoded, event.repaired = seq, kind, encoded, repaired
        return event

    @property
    def data(self) -> Any:
        """The parsed data; parsed anew on each access."""
        return json.loads(self.encoded)

    @property
    def terminal(self) -> bool:
        """True for the last event of a run."""
        return self.type in TERMINAL

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunEvent):
            return NotImplemented
        if (self.seq, self.type) != (other.seq, other.type):
            return False
        return self.encoded == other.encoded or self.data == other.data

    def __hash__(self) -> int:
        return hash((self.seq, self.type))

    def __repr__(self) -> str:
        return f"RunEvent({self.seq}, {self.type!r}, {self.encoded})"


def make_log_key(run_id: UUID) -> str:
    """Redis key of the log."""
    return f"nura:run:{run_id}"


def stop_flag_key(run_id: UUID) -> str:
    """Redis key of the stop flag."""
    return f"nura:run:{run_id}:stop"


def to_json(data: Any) -> str:
    """JSON of ids, times and translated words too."""
    return json.dumps(data, cls=DjangoJSONEncoder, ensure_ascii=False)


def to_plain(data: Any) -> Any:
    """The data as it will be read back, of JSON's types only."""
    return json.loads(to_json(data))


def to_text_json(text: str) -> str:
    """Data of an event of text, as `to_json` would write it."""
    return f'{{"text": {encode_basestring(text)}}}'


def find_text_json(encoded: str) -> str:
    """The text in such data, as JSON still."""
    return encoded[len('{"text": ') : -len("}")]


def count_characters(encoded: str) -> int:
    """The number of characters of the text in such data, parsed only if some are escaped."""
    text = find_text_json(encoded)
    return len(json.loads(text)) if "\\" in text else len(text) - len('""')


def to_entry(event: RunEvent) -> dict[str, str]:
    """The event as fields of a stream entry."""
    fields = {"type": event.type, "data": event.encoded}
    return fields | {"repaired": str(event.repaired)} if event.repaired else fields


def from_entry(seq: int, fields: Mapping[str, str]) -> RunEvent:
    """The event of a stream entry, whose id begins with `seq`."""
    repaired = int(fields.get("repaired", 0))
    return RunEvent.from_encoded(seq, fields["type"], fields["data"], repaired)


def read_entry(entry_id: str, parts: Sequence[str]) -> RunEvent:
    """The event of a raw stream entry: names and values alternate, in the order of writing."""
    _type, kind, _data, encoded, *rest = parts
    return RunEvent.from_encoded(to_seq(entry_id), kind, encoded, int(rest[1]) if rest else 0)


def to_seq(entry_id: str) -> int:
    """The `seq` that a stream entry's id begins with."""
    return int(entry_id.partition("-")[0])


def to_frame(kind: str, encoded: str, ids: str = NO_IDS) -> str:
    """A frame of the socket around data that is JSON already; `ids` are its other fields."""
    return f'{{"v": 1, "type": "{kind}", {ids}, "data": {encoded}}}'


def join_text(events: Sequence[RunEvent]) -> str:
    """The answer: the joined text of all deltas, or what has replaced it."""
    parts: list[str] = []
    for event in events:
        if event.type == REPLACE:
            parts.clear()
        if event.type in {DELTA, REPLACE}:
            parts.append(event.data["text"])
    return "".join(parts)


def join_reasoning(events: Sequence[RunEvent]) -> str:
    """What the model thought aloud."""
    return "".join(event.data["text"] for event in events if event.type == REASONING)


def delete_logs(run_ids: Collection[UUID]) -> int:
    """Delete the logs of runs that have ended, with their stop flags; how many keys there were."""
    keys = [name(run_id) for run_id in run_ids for name in (make_log_key, stop_flag_key)]
    return int(connections.get_client().delete(*keys)) if keys else 0


def close_logs(run_ids: Collection[UUID]) -> None:
    """Empty the logs of runs and fence them, so that a worker still at it can write no more."""
    with connections.get_client().pipeline(transaction=True) as pipe:
        for run_id in run_ids:
            key = make_log_key(run_id)
            pipe.delete(key)
            pipe.xadd(key, to_entry(RunEvent(LAST_SEQ, STATUS, {})), id=f"{LAST_SEQ}-0")
            pipe.xtrim(key, maxlen=0, approximate=False)
            pipe.expire(key, CLOSED_SECONDS)
        pipe.execute()


def load_events(run_id: UUID) -> list[RunEvent]:
    """All events written so far."""
    rows = connections.get_client().xrange(make_log_key(run_id))
    return [from_entry(to_seq(entry_id), fields) for entry_id, fields in rows]


def fence_log(run_id: UUID) -> list[RunEvent]:
    """All events of a log, after adding one that keeps its writer from writing any more."""
    while True:
        events = load_events(run_id)
        if not events or events[-1].terminal:
            return events
        mark = RunEvent(events[-1].seq + 1, STATUS, {"step": "recover", "detail": {}})
        try:
            append_events(run_id, [mark])
        except ResponseError:
            continue  # it has just written; the next number is free
        return [*events, mark]


def append_events(run_id: UUID, events: Sequence[RunEvent]) -> None:
    """Write events whose `seq` follow those in the log.

    A `seq` that is taken raises `ResponseError`.
    """
    with connections.get_client().pipeline(transaction=True) as pipe:
        put_events(pipe, run_id, events)
        pipe.execute()


def put_events(pipe: Any, run_id: UUID, events: Sequence[RunEvent]) -> None:
    """Add the commands of `append_events` to a pipeline that the caller executes."""
    for event in events:
        pipe.xadd(make_log_key(run_id), to_entry(event), id=f"{event.seq}-0")
    is_closed = bool(events) and events[-1].terminal
    pipe.expire(make_log_key(run_id), CLOSED_SECONDS if is_closed else OPEN_SECONDS)


def repair_log(
    run_id: UUID, *, started: Any, content: str, terminal_type: str, terminal: Any
) -> None:
    """Complete the log of a run that has ended in the database: missing text, then the last event.

    Does nothing if the last event is there. Of two who repair at once the second does nothing: the
    entries would be the same. A reader who has received more than the log still holds (a standby
    took over before it had everything) sees by `RunEvent.repaired` that these numbers now stand
    for other text.
    """
    events = load_events(run_id)
    if events and events[-1].terminal:
        return
    missing: list[tuple[str, Any]] = [] if events else [(STARTED, started)]
    written = join_text(events)
    if content.startswith(written) and len(content) > len(written):
        missing.append((DELTA, {"text": content[len(written) :]}))
    missing.append((terminal_type, terminal))
    first_seq = events[-1].seq + 1 if events else 1
    try:
        events = [RunEvent(first_seq + i, *event, first_seq) for i, event in enumerate(missing)]
        append_events(run_id, events)
    except ResponseError:
        logger.info("run_log_repaired_elsewhere", run_id=str(run_id))


def request_stop(run_id: UUID) -> None:
    """Raise the stop flag and wake the worker that holds the run. Raises `Unavailable`."""
    try:
        with connections.get_client().pipeline(transaction=True) as pipe:
            pipe.set(stop_flag_key(run_id), "1", ex=OPEN_SECONDS)
            pipe.publish(STOP_CHANNEL, str(run_id))
            pipe.execute()
    except RedisError as error:
        raise Unavailable from error


def is_stop_requested(run_id: UUID) -> bool:
    """Whether somebody asked to stop."""
    return bool(connections.get_client().exists(stop_flag_key(run_id)))


class StopListener(LoopTask):
    """Subscribes to the stop channel and wakes the runs that are to stop."""

    TROUBLE = "stops_not_heard"

    def __init__(self) -> None:
        self.waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    async def run_round(self) -> None:
        """Listen until the connection breaks; requests made before that have set a flag."""
        async with connections.get_async_client().pubsub() as channel:
            await channel.subscribe(STOP_CHANNEL)
            for run_id in list(self.waiting):
                if await connections.execute("EXISTS", stop_flag_key(UUID(run_id))):
                    self._wake(run_id)
            self.note_success()
            async for message in channel.listen():
                self._wake(str(message["data"]))

    def _wake(self, run_id: str) -> None:
        for event in self.waiting.get(run_id, ()):
            event.set()


async def wait_unless_stopped(
    run_id: UUID, work: asyncio.Task[Any], *others: asyncio.Future[Any]
) -> bool:
    """Wait for `work` or one of `others`, then cancel it; whether a stop of the run ended it."""
    async with watch_for_stop(run_id) as stopped:
        stop = asyncio.create_task(stopped.wait())
        try:
            await asyncio.wait([work, stop, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, stop):
                task.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)
        return stopped.is_set()


@asynccontextmanager
async def watch_for_stop(run_id: UUID) -> AsyncIterator[asyncio.Event]:
    """An event that is set as soon as a stop of the run is asked for, or was before."""
    listener = StopListener.of_running_loop()
    event = asyncio.Event()
    listener.waiting[str(run_id)].add(event)
    try:
        try:
            async with asyncio.timeout(connections.HANGING_SECONDS):
                if await connections.execute("EXISTS", stop_flag_key(run_id)):
                    event.set()
        except (RedisError, OSError) as error:  # a time-out is an OSError too
            logger.warning("stop_flag_unreadable", error=str(error)[:200])
        yield event
    finally:
        listener.waiting[str(run_id)].discard(event)
        if not listener.waiting[str(run_id)]:
            del listener.waiting[str(run_id)]

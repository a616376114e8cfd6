"""Reading from a replica of the database: searches and lists, never what decides access.

    rows = fetch_rows(queryset, 0, 20)
    found = read(lambda server: queryset.using(server).count())

A replica is behind. What may be read from it, and when, is decided here alone:

- **Rights.** A replica only proposes. A list takes the ids of its rows from there; the rows are
  read from the primary by the same queryset, `visible_to(user)` in it. A search is given ids that
  the primary let through `visible_to` for this very question, and reads passages of these alone.
  So a right that has ended on the primary ends here at once, however far the replica is behind;
  only the text of a passage, and the order of a list, may be those of a moment ago.
- **One's own.** Whoever wrote finds it: after each of an owner's writes the position of the
  primary's log is kept in Redis (`note_write`), and his reads go to the replica only when that has
  replayed as much. Of whom nothing is known, because he never wrote or Redis forgot, the position
  is the primary's as it is now.
- **Failure.** A replica that is away, behind, or has been promoted is passed by: the primary is
  read instead, at once, and what broke on the way is read again there.

The owner is whose work the process does (`jobs.fairness`); work of nobody reads from the primary.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import structlog
from django.core.paginator import Page, Paginator
from django.db import Error, connections, models, transaction
from django.db.models import QuerySet
from psycopg.errors import QueryCanceled, SerializationFailure
from redis.exceptions import RedisError

from jobs import connections as services
from jobs.fairness import get_owner

logger = structlog.get_logger()

PRIMARY, REPLICA = "default", "replica"
POSITIONS = "nura:replica:positions"
"""Sorted set: how far the primary's log was after an owner's last write, in bytes."""
READS = "nura:replica:reads"
"""Hash: how many reads went where, `replica` or why not."""
EVERYBODY = "*"
BEHIND, AWAY, PROMOTED = "behind", "away", "promoted"
REST_SECONDS = 5.0
"""A replica that failed is left alone for so long."""

PRIMARY_POSITION = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8"
"""Of all that was written, flushed or not: a commit need not wait for the disk."""
REPLICA_STATE = """
    SELECT pg_is_in_recovery(), pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::int8
"""

T = TypeVar("T")
Row = TypeVar("Row", bound=models.Model)


_wrote: ContextVar[threading.Event | None] = ContextVar("wrote", default=None)


class PrimaryRouter:
    """Django's router: everything is the primary's unless a queryset names the replica.

    Rows from there are written, and their relations read, where all others are.
    """

    def db_for_read(self, _model: type[models.Model], **_hints: Any) -> str:
        """The primary."""
        return PRIMARY

    def db_for_write(self, _model: type[models.Model], **_hints: Any) -> str:
        """The primary; `watch_writes` sees it."""
        if (wrote := _wrote.get()) is not None:
            wrote.set()
        return PRIMARY

    def allow_relation(self, *_objects: models.Model, **_hints: Any) -> bool:
        """Both are the same database."""
        return True

    def allow_migrate(self, db: str, *_: Any, **_hints: Any) -> bool:
        """The replica gets its tables from the primary."""
        return db == PRIMARY


def has_replica() -> bool:
    """Whether the installation has one."""
    return REPLICA in connections.settings


class _ReplicaMemory:
    """What this process remembers of the replica.

    `resting_until` is how long one that failed is left alone. `owed` is a position that Redis was
    not there to keep: everybody has to wait for it, once it is.
    """

    def __init__(self) -> None:
        self.resting_until = 0.0
        self.owed = 0
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def suspend_replica(self, error: Error) -> None:
        """Leave it alone for a while."""
        self.resting_until = time.monotonic() + REST_SECONDS
        logger.warning("replica_failed", error=type(error).__name__)

    def count_read(self, kind: str) -> None:
        """Count a read."""
        with self._lock:
            self._counts[kind] += 1

    def take_counts(self) -> Counter[str]:
        """Reads that Redis has not been told of."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return counts


_memory = _ReplicaMemory()


# What has been written


@contextmanager
def watch_writes() -> Iterator[threading.Event]:
    """Set as soon as models are written in the block, in whatever thread or task of it."""
    wrote = threading.Event()
    token = _wrote.set(wrote)
    try:
        yield wrote
    finally:
        _wrote.reset(token)


def note_write(owner: str) -> None:
    """Let the owner's reads see what has been written so far, once that is committed."""
    if has_replica() and owner.startswith("user:"):
        transaction.on_commit(partial(_store_position, owner))


def _store_position(owner: str) -> int:
    position = read_primary_position()
    try:
        services.sync().zadd(POSITIONS, {owner: position}, gt=True)
    except (RedisError, OSError) as error:
        _memory.owed = max(_memory.owed, position)
        logger.warning("position_not_kept", owner=owner, error=type(error).__name__)
    return position


def read_primary_position() -> int:
    """How long the primary's log is now, in bytes."""
    with connections[PRIMARY].cursor() as cursor:
        cursor.execute(PRIMARY_POSITION)
        return int(cursor.fetchone()[0])


def _read_wanted_position(owner: str) -> int:
    """What the owner's reads must have seen. Raises `RedisError`, `OSError`."""
    owed, counts = _memory.owed, _memory.take_counts()
    with services.sync().pipeline(transaction=False) as pipe:
        if owed:
            pipe.zadd(POSITIONS, {EVERYBODY: owed}, gt=True)
        for kind, count in counts.items():
            pipe.hincrby(READS, kind, count)
        pipe.zscore(POSITIONS, EVERYBODY)
        pipe.zscore(POSITIONS, owner)
        *_, everybody, own = pipe.execute()
    if _memory.owed == owed:
        _memory.owed = 0
    return max(int(everybody or 0), _store_position(owner) if own is None else int(own))


# Where to read


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What a replica says of itself; `position` is how much of the primary's log it shows."""

    is_replica: bool
    position: int


def read_replica_state() -> ReplicaState:
    """Ask it. Raises `django.db.Error`."""
    try:
        with connections[REPLICA].cursor() as cursor:
            cursor.execute(REPLICA_STATE)
            follows, position = cursor.fetchone()
    finally:
        connections[REPLICA].close()
    return ReplicaState(follows, position or 0)


def choose_server() -> str:
    """The replica, if it shows the owner all that he wrote, else the primary."""
    owner = get_owner()
    if not has_replica() or not owner.startswith("user:") or connections[PRIMARY].in_atomic_block:
        return PRIMARY
    against = _find_reason_against(owner)
    _memory.count_read(against or REPLICA)
    return PRIMARY if against else REPLICA


def _find_reason_against(owner: str) -> str:
    if time.monotonic() < _memory.resting_until:
        return AWAY
    try:
        wanted = _read_wanted_position(owner)
    except (RedisError, OSError):
        return AWAY  # nobody knows what he wrote
    try:
        state = read_replica_state()
    except Error as error:
        _memory.suspend_replica(error)
        return AWAY
    if not state.is_replica:
        return PROMOTED
    return "" if state.position >= wanted else BEHIND


def read_from_replica(work: Callable[[str], T]) -> T:
    """What `work` makes of the name of the server to read from.

    Where the replica fails meanwhile, it is called again with the primary.
    """
    if choose_server() == REPLICA:
        try:
            return work(REPLICA)
        except Error as error:
            if isinstance(error.__cause__, QueryCanceled):
                raise  # it took too long, and would there as well
            if not isinstance(error.__cause__, SerializationFailure):  # rows were cleared meanwhile
                _memory.suspend_replica(error)
        finally:
            connections[REPLICA].close()
    return work(PRIMARY)


def fetch_rows(rows: QuerySet[Row], first: int, last: int) -> list[Row]:
    """The rows from `first` up to `last`, found on the replica and read from the primary.

    One that the queryset does not hold on the primary any more is left out.
    """

    def fetch(server: str) -> list[Row]:
        if server == PRIMARY:
            return list(rows[first:last])
        ids = list(rows.using(server).values_list("pk", flat=True)[first:last])
        found = {row.pk: row for row in rows.filter(pk__in=ids)}
        return [found[pk] for pk in ids if pk in found]

    return read_from_replica(fetch)


class ReplicaPaginator(Paginator[Any]):
    """Pages of a queryset, counted and found on the replica, with rows of the primary."""

    @cached_property
    def count(self) -> int:
        """All rows."""
        rows = self.object_list
        if not isinstance(rows, QuerySet):
            return len(rows)
        return read_from_replica(lambda server: rows.using(server).count())

    def page(self, number: int | str) -> Page[Any]:
        """One page. Raises `InvalidPage`."""
        if not isinstance(self.object_list, QuerySet):
            return super().page(number)
        number = self.validate_number(number)
        first = (number - 1) * self.per_page
        last = min(first + self.per_page, self.count)
        return Page(fetch_rows(self.object_list, first, last), number, self)


def read_counts() -> dict[str, int]:
    """Reads so far by where they went, `replica` or why not. Raises `RedisError`."""
    return {kind: int(count) for kind, count in services.sync().hgetall(READS).items()}

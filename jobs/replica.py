"""Reads from a replica of the database: searches and lists, never access decisions.

    rows = fetch_rows(queryset, 0, 20)
    count = read_from_replica(lambda server: queryset.using(server).count())

A replica lags behind. What may be read from it, and when, is decided here alone:

- **Rights.** A replica only proposes. A list takes the ids of its rows from there; the rows are
  read from the primary by the same queryset, including `visible_to(user)`. A search gets ids that
  the primary let through `visible_to` for this very question, and reads only their passages. So a
  right revoked on the primary ends here at once, however far the replica lags; only the text of a
  passage and the order of a list may be out of date.
- **Read your own writes.** After each write of an owner the position of the primary's log is stored
  in Redis (`note_write`), and their reads go to the replica only once it has replayed that much. If
  nothing is known of an owner, the primary's current position counts.
- **Failure.** If the replica is away, behind or promoted, the primary is read instead; a read that
  fails halfway is repeated there.

The owner is the one the process works for (`jobs.fairness`); work for nobody reads the primary.
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
SUSPENSION_SECONDS = 5.0
"""A replica that failed is not used for so long."""

PRIMARY_POSITION = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8"
"""Including what is not flushed: a commit need not wait for the disk."""
REPLICA_STATE = """
    SELECT pg_is_in_recovery(), pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::int8
"""

T = TypeVar("T")
Row = TypeVar("Row", bound=models.Model)


_has_written: ContextVar[threading.Event | None] = ContextVar("wrote", default=None)


class PrimaryRouter:
    """Django's database router: everything uses the primary unless a queryset names the replica.

    Rows read from the replica are saved to the primary, and their relations are read there.
    """

    def db_for_read(self, _model: type[models.Model], **_hints: Any) -> str:
        """The primary."""
        return PRIMARY

    def db_for_write(self, _model: type[models.Model], **_hints: Any) -> str:
        """The primary; `watch_writes` sees it."""
        if (has_written := _has_written.get()) is not None:
            has_written.set()
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

    `suspended_until`: when one that failed may be used again. `unsaved_position`: a position that
    could not be stored in Redis; once Redis is back, everybody's reads wait for it.
    """

    def __init__(self) -> None:
        self.suspended_until = 0.0
        self.unsaved_position = 0
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def suspend_replica(self, error: Error) -> None:
        """Do not use it for a while."""
        self.suspended_until = time.monotonic() + SUSPENSION_SECONDS
        logger.warning("replica_failed", error=type(error).__name__)

    def count_read(self, kind: str) -> None:
        """Count a read."""
        with self._lock:
            self._counts[kind] += 1

    def take_counts(self) -> Counter[str]:
        """Remove and return the counts that are not in Redis yet."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return counts


_memory = _ReplicaMemory()


# What has been written


@contextmanager
def watch_writes() -> Iterator[threading.Event]:
    """An event that is set as soon as the block writes models, in any of its threads or tasks."""
    has_written = threading.Event()
    token = _has_written.set(has_written)
    try:
        yield has_written
    finally:
        _has_written.reset(token)


def note_write(owner: str) -> None:
    """After commit, make the owner's reads wait for what has been written so far."""
    if has_replica() and owner.startswith("user:"):
        transaction.on_commit(partial(_store_position, owner))


def _store_position(owner: str) -> int:
    position = read_primary_position()
    try:
        services.get_client().zadd(POSITIONS, {owner: position}, gt=True)
    except (RedisError, OSError) as error:
        _memory.unsaved_position = max(_memory.unsaved_position, position)
        logger.warning("position_not_kept", owner=owner, error=type(error).__name__)
    return position


def read_primary_position() -> int:
    """How long the primary's log is now, in bytes."""
    with connections[PRIMARY].cursor() as cursor:
        cursor.execute(PRIMARY_POSITION)
        return int(cursor.fetchone()[0])


def _read_required_position(owner: str) -> int:
    """The position that the owner's reads need. Raises `RedisError`, `OSError`."""
    unsaved, counts = _memory.unsaved_position, _memory.take_counts()
    with services.get_client().pipeline(transaction=False) as pipe:
        if unsaved:
            pipe.zadd(POSITIONS, {EVERYBODY: unsaved}, gt=True)
        for kind, count in counts.items():
            pipe.hincrby(READS, kind, count)
        pipe.zscore(POSITIONS, EVERYBODY)
        pipe.zscore(POSITIONS, owner)
        *_, common_position, own_position = pipe.execute()
    if _memory.unsaved_position == unsaved:
        _memory.unsaved_position = 0
    return max(
        int(common_position or 0),
        _store_position(owner) if own_position is None else int(own_position),
    )


# Where to read


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """State of the replica; `position` is how much of the primary's log it has replayed."""

    is_replica: bool
    position: int


def read_replica_state() -> ReplicaState:
    """Ask the replica. Raises `django.db.Error`."""
    try:
        with connections[REPLICA].cursor() as cursor:
            cursor.execute(REPLICA_STATE)
            is_replica, position = cursor.fetchone()
    finally:
        connections[REPLICA].close()
    return ReplicaState(is_replica, position or 0)


def choose_server() -> str:
    """The replica if it has everything that the owner wrote, else the primary."""
    owner = get_owner()
    if not has_replica() or not owner.startswith("user:") or connections[PRIMARY].in_atomic_block:
        return PRIMARY
    reason = _find_reason_against(owner)
    _memory.count_read(reason or REPLICA)
    return PRIMARY if reason else REPLICA


def _find_reason_against(owner: str) -> str:
    if time.monotonic() < _memory.suspended_until:
        return AWAY
    try:
        required_position = _read_required_position(owner)
    except (RedisError, OSError):
        return AWAY  # the position is unknown
    try:
        state = read_replica_state()
    except Error as error:
        _memory.suspend_replica(error)
        return AWAY
    if not state.is_replica:
        return PROMOTED
    return "" if state.position >= required_position else BEHIND


def read_from_replica(read: Callable[[str], T]) -> T:
    """Call `read` with the name of the server to read from, and return its result.

    If the replica fails meanwhile, `read` is called again with the primary.
    """
    if choose_server() == REPLICA:
        try:
            return read(REPLICA)
        except Error as error:
            if isinstance(error.__cause__, QueryCanceled):
                raise  # too slow, and it would be on the primary as well
            if not isinstance(error.__cause__, SerializationFailure):  # rows were vacuumed
                _memory.suspend_replica(error)
        finally:
            connections[REPLICA].close()
    return read(PRIMARY)


def fetch_rows(rows: QuerySet[Row], first: int, last: int) -> list[Row]:
    """The rows from `first` up to `last`: ids from the replica, rows from the primary.

    Rows that the queryset no longer contains on the primary are left out.
    """

    def fetch(server: str) -> list[Row]:
        if server == PRIMARY:
            return list(rows[first:last])
        ids = list(rows.using(server).values_list("pk", flat=True)[first:last])
        rows_by_id = {row.pk: row for row in rows.filter(pk__in=ids)}
        return [rows_by_id[pk] for pk in ids if pk in rows_by_id]

    return read_from_replica(fetch)


class ReplicaPaginator(Paginator[Any]):
    """Paginates a queryset: count and ids from the replica, rows from the primary."""

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
    """Number of reads by target: `replica`, or the reason against it. Raises `RedisError`."""
    return {kind: int(count) for kind, count in services.get_client().hgetall(READS).items()}

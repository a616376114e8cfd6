"""Who works on a job: a conditional update of its row decides, never the broker.

A living worker renews its lease. When a worker dies, its lease runs out, and the reaper hands the
job on or gives it up. Reaping twice or concurrently is harmless: each step is a claim or a
conditional update. Beat does it, and any worker may (`claim_turn`). How to use it:

    class Upload(OwnedJob):                      # or Job, where owners do not take turns
        OPEN = Q(status="PROCESSING")            # columns of the row itself, never of a join
        LEASE = timedelta(seconds=20)
        MAX_ATTEMPTS = 5

    lease = claim_job(Upload, key)               # or: claim_next_jobs(Upload, limit=1)
    with Heartbeat(Upload).hold(lease) as held:  # at module level: one for each kind of job
        ...                                      # held.check() raises LeaseLost
    lease.rows().update(status="COMPLETED", **RELEASED)   # ends it, if it is still ours

All times are the database's. `OPEN` must not join: with a join Django updates by a list of keys,
which Postgres does not evaluate again after waiting for a row lock, so two claims of one job would
both succeed.

One thread in each process renews all its leases, separate from the work (a coroutine, a parser, a
long query), so that no slow step loses a lease.
"""

import functools
import mmap
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID, uuid4

import structlog
from django.db import DatabaseError, InterfaceError, connection, models
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from redis.exceptions import RedisError

from jobs import connections

RELEASED: Mapping[str, Any] = {"claim": None, "lease_until": None}
"""Column values of a row without a lease."""

SKIPPED_LOCKS = 64
"""Jobs of one owner to look past while other workers have them locked."""


class LeaseLostError(Exception):
    """Somebody else holds the job now, or it has ended: stop working on it."""


class Job(models.Model):
    """A row that workers claim.

    `claim` identifies the claim of one worker, `lease_until` is when it ends unless renewed. A row
    with a lease but no claim is delayed: nobody claims it before. `attempts` counts the claims,
    `enqueued_at` is when workers were last notified.
    """

    OPEN: ClassVar[Q] = Q()
    """Rows with work left, in columns of the row itself."""
    LEASE: ClassVar[timedelta] = timedelta(seconds=20)
    MAX_ATTEMPTS: ClassVar[int] = 5

    claim = models.UUIDField(null=True, blank=True, editable=False, verbose_name=_("claim"))
    lease_until = models.DateTimeField(
        null=True, blank=True, editable=False, verbose_name=_("held until")
    )
    attempts = models.PositiveSmallIntegerField(
        default=0, editable=False, verbose_name=_("attempts")
    )
    enqueued_at = models.DateTimeField(
        null=True, blank=True, editable=False, verbose_name=_("queued at")
    )

    class Meta:
        """Abstract."""

        abstract = True


class OwnedJob(Job):
    """A job of a person: owners take turns (`claim_next_jobs`).

    While the owner's account is inactive, workers can neither claim nor renew the job; only the
    reaper can, to end it or let it wait until the account is active again.

    `RANK` is the column that sorts before everything else, highest first; empty: there is none.

    The model has `owner` and `created_at`, and indexes on (owner, created_at) where `OPEN`, and on
    (owner, started_at). `started_at` is when the latest attempt began.
    """

    RANK: ClassVar[str] = ""

    started_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        """Abstract."""

        abstract = True


JobT = TypeVar("JobT", bound=Job)
OwnedJobT = TypeVar("OwnedJobT", bound=OwnedJob)


@dataclass(frozen=True, slots=True)
class Lease(Generic[JobT]):
    """One worker's claim on one job."""

    model: type[JobT]
    job_id: Any
    token: UUID

    def rows(self) -> QuerySet[JobT]:
        """The row while the lease holds; empty once it is lost or the job has ended."""
        return select_open_jobs(self.model).filter(pk=self.job_id, claim=self.token)


def select_open_jobs(model: type[JobT]) -> QuerySet[JobT]:
    """Jobs with work left, held or not."""
    return model._default_manager.filter(model.OPEN)  # noqa: SLF001 - Django's own way


def select_waiting_jobs(model: type[JobT]) -> QuerySet[JobT]:
    """Jobs that a worker may claim now."""
    return filter_active_owners(select_open_jobs(model)).filter(
        _build_free_condition(), attempts__lt=model.MAX_ATTEMPTS
    )


def filter_active_owners(rows: QuerySet[JobT]) -> QuerySet[JobT]:
    """Jobs without an owner, or whose owner's account is active."""
    people = _find_account_model(rows.model)
    if people is None:
        return rows
    active = people._default_manager.filter(is_active=True)  # noqa: SLF001 - Django's own way
    return rows.filter(Exists(active.filter(pk=OuterRef("owner_id"))))


def _find_account_model(model: Any) -> Any:
    """The account model that owns the jobs; None for jobs without an owner."""
    if not issubclass(model, OwnedJob):
        return None
    return model._meta.get_field("owner").related_model  # noqa: SLF001 - public in all but its name


def select_jobs_at_work(model: type[JobT]) -> QuerySet[JobT]:
    """Jobs held by a living worker."""
    return select_open_jobs(model).filter(claim__isnull=False, lease_until__gte=Now())


def claim_job(model: type[JobT], job_id: Any, *, is_attempt: bool = True) -> Lease[JobT] | None:
    """Claim one job that nobody holds; None if somebody does or it has ended.

    `is_attempt=False` does not count as an attempt, and also claims a job without attempts left.
    """
    token = uuid4()
    query, parameters = _build_claim_one_statement(model, is_attempt)
    key = model._meta.pk.get_db_prep_value(job_id, connection)  # noqa: SLF001 - Django's own way
    with connection.cursor() as cursor:
        cursor.execute(query, {**parameters, "key": key, "claim": token})
        return Lease(model, job_id, token) if cursor.rowcount else None


def claim_next_jobs(
    model: type[OwnedJobT],
    *,
    limit: int = 1,
    limit_per_owner: int = 0,
    condition: Q | None = None,
    **values: Any,
) -> list[Lease[OwnedJobT]]:
    """Claim the next jobs, at most `limit`; empty if none waits.

    Owners take turns: whoever has the fewest jobs at work comes first, then whoever was served
    longest ago; of an owner's jobs the oldest. So a thousand jobs of one owner keep nobody else
    waiting. A higher `RANK` goes before all of that. No owner gets more than `limit_per_owner` jobs
    at work; 0 is no limit. `condition`, in columns of the row itself, restricts the jobs. `values`
    are plain values to write with the claim.
    """
    query, parameters = _build_claim_statement(
        model, limit, limit_per_owner, condition or Q(), values
    )
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return [Lease(model, key, token) for key, token in cursor.fetchall()]


def renew_lease(lease: Lease[JobT], **values: Any) -> None:
    """Renew a lease and store changes. Raises `LeaseLostError`."""
    if not filter_active_owners(lease.rows()).update(
        lease_until=Now() + lease.model.LEASE, **values
    ):
        raise LeaseLostError


def renew_leases(leases: Collection[Lease[JobT]]) -> set[Lease[JobT]]:
    """Renew the leases of one model in one statement. Returns those that are still valid."""
    if not leases:
        return set()
    model = next(iter(leases)).model
    tokens = [lease.token for lease in leases]
    rows = select_open_jobs(model).filter(
        pk__in=[lease.job_id for lease in leases], claim__in=tokens
    )
    valid_rows = filter_active_owners(rows)
    if valid_rows.update(lease_until=Now() + model.LEASE) == len(leases):
        return set(leases)
    valid_claims = set(valid_rows.values_list("claim", flat=True))
    return {lease for lease in leases if lease.token in valid_claims}


def release_lease(
    lease: Lease[JobT],
    *,
    max_attempts: int | None = None,
    delay: timedelta | None = None,
    **values: Any,
) -> bool:
    """Let another attempt begin, after `delay` if given.

    False, and nothing is written, if the lease is lost or the job had `max_attempts` attempts.
    """
    rows = lease.rows() if max_attempts is None else lease.rows().filter(attempts__lt=max_attempts)
    until = Now() + delay if delay else None
    released = {"claim": None, "lease_until": until, "enqueued_at": Now()}
    return bool(rows.update(**released | values))


def _build_free_condition() -> Q:
    return Q(lease_until=None) | Q(lease_until__lt=Now())


CLAIM_NEXT = """
    WITH RECURSIVE one AS (
        (SELECT {owner} AS owner FROM {table} WHERE {open} ORDER BY {owner}, created_at LIMIT 1)
        UNION ALL
        SELECT (SELECT {owner} FROM {table} WHERE {open} AND {owner} > one.owner
                 ORDER BY {owner}, created_at LIMIT 1)
          FROM one WHERE one.owner IS NOT NULL
    ),
    owners AS MATERIALIZED (
        SELECT owner,
               (SELECT count(*) FROM {table} WHERE {owner} = one.owner AND {open}
                   AND claim IS NOT NULL AND lease_until >= statement_timestamp()) AS at_work,
               (SELECT max(started_at) FROM {table} WHERE {owner} = one.owner) AS served,
               (SELECT created_at FROM {table} WHERE {owner} = one.owner AND {waits}
                 ORDER BY created_at LIMIT 1) AS since
          FROM one
         WHERE owner IS NOT NULL AND {active}
    ),
    turns AS MATERIALIZED (
        SELECT job.key, job.rank, owners.at_work + job.place AS turn, owners.served, owners.since
          FROM owners,
               LATERAL (SELECT {key} AS key, {rank} AS rank,
                               row_number() OVER (ORDER BY {rank} DESC, created_at, {key}) AS place
                          FROM {table} WHERE {owner} = owners.owner AND {waits}
                         ORDER BY {rank} DESC, created_at, {key} LIMIT {reach}) job
         WHERE owners.since IS NOT NULL
    ),
    picked AS MATERIALIZED (  -- one after the other: a plain join would read all that waits
        SELECT job.key
          FROM (SELECT key FROM turns WHERE {bound}
                 ORDER BY rank DESC, turn, served NULLS FIRST, since) next,
               LATERAL (SELECT {key} AS key FROM {table} WHERE {key} = next.key AND {waits}
                           FOR UPDATE SKIP LOCKED) job
         LIMIT {limit}
    )
    UPDATE {table}
       SET claim = gen_random_uuid(), lease_until = statement_timestamp() + {lease},
           attempts = attempts + 1, started_at = statement_timestamp(){changes}
     WHERE {key} IN (SELECT key FROM picked)
    RETURNING {key}, claim
"""


FREE_CONDITION = "({table}.lease_until IS NULL OR {table}.lease_until < statement_timestamp())"
"""Nobody holds the job: `_build_free_condition` in SQL."""
CLAIM_ONE = """
    UPDATE {table} SET claim = %(claim)s, lease_until = statement_timestamp() + %(lease)s{begun}
     WHERE {key} = %(key)s AND {waits}
"""


@functools.cache
def _build_claim_one_statement(model: type[Job], is_attempt: bool) -> tuple[str, Mapping[str, Any]]:
    """The SQL of `claim_job` with its named parameters, except key and claim."""
    quote = connection.ops.quote_name
    meta: Any = model._meta  # noqa: SLF001 - public in all but its name
    parameters: dict[str, Any] = {"lease": model.LEASE, "most": model.MAX_ATTEMPTS}
    table = quote(meta.db_table)
    is_open = _compile_condition(select_open_jobs(model), "open", parameters)
    condition, changes = f"{is_open} AND {FREE_CONDITION.format(table=table)}", ""
    if is_attempt:
        condition += f" AND {table}.attempts < %(most)s"
        changes = ", attempts = attempts + 1"
    if is_attempt and issubclass(model, OwnedJob):
        owner = quote(meta.get_field("owner").column)
        condition += f" AND {_build_active_condition(model, f'{table}.{owner}')}"
        changes += ", started_at = statement_timestamp()"
    key = quote(str(meta.pk.column))
    return CLAIM_ONE.format(table=table, key=key, waits=condition, begun=changes), parameters


def _build_claim_statement(
    model: type[OwnedJobT],
    limit: int,
    limit_per_owner: int,
    condition: Q,
    values: Mapping[str, Any],
) -> tuple[str, Any]:
    """The SQL of `claim_next_jobs` with its named parameters."""
    quote, meta = connection.ops.quote_name, model._meta  # noqa: SLF001 - public in all but its name
    parameters: dict[str, Any] = {"lease": model.LEASE, "most": model.MAX_ATTEMPTS}
    table = quote(meta.db_table)
    owner: Any = meta.get_field("owner")
    is_open = _compile_condition(select_open_jobs(model), "open", parameters)
    is_chosen = _compile_condition(model._default_manager.filter(condition), "among", parameters)  # noqa: SLF001
    is_free = FREE_CONDITION.format(table=table)
    changes = ""
    for name, value in values.items():
        field: Any = meta.get_field(name)
        changes += f", {quote(field.column)} = %(new_{name})s"
        parameters[f"new_{name}"] = field.get_db_prep_save(value, connection)
    query = CLAIM_NEXT.format(
        table=table,
        key=quote(str(meta.pk.column)),
        owner=quote(owner.column),
        active=_build_active_condition(model, "one.owner"),
        open=is_open,
        waits=f"{is_open} AND {is_chosen} AND {table}.attempts < %(most)s AND {is_free}",
        bound=f"turn <= {int(limit_per_owner)}" if limit_per_owner else "TRUE",
        limit=int(limit),
        rank=quote(model.RANK) if model.RANK else "0::int",
        reach=int(limit) + SKIPPED_LOCKS,
        lease="%(lease)s",
        changes=changes,
    )
    return query, parameters


def _build_active_condition(model: type[OwnedJob], owner: str) -> str:
    """SQL for: the account whose key is in the column `owner` is active."""
    people = _find_account_model(model)
    if people is None:
        return "TRUE"
    meta, quote = people._meta, connection.ops.quote_name  # noqa: SLF001 - as above
    table, key = quote(meta.db_table), quote(str(meta.pk.column))
    return f"EXISTS (SELECT 1 FROM {table} WHERE {key} = {owner} AND is_active)"  # noqa: S608


def _compile_condition(rows: QuerySet[Any], name: str, parameters: dict[str, Any]) -> str:
    """The filters of `rows` as SQL; their parameters go into `parameters`, named after `name`."""
    query = rows.query
    if not query.where:
        return "TRUE"
    sql, values = query.get_compiler(connection=connection).compile(query.where)
    names: Iterable[str] = [f"{name}_{number}" for number in range(len(values))]
    parameters.update(zip(names, values, strict=True))
    return "(" + str(sql) % tuple(f"%({value_name})s" for value_name in names) + ")"


logger = structlog.get_logger()

MAX_JOBS_A_REAPING = 500


def reap_lost_jobs(
    model: type[JobT],
    *,
    announce: Callable[[Any], None],
    give_up: Callable[[Lease[JobT]], object],
    resolve: Callable[[Lease[JobT]], bool] | None = None,
    limit: int = MAX_JOBS_A_REAPING,
) -> list[Any]:
    """Hand on the jobs whose lease ran out while they were held. Returns the keys of all of them.

    A job without attempts left is given up: `give_up` ends the row that the lease holds. `resolve`,
    if given, decides instead: True if it has ended the job, False to hand it on. `announce`
    notifies the workers of one job, by its key.
    """
    lost_jobs = select_open_jobs(model).filter(claim__isnull=False, lease_until__lt=Now())
    keys = []
    for key in lost_jobs.order_by("lease_until").values_list("pk", flat=True)[:limit]:
        lease = claim_job(model, key, is_attempt=False)  # only one of several reapers gets on
        if lease is None:
            continue
        keys.append(key)
        if resolve is not None:
            if resolve(lease):
                continue
        elif not lease.rows().filter(attempts__lt=model.MAX_ATTEMPTS).exists():
            give_up(lease)
            logger.warning("job_given_up", job=model.__name__, key=str(key))
            continue
        if release_lease(lease):
            logger.warning("job_handed_on", job=model.__name__, key=str(key))
            announce(key)
    return keys


def announce_unclaimed_jobs(
    model: type[JobT],
    *,
    announce: Callable[[Any], None],
    patience: timedelta,
    limit: int = MAX_JOBS_A_REAPING,
) -> list[Any]:
    """Announce jobs again that nobody claimed for `patience`. Returns their keys."""
    overdue = _select_overdue(model, patience)
    keys: Sequence[Any] = list(overdue.order_by("enqueued_at").values_list("pk", flat=True)[:limit])
    announced = [key for key in keys if overdue.filter(pk=key).update(enqueued_at=Now())]
    for key in announced:
        announce(key)
    return announced


def claim_turn(name: str, seconds: float) -> bool:
    """Claim periodic work that one process does every `seconds`. False if another has claimed it.

    Also True while Redis is away: doing the work twice must be harmless.
    """
    try:
        milliseconds = int(seconds * 1000)
        return bool(connections.get_client().set(f"nura:due:{name}", "1", nx=True, px=milliseconds))
    except RedisError:
        return True


def _select_overdue(model: type[JobT], patience: timedelta) -> Any:
    is_late = Q(enqueued_at=None) | Q(enqueued_at__lt=Now() - patience)
    rows: Any = filter_active_owners(select_open_jobs(model)).filter(
        _build_free_condition(), is_late, claim=None
    )
    return rows.filter(attempts__lt=model.MAX_ATTEMPTS)


BEATS_A_LEASE = 5
"""Renewals per lease, so that some may fail without losing it."""
MAX_IDLE_BEATS = 10
"""The thread ends after so many beats with nothing to renew."""


class LeavingError(LeaseLostError):
    """This process is shutting down: give the job back (no failed attempt) and stop."""


class HeldLease(Generic[JobT]):
    """A lease that is being renewed."""

    def __init__(
        self,
        lease: Lease[JobT],
        on_loss: Callable[[], None] | None,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self.lease = lease
        self.held_since = time.monotonic()
        self._on_loss = on_loss
        self._is_leaving = is_leaving
        self._lost = threading.Event()

    @property
    def is_lost(self) -> bool:
        """Whether somebody else holds the job, or it has ended."""
        return self._lost.is_set()

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is lost, `LeavingError` if it is to be given back."""
        if self._lost.is_set():
            raise LeaseLostError
        if self._is_leaving():
            raise LeavingError

    def mark_lost(self) -> None:
        """Note the loss and notify the worker; called from the heartbeat's thread."""
        if not self._lost.is_set():
            self._lost.set()
            if self._on_loss:
                self._on_loss()


class Heartbeat(Generic[JobT]):
    """Renews the leases of one kind of job that this process holds.

    `renew` replaces `renew_leases` if more than the lease has to be written; it gets the held
    leases and returns the valid ones. `seconds` between two beats: by default a fifth of the lease.
    """

    def __init__(
        self,
        model: type[JobT],
        *,
        renew: Callable[[Sequence[Lease[JobT]]], set[Lease[JobT]]] = renew_leases,
        seconds: float | None = None,
    ) -> None:
        self.seconds = seconds or model.LEASE.total_seconds() / BEATS_A_LEASE
        self._name = model.__name__
        self._renew = renew
        self._held: dict[Lease[JobT], HeldLease[JobT]] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._beat_lock = threading.Lock()
        self._leave_flag: mmap.mmap | None = None

    def share_leave_signal(self) -> Callable[[], None]:
        """A function that makes this process and its future forks give back what they hold.

        They share one byte: the lock of a `multiprocessing.Event` would stay with a killed process.
        """
        self._leave_flag = flag = mmap.mmap(-1, 1)

        def leave() -> None:
            flag[0] = 1

        return leave

    def is_leaving(self) -> bool:
        """Whether leases are to be given back."""
        return self._leave_flag is not None and self._leave_flag[0] == 1

    @contextmanager
    def hold(
        self, lease: Lease[JobT], on_loss: Callable[[], None] | None = None
    ) -> Iterator[HeldLease[JobT]]:
        """Renew a lease within the block. `on_loss` is called once, from another thread."""
        held = HeldLease(lease, on_loss, self.is_leaving)
        with self._lock:
            self._held[lease] = held
            if self._thread is None or not self._thread.is_alive():  # also after a fork
                self._thread = threading.Thread(
                    target=self._run_beats, name="heartbeat", daemon=True
                )
                self._thread.start()
        try:
            yield held
        finally:
            with self._lock:
                del self._held[lease]

    def wait_until_idle(self) -> None:
        """Wait for a renewal in progress, once nothing is held any more."""
        with self._beat_lock:
            pass

    def _run_beats(self) -> None:
        """Beat while something is held, and a while longer: starting a thread is expensive."""
        idle = 0
        while True:
            time.sleep(self.seconds)
            with self._beat_lock:
                with self._lock:
                    idle = 0 if self._held else idle + 1
                    if idle > MAX_IDLE_BEATS:
                        self._thread = None
                        return
                    newest = time.monotonic() - self.seconds  # later leases have just begun
                    held_leases = [
                        held for held in self._held.values() if held.held_since <= newest
                    ]
                if held_leases:
                    self._beat(held_leases)

    def _beat(self, held_leases: list[HeldLease[JobT]]) -> None:
        try:
            valid_leases = self._renew([held.lease for held in held_leases])
        except (DatabaseError, InterfaceError) as error:  # one beat of several in a lease
            connection.close()
            logger.warning("leases_not_renewed", job=self._name, error=str(error)[:200])
            return
        finally:
            connection.close()  # idle between two beats
        for held in held_leases:
            if held.lease not in valid_leases:
                held.mark_lost()

"""Who works on a job: a conditional update of its row decides, never the broker.

A worker that lives renews its lease; one that died lets it run out, and the reaper hands the job on
or gives it up. Reaping is harmless when done twice or by several at once: each step is a claim or a
conditional update. Beat does it, and any worker may (`claim_turn`). How to use it:

    class Upload(OwnedJob):                      # or Job, where owners do not take turns
        OPEN = Q(status="PROCESSING")            # columns of the row itself, never of a join
        LEASE = timedelta(seconds=20)
        MAX_ATTEMPTS = 5

    lease = claim_job(Upload, key)               # or: claim_next_jobs(Upload, limit=1)
    with Heartbeat(Upload).hold(lease) as held:  # at module level: one for each kind of job
        ...                                      # held.check() raises LeaseLost
    lease.rows().update(status="COMPLETED", **RELEASED)   # ends it, if it is still ours

All times are the database's. `OPEN` must not join: Django updates what it joins by a list of keys,
and Postgres does not look again at that list once it has waited for a row, so that two claims of
one job would both succeed.

One thread a process renews all leases that are held, apart from the work, whatever that is (a
coroutine, a parser, a long query), so that no slow step costs a lease.
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
"""Column values of a row that nobody holds."""

SKIPPED_LOCKS = 64
"""Jobs of one owner to look past while other workers have them locked."""


class LeaseLostError(Exception):
    """Somebody else holds the job now, or it has ended: stop."""


class Job(models.Model):
    """A row that workers claim.

    `claim` names the hold of one worker, `lease_until` is when it ends unless renewed. A row with
    a lease but no claim rests: nobody takes it before. `attempts` counts the claims, `enqueued_at`
    is when workers were last told of it.
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

    Nobody claims or keeps a job of an owner whose account is not active; only the reaper does, to
    end it or let it wait until the account is active again.

    `RANK` is the column by which some go before all others, the highest first; empty: none does.

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
    """One worker's hold on one job."""

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
    """Those of the jobs that have no owner, or one whose account is active."""
    people = _find_account_model(rows.model)
    if people is None:
        return rows
    active = people._default_manager.filter(is_active=True)  # noqa: SLF001 - Django's own way
    return rows.filter(Exists(active.filter(pk=OuterRef("owner_id"))))


def _find_account_model(model: Any) -> Any:
    """The model of accounts that owns the jobs; None where an owner is no account."""
    if not issubclass(model, OwnedJob):
        return None
    return model._meta.get_field("owner").related_model  # noqa: SLF001 - public in all but its name


def select_jobs_at_work(model: type[JobT]) -> QuerySet[JobT]:
    """Jobs held by a living worker."""
    return select_open_jobs(model).filter(claim__isnull=False, lease_until__gte=Now())


def claim_job(model: type[JobT], job_id: Any, *, counted: bool = True) -> Lease[JobT] | None:
    """Take one job that nobody holds; None when somebody does or it has ended.

    `counted` False does not count as an attempt, and takes a job that had all of its attempts.
    """
    token = uuid4()
    query, parameters = _build_claim_one_statement(model, counted)
    key = model._meta.pk.get_db_prep_value(job_id, connection)  # noqa: SLF001 - Django's own way
    with connection.cursor() as cursor:
        cursor.execute(query, {**parameters, "key": key, "claim": token})
        return Lease(model, job_id, token) if cursor.rowcount else None


def claim_next_jobs(
    model: type[OwnedJobT],
    *,
    limit: int = 1,
    limit_of_one: int = 0,
    among: Q | None = None,
    **values: Any,
) -> list[Lease[OwnedJobT]]:
    """Take the jobs whose turn it is, at most `limit`; empty when none waits.

    Owners take turns: who has the fewest jobs at work comes first, then who was served longest
    ago; of an owner's jobs the oldest. So a thousand jobs of one keep nobody waiting. Before all of
    that, those of a higher `RANK` go first. No owner has more than `limit_of_one` at work by this,
    however much room there is; 0 is no limit. `among`, in columns of the row itself, says which
    jobs may be taken. `values` are plain values to write with the claim.
    """
    query, parameters = _build_claim_statement(model, limit, limit_of_one, among or Q(), values)
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
    """Renew the leases of one model in one statement; those that still hold."""
    if not leases:
        return set()
    model = next(iter(leases)).model
    tokens = [lease.token for lease in leases]
    mine = select_open_jobs(model).filter(
        pk__in=[lease.job_id for lease in leases], claim__in=tokens
    )
    held = filter_active_owners(mine)
    if held.update(lease_until=Now() + model.LEASE) == len(leases):
        return set(leases)
    standing = set(held.values_list("claim", flat=True))
    return {lease for lease in leases if lease.token in standing}


def release_lease(
    lease: Lease[JobT], *, most: int | None = None, rest: timedelta | None = None, **values: Any
) -> bool:
    """Let another attempt begin, after `rest` where given.

    False, and nothing is written, when the lease is lost or the job had `most` attempts.
    """
    rows = lease.rows() if most is None else lease.rows().filter(attempts__lt=most)
    until = Now() + rest if rest else None
    freed = {"claim": None, "lease_until": until, "enqueued_at": Now()}
    return bool(rows.update(**freed | values))


def _build_free_condition() -> Q:
    return Q(lease_until=None) | Q(lease_until__lt=Now())


TAKE = """
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


FREE = "({table}.lease_until IS NULL OR {table}.lease_until < statement_timestamp())"
"""That nobody holds a job, as `_build_free_condition` says it."""
TAKE_ONE = """
    UPDATE {table} SET claim = %(claim)s, lease_until = statement_timestamp() + %(lease)s{begun}
     WHERE {key} = %(key)s AND {waits}
"""


@functools.cache
def _build_claim_one_statement(model: type[Job], counted: bool) -> tuple[str, Mapping[str, Any]]:
    """The SQL of `claim_job` with its named parameters, but for the key and the claim."""
    quote = connection.ops.quote_name
    meta: Any = model._meta  # noqa: SLF001 - public in all but its name
    parameters: dict[str, Any] = {"lease": model.LEASE, "most": model.MAX_ATTEMPTS}
    table = quote(meta.db_table)
    is_open = _compile_condition(select_open_jobs(model), "open", parameters)
    waits, begun = f"{is_open} AND {FREE.format(table=table)}", ""
    if counted:
        waits += f" AND {table}.attempts < %(most)s"
        begun = ", attempts = attempts + 1"
    if counted and issubclass(model, OwnedJob):
        owner = quote(meta.get_field("owner").column)
        waits += f" AND {_build_active_condition(model, f'{table}.{owner}')}"
        begun += ", started_at = statement_timestamp()"
    key = quote(str(meta.pk.column))
    return TAKE_ONE.format(table=table, key=key, waits=waits, begun=begun), parameters


def _build_claim_statement(
    model: type[OwnedJobT], limit: int, limit_of_one: int, among: Q, values: Mapping[str, Any]
) -> tuple[str, Any]:
    """The SQL of `claim_next_jobs` with its named parameters."""
    quote, meta = connection.ops.quote_name, model._meta  # noqa: SLF001 - public in all but its name
    parameters: dict[str, Any] = {"lease": model.LEASE, "most": model.MAX_ATTEMPTS}
    table = quote(meta.db_table)
    owner: Any = meta.get_field("owner")
    is_open = _compile_condition(select_open_jobs(model), "open", parameters)
    is_meant = _compile_condition(model._default_manager.filter(among), "among", parameters)  # noqa: SLF001
    free = FREE.format(table=table)
    changes = ""
    for name, value in values.items():
        field: Any = meta.get_field(name)
        changes += f", {quote(field.column)} = %(new_{name})s"
        parameters[f"new_{name}"] = field.get_db_prep_save(value, connection)
    query = TAKE.format(
        table=table,
        key=quote(str(meta.pk.column)),
        owner=quote(owner.column),
        active=_build_active_condition(model, "one.owner"),
        open=is_open,
        waits=f"{is_open} AND {is_meant} AND {table}.attempts < %(most)s AND {free}",
        bound=f"turn <= {int(limit_of_one)}" if limit_of_one else "TRUE",
        limit=int(limit),
        rank=quote(model.RANK) if model.RANK else "0::int",
        reach=int(limit) + SKIPPED_LOCKS,
        lease="%(lease)s",
        changes=changes,
    )
    return query, parameters


def _build_active_condition(model: type[OwnedJob], owner: str) -> str:
    """That the account with this key, a column, is active, as SQL."""
    people = _find_account_model(model)
    if people is None:
        return "TRUE"
    meta, quote = people._meta, connection.ops.quote_name  # noqa: SLF001 - as above
    table, key = quote(meta.db_table), quote(str(meta.pk.column))
    return f"EXISTS (SELECT 1 FROM {table} WHERE {key} = {owner} AND is_active)"  # noqa: S608


def _compile_condition(rows: QuerySet[Any], name: str, parameters: dict[str, Any]) -> str:
    """What the rows are filtered by, as SQL; its parameters are added to those given, by `name`."""
    query = rows.query
    if not query.where:
        return "TRUE"
    sql, given = query.get_compiler(connection=connection).compile(query.where)
    names: Iterable[str] = [f"{name}_{number}" for number in range(len(given))]
    parameters.update(zip(names, given, strict=True))
    return "(" + str(sql) % tuple(f"%({each})s" for each in names) + ")"


logger = structlog.get_logger()

MAX_JOBS_A_REAPING = 500


def reap_lost_jobs(
    model: type[JobT],
    *,
    announce: Callable[[Any], None],
    give_up: Callable[[Lease[JobT]], object],
    settle: Callable[[Lease[JobT]], bool] | None = None,
    limit: int = MAX_JOBS_A_REAPING,
) -> list[Any]:
    """Hand on the jobs whose lease ran out while they were held; the keys of those touched.

    A job that had all its attempts is given up: `give_up` ends the row that the lease holds.
    `settle`, where given, decides instead: True where it has ended the job, False to hand it on.
    `announce` tells the workers of one job, by its key.
    """
    lost = select_open_jobs(model).filter(claim__isnull=False, lease_until__lt=Now())
    touched = []
    for key in lost.order_by("lease_until").values_list("pk", flat=True)[:limit]:
        lease = claim_job(model, key, counted=False)  # only one of several reapers gets on
        if lease is None:
            continue
        touched.append(key)
        if settle is not None:
            if settle(lease):
                continue
        elif not lease.rows().filter(attempts__lt=model.MAX_ATTEMPTS).exists():
            give_up(lease)
            logger.warning("job_given_up", job=model.__name__, key=str(key))
            continue
        if release_lease(lease):
            logger.warning("job_handed_on", job=model.__name__, key=str(key))
            announce(key)
    return touched


def announce_unclaimed_jobs(
    model: type[JobT],
    *,
    announce: Callable[[Any], None],
    patience: timedelta,
    limit: int = MAX_JOBS_A_REAPING,
) -> list[Any]:
    """Tell the workers again of jobs that nobody took for `patience`; the keys of those."""
    overdue = _select_overdue(model, patience)
    keys: Sequence[Any] = list(overdue.order_by("enqueued_at").values_list("pk", flat=True)[:limit])
    told = [key for key in keys if overdue.filter(pk=key).update(enqueued_at=Now())]
    for key in told:
        announce(key)
    return told


def claim_turn(name: str, seconds: float) -> bool:
    """Claim the turn to do what one process does every `seconds`; False where another has it.

    True as well while Redis is away: what is done twice must be harmless.
    """
    try:
        milliseconds = int(seconds * 1000)
        return bool(connections.sync().set(f"nura:due:{name}", "1", nx=True, px=milliseconds))
    except RedisError:
        return True


def _select_overdue(model: type[JobT], patience: timedelta) -> Any:
    late = Q(enqueued_at=None) | Q(enqueued_at__lt=Now() - patience)
    waiting: Any = filter_active_owners(select_open_jobs(model)).filter(
        _build_free_condition(), late, claim=None
    )
    return waiting.filter(attempts__lt=model.MAX_ATTEMPTS)


BEATS_A_LEASE = 5
"""Renewals per lease, so that some may fail without losing it."""
MAX_IDLE_BEATS = 10
"""The thread ends when it had nothing to renew for so many beats."""


class LeavingError(LeaseLostError):
    """This process is to end: give the job back, which is no attempt that failed, and stop."""


class HeldLease(Generic[JobT]):
    """A lease that is being renewed."""

    def __init__(
        self,
        lease: Lease[JobT],
        on_loss: Callable[[], None] | None,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self.lease = lease
        self.since = time.monotonic()
        self._on_loss = on_loss
        self._is_leaving = is_leaving
        self._lost = threading.Event()

    @property
    def is_lost(self) -> bool:
        """Whether somebody else has the job, or it has ended."""
        return self._lost.is_set()

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is lost, `LeavingError` if it is to be given back."""
        if self._lost.is_set():
            raise LeaseLostError
        if self._is_leaving():
            raise LeavingError

    def mark_lost(self) -> None:
        """Notify the worker; called from the heartbeat's thread."""
        if not self._lost.is_set():
            self._lost.set()
            if self._on_loss:
                self._on_loss()


class Heartbeat(Generic[JobT]):
    """Renews the leases of one kind of job that this process holds.

    `renew` does it where more is to be written than the lease; it is given the held leases and
    returns those that stand. `seconds` between two beats: by default a fifth of the lease.
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
        self._changing = threading.Lock()
        self._beating = threading.Lock()
        self._leaving: mmap.mmap | None = None

    def share_leave_signal(self) -> Callable[[], None]:
        """What lets this process and all that it forks from now on give back what they hold.

        A byte that they share; unlike an event between processes it has no lock, which a process
        that is killed would keep.
        """
        self._leaving = leaving = mmap.mmap(-1, 1)

        def leave() -> None:
            leaving[0] = 1

        return leave

    def is_leaving(self) -> bool:
        """Whether what is held is to be given back."""
        return self._leaving is not None and self._leaving[0] == 1

    @contextmanager
    def hold(
        self, lease: Lease[JobT], on_loss: Callable[[], None] | None = None
    ) -> Iterator[HeldLease[JobT]]:
        """Renew a lease within the block. `on_loss` is called once, from another thread."""
        held = HeldLease(lease, on_loss, self.is_leaving)
        with self._changing:
            self._held[lease] = held
            if self._thread is None or not self._thread.is_alive():  # also after a fork
                self._thread = threading.Thread(
                    target=self._run_beats, name="heartbeat", daemon=True
                )
                self._thread.start()
        try:
            yield held
        finally:
            with self._changing:
                del self._held[lease]

    def wait_until_idle(self) -> None:
        """Wait for a renewal in progress. Nothing is held any more."""
        with self._beating:
            pass

    def _run_beats(self) -> None:
        """Beat while something is held; a thread is dear, so that it outlives short work."""
        idle = 0
        while True:
            time.sleep(self.seconds)
            with self._beating:
                with self._changing:
                    idle = 0 if self._held else idle + 1
                    if idle > MAX_IDLE_BEATS:
                        self._thread = None
                        return
                    young = time.monotonic() - self.seconds  # their leases have just begun
                    held = [one for one in self._held.values() if one.since <= young]
                if held:
                    self._beat(held)

    def _beat(self, held: list[HeldLease[JobT]]) -> None:
        try:
            standing = self._renew([one.lease for one in held])
        except (DatabaseError, InterfaceError) as error:  # one beat of several in a lease
            connection.close()
            logger.warning("leases_not_renewed", job=self._name, error=str(error)[:200])
            return
        finally:
            connection.close()  # idle between two beats
        for one in held:
            if one.lease not in standing:
                one.mark_lost()

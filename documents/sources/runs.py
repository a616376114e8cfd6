"""Schedules runs of sources and executes them in workers.

A message only says that a run waits (`announce_run`); a worker of documents claims whichever is
next, owners taking turns. At most `NURA_SOURCES_AT_ONCE` are at work at a time, and each yields to
waiting documents, so that a long list keeps nobody's upload waiting.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from documents import queue
from documents.audit import Action, record_event
from documents.errors import Internal, SourceBusy, SourceOwnerLost, WorkerLost
from documents.models import Library
from documents.secrets import SecretUnreadable, open_secret
from documents.sources.base import SourceReader, SourceSettingInvalid, get_kind
from documents.sources.models import RunStatus, Source, SourceRun
from documents.sources.sync import GiveWayError, SourceSync
from jobs.lease import (
    RELEASED,
    Heartbeat,
    HeldLease,
    Lease,
    LeaseLostError,
    LeavingError,
    announce_unclaimed_jobs,
    claim_next_jobs,
    reap_lost_jobs,
    release_lease,
    select_jobs_at_work,
)
from jobs.queue import make_task_id, send_task
from rag.errors import NuraError

logger = structlog.get_logger()

TASK = "documents.tasks.run_source"
HEARTBEAT = Heartbeat(SourceRun)
PATIENCE = timedelta(seconds=30)
"""How long a run waits before a message is sent again."""
DELIVERY_SECONDS = 0.5
MAX_RUNS_KEPT = 50
"""Ended runs of a source that are kept for its history."""


def request_run(
    *,
    source: Source,
    dry_run: bool = False,
    confirmed: bool = False,
    listing: dict[str, Any] | None = None,
    actor: User | None = None,
) -> SourceRun:
    """Create a run for a worker to execute. Raises `SourceBusy` if one is under way."""
    try:
        with transaction.atomic():
            run = SourceRun.objects.create(
                source=source,
                owner_id=source.owner_id,
                dry_run=dry_run,
                confirmed=confirmed,
                listing=listing,
                enqueued_at=timezone.now(),
            )
            if actor is not None:
                details = {"dry_run": dry_run, "confirmed": confirmed}
                record_event(Action.SOURCE_RUN, actor=actor, target=source, details=details)
            drop_old_runs(source)
            transaction.on_commit(lambda: announce_run(run.pk), robust=True)
    except IntegrityError as error:
        raise SourceBusy from error
    return run


def announce_run(run_id: UUID, *, delay_seconds: float = 0.0) -> None:
    """Notify the workers of a waiting run."""
    task_id = make_task_id("source", run_id)
    send_task(TASK, [str(run_id)], task_id=task_id, delay_seconds=delay_seconds)


def start_due_runs() -> int:
    """Start all due runs. Returns their number. Missed runs are not made up for."""
    started = 0
    for source in Source.objects.due().order_by("next_run_at")[: settings.SOURCES_AT_ONCE * 100]:
        due = Source.objects.filter(pk=source.pk, next_run_at=source.next_run_at)
        if not due.update(next_run_at=source.find_next_run()):
            continue  # another beat was quicker
        try:
            request_run(source=source)
        except SourceBusy:  # the previous run takes longer than the interval
            continue
        started += 1
    return started


def run_next_source() -> bool:
    """Execute a slice of the next run. False if none waits or enough are at work."""
    if select_jobs_at_work(SourceRun).count() >= settings.SOURCES_AT_ONCE:
        return False
    leases = claim_next_jobs(SourceRun, limit=1)
    for lease in leases:
        carry_out_run(lease)
    return bool(leases)


def carry_out_run(lease: Lease[SourceRun]) -> None:
    """Execute a run until it ends or yields."""
    try:
        with HEARTBEAT.hold(lease) as held_lease:
            _sync_source(held_lease)
    except GiveWayError as pause:
        _release_run(lease, pause.delay)
    except LeavingError:
        _release_run(lease, None)
    except LeaseLostError:
        logger.info("source_run_taken_away", run_id=str(lease.job_id))
    except NuraError as error:
        _fail_run(lease, error)
    except Exception:  # whatever it was: the run must end, and people must know
        logger.exception("source_run_broke", run_id=str(lease.job_id))
        _fail_run(lease, Internal())
    announce_waiting_run()


def _sync_source(held_lease: HeldLease[SourceRun]) -> None:
    run = SourceRun.objects.select_related("source__owner", "source__library").get(
        pk=held_lease.lease.job_id
    )
    check_owner(run.source)
    with open_source(run.source, run) as reader:
        SourceSync(held_lease, run, reader).run()
    logger.info("source_run_ended", run_id=str(run.pk), status=run.status, **run.counts)


def check_owner(source: Source) -> None:
    """Raise `SourceOwnerLost` unless the owner may still set up this source."""
    kind, owner = get_kind(source.kind), source.owner
    libraries = Library.objects.managed_by(owner).filter(pk=source.library_id)
    may_set_up = owner.is_active and (owner.is_staff or not kind.administrators)
    if not may_set_up or not libraries.exists():
        raise SourceOwnerLost(owner=owner.get_username())


def open_source(source: Source, run: SourceRun | None = None) -> SourceReader:
    """The reader of a source, a context manager."""
    kind = get_kind(source.kind)
    values = {**source.settings, **open_secrets(source)}
    if kind.sends:
        values["listing"] = run.listing if run is not None else None
    return kind.open_reader(values)


def open_secrets(source: Source) -> dict[str, str]:
    """The opened secrets of a source, by name. Raises `SourceSettingInvalid`."""
    try:
        return {name: open_secret(text) for name, text in source.secrets.items()}
    except SecretUnreadable as error:
        raise SourceSettingInvalid(name="secret", reason="unreadable") from error


def _release_run(lease: Lease[SourceRun], delay: timedelta | None) -> None:
    """Let the next slice begin after `delay`. The ended one is no failed attempt."""
    if release_lease(lease, delay=delay, attempts=0):
        message_delay = delay.total_seconds() + DELIVERY_SECONDS if delay else 0.0
        announce_run(lease.job_id, delay_seconds=message_delay)


def _fail_run(lease: Lease[SourceRun], error: NuraError) -> None:
    _fail_rows(lease.rows(), lease.job_id, error)


def _fail_rows(rows: QuerySet[SourceRun], run_id: UUID, error: NuraError) -> None:
    rows.update(
        status=RunStatus.FAILED,
        error_code=error.code,
        error_params=queue.to_stored_parameters(error.params),
        ended_at=timezone.now(),
        **RELEASED,
    )
    logger.warning("source_run_failed", run_id=str(run_id), code=error.code)


def announce_waiting_run() -> None:
    """Announce a run that waits because too many were at work, if there is one."""
    waiting = SourceRun.objects.filter(SourceRun.OPEN, claim=None, lease_until=None)
    run_id = waiting.order_by("created_at").values_list("pk", flat=True).first()
    if run_id is not None:
        announce_run(run_id)


def reap_runs() -> None:
    """Hand on lost runs, end those of inactive owners, announce unclaimed ones again."""
    reap_lost_jobs(
        SourceRun, announce=announce_run, give_up=lambda lease: _fail_run(lease, WorkerLost())
    )
    _end_orphaned_runs()
    announce_unclaimed_jobs(SourceRun, announce=announce_run, patience=PATIENCE)


def _end_orphaned_runs() -> None:
    """Workers claim no jobs of inactive accounts, so their runs would never end."""
    waiting = SourceRun.objects.filter(SourceRun.OPEN, claim=None)
    for run in waiting.filter(owner__is_active=False).select_related("owner"):
        error = SourceOwnerLost(owner=run.owner.get_username())
        _fail_rows(waiting.filter(pk=run.pk), run.pk, error)


def drop_old_runs(source: Source) -> None:
    """Delete all but the latest runs of a source."""
    kept_ids = list(
        source.runs.order_by("-created_at").values_list("pk", flat=True)[:MAX_RUNS_KEPT]
    )
    source.runs.exclude(status=RunStatus.RUNNING).exclude(pk__in=kept_ids).delete()

"""Finds jobs whose worker is gone, and jobs that no worker was told of.

Harmless when run twice or by several at once: each step is a claim or a conditional update. Beat
runs it, and any worker may (`is_due`), so that a beat that died costs nothing.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import structlog
from django.db.models import Q
from django.db.models.functions import Now
from redis.exceptions import RedisError

from jobs import connections
from jobs.lease import JobT, Lease, claim_job, of_active_owners, open_jobs, release_lease

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
    lost = open_jobs(model).filter(claim__isnull=False, lease_until__lt=Now())
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
    overdue = _overdue(model, patience)
    keys: Sequence[Any] = list(overdue.order_by("enqueued_at").values_list("pk", flat=True)[:limit])
    told = [key for key in keys if overdue.filter(pk=key).update(enqueued_at=Now())]
    for key in told:
        announce(key)
    return told


def is_due(name: str, seconds: float) -> bool:
    """Whether it is this process's turn to do what one process does every `seconds`.

    True as well while Redis is away: what is done twice must be harmless.
    """
    try:
        milliseconds = int(seconds * 1000)
        return bool(connections.sync().set(f"nura:due:{name}", "1", nx=True, px=milliseconds))
    except RedisError:
        return True


def _overdue(model: type[JobT], patience: timedelta) -> Any:
    free = Q(lease_until=None) | Q(lease_until__lt=Now())
    late = Q(enqueued_at=None) | Q(enqueued_at__lt=Now() - patience)
    waiting: Any = of_active_owners(open_jobs(model)).filter(free, late, claim=None)
    return waiting.filter(attempts__lt=model.MAX_ATTEMPTS)

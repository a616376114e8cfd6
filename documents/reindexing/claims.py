"""Who works on a change of the embedding model: conditional updates on its row decide.

A process that lives renews its lease; one that was killed lets it run out, and the next one goes on
where it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from documents.models.spaces import Reindexing

LEASE = timedelta(seconds=20)
LOCK = 0x6E757262
"""Number of the advisory lock under which changes begin."""

State = Reindexing.State


class ReindexLostError(Exception):
    """Another process took the change over, or it was ended: stop."""


class ReindexBusyError(Exception):
    """A living process is at work on a change."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Which model to change to. No languages: those that are declared for it."""

    model: str
    base_url: str = ""
    languages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one process to carry the change out."""

    pk: int
    token: UUID

    def held(self) -> QuerySet[Reindexing]:
        """The row while the claim stands."""
        return Reindexing.objects.filter(pk=self.pk, claim=self.token, open=True)


def begin(wish: Wish, *, background: bool) -> Reindexing:
    """The open change to this model, made where there is none; one to another model gives way.

    Raises `ReindexBusyError` while a process is at work.
    """
    values = {"model": wish.model, "base_url": wish.base_url, "languages": list(wish.languages)}
    with _nobody_at_work():
        same = Reindexing.objects.filter(open=True, **values)
        others = Reindexing.objects.filter(open=True).exclude(pk__in=same.values("pk"))
        others.update(open=False, state=State.REPLACED, claim=None)
        if same.update(background=background, attempts=0, error="", enqueued_at=Now()):
            return same.get()
        now = {"background": background, "enqueued_at": Now()}
        return Reindexing.objects.create(**values, **now)


def dismiss() -> None:
    """End what was begun and interrupted. Raises `ReindexBusyError` while a process is at work."""
    with _nobody_at_work():
        Reindexing.objects.filter(open=True).update(open=False, state=State.REPLACED, claim=None)


def take(pk: int) -> Claim | None:
    """Claim it; None when it ended or a living process has it."""
    claim = Claim(pk, uuid4())
    free = Q(claim=None) | Q(lease_until__lt=Now())
    taken = Reindexing.objects.filter(free, pk=pk, open=True).update(
        claim=claim.token, lease_until=Now() + LEASE, attempts=F("attempts") + 1, updated_at=Now()
    )
    return claim if taken else None


def renew(claim: Claim, **changes: Any) -> None:
    """Prolong the lease, and write what changed. Raises `ReindexLostError`."""
    if not claim.held().update(lease_until=Now() + LEASE, updated_at=Now(), **changes):
        raise ReindexLostError


def release(claim: Claim, **changes: Any) -> bool:
    """Let another process go on; False when the claim was lost."""
    free = {"claim": None, "lease_until": None, "enqueued_at": Now(), "updated_at": Now()}
    return bool(claim.held().update(**free, **changes))


def end(claim: Claim, state: Reindexing.State, **changes: Any) -> None:
    """It is over. Raises `ReindexLostError`."""
    free = {"claim": None, "lease_until": None, "updated_at": Now()}
    if not claim.held().update(open=False, state=state, **free, **changes):
        raise ReindexLostError


def alive(run: Reindexing) -> bool:
    """Whether a process renews its lease."""
    return Reindexing.objects.filter(pk=run.pk, open=True, lease_until__gte=Now()).exists()


@contextmanager
def _nobody_at_work() -> Iterator[None]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        if Reindexing.objects.filter(open=True, lease_until__gte=Now()).exists():
            raise ReindexBusyError
        yield

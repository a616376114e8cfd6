"""What owners do with documents that wait: put off, go on, give up, see how far they are.

Callers have checked that the document is the user's.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Min, Q, QuerySet, Sum
from django.utils import timezone

from documents import claims, estimate, notices, queue, services
from documents.errors import Cancelled, DocumentNotProcessing
from documents.models import Document
from documents.sweeper import MOST_AT_ONCE

if TYPE_CHECKING:
    from django.contrib.auth.models import User

RECENT = timedelta(minutes=5)
"""What was finished since then tells how quick the work is."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The queue of one user. `seconds_left` is None where there is nothing to judge it by."""

    waiting: int
    working: int
    paused: int
    pages_per_second: float
    seconds_left: float | None


def pause(*, document: Document) -> None:
    """Put a document off; a worker that reads it stops soon. Raises `DocumentNotProcessing`."""
    row = Document.objects.filter(pk=document.pk)
    if not _pause(row) and not row.paused().exists():
        raise DocumentNotProcessing
    document.refresh_from_db()


def resume(*, document: Document) -> None:
    """Let a document wait again, from its beginning. Raises `DocumentNotProcessing`."""
    row = Document.objects.filter(pk=document.pk)
    if not _resume(row) and not row.processing().exists():
        raise DocumentNotProcessing
    document.refresh_from_db()


def pause_all(*, owner: "User") -> int:
    """Put off all that waits or is at work; how many that were."""
    return _pause(Document.objects.owned_by(owner))


def resume_all(*, owner: "User") -> int:
    """Go on with all that was put off; how many that were."""
    return _resume(Document.objects.owned_by(owner))


def cancel_all(*, owner: "User") -> int:
    """Stop the processing of all; how many that were."""
    mine = Document.objects.owned_by(owner).processing()
    count = 0
    for document in mine.searchable():  # few: each may have a version that is refused
        with suppress(DocumentNotProcessing):  # it has ended meanwhile
            services.cancel(document=document)
            count += 1
    never_indexed = mine.filter(indexed_at=None)
    ended = claims.ended(Document.Status.FAILED, Cancelled.code)
    return count + len(_changed(never_indexed, ended))


def standing(*, owner: "User") -> Standing:
    """Counted now from the rows; the speed is that of the last minutes."""
    mine = Document.objects.owned_by(owner)
    now = timezone.now()
    counts = mine.processing().aggregate(
        waiting=Count("pk", filter=Q(claim=None) & ~Q(stage=Document.Stage.PAUSED)),
        working=Count("pk", filter=Q(claim__isnull=False)),
        paused=Count("pk", filter=Q(stage=Document.Stage.PAUSED)),
    )
    recent = mine.filter(Q(claim__isnull=False) | Q(indexed_at__gte=now - RECENT))
    done = recent.exclude(started_at=None).aggregate(
        pages=Sum("pages_done"), since=Min("started_at")
    )
    passed = max((now - done["since"]).total_seconds(), 1.0) if done["since"] else 0.0
    return Standing(
        **counts,
        pages_per_second=round((done["pages"] or 0) / passed, 2) if passed else 0.0,
        seconds_left=estimate.seconds_left(owner.pk),
    )


def _pause(rows: QuerySet[Document]) -> int:
    going = rows.filter(status=Document.Status.PROCESSING).exclude(stage=Document.Stage.PAUSED)
    return len(_changed(going, claims.waiting() | {"stage": Document.Stage.PAUSED}))


def _resume(rows: QuerySet[Document]) -> int:
    paused = rows.filter(status=Document.Status.PROCESSING, stage=Document.Stage.PAUSED)
    changed = _changed(paused, claims.waiting() | {"attempts": 0})
    for pk in changed[:MOST_AT_ONCE]:  # the workers carry on by themselves
        queue.enqueue(pk)
    return len(changed)


def _changed(rows: QuerySet[Document], values: dict[str, object]) -> list[UUID]:
    """Change the rows and show it to their owner; their keys."""
    with transaction.atomic():
        keys = list(rows.select_for_update().values_list("pk", flat=True))
        Document.objects.filter(pk__in=keys).update(**values)
    _tell(keys)
    return keys


def _tell(keys: Collection[UUID]) -> None:
    notices.documents_changed(list(Document.objects.filter(pk__in=keys)))

"""How far a user's queue is, and how long it may still take.

What waits is judged by what the files took that were read last, of any owner. Owners take turns:
until one's files are done, every other owner gets as much of the workers as he, or as little as he
needs.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING

from django.db.models import Count, F, Min, Q, Sum
from django.utils import timezone

from documents.models import Document

if TYPE_CHECKING:
    from django.contrib.auth.models import User


MIN_SHARE, MIN_SECONDS = 0.02, 1.0
"""How much must be done before the rest is estimated."""


def estimate_document_seconds(document: Document) -> float | None:
    """How long the processing may still take, judged by how long it took so far.

    None where there is nothing to go by.
    """
    if document.claim is None or document.started_at is None or document.progress < MIN_SHARE:
        return None
    passed = (document.updated_at - document.started_at).total_seconds()
    if passed < MIN_SECONDS:
        return None
    return round(passed * (1 - document.progress) / document.progress, 1)


RECENT = timedelta(minutes=5)
"""What was finished since then tells how quick the work is."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The queue of one user. `seconds_left` is None where there is nothing to judge it by."""

    waiting: int
    working: int
    paused: int
    pages_per_second: float
    seconds_left: float | None


def get_queue_status(*, owner: "User") -> QueueStatus:
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
    return QueueStatus(
        **counts,
        pages_per_second=round((done["pages"] or 0) / passed, 2) if passed else 0.0,
        seconds_left=estimate_queue_seconds(owner.pk),
    )


MAX_FILES_LEARNT_FROM = 200
"""Files that were read last."""
SPREAD = 2.0
"""The largest file to the smallest: files more alike than that do not tell what a byte costs."""
QUIET = timedelta(seconds=30)
"""Where nothing is at work and nothing ended since then, nobody knows when it goes on."""
ANY_TYPE = ""
"""Stands for all types together: the pace of types that were not read lately."""


@dataclass(frozen=True, slots=True)
class ReadingPace:
    """What a file takes: `each` seconds, and `per_byte` seconds a byte."""

    each: float
    per_byte: float

    @classmethod
    def of(cls, sizes: Sequence[int], seconds: Sequence[float]) -> "ReadingPace":
        """By the files that took so long; neither part is below 0."""
        if max(sizes) < SPREAD * min(sizes):
            return cls(0.0, sum(seconds) / max(sum(sizes), 1))
        per_byte, each = linear_regression(sizes, seconds)
        if per_byte < 0:
            return cls(fmean(seconds), 0.0)
        if each < 0:
            return cls(0.0, sum(seconds) / sum(sizes))
        return cls(each, per_byte)

    def seconds(self, files: float, size: float) -> float:
        """What that many files take that have `size` bytes together."""
        return self.each * files + self.per_byte * size


@dataclass(frozen=True, slots=True)
class _Left:
    """What is not done of one owner's files of one type; `working` of them are at work."""

    owner_id: int
    content_type: str
    files: float
    size: float
    working: int


def estimate_queue_seconds(owner_id: int) -> float | None:
    """Until all files of the owner are read; None where there is nothing to judge it by."""
    all_left = _sum_left()
    if not any(one.owner_id == owner_id for one in all_left):
        return 0.0
    paces, last = _learn_paces()
    working = sum(one.working for one in all_left)
    if last is None or not (working or timezone.now() - last < QUIET):
        return None
    needs: defaultdict[int, float] = defaultdict(float)
    for one in all_left:
        pace = paces.get(one.content_type, paces[ANY_TYPE])
        needs[one.owner_id] += pace.seconds(one.files, one.size)
    shared = sum(min(need, needs[owner_id]) for need in needs.values())
    return round(shared / max(working, 1), 1)


def _sum_left() -> list[_Left]:
    rest = 1 - F("progress")
    rows = Document.objects.processing().exclude(stage=Document.Stage.PAUSED).order_by()
    sums = rows.values_list("owner_id", "content_type").annotate(
        files=Sum(rest), bytes=Sum(F("size") * rest), working=Count("claim")
    )
    return [_Left(*row) for row in sums]


def _learn_paces() -> tuple[dict[str, ReadingPace], datetime | None]:
    """The pace of each type and of all together, and when the last file was done."""
    rows = Document.objects.filter(
        status=Document.Status.COMPLETED, indexed_at__gt=F("started_at"), size__gt=0
    )
    done = rows.order_by("-indexed_at").values_list(
        "content_type", "size", F("indexed_at") - F("started_at"), "indexed_at"
    )[:MAX_FILES_LEARNT_FROM]
    took: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for kind, size, passed, _ended in done:
        for name in (kind, ANY_TYPE):
            took[name].append((size, passed.total_seconds()))
    paces = {name: ReadingPace.of(*zip(*files, strict=True)) for name, files in took.items()}
    return paces, done[0][3] if done else None

"""The queue of ingests: states of their rows, messages to workers, estimates of the rest.

Who works on a document is decided in `jobs.lease`. A message only means that there is work: the
worker claims the document whose turn it is, which need not be the one the message was sent for.
`attempts` is counted in the row: whatever crashes, a document is tried at most
`Document.MAX_ATTEMPTS` times, and `MAX_FILE_ATTEMPTS` times if its file may be the cause.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, F, Min, Q, Sum
from django.db.models.functions import Now
from django.utils import timezone

from documents.models import Document, QueueHold
from jobs.lease import (
    RELEASED,
    Lease,
    LeaseLostError,
    claim_next_jobs,
    release_lease,
    select_jobs_at_work,
    select_waiting_jobs,
)
from jobs.queue import count_messages, make_task_id, send_task

if TYPE_CHECKING:
    from django.contrib.auth.models import User

QUEUE = "documents"
INGEST = "documents.tasks.ingest_document"
REINDEX = "documents.tasks.reindex"

MAX_FILE_ATTEMPTS = 2
RETRY_DELAY = timedelta(seconds=3)
"""Pause before the next attempt."""
DELIVERY_SECONDS = 0.5
"""How long after the pause the message for the next attempt is delivered."""
MAX_MESSAGES = 50
"""Limit of waiting messages; each serves whichever document is next."""
MAX_PARAMETER_CHARACTERS = 500
PASS_DELAY = timedelta(seconds=1)
"""How long a document that passed its turn waits, so that another one is claimed first."""
UNTRIED_TEXTS = ~Q(stage=Document.Stage.PICTURED) & Q(attempts=0)
"""Documents that a worker may read while pages of another one are recognised.

None is known to need recognition, and none was tried before: one that crashed its worker would now
take the other document with it.
"""


def enqueue_ingest_on_commit(document_id: UUID) -> None:
    """Send a message for the document after commit."""
    transaction.on_commit(lambda: enqueue_ingest(document_id), robust=True)


def enqueue_ingest(document_id: UUID, *, delay_seconds: float = 0.0) -> None:
    """Send a message for the document now, or later."""
    _send(INGEST, "ingest", str(document_id), delay_seconds)


def enqueue_reindex(reindexing_id: int, *, delay_seconds: float = 0.0) -> None:
    """Send a message for a change of the embedding model now, or later."""
    _send(REINDEX, "reindex", reindexing_id, delay_seconds)


def count_waiting_messages() -> int:
    """Number of messages waiting for the workers of documents; 0 if the broker does not say."""
    return count_messages(QUEUE)


def claim_next_document(condition: Q | None = None) -> Lease[Document] | None:
    """Claim the next document, owners taking turns; None if none waits or the queue is held.

    `condition` restricts the documents.
    """
    if QueueHold.objects.exists():
        return None
    values: dict[str, Any] = {"stage": Document.Stage.PARSING, "progress": 0.0, "pages_done": 0}
    leases = claim_next_jobs(Document, limit=1, condition=condition, **values)
    return leases[0] if leases else None


def retry_later(lease: Lease[Document], max_attempts: int = Document.MAX_ATTEMPTS) -> bool:
    """Let another attempt begin a little later; False if there were `max_attempts` already."""
    if not release_lease(
        lease, max_attempts=max_attempts, delay=RETRY_DELAY, **to_waiting_values()
    ):
        return False
    enqueue_ingest(lease.job_id, delay_seconds=RETRY_DELAY.total_seconds() + DELIVERY_SECONDS)
    return True


def release_document(lease: Lease[Document], stage: str) -> None:
    """Let another worker begin at once. It counts neither as an attempt nor as the owner's turn."""
    waiting = to_waiting_values() | {"stage": stage, "started_at": None}
    if release_lease(lease, attempts=F("attempts") - 1, **waiting):
        enqueue_ingest(lease.job_id)


def is_turn_of_another(lease: Lease[Document]) -> bool:
    """Whether a document of an owner with fewer at work waits for a worker.

    Only documents that need recognition or failed before count; the others (`UNTRIED_TEXTS`) are
    read in the pauses of this one.
    """
    document = Document.objects.only("owner_id", "priority").get(pk=lease.job_id)
    at_work = Counter(select_jobs_at_work(Document).values_list("owner_id", flat=True))
    busy_owners = [owner for owner, jobs in at_work.items() if jobs >= at_work[document.owner_id]]
    waiting = select_waiting_jobs(Document).exclude(UNTRIED_TEXTS).exclude(owner_id__in=busy_owners)
    return (
        waiting.filter(priority__gte=document.priority).exists() and not QueueHold.objects.exists()
    )


def pass_turn(lease: Lease[Document], seconds: float) -> None:
    """Let the document whose turn it is go first; this attempt took `seconds` and does not count.

    Sends a delayed message for this document; `ingest.announce_next_ingest` sends the other one.
    """
    waiting: dict[str, Any] = {
        "stage": Document.Stage.PICTURED,
        "attempts": F("attempts") - 1,
        "seconds_before": F("seconds_before") + seconds,
        "updated_at": Now(),
    }
    if release_lease(lease, delay=PASS_DELAY, **waiting):
        enqueue_ingest(lease.job_id, delay_seconds=PASS_DELAY.total_seconds() + DELIVERY_SECONDS)


def complete_document(lease: Lease[Document], **values: Any) -> None:
    """Mark the document as completed and indexed. Raises `LeaseLostError`."""
    ended_values = to_ended_values(Document.Status.COMPLETED) | {
        "progress": 1.0,
        "indexed_at": Now(),
    }
    if not lease.rows().update(**ended_values | values):
        raise LeaseLostError


def to_new_values() -> dict[str, Any]:
    """Column values of a row that is to be processed from the beginning."""
    return {
        "status": Document.Status.PROCESSING,
        "attempts": 0,
        "seconds_before": 0.0,
        "priority": Document.Priority.USUAL,
        "error_code": "",
        "error_params": {},
        **to_released_values(),
    }


def to_waiting_values() -> dict[str, Any]:
    """Column values of a row that waits for a worker, without those of its lease."""
    return {"stage": Document.Stage.QUEUED, "progress": 0.0, "updated_at": Now()}


def to_released_values() -> dict[str, Any]:
    """Column values of a row that waits for a worker, with those of its lease."""
    return {**RELEASED, "enqueued_at": Now(), **to_waiting_values()}


def to_ended_values(
    status: str, code: str = "", parameters: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Column values of a row whose processing has ended."""
    return {
        **RELEASED,
        "status": status,
        "stage": Document.Stage.DONE,
        "error_code": code,
        "error_params": to_stored_parameters(parameters or {}),
        "updated_at": Now(),
    }


def to_stored_parameters(parameters: Mapping[str, object]) -> dict[str, Any]:
    """Parameters of an error's sentence in a form that can be stored."""
    return {
        name: value if isinstance(value, int | float) else _to_stored_text(value)
        for name, value in parameters.items()
    }


def _to_stored_text(value: object) -> str:
    text = str(value).replace("\0", "").encode("utf-8", "ignore").decode()
    return text[:MAX_PARAMETER_CHARACTERS]


def _send(task: str, kind: str, key: str | int, delay_seconds: float) -> None:
    """Send a task. If the broker is down, the reaper announces the job again (`jobs.lease`)."""
    send_task(task, [key], task_id=make_task_id(kind, key), delay_seconds=delay_seconds)


MIN_PROGRESS, MIN_SECONDS = 0.02, 1.0
"""Progress and seconds needed before the rest is estimated."""


def estimate_document_seconds(document: Document) -> float | None:
    """How long the processing may still take, judged by how long it took so far; None: unknown."""
    if document.claim is None or document.started_at is None or document.progress < MIN_PROGRESS:
        return None
    elapsed = (document.updated_at - document.started_at).total_seconds() + document.seconds_before
    if elapsed < MIN_SECONDS:
        return None
    return round(elapsed * (1 - document.progress) / document.progress, 1)


RECENT_PERIOD = timedelta(minutes=5)
"""Period of finished work that the speed is measured from."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The queue of one user. `seconds_left` is None if it cannot be estimated."""

    waiting: int
    working: int
    paused: int
    pages_per_second: float
    seconds_left: float | None


def get_queue_status(*, owner: "User") -> QueueStatus:
    """The current numbers, and the speed of the last minutes."""
    documents = Document.objects.filter(owner=owner)
    now = timezone.now()
    counts = documents.processing().aggregate(
        waiting=Count("pk", filter=Q(claim=None) & ~Q(stage=Document.Stage.PAUSED)),
        working=Count("pk", filter=Q(claim__isnull=False)),
        paused=Count("pk", filter=Q(stage=Document.Stage.PAUSED)),
    )
    recent = documents.filter(Q(claim__isnull=False) | Q(indexed_at__gte=now - RECENT_PERIOD))
    progress = recent.exclude(started_at=None).aggregate(
        pages=Sum("pages_done"), since=Min("started_at")
    )
    elapsed = max((now - progress["since"]).total_seconds(), 1.0) if progress["since"] else 0.0
    return QueueStatus(
        **counts,
        pages_per_second=round((progress["pages"] or 0) / elapsed, 2) if elapsed else 0.0,
        seconds_left=estimate_queue_seconds(owner.pk),
    )


MAX_RECENT_FILES = 200
"""Number of the latest files from which the pace is computed."""
MIN_SIZE_RATIO = 2.0
"""Ratio of the largest to the smallest file from which the cost of a byte can be computed."""
IDLE_PERIOD = timedelta(seconds=30)
"""If nothing is at work and nothing ended for so long, there is no estimate."""
ANY_TYPE = ""
"""Key of all types together: the pace for types that were not read lately."""


@dataclass(frozen=True, slots=True)
class ReadingPace:
    """The time that a file takes: `per_file` seconds, plus `per_byte` seconds a byte."""

    per_file: float
    per_byte: float

    @classmethod
    def fit(cls, sizes: Sequence[int], seconds: Sequence[float]) -> "ReadingPace":
        """Fit to files of these sizes that took so long; neither part is negative."""
        if max(sizes) < MIN_SIZE_RATIO * min(sizes):
            return cls(0.0, sum(seconds) / max(sum(sizes), 1))
        per_byte, per_file = linear_regression(sizes, seconds)
        if per_byte < 0:
            return cls(fmean(seconds), 0.0)
        if per_file < 0:
            return cls(0.0, sum(seconds) / sum(sizes))
        return cls(per_file, per_byte)

    def seconds(self, files: float, size: float) -> float:
        """The time of this many files with `size` bytes together."""
        return self.per_file * files + self.per_byte * size


@dataclass(frozen=True, slots=True)
class _RemainingFiles:
    """What remains of one owner's files of one type; `working` of them are at work."""

    owner_id: int
    content_type: str
    files: float
    size: float
    working: int


@dataclass(frozen=True, slots=True)
class _RecentFiles:
    """Figures of the latest files, and of the finished parts of those at work.

    `paces` are by type, and of all types together; `largest_size` is that of the largest file;
    `last_end` is when the latest file was completed; `concurrency` is the average number at work
    before that, not counting times when none was.
    """

    paces: Mapping[str, ReadingPace]
    largest_size: float
    last_end: datetime
    concurrency: float

    def is_unfamiliar(self, remaining: _RemainingFiles) -> bool:
        """Whether nothing similar was read: no file of the type, and none as large.

        The time of a short note says nothing about a scan of ten pages.
        """
        is_larger = remaining.size > remaining.files * self.largest_size * MIN_SIZE_RATIO
        return is_larger and remaining.content_type not in self.paces


def estimate_queue_seconds(owner_id: int) -> float | None:
    """Seconds until all files of the owner are read; None if that cannot be estimated."""
    all_remaining = _sum_remaining()
    if not any(remaining.owner_id == owner_id for remaining in all_remaining):
        return 0.0
    recent = _learn_from_files()
    working = sum(remaining.working for remaining in all_remaining)
    if recent is None or not (working or timezone.now() - recent.last_end < IDLE_PERIOD):
        return None
    seconds_by_owner: defaultdict[int, float] = defaultdict(float)
    for remaining in all_remaining:
        if recent.is_unfamiliar(remaining):
            return None
        pace = recent.paces.get(remaining.content_type, recent.paces[ANY_TYPE])
        seconds_by_owner[remaining.owner_id] += pace.seconds(remaining.files, remaining.size)
    total = sum(min(seconds, seconds_by_owner[owner_id]) for seconds in seconds_by_owner.values())
    # a worker may be between two files right now; and files read concurrently took longer
    return round(total / max(working, recent.concurrency), 1)


def _sum_remaining() -> list[_RemainingFiles]:
    share_left = 1 - F("progress")
    rows = Document.objects.processing().exclude(stage=Document.Stage.PAUSED).order_by()
    sums = rows.values_list("owner_id", "content_type").annotate(
        files=Sum(share_left), bytes=Sum(F("size") * share_left), working=Count("claim")
    )
    return [_RemainingFiles(*row) for row in sums]


def _learn_from_files() -> _RecentFiles | None:
    """Figures of the latest files; None if there are none."""
    rows = Document.objects.filter(
        status=Document.Status.COMPLETED, indexed_at__gt=F("started_at"), size__gt=0
    )
    completed = rows.order_by("-indexed_at").values_list(
        "content_type", "size", "started_at", "indexed_at", "seconds_before"
    )[:MAX_RECENT_FILES]
    if not completed:
        return None
    started = Document.objects.processing().filter(
        claim__isnull=False,
        progress__gte=MIN_PROGRESS,
        updated_at__gte=F("started_at") + timedelta(seconds=MIN_SECONDS),
    )
    partial = started.values_list(
        "content_type", F("size") * F("progress"), "started_at", "updated_at", "seconds_before"
    )
    samples: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    spans: list[tuple[datetime, datetime]] = []
    for content_type, size, start, end, seconds_before in (*completed, *partial):
        spans.append((start, end))
        for name in (content_type, ANY_TYPE):
            samples[name].append((size, seconds_before + (end - start).total_seconds()))
    paces = {name: ReadingPace.fit(*zip(*files, strict=True)) for name, files in samples.items()}
    last_end = spans[0][1]
    largest = max(size for size, _ in samples[ANY_TYPE])
    return _RecentFiles(
        paces, largest, last_end, _measure_concurrency(spans, last_end - IDLE_PERIOD)
    )


def _measure_concurrency(spans: Sequence[tuple[datetime, datetime]], since: datetime) -> float:
    """The average number of overlapping spans after `since`, where there is at least one."""
    total = covered = timedelta(0)
    covered_until = since
    for start, end in sorted(spans):
        total += max(end - max(start, since), timedelta(0))
        covered += max(end - max(start, covered_until), timedelta(0))
        covered_until = max(covered_until, end)
    return total / covered

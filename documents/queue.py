"""The queue of ingests: what their rows hold while they wait, work or have ended, and wake-ups.

Who works on a document is settled in `jobs.lease`. A message means that there is work: the worker
takes the document whose turn it is, which need not be the one that the message was sent for.
`attempts` stands in the row: whatever dies around a document, it is tried `Document.MAX_ATTEMPTS`
times and no more, and `MAX_FILE_ATTEMPTS` times where its file may be to blame.
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
RETRY = timedelta(seconds=3)
"""What failed is not tried again before."""
DELIVERY_SECONDS = 0.5
"""A message about a second attempt comes that much after the pause has ended."""
MAX_MESSAGES = 50
"""Limit of waiting messages; each serves whichever document is next."""
MAX_PARAMETER_CHARACTERS = 500
PASS = timedelta(seconds=1)
"""A document that passed its turn on waits that long, so that another one is taken first."""
QUICK = ~Q(stage=Document.Stage.PICTURED) & Q(attempts=0)
"""Documents that a worker reads while pages of another one are recognised.

None of them is known to need recognition itself, and none was tried before: what ended its worker
then would end the other document's, too.
"""


def enqueue_ingest_on_commit(document_id: UUID) -> None:
    """Send a message for the document when the row is really there."""
    transaction.on_commit(lambda: enqueue_ingest(document_id), robust=True)


def enqueue_ingest(document_id: UUID, *, delay_seconds: float = 0.0) -> None:
    """Send a message for the document now, or later."""
    _send(INGEST, "ingest", str(document_id), delay_seconds)


def enqueue_reindex(reindexing_id: int, *, delay_seconds: float = 0.0) -> None:
    """Send a change of the embedding model now, or later."""
    _send(REINDEX, "reindex", reindexing_id, delay_seconds)


def count_waiting_messages() -> int:
    """How many messages wait for the workers of documents; 0 when the broker does not say."""
    return count_messages(QUEUE)


def claim_next_document(among: Q | None = None) -> Lease[Document] | None:
    """Claim the next document, owners taking turns; None if none waits, or the queue is held.

    `among` says which may be taken.
    """
    if QueueHold.objects.exists():
        return None
    begun: dict[str, Any] = {"stage": Document.Stage.PARSING, "progress": 0.0, "pages_done": 0}
    leases = claim_next_jobs(Document, limit=1, condition=among, **begun)
    return leases[0] if leases else None


def retry_later(lease: Lease[Document], most: int = Document.MAX_ATTEMPTS) -> bool:
    """Let another attempt begin a little later; False when there were `most` of them."""
    if not release_lease(lease, max_attempts=most, delay=RETRY, **to_waiting_values()):
        return False
    enqueue_ingest(lease.job_id, delay_seconds=RETRY.total_seconds() + DELIVERY_SECONDS)
    return True


def release_document(lease: Lease[Document], stage: str) -> None:
    """Let another worker begin at once; what was cut off is no attempt and no turn of the owner."""
    waiting = to_waiting_values() | {"stage": stage, "started_at": None}
    if release_lease(lease, attempts=F("attempts") - 1, **waiting):
        enqueue_ingest(lease.job_id)


def is_turn_of_another(lease: Lease[Document]) -> bool:
    """Whether a document waits for a worker of its own whose owner has fewer at work.

    It is one that needs recognition or failed before; others are read beside this one (`QUICK`).
    """
    mine = Document.objects.only("owner_id", "priority").get(pk=lease.job_id)
    at_work = Counter(select_jobs_at_work(Document).values_list("owner_id", flat=True))
    served = [owner for owner, jobs in at_work.items() if jobs >= at_work[mine.owner_id]]
    waiting = select_waiting_jobs(Document).exclude(QUICK).exclude(owner_id__in=served)
    return waiting.filter(priority__gte=mine.priority).exists() and not QueueHold.objects.exists()


def pass_turn(lease: Lease[Document], seconds: float) -> None:
    """Let the document whose turn it is go first; this attempt took so long and does not count.

    The message for this one comes later; that for the other is `ingest.announce_next_ingest`'s.
    """
    waiting: dict[str, Any] = {
        "stage": Document.Stage.PICTURED,
        "attempts": F("attempts") - 1,
        "seconds_before": F("seconds_before") + seconds,
        "updated_at": Now(),
    }
    if release_lease(lease, delay=PASS, **waiting):
        enqueue_ingest(lease.job_id, delay_seconds=PASS.total_seconds() + DELIVERY_SECONDS)


def complete_document(lease: Lease[Document], **values: Any) -> None:
    """End well, with an index that serves. Raises `LeaseLostError`."""
    done = to_ended_values(Document.Status.COMPLETED) | {"progress": 1.0, "indexed_at": Now()}
    if not lease.rows().update(**done | values):
        raise LeaseLostError


def to_new_values() -> dict[str, Any]:
    """The values of a row that is to be processed from the beginning."""
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
    """The values of a row that waits for a worker, beside those of its lease."""
    return {"stage": Document.Stage.QUEUED, "progress": 0.0, "updated_at": Now()}


def to_released_values() -> dict[str, Any]:
    """Column values of a row waiting for a worker."""
    return {**RELEASED, "enqueued_at": Now(), **to_waiting_values()}


def to_ended_values(
    status: str, code: str = "", parameters: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Column values of a row no longer held by a worker."""
    return {
        **RELEASED,
        "status": status,
        "stage": Document.Stage.DONE,
        "error_code": code,
        "error_params": to_stored_parameters(parameters or {}),
        "updated_at": Now(),
    }


def to_stored_parameters(parameters: Mapping[str, object]) -> dict[str, Any]:
    """Parameters of a sentence as the row can hold them."""
    return {
        name: value if isinstance(value, int | float) else _to_stored_text(value)
        for name, value in parameters.items()
    }


def _to_stored_text(value: object) -> str:
    text = str(value).replace("\0", "").encode("utf-8", "ignore").decode()
    return text[:MAX_PARAMETER_CHARACTERS]


def _send(task: str, kind: str, key: str | int, delay_seconds: float) -> None:
    """A broker that is down loses nothing: the message is sent again (`jobs.lease`)."""
    send_task(task, [key], task_id=make_task_id(kind, key), delay_seconds=delay_seconds)


MIN_SHARE, MIN_SECONDS = 0.02, 1.0
"""How much must be done before the rest is estimated."""


def estimate_document_seconds(document: Document) -> float | None:
    """How long the processing may still take, judged by how long it took so far.

    None where there is nothing to go by.
    """
    if document.claim is None or document.started_at is None or document.progress < MIN_SHARE:
        return None
    passed = (document.updated_at - document.started_at).total_seconds() + document.seconds_before
    if passed < MIN_SECONDS:
        return None
    return round(passed * (1 - document.progress) / document.progress, 1)


RECENT = timedelta(minutes=5)
"""Period of finished work that the speed is measured from."""


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
    mine = Document.objects.filter(owner=owner)
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
    def fit(cls, sizes: Sequence[int], seconds: Sequence[float]) -> "ReadingPace":
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
class _RemainingFiles:
    """What is not done of one owner's files of one type; `working` of them are at work."""

    owner_id: int
    content_type: str
    files: float
    size: float
    working: int


@dataclass(frozen=True, slots=True)
class _RecentFiles:
    """What the files that were done last tell, and those at work by what is done of them.

    `paces` by type, and of all together; `largest` is the size of the largest of them; `last` is
    when a file was done, `side_by_side` how many were at work at once on average in the time before
    that, leaving out when none was.
    """

    paces: Mapping[str, ReadingPace]
    largest: float
    last: datetime
    side_by_side: float

    def is_unfamiliar(self, left: _RemainingFiles) -> bool:
        """Whether nothing like these files was read: none of the type, and none as large.

        What a short note takes says nothing of a scan of ten pages.
        """
        is_larger = left.size > left.files * self.largest * SPREAD
        return is_larger and left.content_type not in self.paces


def estimate_queue_seconds(owner_id: int) -> float | None:
    """Until all files of the owner are read; None where there is nothing to judge it by."""
    all_left = _sum_remaining()
    if not any(one.owner_id == owner_id for one in all_left):
        return 0.0
    lately = _learn_from_files()
    working = sum(one.working for one in all_left)
    if lately is None or not (working or timezone.now() - lately.last < QUIET):
        return None
    needs: defaultdict[int, float] = defaultdict(float)
    for one in all_left:
        if lately.is_unfamiliar(one):
            return None
        pace = lately.paces.get(one.content_type, lately.paces[ANY_TYPE])
        needs[one.owner_id] += pace.seconds(one.files, one.size)
    shared = sum(min(need, needs[owner_id]) for need in needs.values())
    # at this moment a worker may be between two files; and files read beside others took longer
    return round(shared / max(working, lately.side_by_side), 1)


def _sum_remaining() -> list[_RemainingFiles]:
    rest = 1 - F("progress")
    rows = Document.objects.processing().exclude(stage=Document.Stage.PAUSED).order_by()
    sums = rows.values_list("owner_id", "content_type").annotate(
        files=Sum(rest), bytes=Sum(F("size") * rest), working=Count("claim")
    )
    return [_RemainingFiles(*row) for row in sums]


def _learn_from_files() -> _RecentFiles | None:
    """What the files that were done last tell; None where none was."""
    rows = Document.objects.filter(
        status=Document.Status.COMPLETED, indexed_at__gt=F("started_at"), size__gt=0
    )
    done = rows.order_by("-indexed_at").values_list(
        "content_type", "size", "started_at", "indexed_at", "seconds_before"
    )[:MAX_FILES_LEARNT_FROM]
    if not done:
        return None
    begun = Document.objects.processing().filter(
        claim__isnull=False,
        progress__gte=MIN_SHARE,
        updated_at__gte=F("started_at") + timedelta(seconds=MIN_SECONDS),
    )
    parts = begun.values_list(
        "content_type", F("size") * F("progress"), "started_at", "updated_at", "seconds_before"
    )
    took: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    spans: list[tuple[datetime, datetime]] = []
    for kind, size, start, end, before in (*done, *parts):
        spans.append((start, end))
        for name in (kind, ANY_TYPE):
            took[name].append((size, before + (end - start).total_seconds()))
    paces = {name: ReadingPace.fit(*zip(*files, strict=True)) for name, files in took.items()}
    last = spans[0][1]
    largest = max(size for size, _ in took[ANY_TYPE])
    return _RecentFiles(paces, largest, last, _measure_concurrency(spans, last - QUIET))


def _measure_concurrency(spans: Sequence[tuple[datetime, datetime]], since: datetime) -> float:
    """How many of the spans lie beside one another on average, where there is any at all."""
    sum_of_all = covered = timedelta(0)
    until = since
    for start, end in sorted(spans):
        sum_of_all += max(end - max(start, since), timedelta(0))
        covered += max(end - max(start, until), timedelta(0))
        until = max(until, end)
    return sum_of_all / covered

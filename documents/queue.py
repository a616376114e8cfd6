"""The queue of ingests: what their rows hold while they wait, work or have ended, and wake-ups.

Who works on a document is settled in `jobs.lease`. A message means that there is work: the worker
takes the document whose turn it is, which need not be the one that the message was sent for.
`attempts` stands in the row: whatever dies around a document, it is tried `Document.MAX_ATTEMPTS`
times and no more, and `MAX_FILE_ATTEMPTS` times where its file may be to blame.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from documents.models import Document
from jobs.lease import RELEASED, Lease, LeaseLostError, claim_next_jobs, release_lease
from jobs.queue import count_messages, new_task_id, send_task

QUEUE = "documents"
INGEST = "documents.tasks.ingest_document"
REINDEX = "documents.tasks.reindex"
WARM = "documents.tasks.warm"

MAX_FILE_ATTEMPTS = 2
RETRY = timedelta(seconds=3)
"""What failed is not tried again before."""
DELIVERY_SECONDS = 0.5
"""A message about a second attempt comes that much after the pause has ended."""
MAX_MESSAGES = 50
"""So that a long queue does not fill with second messages: each is for whose turn it is."""
MAX_PARAMETER_CHARACTERS = 500


def enqueue_ingest_on_commit(document_id: UUID) -> None:
    """Send a message for the document when the row is really there."""
    transaction.on_commit(partial(enqueue_ingest, document_id), robust=True)


def enqueue_ingest(document_id: UUID, *, delay_seconds: float = 0.0) -> None:
    """Send a message for the document now, or later."""
    _send(INGEST, "ingest", str(document_id), delay_seconds)


def enqueue_reindex(reindexing_id: int, *, delay_seconds: float = 0.0) -> None:
    """Send a change of the embedding model now, or later."""
    _send(REINDEX, "reindex", reindexing_id, delay_seconds)


def enqueue_warming(space_id: int) -> None:
    """Let a worker that answers load the model of a space before it is needed."""
    _send(WARM, "warm", space_id, 0.0)


def count_waiting_messages() -> int:
    """How many messages wait for the workers of documents; 0 when the broker does not say."""
    return count_messages(QUEUE)


def claim_next_document() -> Lease[Document] | None:
    """Claim the document whose turn it is among owners; None when none waits."""
    begun = {"stage": Document.Stage.PARSING, "progress": 0.0, "pages_done": 0}
    leases = claim_next_jobs(Document, limit=1, **begun)
    return leases[0] if leases else None


def retry_later(lease: Lease[Document], most: int = Document.MAX_ATTEMPTS) -> bool:
    """Let another attempt begin a little later; False when there were `most` of them."""
    if not release_lease(lease, most=most, rest=RETRY, **to_waiting_values()):
        return False
    enqueue_ingest(lease.job_id, delay_seconds=RETRY.total_seconds() + DELIVERY_SECONDS)
    return True


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
        "error_code": "",
        "error_params": {},
        **to_released_values(),
    }


def to_waiting_values() -> dict[str, Any]:
    """The values of a row that waits for a worker, beside those of its lease."""
    return {"stage": Document.Stage.QUEUED, "progress": 0.0, "updated_at": Now()}


def to_released_values() -> dict[str, Any]:
    """The values of a row that nobody holds and that waits for a worker."""
    return {**RELEASED, "enqueued_at": Now(), **to_waiting_values()}


def to_ended_values(
    status: str, code: str = "", parameters: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """The values of a row that no worker holds any more."""
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
    """A broker that is down loses nothing: the message is sent again (`jobs.reaper`)."""
    send_task(task, [key], task_id=new_task_id(kind, key), delay_seconds=delay_seconds)

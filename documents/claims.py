"""Who works on a document: conditional updates on its row decide, never the broker.

A worker that lives renews its lease every few seconds; one that died lets it run out, and the
sweeper hands the document on. `attempts` stands in the row, so that a file which kills its worker
is tried `MAX_ATTEMPTS` times and no more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from documents.errors import IngestLost
from documents.models import Document

LEASE = timedelta(seconds=20)
MAX_ATTEMPTS = 2
PARAMETER_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one worker to write one document."""

    document_id: UUID
    token: UUID

    def held(self) -> QuerySet[Document]:
        """The row while the claim stands; empty once it is lost."""
        return Document.objects.processing().filter(pk=self.document_id, claim=self.token)


def take(document_id: UUID) -> Claim | None:
    """Claim a document that waits; None when it ended, was deleted, or another worker has it."""
    claim = Claim(document_id, uuid4())
    free = Q(claim=None) | Q(lease_until__lt=Now())
    taken = (
        Document.objects.processing()
        .filter(free, pk=document_id, attempts__lt=MAX_ATTEMPTS)
        .update(
            claim=claim.token,
            lease_until=Now() + LEASE,
            attempts=F("attempts") + 1,
            stage=Document.Stage.PARSING,
            progress=0.0,
            updated_at=Now(),
        )
    )
    return claim if taken else None


def renew(claim: Claim, **changes: Any) -> None:
    """Prolong the lease, and write what changed. Raises `IngestLost`."""
    if not claim.held().update(lease_until=Now() + LEASE, updated_at=Now(), **changes):
        raise IngestLost


def complete(claim: Claim, **changes: Any) -> None:
    """End well. Raises `IngestLost`."""
    _end(claim, **ended(Document.Status.COMPLETED), progress=1.0, **changes)


def fail(claim: Claim, code: str, parameters: Mapping[str, object]) -> None:
    """End badly, with what people will read. Raises `IngestLost`."""
    _end(claim, **ended(Document.Status.FAILED, code, parameters))


def give_back(claim: Claim) -> bool:
    """Let another attempt begin; False when there were enough of them."""
    again = claim.held().filter(attempts__lt=MAX_ATTEMPTS)
    return bool(again.update(**waiting()))


def anew() -> dict[str, Any]:
    """The values of a row that is to be processed from the beginning."""
    return {
        "status": Document.Status.PROCESSING,
        "attempts": 0,
        "error_code": "",
        "error_params": {},
        **waiting(),
    }


def waiting() -> dict[str, Any]:
    """The values of a row that waits for a worker."""
    return {
        "claim": None,
        "lease_until": None,
        "stage": Document.Stage.QUEUED,
        "progress": 0.0,
        "enqueued_at": Now(),
        "updated_at": Now(),
    }


def ended(
    status: str, code: str = "", parameters: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """The values of a row that no worker holds any more."""
    return {
        "status": status,
        "stage": Document.Stage.DONE,
        "claim": None,
        "lease_until": None,
        "error_code": code,
        "error_params": plain(parameters or {}),
        "updated_at": Now(),
    }


def plain(parameters: Mapping[str, object]) -> dict[str, Any]:
    """Parameters of a sentence as the row can hold them."""
    return {
        name: value if isinstance(value, int | float) else _text(value)
        for name, value in parameters.items()
    }


def _text(value: object) -> str:
    return str(value).replace("\0", "").encode("utf-8", "ignore").decode()[:PARAMETER_CHARACTERS]


def _end(claim: Claim, /, **changes: Any) -> None:
    if not claim.held().update(**changes):
        raise IngestLost

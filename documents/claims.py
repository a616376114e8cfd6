"""Who works on a document: conditional updates on its row decide, never the broker.

A worker that lives renews its lease every few seconds; one that died lets it run out, and the
sweeper hands the document on. `attempts` stands in the row: whatever dies around a document, it is
tried `MAX_ATTEMPTS` times and no more, and `MAX_TRIES` times where its file may be to blame. A row
with a lease but no claim is not taken before the lease ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import connection
from django.db.models import QuerySet
from django.db.models.functions import Now

from documents.errors import IngestLost
from documents.models import Document

LEASE = timedelta(seconds=20)
MAX_ATTEMPTS, MAX_TRIES = 5, 2
RETRY = timedelta(seconds=3)
"""What failed is not tried again before."""
PARAMETER_CHARACTERS = 500

WAITS = """
    {0}.status = 'PROCESSING' AND {0}.stage <> 'paused' AND {0}.attempts < %(most)s
    AND ({0}.lease_until IS NULL OR {0}.lease_until < statement_timestamp())
"""
TAKE = f"""
    WITH RECURSIVE one AS (
        (SELECT owner_id FROM documents_document WHERE status = 'PROCESSING'
          ORDER BY owner_id, created_at LIMIT 1)
        UNION ALL
        SELECT (SELECT next.owner_id FROM documents_document next
                 WHERE next.status = 'PROCESSING' AND next.owner_id > one.owner_id
                 ORDER BY next.owner_id, next.created_at LIMIT 1)
          FROM one WHERE one.owner_id IS NOT NULL
    ),
    owners AS MATERIALIZED (
        SELECT owner_id,
               (SELECT count(*) FROM documents_document held
                 WHERE held.owner_id = one.owner_id AND held.status = 'PROCESSING'
                   AND held.claim IS NOT NULL AND held.lease_until >= statement_timestamp()
               ) AS at_work,
               (SELECT max(started_at) FROM documents_document served
                 WHERE served.owner_id = one.owner_id) AS served,
               (SELECT created_at FROM documents_document oldest
                 WHERE oldest.owner_id = one.owner_id AND {WAITS.format("oldest")}
                 ORDER BY created_at LIMIT 1) AS since
          FROM one
    )
    UPDATE documents_document
       SET claim = %(token)s, lease_until = statement_timestamp() + %(lease)s,
           attempts = attempts + 1, stage = %(stage)s, progress = 0, pages_done = 0,
           started_at = statement_timestamp(), updated_at = statement_timestamp()
     WHERE id = (
        SELECT document.id
          FROM (SELECT owner_id FROM owners WHERE since IS NOT NULL
                 ORDER BY at_work, served NULLS FIRST, since) turn,
               LATERAL (SELECT id FROM documents_document first
                         WHERE first.owner_id = turn.owner_id AND {WAITS.format("first")}
                         ORDER BY first.created_at, first.id
                         LIMIT 1 FOR UPDATE SKIP LOCKED) document
         LIMIT 1
     )
    RETURNING id
"""  # noqa: S608 - the only part is ours


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one worker to write one document."""

    document_id: UUID
    token: UUID

    def held(self) -> QuerySet[Document]:
        """The row while the claim stands; empty once it is lost."""
        return Document.objects.processing().filter(pk=self.document_id, claim=self.token)


def take() -> Claim | None:
    """Claim the document whose turn it is; None when none waits.

    Owners take turns: who has the fewest documents at work comes first, then who was served
    longest ago; of an owner's documents the oldest. So a thousand files of one keep nobody waiting.
    """
    token = uuid4()
    with connection.cursor() as cursor:
        values: dict[str, Any] = {"token": token, "lease": LEASE, "most": MAX_ATTEMPTS}
        cursor.execute(TAKE, values | {"stage": Document.Stage.PARSING.value})
        row = cursor.fetchone()
    return Claim(row[0], token) if row else None


def renew(claim: Claim, **changes: Any) -> None:
    """Prolong the lease, and write what changed. Raises `IngestLost`."""
    if not claim.held().update(lease_until=Now() + LEASE, updated_at=Now(), **changes):
        raise IngestLost


def complete(claim: Claim, **changes: Any) -> None:
    """End well, with an index that serves. Raises `IngestLost`."""
    done = ended(Document.Status.COMPLETED) | {"progress": 1.0, "indexed_at": Now()}
    if not claim.held().update(**done | changes):
        raise IngestLost


def give_back(claim: Claim, most: int = MAX_ATTEMPTS) -> bool:
    """Let another attempt begin a little later; False when there were `most` of them."""
    again = claim.held().filter(attempts__lt=most)
    return bool(again.update(**waiting() | {"lease_until": Now() + RETRY}))


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

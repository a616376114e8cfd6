"""Notices to open pages: changed documents, progress of an ingest, changed rights.

Notices are a convenience: the REST API is the truth.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from django.contrib.auth.models import User
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.db.models.functions import Now
from redis.exceptions import RedisError

from documents.models import Document, list_library_ids
from documents.representation import to_document_json
from jobs import connections, replica
from jobs.lease import HeldLease, renew_lease

logger = structlog.get_logger()


def get_channel() -> str:
    """The Redis channel of all notices. Channels ignore databases, so it names the database."""
    return f"nura:notices:{connections.get_client().connection_pool.connection_kwargs.get('db', 0)}"


def send_notices(user_id: int, *payloads: Mapping[str, Any]) -> None:
    """Send payloads (`{type, data}`) to the sockets of one user, or of `EVERYBODY`.

    The user's reads from a replica wait for the change.
    """
    replica.note_write(f"user:{user_id}")
    channel = get_channel()
    try:
        with connections.get_client().pipeline(transaction=False) as pipe:
            for payload in payloads:
                data = json.dumps(payload["data"], cls=DjangoJSONEncoder, ensure_ascii=False)
                pipe.publish(channel, f"{user_id} {payload['type']} {data}")
            pipe.execute()
    except (RedisError, OSError) as error:  # a time-out is an OSError too
        logger.warning("notices_lost", user_id=user_id, error=type(error).__name__)


def notify_document_changed(document: Document) -> None:
    """Notify the owner's open pages of the document's progress."""
    notify_documents_changed([document])


def notify_documents_changed(documents: Sequence[Document]) -> None:
    """Notify the pages of one owner of several documents, as far as they may still read them."""
    notices = [_to_notice(document) for document in documents if is_open_to_owner(document)]
    if notices:
        send_notices(documents[0].owner_id, *notices)


def is_open_to_owner(document: Document) -> bool:
    """Whether the owner may read it: they may have left its library."""
    if document.library_id is None:
        return True
    library_ids = list_library_ids(User(pk=document.owner_id))
    return library_ids.filter(library_id=document.library_id).exists()


def notify_uploaded_again(document: Document) -> None:
    """Have the owner's pages keep the document: a page may be about to delete it."""
    if is_open_to_owner(document):
        data = to_document_json(document) | {"uploaded_again": True}
        send_notices(document.owner_id, {"type": "document", "data": data})


def _to_notice(document: Document) -> dict[str, Any]:
    return {"type": "document", "data": to_document_json(document)}


def to_deletion_notice(document: Document) -> dict[str, Any]:
    """The notice that makes the owner's pages drop the document."""
    data = to_document_json(document) | {"deleted": True}
    return {"type": "document", "data": data}


def get_rights_channel() -> str:
    """The Redis channel of changed rights. Channels ignore databases, so it names the database."""
    return f"nura:rights:{connections.get_client().connection_pool.connection_kwargs.get('db', 0)}"


def announce_rights_change() -> None:
    """Have the rights of everything open checked again after commit.

    Call it for every change of a membership, and for whatever else takes rights away: a
    deactivation, a revoked key, a new password, an ended session, a moved document. `chats.access`
    listens.
    """
    transaction.on_commit(_publish_rights_change)


def _publish_rights_change() -> None:
    try:
        connections.get_client().publish(get_rights_channel(), "")
    except (RedisError, OSError) as error:  # checks every second notice it as well
        logger.warning("rights_not_announced", error=type(error).__name__)


EVERYBODY = 0
"""In place of a user's id: all pages that are open."""


def announce_shared_change() -> None:
    """Have open pages reload what others share with their users, after commit."""
    transaction.on_commit(lambda: send_notices(EVERYBODY, {"type": "shared.changed", "data": {}}))


REPORT_SECONDS = 0.25

Stage = Document.Stage
SHARES = {
    Stage.PARSING: (0.0, 0.5),
    Stage.EMBEDDING: (0.5, 0.95),
    Stage.INDEXING: (0.95, 1.0),
}
"""The part of the progress, from 0 to 1, of each stage. Pages are split while they are read."""
RECOGNITION_SHARE = 0.4
"""Added to the part of reading if all pages are recognised: that takes most of the time."""


class Stopwatch:
    """Measures how long each stage takes."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stage = ""
        self._since = time.monotonic()

    def start_stage(self, stage: str) -> None:
        """End the running stage and start this one; times of a repeated stage add up."""
        now = time.monotonic()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = stage, now

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave out what happens within the block."""
        stage = self._stage
        self.start_stage("")
        try:
            yield
        finally:
            self.start_stage(stage)

    def seconds(self) -> dict[str, float]:
        """Seconds so far by name of the stage, to the millisecond."""
        self.start_stage(self._stage)
        return {stage: round(spent, 3) for stage, spent in self._seconds.items() if stage}


class IngestProgress:
    """Writes stage and progress to the row and the owner's pages, at most four times a second.

    The claim itself announced the start, so nothing is reported right after it.
    """

    def __init__(self, held_lease: HeldLease[Document], watch: Stopwatch) -> None:
        self._held_lease = held_lease
        self.watch = watch
        self._stage = Stage.PARSING
        self._reading_end = SHARES[Stage.PARSING][1]
        self._changes: dict[str, Any] = {}
        self._share = 0.0
        self._is_reported = False
        self._last_report_at = time.monotonic()

    def enter(self, stage: Stage) -> None:
        """Begin a stage. Raises `LeaseLostError`."""
        self._stage = stage
        self.watch.start_stage(stage.value)
        self.move(0, 1)

    def move(self, done: int, total: int, **changes: Any) -> None:
        """Show `done` of `total` within the stage, and what else changed.

        Raises `LeaseLostError`.
        """
        start, end = SHARES[self._stage]
        if self._stage is Stage.PARSING:
            end = self._reading_end
        elif self._stage is Stage.EMBEDDING:
            start = self._reading_end
        self._share = start + (end - start) * min(1.0, done / max(total, 1))
        self._changes |= changes
        self._is_reported = False
        self.check()

    def note_recognition(self, share: float) -> None:
        """Note the share of the pages read so far that were recognised: they take longest."""
        self._reading_end = SHARES[Stage.PARSING][1] + RECOGNITION_SHARE * min(1.0, share)

    def check(self) -> None:
        """Send a notice if one is due. Raises `LeaseLostError` if the lease is lost."""
        self._held_lease.check()
        if not self._is_reported and time.monotonic() - self._last_report_at >= REPORT_SECONDS:
            self.report()

    def report(self) -> None:
        """Write the progress and send the notice. Raises `LeaseLostError`."""
        values = {"stage": self._stage, "progress": self._share, **self._changes}
        renew_lease(self._held_lease.lease, updated_at=Now(), **values)
        self._last_report_at = time.monotonic()
        self._is_reported = True
        self._changes = {}
        document = Document.objects.filter(pk=self._held_lease.lease.job_id).first()
        if document:
            notify_document_changed(document)

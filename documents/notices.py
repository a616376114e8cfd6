"""Tells a user's open pages what changed, and how far an ingest is; and everybody that rights have.

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
    """The Redis channel of all notices; channels know no databases, so it names its own."""
    return f"nura:notices:{connections.sync().connection_pool.connection_kwargs.get('db', 0)}"


def send_notices(user_id: int, *payloads: Mapping[str, Any]) -> None:
    """Send payloads (`{type, data}`) to the sockets of one user, or of `EVERYBODY`.

    What they tell of is there for him from now on, wherever it is read.
    """
    replica.note_write(f"user:{user_id}")
    channel = get_channel()
    try:
        with connections.sync().pipeline(transaction=False) as pipe:
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
    """The same for several documents of one owner, as far as he may read them still."""
    told = [_to_notice(document) for document in documents if is_open_to_owner(document)]
    if told:
        send_notices(documents[0].owner_id, *told)


def is_open_to_owner(document: Document) -> bool:
    """Whether who uploaded it may read it: he may have left the library that it is in."""
    if document.library_id is None:
        return True
    held = list_library_ids(User(pk=document.owner_id))
    return held.filter(library_id=document.library_id).exists()


def _to_notice(document: Document) -> dict[str, Any]:
    return {"type": "document", "data": to_document_json(document)}


def to_deletion_notice(document: Document) -> dict[str, Any]:
    """What lets the owner's pages drop the document."""
    data = to_document_json(document) | {"deleted": True}
    return {"type": "document", "data": data}


def get_rights_channel() -> str:
    """The Redis channel of changed rights; channels know no databases, so it names its own."""
    return f"nura:rights:{connections.sync().connection_pool.connection_kwargs.get('db', 0)}"


def announce_rights_change() -> None:
    """Have everything that is open looked at, once the change of rights is committed.

    For whatever ends some: a deactivation, a revoked key, a new password, an ended session, a
    membership of a group or of a library, a document that moves. `chats.access` listens.
    """
    transaction.on_commit(_publish_rights_change)


def _publish_rights_change() -> None:
    try:
        connections.sync().publish(get_rights_channel(), "")
    except (RedisError, OSError) as error:  # it is noticed within a second all the same
        logger.warning("rights_not_announced", error=type(error).__name__)


EVERYBODY = 0
"""In place of a user's id: all pages that are open."""


def announce_shared_change() -> None:
    """Have open pages forget what others shared with their users, once the change is committed.

    They ask anew where they show it; that may be less now, or more.
    """
    transaction.on_commit(lambda: send_notices(EVERYBODY, {"type": "shared.changed", "data": {}}))


REPORT_SECONDS = 0.25

Stage = Document.Stage
SHARES = {
    Stage.PARSING: (0.0, 0.5),
    Stage.EMBEDDING: (0.5, 0.95),
    Stage.INDEXING: (0.95, 1.0),
}
"""Where each stage begins and ends between 0 and 1. Pages are split as they are read."""
RECOGNITION_SHARE = 0.4
"""How much later reading ends where all pages are recognised, beside which the rest is little."""


class Stopwatch:
    """How long each stage took, in seconds by its name."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stage = ""
        self._since = time.monotonic()

    def start_stage(self, stage: str) -> None:
        """End the stage before and begin this one; it may have been there before."""
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
        """What was measured so far, to the millisecond."""
        self.start_stage(self._stage)
        return {stage: round(spent, 3) for stage, spent in self._seconds.items() if stage}


class IngestProgress:
    """Writes stage and share into the row and to the owner's pages, four times a second at most.

    The claim has just said that the work begins, so what is done sooner than that is not told.
    """

    def __init__(self, held: HeldLease[Document], watch: Stopwatch) -> None:
        self._held = held
        self.watch = watch
        self._stage = Stage.PARSING
        self._read_at = SHARES[Stage.PARSING][1]
        self._changes: dict[str, Any] = {}
        self._share = 0.0
        self._told = False
        self._reported = time.monotonic()

    def enter(self, stage: Stage) -> None:
        """Begin a stage. Raises `LeaseLostError`."""
        self._stage = stage
        self.watch.start_stage(stage.value)
        self.move(0, 1)

    def move(self, done: int, total: int, **changes: Any) -> None:
        """Show `done` of `total` within the stage, and what else changed.

        Raises `LeaseLostError`.
        """
        begin, end = SHARES[self._stage]
        if self._stage is Stage.PARSING:
            end = self._read_at
        elif self._stage is Stage.EMBEDDING:
            begin = self._read_at
        self._share = begin + (end - begin) * min(1.0, done / max(total, 1))
        self._changes |= changes
        self._told = False
        self.check()

    def note_recognition(self, share: float) -> None:
        """Of the pages that were read, this share was recognised, and took most of the time."""
        self._read_at = SHARES[Stage.PARSING][1] + RECOGNITION_SHARE * min(1.0, share)

    def check(self) -> None:
        """Send a notice if one is due. Raises `LeaseLostError` if the lease is lost."""
        self._held.check()
        if not self._told and time.monotonic() - self._reported >= REPORT_SECONDS:
            self.report()

    def report(self) -> None:
        """Write and send what is to be told. Raises `LeaseLostError`."""
        shown = {"stage": self._stage, "progress": self._share, **self._changes}
        renew_lease(self._held.lease, updated_at=Now(), **shown)
        self._reported = time.monotonic()
        self._told = True
        self._changes = {}
        document = Document.objects.filter(pk=self._held.lease.job_id).first()
        if document:
            notify_document_changed(document)

"""Shows how far an ingest is, and measures how long its stages take."""

import time
from typing import Any

from django.db.models.functions import Now

from documents import notices
from documents.models import Document
from jobs.heartbeat import HeldLease
from jobs.lease import renew_lease

REPORT_SECONDS = 0.25

Stage = Document.Stage
SHARES = {
    Stage.PARSING: (0.0, 0.5),
    Stage.EMBEDDING: (0.5, 0.95),
    Stage.INDEXING: (0.95, 1.0),
}
"""Where each stage begins and ends between 0 and 1. Pages are split as they are read."""


class Stopwatch:
    """How long each stage took, in seconds by its name."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stage = ""
        self._since = time.monotonic()

    def enter(self, stage: str) -> None:
        """End the stage before and begin this one; it may have been there before."""
        now = time.monotonic()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = stage, now

    def seconds(self) -> dict[str, float]:
        """What was measured so far, to the millisecond."""
        self.enter(self._stage)
        return {stage: round(spent, 3) for stage, spent in self._seconds.items() if stage}


class IngestProgress:
    """Writes stage and share into the row and to the owner's pages, four times a second at most.

    The claim has just said that the work begins, so what is done sooner than that is not told.
    """

    def __init__(self, held: HeldLease[Document], watch: Stopwatch) -> None:
        self._held = held
        self.watch = watch
        self._stage = Stage.PARSING
        self._changes: dict[str, Any] = {}
        self._share = 0.0
        self._told = False
        self._reported = time.monotonic()

    def enter(self, stage: Stage) -> None:
        """Begin a stage. Raises `LeaseLostError`."""
        self._stage = stage
        self.watch.enter(stage.value)
        self.move(0, 1)

    def move(self, done: int, total: int, **changes: Any) -> None:
        """Show `done` of `total` within the stage, and what else changed.

        Raises `LeaseLostError`.
        """
        begin, end = SHARES[self._stage]
        self._share = begin + (end - begin) * min(1.0, done / max(total, 1))
        self._changes |= changes
        self._told = False
        self.check()

    def check(self) -> None:
        """Tell what is due. Raises `LeaseLostError` when the work is in vain."""
        self._held.check()
        if not self._told and time.monotonic() - self._reported >= REPORT_SECONDS:
            self._report()

    def _report(self) -> None:
        shown = {"stage": self._stage, "progress": self._share, **self._changes}
        renew_lease(self._held.lease, updated_at=Now(), **shown)
        self._reported = time.monotonic()
        self._told = True
        self._changes = {}
        document = Document.objects.filter(pk=self._held.lease.job_id).first()
        if document:
            notices.notify_document_changed(document)

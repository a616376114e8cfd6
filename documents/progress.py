"""Keeps the lease of an ingest alive and shows how far it is."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from django.db import DatabaseError, InterfaceError, connection

from documents import claims, notices
from documents.claims import Claim
from documents.errors import IngestLost
from documents.models import Document

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
REPORT_SECONDS = 0.25

Stage = Document.Stage
SHARES = {
    Stage.PARSING: (0.0, 0.5),
    Stage.EMBEDDING: (0.5, 0.95),
    Stage.INDEXING: (0.95, 1.0),
}
"""Where each stage begins and ends between 0 and 1. Pages are split as they are read."""


class Heartbeat:
    """Renews a lease from a thread of its own, so that no long step loses it.

    `renew` raises `lost` when the lease is somebody else's.
    """

    def __init__(
        self, renew: Callable[[], None], *, lost: type[Exception] = IngestLost, name: str = ""
    ) -> None:
        self._renew = renew
        self._error = lost
        self._name = name
        self._stopped = threading.Event()
        self._lost = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def check(self) -> None:
        """Raise `lost` when the work is no longer ours."""
        if self._lost.is_set():
            raise self._error

    def _run(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            try:
                self._renew()
            except self._error:
                self._lost.set()
                return
            except (DatabaseError, InterfaceError) as error:  # one beat of several in a lease
                logger.warning("no heartbeat for %s: %s", self._name, error)
            finally:
                connection.close()  # this thread's own: idle between two beats


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


class Progress:
    """Writes stage and share into the row and to the owner's pages, four times a second at most.

    The claim has just said that the work begins, so what is done sooner than that is not told.
    """

    def __init__(self, claim: Claim, heartbeat: Heartbeat) -> None:
        self._claim = claim
        self._heartbeat = heartbeat
        self.watch = Stopwatch()
        self._stage = Stage.PARSING
        self._changes: dict[str, Any] = {}
        self._share = 0.0
        self._told = False
        self._reported = time.monotonic()

    def enter(self, stage: Stage) -> None:
        """Begin a stage. Raises `IngestLost`."""
        self._stage = stage
        self.watch.enter(stage.value)
        self.move(0, 1)

    def move(self, done: int, total: int, **changes: Any) -> None:
        """Show `done` of `total` within the stage, and what else changed. Raises `IngestLost`."""
        begin, end = SHARES[self._stage]
        self._share = begin + (end - begin) * min(1.0, done / max(total, 1))
        self._changes |= changes
        self._told = False
        self.check()

    def check(self) -> None:
        """Tell what is due. Raises `IngestLost` when the work is in vain."""
        self._heartbeat.check()
        if not self._told and time.monotonic() - self._reported >= REPORT_SECONDS:
            self._report()

    def _report(self) -> None:
        claims.renew(self._claim, stage=self._stage, progress=self._share, **self._changes)
        self._reported = time.monotonic()
        self._told = True
        self._changes = {}
        document = Document.objects.filter(pk=self._claim.document_id).first()
        if document:
            notices.document_changed(document)

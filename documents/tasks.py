"""Celery tasks of documents: each calls one service within its own time limit."""

from celery import shared_task

from documents import ingest, segments
from documents.reindex import continue_change, reap_changes
from documents.sources import runs
from jobs.lease import claim_turn

INGEST_SOFT_LIMIT_SECONDS = 3600
INGEST_HARD_LIMIT_SECONDS = 3660
REINDEX_LIMIT_SECONDS = 6 * 3600
"""A slice fills for seconds; the index that is built at the end takes as long as it takes."""
REAP_LIMIT_SECONDS = 300
SOURCE_LIMIT_SECONDS = 3600
"""A slice of a run gives way long before, unless a file server hangs."""
BEAT_PATIENCE_SECONDS = 60.0
"""Where beat sent no reaper for so long, the workers do its work."""


@shared_task(soft_time_limit=INGEST_SOFT_LIMIT_SECONDS, time_limit=INGEST_HARD_LIMIT_SECONDS)
def ingest_document(_sent_for: str) -> None:
    """Process the next document in turn; the message only says that one is waiting."""
    if ingest.ingest_next_document():
        ingest.announce_next_ingest()
    if claim_turn("documents", BEAT_PATIENCE_SECONDS):
        _reap()


@shared_task(time_limit=REINDEX_LIMIT_SECONDS)
def reindex(reindexing_id: int) -> None:
    """Go on with a change of the embedding model."""
    continue_change(reindexing_id)


@shared_task(time_limit=SOURCE_LIMIT_SECONDS)
def run_source(_sent_for: str) -> None:
    """Go on with the source whose turn it is; the message only says that one is waiting."""
    runs.run_next_source()


@shared_task(time_limit=REAP_LIMIT_SECONDS)
def sweep_sources() -> None:
    """Begin the runs that are due, and hand on those that lost their worker; sent by beat."""
    runs.start_due_runs()
    runs.reap_runs()


@shared_task(time_limit=REAP_LIMIT_SECONDS)
def sweep_ingests() -> None:
    """Pick up what was lost; sent by beat."""
    claim_turn("documents", BEAT_PATIENCE_SECONDS)  # the workers need not do it as well
    _reap()


@shared_task(time_limit=REAP_LIMIT_SECONDS)
def write_segments() -> None:
    """Write the segments of the word index that are due; sent by beat."""
    segments.write_due_segments()


def _reap() -> None:
    ingest.reap_ingests()
    reap_changes()

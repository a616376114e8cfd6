"""Celery tasks of documents: each calls one service."""

from celery import shared_task

from documents import ingest, sweeper
from documents.reindexing import background

SOFT_LIMIT_SECONDS = 3600
HARD_LIMIT_SECONDS = 3660


@shared_task(soft_time_limit=SOFT_LIMIT_SECONDS, time_limit=HARD_LIMIT_SECONDS)
def ingest_document(_sent_for: str) -> None:
    """Process the document whose turn it is: a message only means that one waits."""
    if ingest.ingest():
        sweeper.carry_on()


@shared_task
def reindex(pk: int) -> None:
    """Go on with a change of the embedding model."""
    background.go_on(pk)


@shared_task
def warm(space: int) -> None:
    """Load the model of a space."""
    background.warm(space)


@shared_task
def sweep_ingests() -> None:
    """Pick up what was lost."""
    sweeper.sweep()
    background.sweep()

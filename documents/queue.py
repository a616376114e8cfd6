"""Hands documents to the workers. A broker that is down loses nothing: the sweeper sends again."""

import logging
from functools import partial
from uuid import UUID

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

INGEST = "documents.tasks.ingest_document"


def enqueue_on_commit(document_id: UUID) -> None:
    """Send the document when the row is really there."""
    transaction.on_commit(partial(enqueue, document_id), robust=True)


def enqueue(document_id: UUID, *, delay: float = 0.0) -> None:
    """Send the document now, or `delay` seconds later."""
    try:
        current_app.send_task(INGEST, args=[str(document_id)], countdown=delay or None, retry=False)
    except (OperationalError, RedisError, OSError):
        logger.warning("document %s stays queued: the broker is down", document_id, exc_info=True)

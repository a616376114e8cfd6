"""Tells the workers that documents wait. A broker that is down loses nothing: it is told again.

A message means that there is work: the worker takes the document whose turn it is
(`documents.claims.take`), which need not be the one that the message was sent for.
"""

import logging
from functools import partial
from typing import Any
from uuid import UUID

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

QUEUE = "documents"
INGEST = "documents.tasks.ingest_document"
REINDEX = "documents.tasks.reindex"
WARM = "documents.tasks.warm"


def enqueue_on_commit(document_id: UUID) -> None:
    """Send a message for the document when the row is really there."""
    transaction.on_commit(partial(enqueue, document_id), robust=True)


def enqueue(document_id: UUID, *, delay: float = 0.0) -> None:
    """Send a message for the document now, or `delay` seconds later."""
    _send(INGEST, str(document_id), delay)


def depth() -> int:
    """How many messages wait for the workers of documents; 0 when the broker does not say."""
    try:
        with current_app.connection_or_acquire() as connection:
            channel: Any = connection.default_channel
            declared = channel.queue_declare(queue=QUEUE, durable=True, auto_delete=False)
            return int(declared.message_count)
    except (OperationalError, RedisError, OSError):
        logger.warning("the broker does not say how many messages wait", exc_info=True)
        return 0


def enqueue_reindexing(pk: int, *, delay: float = 0.0) -> None:
    """Send a change of the embedding model now, or `delay` seconds later."""
    _send(REINDEX, pk, delay)


def enqueue_warming(space: int) -> None:
    """Let a worker that answers load the model of a space before it is needed."""
    _send(WARM, space, 0.0)


def _send(task: str, key: str | int, delay: float) -> None:
    try:
        current_app.send_task(task, args=[key], countdown=delay or None, retry=False)
    except (OperationalError, RedisError, OSError):
        logger.warning("%s %s stays queued: the broker is down", task, key, exc_info=True)

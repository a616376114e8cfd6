"""Picks up ingests whose worker died or whose message was lost. Harmless when run twice."""

import logging
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

from documents import claims, notices, queue
from documents.errors import WorkerLost
from documents.models import Document

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=30)
"""How long a document waits before it is sent again; a second message is a no-op by the claim."""
MOST_AT_ONCE = 50
"""So that a long queue does not fill with second messages."""


def sweep() -> None:
    """Hand lost ingests on, end those that were lost too often, send waiting ones again."""
    _expired()
    _unsent()


def _expired() -> None:
    lost = Document.objects.processing().filter(lease_until__lt=Now())
    for document in lost.exclude(claim=None)[:MOST_AT_ONCE]:
        same = lost.filter(pk=document.pk, claim=document.claim)
        if document.attempts < claims.MAX_ATTEMPTS:
            if same.update(**claims.waiting()):
                logger.warning("document %s lost its worker: sent again", document.pk)
                queue.enqueue(document.pk)
        elif same.update(**claims.ended(Document.Status.FAILED, WorkerLost.code)):
            logger.warning("document %s lost its worker too often", document.pk)
        _tell(document)


def _unsent() -> None:
    overdue = Q(enqueued_at__lt=Now() - PATIENCE) | Q(enqueued_at=None)
    waiting = Document.objects.processing().filter(overdue, claim=None)
    for document in waiting.order_by("enqueued_at")[:MOST_AT_ONCE]:
        if waiting.filter(pk=document.pk).update(enqueued_at=Now()):
            queue.enqueue(document.pk)


def _tell(document: Document) -> None:
    now = Document.objects.filter(pk=document.pk).first()
    if now:
        notices.document_changed(now)

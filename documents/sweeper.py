"""Picks up ingests whose worker died or whose message was lost. Harmless when run twice."""

import logging
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

from documents import claims, ending, notices, queue
from documents.errors import WorkerLost
from documents.models import Document

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=30)
"""How long a document waits before a message is sent again."""
MOST_AT_ONCE = 50
"""So that a long queue does not fill with second messages: each is for whose turn it is."""


def sweep() -> None:
    """Hand lost ingests on, end those that were lost too often, send waiting ones again."""
    _expired()
    _unsent()


def carry_on() -> None:
    """Send a message for the next document where all were lost and documents still wait."""
    if queue.depth() == 0:
        waiting = Document.objects.waiting().filter(lease_until=None).order_by("enqueued_at")
        for pk in waiting.values_list("pk", flat=True)[:1]:
            queue.enqueue(pk)


def _expired() -> None:
    lost = Document.objects.at_work().filter(lease_until__lt=Now())
    for document in lost[:MOST_AT_ONCE]:
        same = lost.filter(pk=document.pk, claim=document.claim)
        if document.attempts < claims.MAX_ATTEMPTS:
            if same.update(**claims.waiting()):
                logger.warning("document %s lost its worker: sent again", document.pk)
                queue.enqueue(document.pk)
        elif ending.give_up(same, WorkerLost.code, {}):
            logger.warning("document %s lost its worker too often", document.pk)
        _tell(document)


def _unsent() -> None:
    overdue = Q(enqueued_at__lt=Now() - PATIENCE) | Q(enqueued_at=None)
    waiting = Document.objects.waiting().filter(overdue)
    room = max(0, MOST_AT_ONCE - queue.depth())
    for pk in list(waiting.order_by("enqueued_at").values_list("pk", flat=True)[:room]):
        if waiting.filter(pk=pk).update(enqueued_at=Now()):
            queue.enqueue(pk)


def _tell(document: Document) -> None:
    now = Document.objects.filter(pk=document.pk).first()
    if now:
        notices.document_changed(now)

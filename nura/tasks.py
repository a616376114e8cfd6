"""Celery tasks of the installation: what was deleted is erased, what has run out is purged."""

from celery import shared_task

from documents import deletions
from nura import retention

SETTLE_LIMIT_SECONDS = 600
PURGE_LIMIT_SECONDS = 3600


@shared_task(time_limit=SETTLE_LIMIT_SECONDS)
def settle_deletions() -> None:
    """Go on with deletions whose copies are still to be marked or erased; sent by beat."""
    deletions.settle_deletions()
    retention.purge_chats()


@shared_task(time_limit=PURGE_LIMIT_SECONDS)
def purge_expired() -> None:
    """Take away what is kept no longer; sent by beat once a day. Killed, it goes on the next."""
    retention.purge()

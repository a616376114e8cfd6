"""Handing work to the workers."""

from uuid import UUID

import structlog
from celery import current_app
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError, ResponseError

from chats.models import Run
from chats.notices import chat_changed
from chats.runs import log
from chats.serializers import started_data

logger = structlog.get_logger()

NOTE_SECONDS = 60
"""A note that nobody took up for so long is enqueued anew by the sweeper."""


def dispatch_again(run_id: UUID) -> None:
    """Enqueue a run that nobody took, or whose worker is gone."""
    run = Run.objects.select_related("message__parent", "message__chat").get(pk=run_id)
    Run.objects.filter(pk=run_id).update(enqueued_at=timezone.now())
    dispatch(run)


def dispatch(run: Run) -> None:
    """Begin the log and enqueue the work of a run whose messages are at hand.

    A broker that is away is no error: the sweeper enqueues the run later.
    """
    try:
        log.append_events(run.pk, [log.RunEvent(1, log.STARTED, started_data(run))])
    except ResponseError:
        pass  # the log has begun: this run is dispatched again
    except RedisError as error:
        logger.warning("run_log_not_begun", run_id=str(run.pk), error=str(error)[:200])
    try:
        current_app.send_task("chats.tasks.answer_message", (str(run.pk),), retry=False)
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("run_not_enqueued", run_id=str(run.pk), error=str(error)[:200])
    chat_changed(run.message.chat_id)


def note_later(turn_id: UUID) -> None:
    """Enqueue the note of a turn; one that gets lost is enqueued again by the sweeper."""
    try:
        current_app.send_task(
            "chats.tasks.note_turn", (str(turn_id),), retry=False, expires=NOTE_SECONDS
        )
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("note_not_enqueued", turn_id=str(turn_id), error=str(error)[:200])

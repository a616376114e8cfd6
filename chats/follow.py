"""Following a run to its end, for every kind of client.

Repairs the log of a run that ended without a last word.
"""

import time
from collections.abc import AsyncIterator
from uuid import UUID

import structlog
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from chats import runs
from chats.calls import in_database
from chats.models import Message, Run
from chats.runs import RunEvent
from chats.services import leases
from chats.shapes import terminal_event

logger = structlog.get_logger()

DEAF_SECONDS = 10.0
"""How long a caller who waits for an answer is kept while Redis is away."""


async def follow(run_id: UUID, after_seq: int = 0) -> AsyncIterator[RunEvent | None]:
    """Events after `after_seq` until the last.

    None: nothing happened for a while (time for a sign of life).
    """
    last = after_seq
    async for event in runs.read(run_id, after_seq):
        if event is not None:
            last = event.seq
            yield event
            continue
        ended, rest = await _ended(run_id, last)
        if rest is not None:
            yield rest
        if ended:
            return
        yield None


async def finished(run_id: UUID) -> bool:
    """Wait for the end of a run; False when Redis stays away, so that no end would be heard."""
    heard = time.monotonic()
    async for event in follow(run_id):
        if event is not None or await runs.readable():
            heard = time.monotonic()
        elif time.monotonic() - heard > DEAF_SECONDS:
            return False
    return True


async def _ended(run_id: UUID, last: int) -> tuple[bool, RunEvent | None]:
    """Whether a run whose log goes on no further has ended; what is still to be heard."""
    try:
        return await in_database(_end, run_id, last)
    except DatabaseError as error:
        logger.warning("run_state_unknown", run_id=str(run_id), error=str(error)[:200])
        return False, None


def _end(run_id: UUID, last: int) -> tuple[bool, RunEvent | None]:
    run = Run.objects.select_related("message__parent", "message__chat").get(pk=run_id)
    if run.message.status == Message.Status.STREAMING:
        return False, None
    try:
        if _has_heard_the_end(run_id, last):
            return True, None
        leases.finish_log(run_id=run_id)
        if runs.load(run_id)[-1].seq > last:
            return False, None  # the reader finds it in the log
    except RedisError as error:
        logger.warning("run_log_unreadable", run_id=str(run_id), error=str(error)[:200])
    return True, RunEvent(last + 1, *terminal_event(run))


def _has_heard_the_end(run_id: UUID, last: int) -> bool:
    events = runs.load(run_id)
    return bool(events) and events[-1].terminal and events[-1].seq == last

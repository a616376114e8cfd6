"""Work that is stored nowhere: a web process's side. An answers worker does it (`chats.stateless`).

A worker that dies or never comes is noticed by its silence.
"""

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import structlog
from celery import current_app
from django.utils.translation import get_language
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from chats.errors import Unavailable
from chats.runs import log, reader
from chats.runs.log import RunEvent
from documents.errors import explain_code
from jobs import connections

logger = structlog.get_logger()

QUEUE_SECONDS = 30.0
"""How long a worker may take to begin ..."""
SILENT_SECONDS = 30.0
"""... and how long it may say nothing, sign of life included, once it has begun."""


def begin(kind: str, request: Mapping[str, Any]) -> UUID:
    """Hand work to a worker; the id of its log. Raises `Unavailable`."""
    run_id = uuid4()
    told = {**request, "kind": kind, "language": get_language() or "ko"}
    try:
        current_app.send_task(
            "chats.tasks.complete", (str(run_id), told), retry=False, expires=QUEUE_SECONDS
        )
    except (OperationalError, RedisError, OSError) as error:
        raise Unavailable from error
    return run_id


async def follow(run_id: UUID) -> AsyncIterator[RunEvent | None]:
    """The events of the work up to its last, which is an error when its worker is gone.

    None: nothing happened for a while.
    """
    heard, patience, code = time.monotonic(), QUEUE_SECONDS, "unavailable"
    async for event in reader.read_events(run_id):
        if event is not None:
            heard, patience, code = time.monotonic(), SILENT_SECONDS, "interrupted"
            if event.terminal:
                await _forget(run_id)
            yield event
        elif time.monotonic() - heard > patience:
            await _forget(run_id)
            yield RunEvent(0, log.ERROR, _lost(code))
            return
        else:
            yield None


def _lost(code: str) -> dict[str, Any]:
    return {"code": code, "detail": explain_code(code)}


async def _forget(run_id: UUID) -> None:
    """Delete a log that was read: nobody else knows of it."""
    try:
        await connections.asynchronous().delete(log.log_key(run_id))
    except RedisError as error:
        logger.info("log_not_deleted", run_id=str(run_id), error=str(error)[:200])

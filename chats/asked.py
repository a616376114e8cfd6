"""Asking an answers worker from a web process: a task, and its reply in Redis.

Web processes hold no models.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import structlog
from celery import current_app
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from chats.errors import Unavailable
from chats.runs import log
from jobs import connections
from rag.errors import NuraError

logger = structlog.get_logger()

WAIT_SECONDS = 30.0
KEPT_SECONDS = 60
"""A reply that nobody fetches is gone after that."""
STEP_SECONDS = 4.0
"""Below the time-out of the connection, which would end a longer wait."""


class WorkerError(NuraError):
    """The worker's own error, told by its code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code  # type: ignore[misc] # of the instance: the worker chose it


def ask(task: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The task's reply. Raises `Unavailable` when none comes, `WorkerError` when it failed."""
    reply_to = f"nura:reply:{uuid4()}"
    try:
        current_app.send_task(task, (reply_to, dict(request)), retry=False, expires=WAIT_SECONDS)
        reply = _reply(reply_to)
    except (RedisError, OperationalError, OSError) as error:
        raise Unavailable from error
    if "error" in reply:
        raise WorkerError(reply["error"]["code"])
    result: dict[str, Any] = reply["result"]
    return result


def answer(reply_to: str, work: Callable[[], Mapping[str, Any]]) -> None:
    """The worker's side: do the work and leave its result, or its error, where it is waited for."""
    try:
        reply: dict[str, Any] = {"result": work()}
    except NuraError as error:
        logger.warning("asked_in_vain", code=error.code, error=str(error)[:200])
        reply = {"error": {"code": error.code}}
    with connections.sync().pipeline(transaction=True) as pipe:
        pipe.rpush(reply_to, log.to_json(reply))
        pipe.expire(reply_to, KEPT_SECONDS)
        pipe.execute()


def _reply(reply_to: str) -> dict[str, Any]:
    for _ in range(int(WAIT_SECONDS / STEP_SECONDS) + 1):
        if found := connections.sync().blpop([reply_to], timeout=STEP_SECONDS):
            reply: dict[str, Any] = json.loads(found[1])
            return reply
    raise Unavailable

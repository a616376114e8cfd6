"""Dispatching work to the answers processes: runs, summaries, and requests that leave no row.

All of it goes through one Redis stream. A run or a summary is a row that waits, and its message
only wakes a worker. A request has no row: its result goes to a log of its own, like that of a run,
which is deleted once read. A worker that dies or never comes is noticed by its silence.
"""

import json
import time
from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Any
from uuid import UUID, uuid4

import structlog
from django.utils.translation import get_language
from redis.exceptions import RedisError

from chats.errors import Unavailable
from chats.models import Run
from chats.runs import log, reader
from chats.runs.log import RunEvent
from chats.serializers import to_started_data
from chats.services.chats import send_answer_start
from documents.errors import explain_code
from jobs import connections
from jobs.fairness import get_owner
from jobs.queue import WorkStream
from rag.errors import NuraError

logger = structlog.get_logger()

STREAM = WorkStream("nura:answers")
RUN, SUMMARY, REQUEST = "run", "summary", "request"
"""Kinds of messages."""
QUEUE_SECONDS = 30.0
"""How long a worker may take to begin with a request ..."""
SILENT_SECONDS = 30.0
"""... and how long it may say nothing, sign of life included, once it has begun."""
STEP_SECONDS = 4.0
"""Below the time-out of the connection, which would end a longer wait."""


class WorkerError(NuraError):
    """An error that the worker reported by its code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code  # type: ignore[misc] # of the instance: the worker chose it


def dispatch_run(run: Run, document_ids: Collection[UUID] | None = None) -> None:
    """Begin the log of a run whose messages are at hand, and wake a worker.

    `document_ids` are those that its question names, if it was stored just now. It is no error if
    Redis is away: the reaper announces the run later.
    """
    started = RunEvent(1, log.STARTED, to_started_data(run, document_ids))
    fields = {"kind": RUN, "id": str(run.pk), "owner": str(run.owner_id)}
    try:
        with connections.get_client().pipeline(transaction=True) as pipe:
            log.put_events(pipe, run.pk, [started])
            STREAM.add_entry(pipe, {**fields, "started": started.encoded})
            # the log of a run that is dispatched again has begun, and takes no first event
            *_, reply = pipe.execute(raise_on_error=False)
        if isinstance(reply, RedisError):
            raise reply
    except (RedisError, OSError) as error:
        logger.warning("run_not_announced", run_id=str(run.pk), error=str(error)[:200])
    send_answer_start(run.message.chat)


def dispatch_run_again(run_id: UUID) -> None:
    """Wake a worker for a run that nobody took, or whose worker is gone."""
    dispatch_run(Run.objects.select_related("message__parent", "message__chat").get(pk=run_id))


def dispatch_summary(turn_id: UUID) -> None:
    """Let a worker write the summary of a turn; one that gets lost is found by the reaper."""
    STREAM.send({"kind": SUMMARY, "id": str(turn_id)})


def send_request(kind: str, request: Mapping[str, Any]) -> UUID:
    """Hand a request to a worker; the id of its log. Raises `Unavailable`.

    The worker does it on behalf of the same owner (`jobs.fairness`).
    """
    request_id = uuid4()
    envelope = {"kind": kind, "language": get_language() or "ko", "owner": get_owner()}
    body = {**request, **envelope}
    if not STREAM.send({"kind": REQUEST, "id": str(request_id), "body": log.to_json(body)}):
        raise Unavailable
    return request_id


def ask_worker(kind: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Hand a request to a worker and wait for its result, in a thread.

    Raises `Unavailable` when none comes, `WorkerError` when the work failed.
    """
    request_id = send_request(kind, request)
    try:
        last = _wait_for_last_event(log.make_log_key(request_id))
    except (RedisError, OSError) as error:
        raise Unavailable from error
    if last.type != log.COMPLETED:
        raise WorkerError(last.data["code"])
    result: dict[str, Any] = last.data
    return result


def _wait_for_last_event(key: str) -> RunEvent:
    redis, entry_id = connections.get_client(), "0-0"
    ends_at = time.monotonic() + QUEUE_SECONDS
    while (seconds_left := ends_at - time.monotonic()) > 0:
        reply = redis.xread(
            {key: entry_id}, block=max(1, int(min(seconds_left, STEP_SECONDS) * 1000))
        )
        for entry_id, fields in reply[0][1] if reply else ():
            ends_at = time.monotonic() + SILENT_SECONDS
            event = log.from_entry(log.to_seq(entry_id), fields)
            if event.terminal:
                redis.delete(key)
                return event
    raise Unavailable


async def follow_request(request_id: UUID) -> AsyncGenerator[RunEvent | None, None]:
    """The events of a request up to its last, which is an error when its worker is gone.

    None: nothing happened for a while.
    """
    heard_at, patience, code = time.monotonic(), QUEUE_SECONDS, "unavailable"
    async for event in reader.read_events(request_id):
        if event is not None:
            heard_at, patience, code = time.monotonic(), SILENT_SECONDS, "interrupted"
            if event.terminal:
                await _forget(request_id)
            yield event
        elif time.monotonic() - heard_at > patience:
            await _forget(request_id)
            yield RunEvent(0, log.ERROR, {"code": code, "detail": explain_code(code)})
            return
        else:
            yield None


async def _forget(request_id: UUID) -> None:
    """Delete a log that has been read: nobody else reads it."""
    try:
        await connections.execute("DEL", log.make_log_key(request_id))
    except RedisError as error:
        logger.info("log_not_deleted", run_id=str(request_id), error=str(error)[:200])


def read_body(fields: Mapping[str, str]) -> dict[str, Any]:
    """The request of a message, with its `kind`, `language` and `owner`."""
    body: dict[str, Any] = json.loads(fields["body"])
    return body

"""The answers process: one event loop that is woken by a Redis stream.

Postgres decides who answers what (`jobs.lease`); a message only says that something waits. While
there is room, each announced run is claimed as it comes; otherwise owners take turns. If Redis is
down and messages are lost, the waiting runs are found in Postgres: once Redis is back, and every
few seconds.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from redis.exceptions import RedisError
from structlog.contextvars import bound_contextvars

from chats import access
from chats.models import Run
from chats.runs import answering, stateless, summaries
from chats.runs.answering import ClaimedRun
from chats.runs.dispatch import (
    QUEUE_SECONDS,
    REQUEST,
    RUN,
    STREAM,
    SUMMARY,
    dispatch_run_again,
    read_body,
)
from documents.tasks import sweep_ingests
from jobs.background import LoopTask, stop_loop_tasks
from jobs.connections import in_database
from jobs.fairness import NOBODY, FairThreads, work_for
from jobs.lease import announce_unclaimed_jobs, claim_turn, reap_lost_jobs
from jobs.queue import WorkMessage

logger = structlog.get_logger()

MAX_THREADS = 8
"""Threads for the searches and database calls of all runs.

A thread that computes holds the GIL, which the loop needs for relaying tokens.
"""
MAX_THREADS_PER_OWNER = min(4, max(2, len(os.sched_getaffinity(0))))
"""Threads for one owner, who may have asked hundreds of questions: others find threads and cores
free."""
SWITCH_SECONDS = 0.0005
"""How long a thread keeps the GIL while the loop waits for it. Python's 5 ms are far too long: the
loop gives up the GIL with every token that it sends.
"""
MAX_TASKS = 1000
"""Tasks of one process; the rest waits in the stream, where other processes find it."""
MAX_MESSAGES_PER_READ = 100
READ_SECONDS = 2.0
TAKE_OVER_SECONDS = 3.0
"""How often to look for messages whose reader has died."""
RETRY_SECONDS = 0.5
MAX_UNCLAIMED = Run.LEASE * 0.4
"""A run that nobody has claimed for this long is announced again."""
REAPING_SECONDS = {"runs": 5.0, "summaries": 30.0, "ingests": 15.0}
"""How often one of all answers processes looks for lost jobs of each kind."""


class RightsKeeper(LoopTask):
    """Ends answers whose owner or API key has lost its rights; runs in every answers process."""

    TROUBLE = "rights_not_kept"

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    async def run_round(self) -> None:
        """Check once."""
        access.RightsListener.of_running_loop().waiting.add(self._changed)
        await access.wait_for_change(self._changed)
        await in_database(answering.end_runs_without_rights)


class AnswersWorker:
    """The work of one answers process. `run` returns some time after `stop` was called."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._runs_by_owner: Counter[int] = Counter()
        """Number of runs in progress by user id."""
        self._has_waiting_runs = False
        """Announced runs were not claimed, because their owner has enough in progress."""
        self._grace_seconds = 0.0
        self.on_stop: Callable[[], object] | None = None
        """Called once no new work is begun."""

    async def run(self) -> None:
        """Work until `stop` is called; then wait for the work in progress, and cancel the rest."""
        sys.setswitchinterval(SWITCH_SECONDS)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(FairThreads(MAX_THREADS, MAX_THREADS_PER_OWNER))
        services = [
            asyncio.create_task(self._receive_messages()),
            asyncio.create_task(self._reap_jobs()),
        ]
        RightsKeeper.of_running_loop()
        await self._stopping.wait()
        ends_at = time.monotonic() + self._grace_seconds
        for service in services:
            service.cancel()
        await asyncio.gather(*services, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.0, ends_at - time.monotonic()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._leave_stream()
        await stop_loop_tasks()
        for heartbeat in (answering.HEARTBEAT, summaries.HEARTBEAT):
            await asyncio.to_thread(heartbeat.wait_until_idle)
        await loop.shutdown_default_executor()

    def stop(self, grace_seconds: float) -> None:
        """Begin no new work; work in progress has that many seconds to finish."""
        self._grace_seconds = grace_seconds
        self._stopping.set()
        if self.on_stop is not None:
            self.on_stop()

    # Messages

    async def _receive_messages(self) -> None:
        """Read messages and begin their work, until cancelled; outages are sat out."""
        is_cut_off, is_logged = True, False  # earlier announcements are found in Postgres
        taken_over_at, to_acknowledge = 0.0, list[WorkMessage]()
        while True:
            messages = list[WorkMessage]()
            try:
                if is_cut_off:
                    await STREAM.create_group()
                    await self._begin_all_waiting_runs()
                is_cut_off = is_logged = False
                if len(self._tasks) >= MAX_TASKS:
                    await STREAM.acknowledge(to_acknowledge)
                    to_acknowledge = []
                    await self._wait_for_room()
                limit = min(MAX_TASKS - len(self._tasks), MAX_MESSAGES_PER_READ)
                messages = await STREAM.read(
                    limit=limit, patience=READ_SECONDS, to_acknowledge=to_acknowledge
                )
                to_acknowledge = []
                if time.monotonic() - taken_over_at > TAKE_OVER_SECONDS:
                    taken_over_at = time.monotonic()
                    messages += await STREAM.claim_abandoned(limit=limit)
                await self._handle_messages(messages, is_crowded=len(messages) >= limit)
                to_acknowledge = messages
            except (RedisError, OSError, DatabaseError) as error:  # a time-out is an OSError too
                if not is_logged:  # once an outage
                    logger.warning("work_not_heard", error=f"{type(error).__name__}: {error}"[:200])
                is_cut_off = is_logged = True
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:  # else the process would live on without reading
                logger.exception("work_not_taken")
                # acknowledged all the same: a message that fails would be delivered for ever
                is_cut_off, to_acknowledge = True, messages
                await asyncio.sleep(RETRY_SECONDS)

    async def _handle_messages(self, messages: Sequence[WorkMessage], *, is_crowded: bool) -> None:
        """Begin what the messages ask for. `is_crowded`: more messages may wait in the stream."""
        messages = list(filter(_has_kind_and_id, messages))
        run_ids = [
            UUID(message.fields["id"]) for message in messages if message.fields["kind"] == RUN
        ]
        if run_ids:
            is_crowded = is_crowded or any(map(self._is_owner_busy, messages))
            claimed = await in_database(claim_announced_runs, run_ids, is_crowded=is_crowded)
            self._has_waiting_runs = self._has_waiting_runs or len(claimed) < len(run_ids)
            self._begin_answers(claimed, {message.fields["id"]: message for message in messages})
        for message in messages:
            try:
                self._begin_message_task(message)
            except (KeyError, ValueError):  # whoever asked will notice; the other messages wait
                logger.exception("message_not_read", entry=message.entry_id)

    def _is_owner_busy(self, message: WorkMessage) -> bool:
        """Whether its owner has as many answers in progress here as one may have."""
        limit = settings.LIMITS["answers"]
        owner = message.fields.get("owner", "")  # absent in messages of the previous version
        return bool(limit and owner and self._runs_by_owner[int(owner)] >= limit)

    async def _begin_waiting_runs(self) -> None:
        """Claim and begin runs that waited for others of their owner."""
        room = min(MAX_TASKS - len(self._tasks), MAX_MESSAGES_PER_READ)
        try:
            claimed = await in_database(answering.claim_waiting_runs, max(1, room))
        except DatabaseError as error:  # they are announced again
            logger.warning("waiting_runs_not_taken", error=str(error)[:200])
            return
        self._begin_answers(claimed)
        limit = settings.LIMITS["answers"]  # an owner at the limit may have more waiting
        self._has_waiting_runs = bool(claimed) or any(
            0 < limit <= count for count in self._runs_by_owner.values()
        )

    def _begin_message_task(self, message: WorkMessage) -> None:
        """Begin the work of a message that announces no run. Raises `KeyError`, `ValueError`."""
        key = UUID(message.fields["id"])
        match message.fields["kind"]:
            case kind if kind == SUMMARY:
                self._begin_task(summaries.summarise_turn(key), NOBODY, message)
            case kind if kind == REQUEST:
                age = time.time() - int(message.entry_id.partition("-")[0]) / 1000
                if age > QUEUE_SECONDS:
                    logger.warning("request_too_late", run_id=str(key))
                else:
                    body = read_body(message.fields)
                    self._begin_task(stateless.answer_request(key, body), body["owner"], message)

    async def _begin_all_waiting_runs(self) -> None:
        """Claim and begin all waiting runs, announced or not, while there is room."""
        while room := min(MAX_TASKS - len(self._tasks), MAX_MESSAGES_PER_READ):
            claimed = await in_database(answering.claim_waiting_runs, room)
            self._begin_answers(claimed)
            if len(claimed) < room:
                return

    # Tasks

    def _begin_answers(
        self, runs: Sequence[ClaimedRun], messages: Mapping[str, WorkMessage] | None = None
    ) -> None:
        """Begin the answers of claimed runs; `messages` by run id are those that announced them."""
        for claimed in runs:
            message = (messages or {}).get(str(claimed.run.pk))
            started = message.fields.get("started", "") if message else ""
            self._runs_by_owner[claimed.run.owner_id] += 1
            work = self._answer_run(claimed, started)
            self._begin_task(work, f"user:{claimed.run.owner_id}", message)

    async def _answer_run(self, claimed: ClaimedRun, started: str) -> None:
        owner_id = claimed.run.owner_id
        try:
            await answering.answer_claimed_run(claimed, started)
        finally:
            self._runs_by_owner[owner_id] -= 1
            if not self._runs_by_owner[owner_id]:
                del self._runs_by_owner[owner_id]
            if self._has_waiting_runs and not self._stopping.is_set():
                self._begin_task(self._begin_waiting_runs(), NOBODY)

    def _begin_task(
        self,
        work: Coroutine[Any, Any, None],
        owner: str,
        message: WorkMessage | None = None,
    ) -> None:
        """Start a task for an owner; its log lines carry the id of the request that sent it."""
        request_id = message.fields.get("request_id") if message else None
        with (
            bound_contextvars(**({"request_id": request_id} if request_id else {})),
            work_for(owner),
        ):
            task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.set()
        if not task.cancelled() and (error := task.exception()):
            logger.error("work_failed", exc_info=error)

    async def _wait_for_room(self) -> None:
        while len(self._tasks) >= MAX_TASKS:
            self._room.clear()
            await self._room.wait()

    async def _leave_stream(self) -> None:
        try:
            await STREAM.remove_idle_readers()
        except (RedisError, OSError) as error:
            logger.info("stream_not_left", error=f"{type(error).__name__}: {error}"[:200])

    # Lost jobs

    async def _reap_jobs(self) -> None:
        """Run each of `REAPERS` when its turn comes, until cancelled."""
        while True:
            for name, reap in REAPERS.items():
                try:
                    await in_database(_reap_if_due, name, reap)
                except DatabaseError as error:
                    logger.warning("not_reaped", jobs=name, error=str(error)[:200])
                except Exception:  # the next round may go better
                    logger.exception("not_reaped", jobs=name)
            await asyncio.sleep(min(REAPING_SECONDS.values()) / 2)


def _has_kind_and_id(message: WorkMessage) -> bool:
    """Whether a message has a kind and an id; one without is logged and dropped by itself."""
    try:
        return bool(message.fields["kind"] and UUID(message.fields["id"]))
    except (KeyError, ValueError):
        logger.exception("message_not_read", entry=message.entry_id)
        return False


def claim_announced_runs(run_ids: Sequence[UUID], *, is_crowded: bool) -> list[ClaimedRun]:
    """Claim a single announced run as it comes; if there are more, those whose turn it is."""
    if len(run_ids) > 1 or is_crowded:
        return answering.claim_waiting_runs(len(run_ids))
    return answering.claim_run(run_ids[0])


def reap_runs() -> int:
    """End or announce runs whose worker died, and those that nobody claimed; returns how many."""
    lost = reap_lost_jobs(
        Run,
        announce=dispatch_run_again,
        give_up=answering.end_lost_run,
        resolve=answering.end_lost_run,
    )
    late = announce_unclaimed_jobs(Run, announce=dispatch_run_again, patience=MAX_UNCLAIMED)
    return len(lost) + len(late)


REAPERS: dict[str, Callable[[], object]] = {
    "runs": reap_runs,
    "summaries": summaries.reap_summaries,
    "ingests": sweep_ingests,
}


def _reap_if_due(name: str, reap: Callable[[], object]) -> None:
    if claim_turn(name, REAPING_SECONDS[name]):
        reap()

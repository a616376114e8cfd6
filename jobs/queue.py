"""Wakes workers up when there is work. Messages may be lost or come twice: the rows decide.

Asyncio workers read a `WorkStream`, a Redis stream with a consumer group; the others get a Celery
message (`send_task`). A message only wakes a worker up. Who works on which job is decided in
`jobs.lease`, which also finds jobs whose message was lost.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import structlog
from celery import current_app
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError, ResponseError

from jobs import connections

logger = structlog.get_logger()

MAX_MESSAGES = 100_000
"""Approximate maximum length of a stream nobody reads; lost entries are still in their rows."""
ABANDONED_SECONDS = 10.0
"""A message delivered but not acknowledged for so long had a reader that died."""
FORGOTTEN_SECONDS = 3600.0
"""A reader not heard from for so long is removed from the group."""


def send_task(
    name: str,
    arguments: Sequence[Any],
    *,
    task_id: str | None = None,
    delay_seconds: float = 0.0,
    expires_seconds: float | None = None,
) -> bool:
    """Send a Celery message; False, with a line in the log, where the broker is away.

    `task_id` is shown in logs and monitors: name the job in it, and add something unique, because
    Celery runs an id only once.
    """
    try:
        current_app.send_task(
            name,
            args=list(arguments),
            task_id=task_id,
            countdown=delay_seconds or None,
            expires=expires_seconds,
            retry=False,
        )
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("task_not_sent", task=name, task_id=task_id, error=str(error)[:200])
        return False
    return True


def make_task_id(kind: str, key: object) -> str:
    """A task id that says what it is for: `ingest:<key>:<4 random bytes>`."""
    return f"{kind}:{key}:{uuid4().hex[:8]}"


def count_messages(queue: str) -> int:
    """Number of Celery messages in a queue; 0 if the broker does not say."""
    try:
        with current_app.connection_or_acquire() as connection:
            channel: Any = connection.default_channel
            declared = channel.queue_declare(queue=queue, durable=True, auto_delete=False)
            return int(declared.message_count)
    except (OperationalError, RedisError, OSError):
        logger.warning("queue_not_counted", queue=queue, exc_info=True)
        return 0


@dataclass(frozen=True, slots=True)
class WorkMessage:
    """One entry of a stream, as its sender wrote it."""

    entry_id: str
    fields: Mapping[str, str]


class WorkStream:
    """A Redis stream whose entries are each delivered to one of a group of readers.

    A reader takes entries with `read` and calls `acknowledge` once another process need not see
    them. Entries of a reader that died before that are given to another one.
    """

    def __init__(self, key: str, group: str = "workers") -> None:
        self.key = key
        self._group = group
        self._reader = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"

    def send(self, fields: Mapping[str, str]) -> bool:
        """Add an entry; False, with a line in the log, where Redis is away."""
        try:
            self.add_entry(connections.get_client(), fields)
        except (RedisError, OSError) as error:
            logger.warning("message_not_sent", stream=self.key, error=str(error)[:200])
            return False
        return True

    def add_entry(self, client: Any, fields: Mapping[str, str]) -> None:
        """Add an entry through a client, or a pipeline that the caller executes.

        The entry carries the id of the current request for its reader's log. Raises `RedisError`.
        """
        request_id = structlog.contextvars.get_contextvars().get("request_id")
        entry = {**fields, "request_id": request_id} if request_id else dict(fields)
        client.xadd(self.key, entry, maxlen=MAX_MESSAGES, approximate=True)

    async def read(
        self, *, limit: int, patience: float, to_acknowledge: Sequence[WorkMessage] = ()
    ) -> list[WorkMessage]:
        """New entries, at most `limit`; empty if none came for `patience` seconds.

        Acknowledges `to_acknowledge` in the same round trip. Raises `RedisError`, `OSError`.
        """
        wait = max(1, int(patience * 1000))
        reading = ("XREADGROUP", "GROUP", self._group, self._reader, "COUNT", limit, "BLOCK", wait)
        commands = (
            *self._build_acknowledgement(to_acknowledge),
            (*reading, "STREAMS", self.key, ">"),
        )
        try:
            async with asyncio.timeout(patience + connections.HANGING_SECONDS):
                answer = (await connections.execute_all(*commands))[-1]
        except ResponseError as error:
            if "NOGROUP" not in str(error) and "UNBLOCKED" not in str(error):
                raise  # else the group is missing, or vanished while we waited
            await self.create_group()
            return []
        return _to_messages(answer[0][1]) if answer else []

    async def create_group(self) -> None:
        """Create the group if it is missing; it gets all existing entries.

        Raises `RedisError`, `OSError`, as the others do.
        """
        client = connections.get_async_client()
        try:
            async with asyncio.timeout(connections.HANGING_SECONDS):
                await client.xgroup_create(self.key, self._group, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def acknowledge(self, messages: Sequence[WorkMessage]) -> None:
        """Acknowledge entries, so that nobody sees them again."""
        if messages:
            async with asyncio.timeout(connections.HANGING_SECONDS):
                await connections.execute_all(*self._build_acknowledgement(messages))

    def _build_acknowledgement(self, messages: Sequence[WorkMessage]) -> list[tuple[str, ...]]:
        keys = [message.entry_id for message in messages]
        acknowledging = ("XACK", self.key, self._group, *keys)
        return [acknowledging, ("XDEL", self.key, *keys)] if keys else []

    async def claim_abandoned(self, *, limit: int) -> list[WorkMessage]:
        """Take over entries that another reader took and never acknowledged."""
        claiming = ("XAUTOCLAIM", self.key, self._group, self._reader)
        idle = int(ABANDONED_SECONDS * 1000)
        async with asyncio.timeout(connections.HANGING_SECONDS):
            answer = await connections.execute(*claiming, idle, "0-0", "COUNT", limit)
        return _to_messages(answer[1])

    async def remove_idle_readers(self) -> None:
        """Remove this reader from the group, and those idle for an hour.

        A reader with pending entries stays: they would be lost with it.
        """
        client = connections.get_async_client()
        max_idle = FORGOTTEN_SECONDS * 1000
        async with asyncio.timeout(connections.HANGING_SECONDS):
            readers = await client.xinfo_consumers(self.key, self._group)
            names = [
                reader["name"]
                for reader in readers
                if not reader["pending"]
                and (reader["name"] == self._reader or reader["idle"] > max_idle)
            ]
            await asyncio.gather(
                *(client.xgroup_delconsumer(self.key, self._group, name) for name in names)
            )


def _to_messages(entries: Sequence[tuple[str, Sequence[str] | None]]) -> list[WorkMessage]:
    """Entries as Redis sends them, names and values by turns; None for those that are gone."""
    return [
        WorkMessage(entry_id, dict(zip(parts[::2], parts[1::2], strict=True)))
        for entry_id, parts in entries
        if parts
    ]

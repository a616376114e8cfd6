"""From the events of a run to what a client receives, whole or piece by piece.

A client that hangs up wants no more, and one whose key has ended gets no more: the run is stopped,
and with it the language model.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any
from uuid import UUID

import structlog
from rest_framework.exceptions import AuthenticationFailed

from chats import access
from chats.access import Credential
from chats.errors import Unavailable
from chats.gateway.completions import Opened
from chats.gateway.schemas import Failed, Reply
from chats.runs import log
from chats.runs.log import RunEvent
from jobs.connections import in_database

logger = structlog.get_logger()

HEARTBEAT_SECONDS = 8.0
"""After so long a silence a comment is due; the next look at the clock is up to 2 s later."""
HEARTBEAT = b": still here\n\n"
DONE = b"data: [DONE]\n\n"
WORDS = log.FLOWING | log.TERMINAL | {log.REPLACE}
"""Events from which on a client has something to read."""


async def last_event(opened: Opened, credential: Credential) -> RunEvent:
    """Wait for the end; the run is stopped when this is cancelled.

    Raises `AuthenticationFailed` when the credential ends before.
    """
    with stopped_unless_ended(opened.run_id) as ended:
        async with aclosing(_events(opened, credential)) as events:
            async for event in events:
                if event is not None and event.terminal:
                    ended.append(event)
                    return event
    raise AuthenticationFailed


class Stream:
    """The server-sent events of one answer, up to its end or that of the credential."""

    def __init__(self, opened: Opened, credential: Credential, *, usage: bool) -> None:
        self._opened = opened
        self._reply = Reply(opened)
        self._usage = usage
        self._events = _events(opened, credential)
        self._early: list[RunEvent] = []
        self._streamed = ""
        self._spoke = time.monotonic()

    async def begun(self) -> Failed | None:
        """Wait for the first words, as long as a silence may last; the error that came instead.

        Raises `AuthenticationFailed` when the credential ends before.
        """
        with stopped_unless_ended(self._opened.run_id) as ended:
            async for event in self._events:
                if event is not None and event.type in WORDS:
                    self._early.append(event)
                    break
                if self._is_late():
                    break
            else:
                raise AuthenticationFailed
            ended.append(True)  # what is left to do is the stream's
        first = self._early[0] if self._early else None
        if first is None or first.type != log.ERROR:
            return None
        await self._events.aclose()
        return Failed.of(first.data)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The stream, from its first byte to its last."""
        with stopped_unless_ended(self._opened.run_id) as ended:
            yield self._frame(self._reply.delta({"role": "assistant", "content": ""}))
            async with aclosing(self._all()) as events:
                async for event in events:
                    if event is not None and event.terminal:
                        ended.append(event)
                        for frame in self._end(event):
                            yield frame
                        return
                    if event is not None and event.type in WORDS:
                        for delta in self._deltas(event):
                            yield self._frame(self._reply.delta(delta))
                    elif self._is_late():
                        self._spoke = time.monotonic()
                        yield HEARTBEAT

    async def _all(self) -> AsyncGenerator[RunEvent | None, None]:
        for early in self._early:
            yield early
        async with aclosing(self._events) as events:
            async for event in events:
                yield event

    def _is_late(self) -> bool:
        return time.monotonic() - self._spoke >= HEARTBEAT_SECONDS

    def _deltas(self, event: RunEvent) -> Sequence[dict[str, str]]:
        text = event.data["text"]
        if event.type == log.REASONING:
            return [{"reasoning_content": text}]
        if event.type == log.REPLACE:  # what was sent cannot be taken back, only gone on with
            goes_on = text.startswith(self._streamed)
            text = text[len(self._streamed) :] if goes_on else ""
        self._streamed += text
        return [{"content": text}] if text else []

    def _end(self, event: RunEvent) -> Iterator[bytes]:
        if event.type == log.ERROR:
            yield self._frame(Failed.of(event.data).body)
        else:
            message = event.data.get("message", {})
            yield self._frame(self._reply.last(message, self._streamed))
            if self._usage:
                yield self._frame(self._reply.used(message))
        yield DONE

    def _frame(self, data: Any) -> bytes:
        self._spoke = time.monotonic()
        return f"data: {log.to_json(data)}\n\n".encode()


async def _events(opened: Opened, credential: Credential) -> AsyncGenerator[RunEvent | None, None]:
    """All events; fewer, and the run stopped, when the credential ends before the last.

    The run ends with its key as well, and may be quicker: that is no answer that was stopped.
    """
    held = access.stream_while_held(credential, opened.events(), lambda: stop_soon(opened.run_id))
    async with aclosing(held):
        async for event in held:
            if event is not None and event.type == log.STOPPED:
                (holder,) = await in_database(access.find_holders, [credential])
                if holder is None:
                    return
            yield event


@contextmanager
def stopped_unless_ended(run_id: UUID) -> Iterator[list[Any]]:
    """Stop the run when the block is left before anything was put into the list."""
    ended: list[Any] = []
    try:
        yield ended
    finally:
        if not ended:
            stop_soon(run_id)


def stop_soon(run_id: UUID) -> None:
    """Ask for the run's stop, in a thread: whoever hung up waits for nothing."""
    asyncio.get_running_loop().run_in_executor(None, _stop, run_id)


def _stop(run_id: UUID) -> None:
    try:
        log.request_stop(run_id)
    except Unavailable as error:
        logger.warning("stop_not_asked", run_id=str(run_id), error=str(error)[:200])

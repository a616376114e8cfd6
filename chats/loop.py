"""The one event loop of an answers worker: Celery's threads hand their runs to it."""

import asyncio
import sys
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import structlog
import uvloop

logger = structlog.get_logger()
T = TypeVar("T")

BLOCKING_CALLS = 8
"""Threads for searches and database calls of all runs together.

Each of them that computes takes its turn between two steps of the loop, where tokens wait.
"""
SWITCH_SECONDS = 0.0005
"""So long a thread computes on while the loop wants its turn; Python's own 5 ms are far too long
for that, as the loop gives its turn away with every word that it sends.
"""
AT_ONCE = 1000
"""Runs that a worker takes; the others wait in the queue, where other workers find them."""

_lock = threading.Lock()
_loops: list[asyncio.AbstractEventLoop] = []


class _Handed:
    """What was handed to the loop and is under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._ends_at = 0.0

    def begin(self) -> bool:
        """Wait for room; False once the worker ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._count < AT_ONCE or self._ends_at)
            self._count += not self._ends_at
            return not self._ends_at

    def end(self, done: Future[None]) -> None:
        """One less; nobody else hears of its failure."""
        if not done.cancelled() and (error := done.exception()):
            logger.error("run_failed", exc_info=error)
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def leave(self, patience: float) -> None:
        """Begin nothing more; what is under way has that many seconds."""
        with self._changed:
            self._ends_at = self._ends_at or time.monotonic() + patience
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait for the rest as long as was agreed."""
        with self._changed:
            left = max(0.0, self._ends_at - time.monotonic())
            self._changed.wait_for(lambda: not self._count, left)
            self._ends_at = 0.0


_handed = _Handed()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the worker's loop and wait for its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()


def hand_over(coroutine: Coroutine[Any, Any, None]) -> bool:
    """Leave a coroutine to the worker's loop, as soon as there is room.

    False when the worker ends: then somebody else has to run it.
    """
    if not _handed.begin():
        coroutine.close()
        return False
    asyncio.run_coroutine_threadsafe(coroutine, _loop()).add_done_callback(_handed.end)
    return True


def leave(patience: float) -> None:
    """Take no more; `close` waits that many seconds, from now on, for what is under way."""
    _handed.leave(patience)


def close() -> None:
    """End the loop with all that is still under way; the next run begins a new one."""
    _handed.wait()
    with _lock:
        while _loops:
            loop = _loops.pop()
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
            loop.call_soon_threadsafe(loop.stop)


async def _cancel_all() -> None:
    """Who waits for a thread is cut off; what the thread does goes on, and is waited for here."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if not _loops:
            sys.setswitchinterval(SWITCH_SECONDS)
            loop = uvloop.new_event_loop()
            loop.set_default_executor(
                ThreadPoolExecutor(BLOCKING_CALLS, thread_name_prefix="blocking")
            )
            threading.Thread(target=loop.run_forever, name="runs", daemon=True).start()
            _loops.append(loop)
        return _loops[0]

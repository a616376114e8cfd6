"""The one event loop of an answers worker: Celery's threads hand their runs to it."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loops: list[asyncio.AbstractEventLoop] = []

BLOCKING_CALLS = 32
"""Threads for searches and database calls of all runs together."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the worker's loop and wait for its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()


def close() -> None:
    """End the loop; the next run begins a new one."""
    with _lock:
        while _loops:
            loop = _loops.pop()
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
            loop.call_soon_threadsafe(loop.stop)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if not _loops:
            loop = asyncio.new_event_loop()
            loop.set_default_executor(
                ThreadPoolExecutor(BLOCKING_CALLS, thread_name_prefix="blocking")
            )
            threading.Thread(target=loop.run_forever, name="runs", daemon=True).start()
            _loops.append(loop)
        return _loops[0]

"""One background task for each event loop: what all coroutines of a loop share.

    class Listener(LoopTask):
        async def run_round(self) -> None:            # one round; called again when it returns
            ...
    Listener.of_running_loop().do_something()

A round that fails for want of Redis or the database is logged once an outage and begun again
after `RETRY_SECONDS`; any other failure is logged each time.
"""

import asyncio
from abc import ABC, abstractmethod
from contextvars import Context
from typing import ClassVar, Self
from weakref import WeakKeyDictionary

import structlog
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

logger = structlog.get_logger()


class LoopTask(ABC):
    """A background task of one event loop; it runs until `stop_loop_tasks`."""

    RETRY_SECONDS: ClassVar[float] = 0.5
    TROUBLE: ClassVar[str] = "background_task_fails"
    """Log event for an outage."""

    _task: asyncio.Task[None] | None = None
    _is_failing = False

    @classmethod
    def of_running_loop(cls) -> Self:
        """The task of the running loop; created and started on first use."""
        tasks = _tasks_of_loop.setdefault(asyncio.get_running_loop(), {})
        task = tasks.get(cls)
        if not isinstance(task, cls) or not task.is_running:
            task = tasks[cls] = cls()
            task.start()
        return task

    @property
    def is_running(self) -> bool:
        """Whether the task was started and has not ended."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start in the running loop."""
        # a fresh context: it serves all coroutines, not only the one that came first
        self._task = asyncio.create_task(self._run(), name=type(self).__name__, context=Context())

    async def stop(self) -> None:
        """Cancel the task and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @abstractmethod
    async def run_round(self) -> None:
        """One round of the work; when it returns, the next begins."""

    def note_success(self) -> None:
        """Note that the round works: the next failure is logged again. Called after each round."""
        self._is_failing = False

    async def _run(self) -> None:
        while True:
            try:
                await self.run_round()
                self.note_success()
            except (RedisError, OSError, DatabaseError) as error:  # a time-out is an OSError too
                if not self._is_failing:
                    logger.warning(self.TROUBLE, error=f"{type(error).__name__}: {error}"[:200])
                self._is_failing = True
                await asyncio.sleep(self.RETRY_SECONDS)
            except Exception:
                logger.exception(self.TROUBLE)
                await asyncio.sleep(self.RETRY_SECONDS)


_tasks_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[type, LoopTask]] = (
    WeakKeyDictionary()
)


async def stop_loop_tasks() -> None:
    """End all background tasks of the running loop."""
    running = _tasks_of_loop.pop(asyncio.get_running_loop(), {})
    await asyncio.gather(*(one.stop() for one in running.values()))

"""Whom this process works for, so that nobody's work keeps somebody else's waiting.

    with work_for(f"user:{user.pk}"):
        await asyncio.to_thread(...)             # takes a thread when it is this owner's turn

Turns are taken wherever work of many people meets: at the threads of an event loop
(`FairThreads`), and at a place of which there are few (`FairPlaces`). Who has least at work comes
first, then who was served longest ago. Rows of a database are shared out in `jobs.lease`.
"""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

NOBODY = ""
"""The owner of housekeeping; it has no bound."""

Waiting = TypeVar("Waiting")

_owner: ContextVar[str] = ContextVar("owner", default=NOBODY)
_leave: ContextVar[Callable[[], None] | None] = ContextVar("leave", default=None)


def get_owner() -> str:
    """Whose work the running task or thread does."""
    return _owner.get()


@contextmanager
def work_for(owner: str) -> Iterator[None]:
    """What is begun in the block is the owner's work."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


@contextmanager
def hold_place(leave: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Within the block a place is held; what is yielded frees it, once, from any thread.

    It is freed at the end of the block at the latest; work that only waits from some moment on
    frees it before (`release_place`).
    """
    loop = asyncio.get_running_loop()
    left = False

    def release_once() -> None:
        nonlocal left
        if not left:
            left = True
            leave()

    def release_from_anywhere() -> None:
        if threading.get_ident() == home:
            release_once()
        else:
            loop.call_soon_threadsafe(release_once)

    home = threading.get_ident()
    token = _leave.set(release_from_anywhere)
    try:
        yield release_once
    finally:
        _leave.reset(token)
        release_once()


def release_place() -> None:
    """From now on the running request only waits for others: its place is free for the next one."""
    if (leave := _leave.get()) is not None:
        leave()


@dataclass(slots=True)
class _Share(Generic[Waiting]):
    """What one owner has."""

    waiting: deque[Waiting] = field(default_factory=deque)
    at_work: int = 0
    served: int = 0


class Turns(Generic[Waiting]):
    """Chooses what comes next. Not thread-safe: its user locks, or lives in one event loop.

    `limit` is how much may be at work at once, `limit_of_one` how much of that one owner's.
    """

    def __init__(self, limit: int, limit_of_one: int) -> None:
        self._limit = limit
        self._limit_of_one = limit_of_one
        self._shares: defaultdict[str, _Share[Waiting]] = defaultdict(_Share)
        self._at_work = self._served = 0

    def add(self, owner: str, waiting: Waiting) -> None:
        """Let something wait."""
        self._shares[owner].waiting.append(waiting)

    def drop(self, owner: str, waiting: Waiting) -> bool:
        """Let it wait no longer; False when it has begun."""
        share = self._shares.get(owner)
        if share is None or waiting not in share.waiting:
            return False
        share.waiting.remove(waiting)
        self._forget_if_idle(owner)
        return True

    def begin_next(self) -> tuple[str, Waiting] | None:
        """Begin what comes next; None where nothing waits or may begin."""
        if self._at_work >= self._limit:
            return None
        ready = [
            (owner, share)
            for owner, share in self._shares.items()
            if share.waiting and (owner == NOBODY or share.at_work < self._limit_of_one)
        ]
        if not ready:
            return None
        owner, share = min(ready, key=lambda one: (one[1].at_work, one[1].served))
        self._served += 1
        self._at_work += 1
        share.at_work += 1
        share.served = self._served
        return owner, share.waiting.popleft()

    def end(self, owner: str) -> None:
        """Something of the owner's has ended."""
        self._at_work -= 1
        self._shares[owner].at_work -= 1
        self._forget_if_idle(owner)

    def _forget_if_idle(self, owner: str) -> None:
        share = self._shares[owner]
        if not share.waiting and not share.at_work:
            del self._shares[owner]


_Call = tuple["Future[Any]", Callable[[], Any]]


class FairThreads(ThreadPoolExecutor):
    """The threads of an event loop: owners take turns, and none has more than `limit_of_one`.

    Whose work it is says the context that hands it over.
    """

    def __init__(self, threads: int, limit_of_one: int, name: str = "blocking") -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._turns: Turns[_Call] = Turns(threads, limit_of_one)
        self._changing = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run a function when it is its owner's turn."""
        future: Future[Any] = Future()
        with self._changing:
            self._turns.add(get_owner(), (future, lambda: fn(*args, **kwargs)))
            begun = self._turns.begin_next()
        if begun is not None:
            super().submit(self._run_calls, *begun)
        return future

    def _run_calls(self, owner: str, call: _Call) -> None:
        """Do this, and then what comes next."""
        while True:
            _complete_future(*call)
            del call  # else its result is kept until there is more to do
            with self._changing:
                self._turns.end(owner)
                begun = self._turns.begin_next()
            if begun is None:
                return
            owner, call = begun


def _complete_future(future: "Future[Any]", function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - whoever waits for it is told, as by any executor
        future.set_exception(error)
    else:
        future.set_result(result)


class TooManyWaitingError(Exception):
    """So much of this owner's waits already that more will not be begun in good time."""


class FairPlaces:
    """A few places of one event loop; who waits for one waits in the loop, and holds no thread."""

    def __init__(self, limit: int, limit_of_one: int, max_waiting_of_one: int = 10_000) -> None:
        self._turns: Turns[asyncio.Future[None]] = Turns(limit, limit_of_one)
        self._max_waiting = max_waiting_of_one
        self._waiting: defaultdict[Hashable, int] = defaultdict(int)

    @asynccontextmanager
    async def hold(self, owner: str) -> AsyncIterator[None]:
        """Hold a place within the block. Raises `TooManyWaitingError`."""
        await self.acquire(owner)
        try:
            yield
        finally:
            self.release(owner)

    async def acquire(self, owner: str) -> None:
        """Wait for a place, which `release` gives back. Raises `TooManyWaitingError`."""
        if self._waiting[owner] >= self._max_waiting:
            raise TooManyWaitingError
        turn = asyncio.get_running_loop().create_future()
        self._waiting[owner] += 1
        self._turns.add(owner, turn)
        self._begin_waiting()
        try:
            await turn
        except asyncio.CancelledError:
            if not self._turns.drop(owner, turn):
                self.release(owner)  # its turn came at the same moment
            raise
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner]

    def release(self, owner: str) -> None:
        """Give a place back."""
        self._turns.end(owner)
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        while (begun := self._turns.begin_next()) is not None:
            if not begun[1].done():
                begun[1].set_result(None)
            else:  # it was cancelled, and is about to say so
                self._turns.end(begun[0])

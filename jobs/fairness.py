"""Fair scheduling between owners, so that nobody's work keeps somebody else waiting.

    with work_for(f"user:{user.pk}"):
        await asyncio.to_thread(...)             # gets a thread when it is this owner's turn

Owners take turns for the threads of an event loop (`FairThreads`) and for other limited places
(`FairPlaces`). Whoever has least at work comes first, then whoever was served longest ago. Jobs in
the database are scheduled in `jobs.lease`.
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
_release: ContextVar[Callable[[], None] | None] = ContextVar("leave", default=None)


def get_owner() -> str:
    """The owner whose work the running task or thread does."""
    return _owner.get()


@contextmanager
def work_for(owner: str) -> Iterator[None]:
    """Within the block, work is done for this owner."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


@contextmanager
def hold_place(release: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Hold a place within the block, and call `release` once when it is no longer needed.

    That is at the end of the block at the latest. Work that only waits from some moment on frees
    its place earlier, with the function that is yielded (in the loop) or with `release_place`.
    """
    loop = asyncio.get_running_loop()
    is_released = False

    def release_once() -> None:
        nonlocal is_released
        if not is_released:
            is_released = True
            release()

    def release_from_anywhere() -> None:
        if threading.get_ident() == home:
            release_once()
        else:
            loop.call_soon_threadsafe(release_once)

    home = threading.get_ident()
    token = _release.set(release_from_anywhere)
    try:
        yield release_once
    finally:
        _release.reset(token)
        release_once()


def release_place() -> None:
    """Free the place of the running request, which from now on only waits for others."""
    if (release := _release.get()) is not None:
        release()


@dataclass(slots=True)
class _Share(Generic[Waiting]):
    """What one owner has waiting and at work."""

    waiting: deque[Waiting] = field(default_factory=deque)
    at_work: int = 0
    last_turn: int = 0


class Turns(Generic[Waiting]):
    """Decides what comes next. Not thread-safe: lock, or use it within one event loop.

    At most `limit` are at work at once, at most `limit_per_owner` of them for one owner.
    """

    def __init__(self, limit: int, limit_per_owner: int) -> None:
        self._limit = limit
        self._limit_per_owner = limit_per_owner
        self._shares: defaultdict[str, _Share[Waiting]] = defaultdict(_Share)
        self._at_work = self._turn_count = 0

    def add(self, owner: str, waiting: Waiting) -> None:
        """Add to the owner's queue."""
        self._shares[owner].waiting.append(waiting)

    def remove(self, owner: str, waiting: Waiting) -> bool:
        """Remove from the owner's queue; False if it has begun."""
        share = self._shares.get(owner)
        if share is None or waiting not in share.waiting:
            return False
        share.waiting.remove(waiting)
        self._forget_if_idle(owner)
        return True

    def begin_next(self) -> tuple[str, Waiting] | None:
        """Begin what comes next; None if nothing waits or may begin."""
        if self._at_work >= self._limit:
            return None
        ready = [
            (owner, share)
            for owner, share in self._shares.items()
            if share.waiting and (owner == NOBODY or share.at_work < self._limit_per_owner)
        ]
        if not ready:
            return None
        owner, share = min(ready, key=lambda item: (item[1].at_work, item[1].last_turn))
        self._turn_count += 1
        self._at_work += 1
        share.at_work += 1
        share.last_turn = self._turn_count
        return owner, share.waiting.popleft()

    def end(self, owner: str) -> None:
        """Note that something of the owner's has ended."""
        self._at_work -= 1
        self._shares[owner].at_work -= 1
        self._forget_if_idle(owner)

    def _forget_if_idle(self, owner: str) -> None:
        share = self._shares[owner]
        if not share.waiting and not share.at_work:
            del self._shares[owner]


_Call = tuple["Future[Any]", Callable[[], Any]]


class FairThreads(ThreadPoolExecutor):
    """The threads of an event loop: owners take turns, and none has more than `limit_per_owner`.

    The owner is the one of the submitting context (`work_for`).
    """

    def __init__(self, threads: int, limit_per_owner: int, name: str = "blocking") -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._turns: Turns[_Call] = Turns(threads, limit_per_owner)
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run a function when it is its owner's turn."""
        future: Future[Any] = Future()
        with self._lock:
            self._turns.add(get_owner(), (future, lambda: fn(*args, **kwargs)))
            turn = self._turns.begin_next()
        if turn is not None:
            super().submit(self._run_calls, *turn)
        return future

    def _run_calls(self, owner: str, call: _Call) -> None:
        """Run this call, then whatever comes next."""
        while True:
            _complete_future(*call)
            del call  # or its result would be kept alive until the next call
            with self._lock:
                self._turns.end(owner)
                turn = self._turns.begin_next()
            if turn is None:
                return
            owner, call = turn


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
    """Too much of this owner's is waiting already."""


class FairPlaces:
    """A limited number of places in one event loop. Waiting for one takes no thread."""

    def __init__(
        self, limit: int, limit_per_owner: int, max_waiting_per_owner: int = 10_000
    ) -> None:
        self._turns: Turns[asyncio.Future[None]] = Turns(limit, limit_per_owner)
        self._max_waiting = max_waiting_per_owner
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
            if not self._turns.remove(owner, turn):
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
        while (next_turn := self._turns.begin_next()) is not None:
            if not next_turn[1].done():
                next_turn[1].set_result(None)
            else:  # cancelled, but not removed yet
                self._turns.end(next_turn[0])

"""Keeps leases while their work goes on: one thread a process renews all of them at once.

The thread is apart from the work, whatever that is (a coroutine, a parser, a long query), so that
no slow step costs a lease.

    HEARTBEAT = Heartbeat(Upload)                # one for each kind of job, at module level
    with HEARTBEAT.hold(lease) as held:
        held.check()                             # raises LeaseLostError
        ...
"""

import mmap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic

import structlog
from django.db import DatabaseError, InterfaceError, connection

from jobs.lease import JobT, Lease, LeaseLostError, renew_leases

logger = structlog.get_logger()

BEATS_A_LEASE = 5
"""Renewals per lease, so that some may fail without losing it."""
MAX_IDLE_BEATS = 10
"""The thread ends when it had nothing to renew for so many beats."""


class LeavingError(LeaseLostError):
    """This process is to end: give the job back, which is no attempt that failed, and stop."""


class HeldLease(Generic[JobT]):
    """A lease that is being renewed."""

    def __init__(
        self,
        lease: Lease[JobT],
        on_loss: Callable[[], None] | None,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self.lease = lease
        self.since = time.monotonic()
        self._on_loss = on_loss
        self._is_leaving = is_leaving
        self._lost = threading.Event()

    @property
    def is_lost(self) -> bool:
        """Whether somebody else has the job, or it has ended."""
        return self._lost.is_set()

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is lost, `LeavingError` if it is to be given back."""
        if self._lost.is_set():
            raise LeaseLostError
        if self._is_leaving():
            raise LeavingError

    def mark_lost(self) -> None:
        """Notify the worker; called from the heartbeat's thread."""
        if not self._lost.is_set():
            self._lost.set()
            if self._on_loss:
                self._on_loss()


class Heartbeat(Generic[JobT]):
    """Renews the leases of one kind of job that this process holds.

    `renew` does it where more is to be written than the lease; it is given the held leases and
    returns those that stand. `seconds` between two beats: by default a fifth of the lease.
    """

    def __init__(
        self,
        model: type[JobT],
        *,
        renew: Callable[[Sequence[Lease[JobT]]], set[Lease[JobT]]] = renew_leases,
        seconds: float | None = None,
    ) -> None:
        self.seconds = seconds or model.LEASE.total_seconds() / BEATS_A_LEASE
        self._name = model.__name__
        self._renew = renew
        self._held: dict[Lease[JobT], HeldLease[JobT]] = {}
        self._thread: threading.Thread | None = None
        self._changing = threading.Lock()
        self._beating = threading.Lock()
        self._ended = threading.Event()  # of no work: it only measures the time
        self._leaving: mmap.mmap | None = None

    def share_leaving(self) -> Callable[[], None]:
        """What lets this process and all that it forks from now on give back what they hold.

        A byte that they share; unlike an event between processes it has no lock, which a process
        that is killed would keep.
        """
        self._leaving = leaving = mmap.mmap(-1, 1)

        def leave() -> None:
            leaving[0] = 1

        return leave

    def is_leaving(self) -> bool:
        """Whether what is held is to be given back."""
        return self._leaving is not None and self._leaving[0] == 1

    @contextmanager
    def hold(
        self, lease: Lease[JobT], on_loss: Callable[[], None] | None = None
    ) -> Iterator[HeldLease[JobT]]:
        """Renew a lease within the block. `on_loss` is called once, from another thread."""
        held = HeldLease(lease, on_loss, self.is_leaving)
        with self._changing:
            self._held[lease] = held
            if self._thread is None or not self._thread.is_alive():  # also after a fork
                self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
                self._thread.start()
        try:
            yield held
        finally:
            with self._changing:
                del self._held[lease]

    def wait_until_idle(self) -> None:
        """Wait for a renewal in progress. Nothing is held any more."""
        with self._beating:
            pass

    def _run(self) -> None:
        """Beat while something is held; a thread is dear, so that it outlives short work."""
        idle = 0
        while True:
            self._ended.wait(self.seconds)
            with self._beating:
                with self._changing:
                    idle = 0 if self._held else idle + 1
                    if idle > MAX_IDLE_BEATS:
                        self._thread = None
                        return
                    young = time.monotonic() - self.seconds  # their leases have just begun
                    held = [one for one in self._held.values() if one.since <= young]
                if held:
                    self._beat(held)

    def _beat(self, held: list[HeldLease[JobT]]) -> None:
        try:
            standing = self._renew([one.lease for one in held])
        except (DatabaseError, InterfaceError) as error:  # one beat of several in a lease
            connection.close()
            logger.warning("leases_not_renewed", job=self._name, error=str(error)[:200])
            return
        finally:
            connection.close()  # idle between two beats
        for one in held:
            if one.lease not in standing:
                one.mark_lost()

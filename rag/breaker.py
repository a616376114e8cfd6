"""Circuit breakers of model endpoints: who does not answer is left alone for a while.

A dead server then costs a question nothing, and one question now and then tries it again.
"""

import threading
import time
from dataclasses import dataclass, field

from rag.config import Endpoint
from rag.errors import LLMError, LLMServerError, LLMTimeout, LLMUnavailable, LLMUnreachable

FAILURES = 5
"""In a row, after which nothing is asked any more."""
PAUSE = 5.0
"""Seconds from a failure to the next try."""


@dataclass(slots=True)
class Gate:
    """Open until `limit` failures in a row; then one call every `PAUSE` seconds may try.

    Thread-safe. A call that goes well opens it again. A try whose end is never told takes nothing
    from anyone: the next one goes after the same pause.
    """

    limit: int = FAILURES
    _failures: int = 0
    _next_try: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def shut(self) -> bool:
        """Whether calls are refused, but for the tries."""
        return self._failures >= self.limit

    def enter(self) -> float:
        """0 when the call may go; else the seconds until the next try."""
        with self._lock:
            if not self.shut:
                return 0.0
            now = time.monotonic()
            if now < self._next_try:
                return self._next_try - now
            self._next_try = now + PAUSE
            return 0.0

    def well(self) -> None:
        """The call was answered, be it by a refusal."""
        with self._lock:
            self._failures = 0

    def failed(self, *, at_once: bool = False) -> None:
        """The call was not answered; `at_once`: that took so long that once is enough."""
        with self._lock:
            self._failures = self.limit if at_once else self._failures + 1
            self._next_try = time.monotonic() + PAUSE


@dataclass(frozen=True, slots=True)
class Breaker:
    """The gates of an endpoint: its server's, shared by all models there, and its model's.

    A light model that fails must not shut out the main model of the same server.
    """

    server: Gate
    model: Gate

    @property
    def shut(self) -> bool:
        """Whether another try now makes no sense."""
        return self.server.shut or self.model.shut

    def enter(self) -> None:
        """Raises `LLMUnavailable` where the endpoint is left alone."""
        if wait := self.server.enter() or self.model.enter():
            raise LLMUnavailable(retry_after=max(1, round(wait)))

    def well(self) -> None:
        """Something of an answer came."""
        self.server.well()
        self.model.well()

    def failed(self, error: LLMError) -> None:
        """A call ended in this before anything of an answer came."""
        if isinstance(error, LLMUnreachable):
            self.server.failed(at_once=bool(error.params.get("slow")))
            return
        self.server.well()
        if isinstance(error, LLMTimeout | LLMServerError):
            self.model.failed()
        else:
            self.model.well()


_gates: dict[tuple[str, ...], Gate] = {}


def of(endpoint: Endpoint) -> Breaker:
    """The breaker of an endpoint, one in a process."""
    server = endpoint.base_url.rstrip("/")
    return Breaker(
        _gates.setdefault((server,), Gate()), _gates.setdefault((server, endpoint.model), Gate())
    )


def forget() -> None:
    """All endpoints count as well again."""
    _gates.clear()

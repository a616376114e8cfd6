"""When a failed call is worth another try."""

import random

from rag.errors import LLMError, LLMRateLimited, LLMServerError, LLMUnreachable

RETRIES = 2
FIRST_PAUSE = 0.5
"""Seconds after the first failure of a server that works; twice as long after the next."""
QUICK_PAUSE = 0.1
"""The same where nobody listens: a server that starts does so in a moment or not for long."""
LONGEST_WAIT = 10.0
"""A server that asks for a longer pause than this many seconds is not waited for."""


def pause(error: LLMError, attempt: int) -> float | None:
    """Seconds before another try, with jitter; None when another try makes no sense.

    `attempt` counts from 0. A connection that timed out is not tried again: it took long enough.
    """
    if attempt >= RETRIES or error.params.get("final") or error.params.get("slow"):
        return None
    if not isinstance(error, LLMUnreachable | LLMRateLimited | LLMServerError):
        return None
    first = QUICK_PAUSE if isinstance(error, LLMUnreachable) else FIRST_PAUSE
    asked = error.params.get("retry_after")
    base = float(asked) if isinstance(asked, int | float) else first * 2**attempt
    return base + random.uniform(0, first) if base <= LONGEST_WAIT else None  # noqa: S311

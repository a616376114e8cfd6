"""What an endpoint did to us, in our own errors.

The endpoint's words never reach a user, its keys not even a log.
"""

import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

from rag.errors import (
    ContextOverflow,
    LLMError,
    LLMInterrupted,
    LLMRateLimited,
    LLMRejected,
    LLMServerError,
    LLMTimeout,
    LLMUnauthorized,
    LLMUnreachable,
)

_KEY = re.compile(r"\b(?:sk|pk|key|hf|gsk)[-_][\w*.-]{3,}|Bearer\s+\S+", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum (?:context|model) length|max_model_len|"
    r"context (?:window|length|size)|too many (?:input )?tokens|"
    r"(?:prompt|input|request) (?:is )?too long|longer than the (?:maximum )?model",
    re.IGNORECASE,
)
LONGEST_DETAIL = 300


def translated(error: Exception, *, started: bool, key: str = "") -> LLMError:
    """The `LLMError` that an exception of the client stands for.

    `started`: text had come already, so that a broken connection is an interruption.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        return _by_status(error, _detail(error, key))
    if (
        isinstance(error, openai.APITimeoutError)
        and "Connect" not in type(error.__cause__).__name__
    ):
        return LLMTimeout(_detail(error, key), phase="idle" if started else "first_token")
    if isinstance(error, openai.APIConnectionError):
        return LLMInterrupted("connection lost") if started else LLMUnreachable(_detail(error, key))
    if isinstance(error, openai.APIError):
        return _in_stream(_detail(error, key))
    # broken JSON, broken UTF-8, or a chunk of another shape
    name = type(error).__name__
    return LLMInterrupted(name) if started else LLMServerError(f"unreadable reply: {name}")


def _by_status(error: Any, detail: str) -> LLMError:
    status = int(error.status_code)
    if status in (401, 403):
        return LLMUnauthorized(detail, status=status)
    if status == 429:
        return LLMRateLimited(
            detail,
            status=status,
            retry_after=retry_after(error.response.headers.get("retry-after", "")),
            final="insufficient_quota" in detail,
        )
    if status >= 500 or status == 408:
        return LLMServerError(f"status {status}", status=status)
    if _OVERFLOW.search(detail):
        return ContextOverflow(detail, status=status)
    return LLMRejected(detail, status=status)


def _in_stream(detail: str) -> LLMError:
    return ContextOverflow(detail) if _OVERFLOW.search(detail) else LLMServerError(detail)


def retry_after(value: str) -> float | None:
    """Seconds of a Retry-After header (number or date), never negative; None if unreadable."""
    value = value.strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _detail(error: Exception, key: str) -> str:
    text = f"{error} {getattr(error, 'code', None) or ''} {getattr(error, 'body', None) or ''}"
    if key:
        text = text.replace(key, "***")
    return _KEY.sub("***", text)[:LONGEST_DETAIL]

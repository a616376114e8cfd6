"""What an endpoint did to us, in our own errors.

The endpoint's words never reach a user, its keys not even a log.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from rag.errors import (
    ContextOverflow,
    LLMError,
    LLMInterrupted,
    LLMRateLimited,
    LLMRejected,
    LLMServerError,
    LLMUnauthorized,
    LLMUnreachable,
)

_KEY = re.compile(r"\b(?:sk|pk|key|hf|gsk)[-_][\w*.-]{3,}|Bearer\s+\S+", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum (?:context|model) length|"
    r"max_model_len|max context length|context (?:window|length|size)|"
    r"too many (?:input )?tokens|input token count|(?:prompt|input|request) (?:is )?too long|"
    r"longer than the (?:maximum )?model|inputs`? (?:tokens|must have less than)",
    re.IGNORECASE,
)
"""How OpenAI, vLLM, SGLang, llama.cpp, Ollama, TGI and Gemini say that a prompt is too long."""
LONGEST_DETAIL = 300


def translated(error: Exception, *, started: bool, key: str = "") -> LLMError:
    """The `LLMError` that an exception of the client stands for.

    `started`: something was shown already, so that a broken connection is an interruption.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        detail = _detail(f"{error} {error.code or ''} {error.body or ''}", key)
        return _by_status(int(error.status_code), detail, error.response.headers)
    if isinstance(error, ValueError | TypeError | AttributeError):
        # broken JSON, broken UTF-8, or a chunk of another shape
        name = type(error).__name__
        return LLMInterrupted(name) if started else LLMServerError(f"unreadable reply: {name}")
    if started:
        return LLMInterrupted("connection lost")
    causes = list(_causes(error))
    slow = any(isinstance(cause, TimeoutError) for cause in causes)
    return LLMUnreachable(", ".join(type(cause).__name__ for cause in causes), slow=slow)


def told(error: object, *, started: bool, key: str = "") -> LLMError:
    """The `LLMError` of an error body that came under HTTP 200, alone or within a stream.

    Its code is a status where it looks like one.
    """
    detail = _detail(str(error), key)
    code = error.get("code") if isinstance(error, Mapping) else None
    if started:
        return LLMServerError(detail)
    if isinstance(code, int) and 400 <= code < 600:
        return _by_status(code, detail, {})
    return ContextOverflow(detail) if _OVERFLOW.search(detail) else LLMServerError(detail)


def retry_after(value: str) -> float | None:
    """Seconds of a Retry-After header (number or date), never negative; None if unreadable."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value.strip()).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _by_status(status: int, detail: str, headers: Mapping[str, Any]) -> LLMError:
    if status in (401, 403):
        return LLMUnauthorized(detail, status=status)
    if status == 429:
        return LLMRateLimited(
            detail,
            status=status,
            retry_after=retry_after(headers.get("retry-after", "")),
            final="insufficient_quota" in detail,
        )
    if _OVERFLOW.search(detail):
        return ContextOverflow(detail, status=status)
    if status >= 500 or status == 408:
        return LLMServerError(f"status {status}", status=status)
    return LLMRejected(detail, status=status)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _detail(text: str, key: str) -> str:
    if key:
        text = text.replace(key, "***")
    return _KEY.sub("***", text)[:LONGEST_DETAIL]

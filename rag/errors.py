"""Errors of every floor.

Raised deep with a code, put into words once, at the door (`nura/errors.py`).
"""

from typing import ClassVar


class NuraError(Exception):
    """What went wrong, for programs: `code` is stable, `params` fill the sentence that people read.

    `retryable` says whether the same call may succeed later without a change by anyone.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", **params: object) -> None:
        super().__init__(message or self.code)
        self.params = params


class EngineUnavailable(NuraError):
    """An optional library is not installed."""

    code = "engine_unavailable"


class EmbedderFailed(NuraError):
    """The embedding model could not be loaded, did not answer, or gave unusable vectors."""

    code = "embedder_failed"
    retryable = True


class RetrievalFailed(NuraError):
    """The passage store raised while searching."""

    code = "retrieval_failed"
    retryable = True


class LLMError(NuraError):
    """Base of all errors of a language-model endpoint."""

    code = "llm_failed"


class LLMUnreachable(LLMError):
    """No connection could be made."""

    code = "llm_unreachable"
    retryable = True


class LLMUnavailable(LLMError):
    """The endpoint failed repeatedly and is not asked again for `retry_after` seconds."""

    code = "llm_unavailable"
    retryable = True


class LLMTimeout(LLMError):
    """Connected, but nothing (more) came within a time limit.

    `phase` names it: "first_token", "idle" or "total".
    """

    code = "llm_timeout"
    retryable = True


class LLMUnauthorized(LLMError):
    """401 or 403: the key is wrong or lacks rights."""

    code = "llm_unauthorized"


class LLMRateLimited(LLMError):
    """429: too many requests or the quota is used up."""

    code = "llm_rate_limited"
    retryable = True


class LLMServerError(LLMError):
    """5xx, or an error body under HTTP 200."""

    code = "llm_server_error"
    retryable = True


class LLMRejected(LLMError):
    """Another 4xx: the request itself was refused (unknown model, bad parameter)."""

    code = "llm_rejected"


class LLMInterrupted(LLMError):
    """The stream broke off after the first token."""

    code = "llm_interrupted"


class ContextOverflow(LLMError):
    """The prompt is longer than the model's context."""

    code = "llm_context_overflow"


class LLMEmptyAnswer(LLMError):
    """The model ended its reply without a word, though it may have thought aloud.

    `reason` is its own: "length" where thinking took all tokens.
    """

    code = "llm_empty_answer"
    retryable = True

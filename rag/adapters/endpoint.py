"""What all calls of model endpoints share: client, circuit breaker, errors, retries.

The client library's own retries are off for chats: it would wait up to a minute for a busy server,
retry when a quota is used up, ignore the time limit, and miss errors within streams.

Messages of an endpoint never reach users; its keys never reach a log.
"""

import asyncio
import json
import math
import random
import re
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from rag.config import Endpoint
from rag.errors import (
    ContextOverflow,
    LLMError,
    LLMInterrupted,
    LLMRateLimited,
    LLMRejected,
    LLMServerError,
    LLMTimeout,
    LLMUnauthorized,
    LLMUnavailable,
    LLMUnreachable,
)

if TYPE_CHECKING:
    from rag.adapters.wire import AnswerBody


@dataclass(frozen=True, slots=True)
class _OpenClient:
    """An endpoint's client and HTTP client, with the URL and headers of chat requests.

    The task `kept_open` closes it when the loop ends.
    """

    client: Any
    http: Any
    chat_url: Any
    headers: Any
    kept_open: asyncio.Task[None]


_clients: dict[tuple[asyncio.AbstractEventLoop, Endpoint], _OpenClient] = {}
_clients_lock = threading.Lock()


def load_client_library() -> None:
    """Import the library now, so that the first question does not wait a second or two for it."""
    import openai  # noqa: F401


def get_client(endpoint: Endpoint) -> Any:
    """The endpoint's client for the running loop; its connections end with the loop.

    The transport is aiohttp, which takes little more than half the processor time per chunk of the
    default one (`benchmarks/llm_parsing.py`).
    """
    return _open_client(endpoint).client


def _open_client(endpoint: Endpoint) -> _OpenClient:
    loop = asyncio.get_running_loop()
    with _clients_lock:
        if (loop, endpoint) not in _clients:
            import httpx2
            import openai

            from rag.adapters.wire import BoundedByAiohttp

            limit = endpoint.connect_timeout  # for the name, the connection and a free place
            timeout = openai.Timeout(None, connect=limit, pool=limit)
            http = openai.DefaultAioHttpClient(follow_redirects=False, timeout=timeout)
            http._transport = BoundedByAiohttp(http._transport)  # noqa: SLF001 - by its argument it would use no proxy
            http._mounts = {  # noqa: SLF001 - those to proxies
                pattern: way and BoundedByAiohttp(way)
                for pattern, way in http._mounts.items()  # noqa: SLF001
            }
            client = openai.AsyncOpenAI(
                base_url=endpoint.base_url,
                api_key=endpoint.api_key or "none",
                default_headers=dict(endpoint.headers),
                max_retries=0,
                timeout=timeout,
                http_client=http,
            )
            headers = httpx2.Headers(
                {
                    "Accept": "application/json",
                    "User-Agent": client.user_agent,
                    **client.auth_headers,
                }
            )
            headers.update(endpoint.headers)
            kept_open = loop.create_task(_keep_open(loop, endpoint, client))
            _clients[loop, endpoint] = _OpenClient(
                client, http, client.base_url.join("chat/completions"), headers, kept_open
            )
        return _clients[loop, endpoint]


@asynccontextmanager
async def post_chat(endpoint: Endpoint, payload: Mapping[str, Any]) -> AsyncIterator["AnswerBody"]:
    """The response body of a chat request, as it arrives. Raises the client's errors.

    It bypasses the client, which spends nearly half the processor time of a short call on things
    not needed here: retries, typed replies, files in messages.
    """
    import openai

    from rag.adapters.wire import AnswerBody

    endpoint_client = _open_client(endpoint)
    http_request = endpoint_client.http.build_request(
        "POST", endpoint_client.chat_url, json=payload, headers=endpoint_client.headers
    )
    try:
        response = await endpoint_client.http.send(http_request, stream=True)
    except Exception as error:
        raise openai.APIConnectionError(request=http_request) from error
    try:
        if not response.is_success:
            text = (await response.aread()).decode(errors="replace").strip()
            status = f"Error code: {response.status_code}"
            raise openai.APIStatusError(status, response=response, body=_read_error(text))
        yield AnswerBody(response)
    finally:
        await response.aclose()


def _read_error(text: str) -> object:
    """The error in the body of a refused request; the text itself if it is not JSON."""
    try:
        body = json.loads(text)
    except ValueError:
        return text
    return body.get("error", body) if isinstance(body, Mapping) else body


async def _keep_open(loop: asyncio.AbstractEventLoop, endpoint: Endpoint, client: Any) -> None:
    """Close the client when the loop ends, which cancels this task."""
    try:
        await asyncio.Event().wait()
    finally:
        with _clients_lock:
            del _clients[loop, endpoint]
        await client.close()


FAILURES_MAX = 5
"""Consecutive failures after which an endpoint is no longer called."""
REST_SECONDS = 5.0
"""Seconds from a failure to the next attempt."""


@dataclass(slots=True)
class Breaker:
    """A circuit breaker: after `limit` consecutive failures, one call per `REST_SECONDS` may try.

    Thread-safe. A successful call ends this. An attempt whose outcome is never reported does no
    harm: the next one may try after the same pause.

    `server` is the breaker of all models of the server. An unreachable server counts there, any
    other failure for the model only: a failing light model must not block the main model.
    """

    limit: int = FAILURES_MAX
    counts: tuple[type[LLMError], ...] = (LLMTimeout, LLMServerError, LLMUnreachable)
    """Errors that count as failures; after others, such as a refusal, the model is working."""
    server: "Breaker | None" = None
    _failures: int = 0
    _next_try: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_shut(self) -> bool:
        """Whether calls are refused, apart from occasional attempts."""
        return self._failures >= self.limit or (self.server is not None and self.server.is_shut)

    def raise_if_open(self) -> None:
        """Raises `LLMUnavailable` while calls are refused."""
        if self.server:
            self.server.raise_if_open()
        with self._lock:
            if self._failures < self.limit:
                return
            wait = self._next_try - time.monotonic()
            if wait > 0:
                raise LLMUnavailable(retry_after=max(1, round(wait)))
            self._next_try = time.monotonic() + REST_SECONDS

    def note_success(self) -> None:
        """Note that the endpoint responded, even with a refusal."""
        if self.server:
            self.server.note_success()
        with self._lock:
            self._failures = 0

    def note_failure(self, error: LLMError) -> None:
        """Note that a call failed before any response.

        A connection that timed out took so long that one is enough.
        """
        if not isinstance(error, self.counts):
            self.note_success()
            return
        if self.server and isinstance(error, LLMUnreachable):
            self.server.note_failure(error)
            return
        if self.server:
            self.server.note_success()
        with self._lock:
            self._failures = self.limit if error.params.get("slow") else self._failures + 1
            self._next_try = time.monotonic() + REST_SECONDS


_breakers: dict[tuple[str, ...], Breaker] = {}


def get_breaker(endpoint: Endpoint) -> Breaker:
    """The circuit breaker of an endpoint; one per process."""
    place = endpoint.socket or endpoint.base_url.rstrip("/")
    server = _breakers.setdefault((place,), Breaker())
    return _breakers.setdefault((place, endpoint.model), Breaker(server=server))


def reset_breakers() -> None:
    """Treat all endpoints as healthy again."""
    _breakers.clear()


_KEY = re.compile(r"\b(?:sk|pk|key|hf|gsk)[-_][\w*.-]{3,}|Bearer\s+\S+", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum (?:context|model) length|"
    r"max_model_len|max context length|context (?:window|length|size)|"
    r"too many (?:input )?tokens|input token count|(?:prompt|input|request) (?:is )?too long|"
    r"longer than the (?:maximum )?model|inputs`? (?:tokens|must have less than)",
    re.IGNORECASE,
)
"""How OpenAI, vLLM, SGLang, llama.cpp, Ollama, TGI and Gemini say that a prompt is too long."""
MAX_DETAIL_CHARACTERS = 300


def to_llm_error(error: Exception, *, started: bool, secrets: Iterable[str] = ()) -> LLMError:
    """The `LLMError` that an exception of the client stands for.

    `started`: some output was shown already, so a lost connection is an interruption. `secrets`
    are removed from its message.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        detail = _redact(f"{error} {error.code or ''} {error.body or ''}", secrets)
        return _to_status_error(int(error.status_code), detail, error.response.headers)
    if isinstance(error, ValueError | TypeError | AttributeError):
        # broken JSON, broken UTF-8, or a chunk of another shape
        name = type(error).__name__
        return LLMInterrupted(name) if started else LLMServerError(f"unreadable reply: {name}")
    if started:
        return LLMInterrupted("connection lost")
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    slow = any(isinstance(cause, TimeoutError) for cause in causes)
    return LLMUnreachable(", ".join(type(cause).__name__ for cause in causes), slow=slow)


def to_reported_error(error: object, *, started: bool, secrets: Iterable[str] = ()) -> LLMError:
    """The `LLMError` of an error body that came under HTTP 200, alone or within a stream.

    Its code is a status where it looks like one.
    """
    detail = _redact(str(error), secrets)
    code = error.get("code") if isinstance(error, Mapping) else None
    if not started and isinstance(code, int) and 400 <= code < 600:
        return _to_status_error(code, detail, {})
    overflow = not started and _OVERFLOW.search(detail)
    return ContextOverflow(detail) if overflow else LLMServerError(detail)


def parse_retry_after(value: str) -> float | None:
    """Seconds of a Retry-After header (number or date), never negative; None if unreadable."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value.strip()).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _to_status_error(status: int, detail: str, headers: Mapping[str, Any]) -> LLMError:
    if status in (401, 403):
        return LLMUnauthorized(detail, status=status)
    if status == 429:
        return LLMRateLimited(
            detail,
            status=status,
            retry_after=parse_retry_after(headers.get("retry-after", "")),
            final="insufficient_quota" in detail,
        )
    if _OVERFLOW.search(detail):
        return ContextOverflow(detail, status=status)
    if status >= 500 or status == 408:
        return LLMServerError(f"status {status}", status=status)
    return LLMRejected(detail, status=status)


def _redact(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return _KEY.sub("***", text)[:MAX_DETAIL_CHARACTERS]


RETRIES_MAX = 2
FIRST_PAUSE_SECONDS = 0.5
"""Seconds after the first failure of a running server; doubled each time."""
QUICK_PAUSE_SECONDS = 0.1
"""The same if nothing listens there: a starting server is up soon, or not for a while."""
MAX_WAIT_SECONDS = 10.0
"""Longest pause a server may ask for before we give up."""


def choose_retry_pause(error: LLMError, tries: int) -> float | None:
    """Seconds before another attempt, with jitter; None if another one makes no sense.

    `tries` is the number so far. A connection that timed out is not retried: it took long enough.
    """
    if tries > RETRIES_MAX or error.params.get("final") or error.params.get("slow"):
        return None
    if not isinstance(error, LLMUnreachable | LLMRateLimited | LLMServerError):
        return None
    first = QUICK_PAUSE_SECONDS if isinstance(error, LLMUnreachable) else FIRST_PAUSE_SECONDS
    retry_after = error.params.get("retry_after")
    base = float(retry_after) if isinstance(retry_after, int | float) else first * 2 ** (tries - 1)
    return base + random.uniform(0, first) if base <= MAX_WAIT_SECONDS else None  # noqa: S311

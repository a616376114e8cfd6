"""Chat models behind an OpenAI-compatible endpoint: OpenAI, vLLM, Ollama, llama.cpp and others."""

import asyncio
import random
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from rag.config import Endpoint
from rag.errors import (
    LLMEmptyAnswer,
    LLMError,
    LLMInterrupted,
    LLMRateLimited,
    LLMRejected,
    LLMServerError,
    LLMTimeout,
    LLMUnreachable,
)
from rag.llms.failures import translated
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Piece, Usage

RETRIES = 2
LONGEST_WAIT = 10.0
"""A server that asks for a longer pause than this many seconds is not waited for."""
FIRST_PAUSE = 0.5
GRACE = 2.0
"""Seconds for the closing account after the model said that it is done."""
CHARACTERS_PER_TOKEN = 10
"""No tokeniser makes longer tokens on average.

A reply beyond this ignores `max_tokens` and is cut.
"""


class OpenAILLM:
    """Streams replies.

    Retries refused connections, 429 and 5xx before the first word, nothing after it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = endpoint.model
        self._clients: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._dropped: frozenset[str] = frozenset()

    async def stream(
        self, turns: Sequence[HistoryMessage], options: GenerationOptions
    ) -> AsyncGenerator[Piece, None]:
        """The reply; its last piece holds usage and `finish_reason`.

        Raises `LLMError` and nothing else.
        """
        deadline = time.monotonic() + self._endpoint.total_timeout
        for attempt in range(RETRIES + 1):
            reply = _Reply(self._endpoint, options, deadline)
            try:
                async with aclosing(self._once(turns, options, reply)) as pieces:
                    async for piece in pieces:
                        yield piece
            except LLMError as error:
                pause = 0.0 if self._adapt(error) else _pause(error, attempt)
                if reply.started or attempt == RETRIES or pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                return

    async def _once(
        self, turns: Sequence[HistoryMessage], options: GenerationOptions, reply: "_Reply"
    ) -> AsyncGenerator[Piece, None]:
        response: Any = None
        try:
            async with asyncio.timeout(reply.patience):
                response = await self._client().chat.completions.create(
                    **self._request(turns, options)
                )
            while (chunk := await reply.next_chunk(response)) is not None:
                if text := reply.take(chunk):
                    yield Piece(text=text)
                if reply.too_long:
                    break
            yield reply.closing()
        except LLMError:
            raise
        except TimeoutError:
            raise LLMTimeout(reply.phase, phase=reply.phase) from None
        except Exception as error:  # noqa: BLE001 - whatever the client raises, callers get LLMError
            raise translated(error, started=reply.started, key=self._endpoint.api_key) from None
        finally:
            if response is not None:
                await response.close()

    def _request(
        self, turns: Sequence[HistoryMessage], options: GenerationOptions
    ) -> dict[str, Any]:
        limit = "max_completion_tokens" if "max_tokens" in self._dropped else "max_tokens"
        request: dict[str, Any] = {
            "model": self.name,
            "messages": [{"role": turn.role.value, "content": turn.content} for turn in turns],
            "stream": True,
            limit: options.max_tokens,
            "temperature": options.temperature,
            "stream_options": {"include_usage": True},
        }
        return {name: value for name, value in request.items() if name not in self._dropped}

    def _adapt(self, error: LLMError) -> bool:
        """Leave out a parameter that this server or model refuses by name.

        True when that may help.
        """
        if not isinstance(error, LLMRejected):
            return False
        named = {
            name
            for name in ("max_tokens", "temperature", "stream_options")
            if f"'{name}'" in str(error) and name not in self._dropped
        }
        self._dropped |= named
        return bool(named)

    def _client(self) -> Any:
        """One client per event loop: its connections belong to the loop that opened them."""
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = self._connect()
            return client

    def _connect(self) -> Any:
        import openai

        timeout = openai.Timeout(None, connect=self._endpoint.connect_timeout)
        return openai.AsyncOpenAI(
            base_url=self._endpoint.base_url,
            api_key=self._endpoint.api_key or "none",
            max_retries=0,
            timeout=timeout,
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, timeout=timeout),
        )


@dataclass(slots=True)
class _Reply:
    """One attempt: what came, and how long to wait for more."""

    endpoint: Endpoint
    options: GenerationOptions
    deadline: float
    started: bool = False
    finish_reason: str = ""
    usage: Usage | None = None
    characters: int = 0
    first_token_by: float = field(default=0.0)
    alive: bool = False

    def __post_init__(self) -> None:
        self.first_token_by = time.monotonic() + self.endpoint.first_token_timeout

    @property
    def phase(self) -> str:
        """Which limit is running: "total", "idle" or "first_token"."""
        if time.monotonic() >= self.deadline:
            return "total"
        return "idle" if self.alive else "first_token"

    @property
    def patience(self) -> float:
        """Seconds to wait for the next thing. Thinking counts as a sign of life."""
        now = time.monotonic()
        limit = self.endpoint.idle_timeout if self.alive else self.first_token_by - now
        if self.finish_reason:
            limit = GRACE
        return max(0.0, min(limit, self.deadline - now))

    @property
    def too_long(self) -> bool:
        """The server ignores the token limit."""
        return self.characters > self.options.max_tokens * CHARACTERS_PER_TOKEN

    async def next_chunk(self, response: Any) -> Any | None:
        """The next chunk; None at the end. Silence after the finish reason is an end as well."""
        try:
            async with asyncio.timeout(self.patience):
                return await anext(response)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            if self.finish_reason:
                return None
            raise

    def take(self, chunk: Any) -> str:
        """The text of a chunk; thinking, tool calls and empty deltas have none."""
        self._count(getattr(chunk, "usage", None))
        for choice in getattr(chunk, "choices", None) or ():
            self.finish_reason = choice.finish_reason or self.finish_reason
            delta = choice.delta
            self.alive = self.alive or bool(
                delta and (delta.content or delta.model_extra or delta.tool_calls)
            )
            if delta and delta.content:
                self.started = True
                self.characters += len(delta.content)
                return str(delta.content)
        return ""

    def closing(self) -> Piece:
        """The last piece. Raises when the reply broke off or holds nothing."""
        if self.too_long:
            return Piece(usage=self.usage, finish_reason="length")
        if not self.finish_reason:
            raise LLMInterrupted("no end") if self.started else LLMServerError("no reply in it")
        if not self.started:
            raise LLMEmptyAnswer(self.finish_reason)
        return Piece(usage=self.usage, finish_reason=self.finish_reason)

    def _count(self, usage: Any) -> None:
        if usage is not None:
            self.usage = Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0)


def _pause(error: LLMError, attempt: int) -> float | None:
    """Seconds before another try, with jitter; None when another try makes no sense."""
    if not isinstance(error, LLMUnreachable | LLMRateLimited | LLMServerError):
        return None
    if error.params.get("final"):
        return None
    asked = error.params.get("retry_after")
    base = float(asked) if isinstance(asked, int | float) else FIRST_PAUSE * 2**attempt
    return base + random.uniform(0, FIRST_PAUSE) if base <= LONGEST_WAIT else None  # noqa: S311

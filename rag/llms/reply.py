"""Reading the stream of one reply: what came, how long to wait for more, and how it ended."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from rag.config import Endpoint
from rag.errors import LLMEmptyAnswer, LLMInterrupted, LLMServerError
from rag.pieces import Piece, Usage
from rag.ports import GenerationOptions

GRACE = 2.0
"""Seconds for the closing account after the model said that it is done."""
CHARACTERS_PER_TOKEN = 10
"""No tokeniser makes longer tokens on average.

A reply beyond this ignores `max_tokens` and is cut.
"""


@dataclass(slots=True)
class Reply:
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

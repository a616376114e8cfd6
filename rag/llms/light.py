"""The light model: short questions with short answers, in time or not at all."""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from rag.breaker import Gate
from rag.errors import (
    LLMError,
    LLMInterrupted,
    LLMRateLimited,
    LLMServerError,
    LLMTimeout,
    LLMUnavailable,
    LLMUnreachable,
)
from rag.ports import LLM, GenerationOptions
from rag.types import HistoryMessage, Role

SECONDS = 8.0
COSTLY = (LLMInterrupted, LLMRateLimited, LLMServerError, LLMTimeout, LLMUnreachable)
"""Failures that may have taken long. The next one would be paid by the same answer."""
_FENCE = re.compile(r"^\s*```\w*\n(.*?)\n?```\s*$", re.DOTALL)


class BadReply(LLMError):
    """The light model said something else than it was asked for."""

    code = "llm_bad_reply"


@dataclass(frozen=True, slots=True)
class Light:
    """Asks the light model. Whoever asks has an answer of his own for when it fails.

    An answer asks several times; after one costly failure the model is left alone for a while, so
    that all of them together cost no more than `seconds`.
    """

    llm: LLM
    seconds: float = SECONDS
    gate: Gate = field(default_factory=lambda: Gate(limit=1), compare=False)

    @property
    def name(self) -> str:
        """The model's name, for traces and notes."""
        return self.llm.name

    async def say(self, system: str, user: str, *, max_tokens: int) -> str:
        """The whole reply without its thinking.

        Raises `LLMError`, `LLMTimeout` after `seconds`, `LLMUnavailable` at once.
        """
        if wait := self.gate.enter():
            raise LLMUnavailable(retry_after=max(1, round(wait)))
        turns = (HistoryMessage(Role.SYSTEM, system), HistoryMessage(Role.USER, user))
        options = GenerationOptions(temperature=0.0, max_tokens=max_tokens)
        try:
            said = await self._said(turns, options)
        except COSTLY:
            self.gate.failed()
            raise
        self.gate.well()
        return said

    async def _said(self, turns: Sequence[HistoryMessage], options: GenerationOptions) -> str:
        try:
            async with (
                asyncio.timeout(self.seconds),
                aclosing(self.llm.stream(turns, options)) as pieces,
            ):
                return "".join([piece.text async for piece in pieces]).strip()
        except TimeoutError:
            raise LLMTimeout("the light model", phase="total") from None

    async def read(self, system: str, user: str, *, max_tokens: int) -> object:
        """The reply as JSON, alone or in a code fence. Raises `LLMError`, `BadReply`."""
        said = await self.say(system, user, max_tokens=max_tokens)
        fenced = _FENCE.match(said)
        try:
            return json.loads(fenced[1] if fenced else said)
        except (ValueError, RecursionError) as error:
            raise BadReply(said[:200]) from error

"""The light model: short questions with short answers, in time or not at all."""

import asyncio
import json
import re
from contextlib import aclosing
from dataclasses import dataclass

from rag.errors import LLMError, LLMTimeout
from rag.ports import LLM, GenerationOptions
from rag.types import HistoryMessage, Role

SECONDS = 8.0
_FENCE = re.compile(r"^\s*```\w*\n(.*?)\n?```\s*$", re.DOTALL)


class BadReply(LLMError):
    """The light model said something else than it was asked for."""

    code = "llm_bad_reply"


@dataclass(frozen=True, slots=True)
class Light:
    """Asks the light model. Whoever asks has an answer of his own for when it fails."""

    llm: LLM
    seconds: float = SECONDS

    @property
    def name(self) -> str:
        """The model's name, for traces and notes."""
        return self.llm.name

    async def say(self, system: str, user: str, *, max_tokens: int) -> str:
        """The whole reply. Raises `LLMError`, `LLMTimeout` after `seconds`."""
        turns = (HistoryMessage(Role.SYSTEM, system), HistoryMessage(Role.USER, user))
        options = GenerationOptions(temperature=0.0, max_tokens=max_tokens)
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

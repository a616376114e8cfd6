"""The light model: short questions with short answers, on time or not at all."""

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice

from rag.adapters.endpoint import Breaker
from rag.adapters.stream import drop_thoughts
from rag.config import LIGHT_SECONDS
from rag.errors import (
    LLMError,
    LLMInterrupted,
    LLMRateLimited,
    LLMServerError,
    LLMTimeout,
    LLMUnreachable,
)
from rag.ports import LLM, GenerationOptions
from rag.types import HistoryMessage, Speaker

COSTLY_ERRORS = (LLMInterrupted, LLMRateLimited, LLMServerError, LLMTimeout, LLMUnreachable)
"""Failures that may have taken long. The next one would be paid by the same answer."""
MAX_JSON_TRIES = 20
"""Places in a reply at which JSON may begin; a reply with more is no answer."""


class BadReply(LLMError):
    """The light model did not reply in the requested form."""

    code = "llm_bad_reply"


@dataclass(frozen=True, slots=True)
class Light:
    """Asks the light model. Whoever asks has an answer of his own for when it fails.

    An answer asks several times; after one costly failure the model is left alone for a while, so
    that all of them together cost no more than `seconds`.
    """

    llm: LLM
    seconds: float = LIGHT_SECONDS
    breaker: Breaker = field(default_factory=lambda: Breaker(1, COSTLY_ERRORS), compare=False)

    @property
    def name(self) -> str:
        """The model's name, for traces and notes."""
        return self.llm.name

    async def ask_text(
        self,
        system: str,
        user: str,
        *,
        max_tokens: int,
        schema: Mapping[str, object] | None = None,
    ) -> str:
        """The whole reply without its thinking.

        Raises `LLMError`, `LLMTimeout` after `seconds`, `LLMUnavailable` at once.
        """
        self.breaker.raise_if_open()
        turns = (HistoryMessage(Speaker.SYSTEM, system), HistoryMessage(Speaker.USER, user))
        options = GenerationOptions(temperature=0.0, max_tokens=max_tokens, schema=schema)
        try:
            async with (
                asyncio.timeout(self.seconds),
                aclosing(self.llm.stream(turns, options)) as pieces,
            ):
                reply = drop_thoughts("".join([piece.text async for piece in pieces]))
        except TimeoutError:
            timeout_error = LLMTimeout("the light model", phase="total")
            self.breaker.note_failure(timeout_error)
            raise timeout_error from None
        except LLMError as error:
            self.breaker.note_failure(error)
            raise
        self.breaker.note_success()
        return reply

    async def ask_json(
        self,
        system: str,
        user: str,
        *,
        max_tokens: int,
        schema: Mapping[str, object] | None = None,
        begins: str = "{",
    ) -> object:
        """The reply as JSON. Raises `LLMError`, `BadReply` where there is none in it.

        `begins`: what the JSON begins with where there are words around it. The server is asked to
        hold the model to the JSON `schema` (its "title" names it), but not every server can: the
        prompt must tell the shape as well, and the caller must check it.
        """
        reply = await self.ask_text(system, user, max_tokens=max_tokens, schema=schema)
        return parse_json(reply, begins)


def parse_json(reply: str, begins: str = "{") -> object:
    """The JSON of a reply: all of it, else the first that begins so, whatever stands around it.

    Raises `BadReply`.
    """
    decoder = json.JSONDecoder()
    try:
        return decoder.decode(reply)
    except (ValueError, RecursionError):
        pass
    for match in islice(re.finditer(re.escape(begins), reply), MAX_JSON_TRIES):
        try:
            return decoder.raw_decode(reply, match.start())[0]
        except (ValueError, RecursionError):
            continue
    raise BadReply(reply[:200])

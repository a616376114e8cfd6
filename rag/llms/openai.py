"""Chat models behind an OpenAI-compatible endpoint: OpenAI, vLLM, Ollama, llama.cpp and others."""

import asyncio
import itertools
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from rag import breaker
from rag.config import Endpoint
from rag.errors import LLMError, LLMRejected, LLMTimeout, LLMUnavailable
from rag.llms import calls, clients, retries
from rag.llms.failures import translated
from rag.llms.reply import Reply
from rag.pieces import Piece
from rag.ports import GenerationOptions
from rag.tools import Choice, Tool
from rag.types import HistoryMessage

OPTIONAL = ("max_tokens", "temperature", "stream_options", "stop", "seed")
"""Parameters that a server or a model may refuse; a reply without them is better than none."""


class OpenAILLM:
    """Streams replies, and asks for tool calls.

    Retries refused connections, 429 and 5xx before the first word, nothing after it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = endpoint.model
        self._dropped: frozenset[str] = frozenset()

    async def stream(
        self, turns: Sequence[HistoryMessage], options: GenerationOptions
    ) -> AsyncGenerator[Piece, None]:
        """The reply; its last piece holds usage and `finish_reason`.

        Raises `LLMError` and nothing else.
        """
        deadline = time.monotonic() + self._endpoint.total_timeout
        for attempt in itertools.count():
            reply = Reply(self._endpoint, options, deadline)
            heard = False
            try:
                self._breaker.enter()
                async with aclosing(self._once(turns, options, reply)) as pieces:
                    async for piece in pieces:
                        if not heard:
                            heard = True
                            self._breaker.well()
                        yield piece
            except LLMError as error:
                pause = None if reply.started else self._pause(error, attempt, deadline)
                if pause is None:
                    raise
            else:
                return
            await asyncio.sleep(pause)

    async def choose(self, turns: Sequence[HistoryMessage], tools: Sequence[Tool]) -> Choice:
        """The reply as a whole, with the tools that the model wants called.

        Raises `LLMError` and nothing else: `LLMRejected` from a server that knows no tools.
        """
        offered = [calls.offered(tool) for tool in tools]
        return await self.whole(_messages(turns), GenerationOptions(), tools=offered)

    async def whole(
        self, messages: Sequence[Mapping[str, Any]], options: GenerationOptions, **more: Any
    ) -> Choice:
        """The reply as a whole to messages in the form of the wire.

        Raises `LLMError` and nothing else.
        """
        deadline = time.monotonic() + self._endpoint.total_timeout
        for attempt in itertools.count():
            try:
                self._breaker.enter()
                choice = await self._replied(self._request(messages, options, **more), deadline)
            except LLMError as error:
                pause = self._pause(error, attempt, deadline)
                if pause is None:
                    raise
            else:
                self._breaker.well()
                return choice
            await asyncio.sleep(pause)
        raise AssertionError("counting never ends")

    async def _replied(self, request: dict[str, Any], deadline: float) -> Choice:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                completion = await clients.of(self._endpoint).chat.completions.create(**request)
            return calls.read(completion, self._endpoint.api_key)
        except LLMError:
            raise
        except TimeoutError:
            raise LLMTimeout("total", phase="total") from None
        except Exception as error:  # noqa: BLE001 - whatever the client raises, callers get LLMError
            raise translated(error, started=False, key=self._endpoint.api_key) from None

    async def _once(
        self, turns: Sequence[HistoryMessage], options: GenerationOptions, reply: Reply
    ) -> AsyncGenerator[Piece, None]:
        """One attempt. The client's own reading of the stream is left aside: see `rag.llms.sse`."""
        stream: Any = None
        try:
            async with asyncio.timeout(reply.patience):
                stream = await clients.of(self._endpoint).chat.completions.create(
                    **self._request(
                        _messages(turns),
                        options,
                        stream=True,
                        stream_options={"include_usage": True},
                    )
                )
            body = stream.response.aiter_bytes()
            while not reply.too_long and (part := await reply.next_part(body)) is not None:
                for piece in reply.take(part):
                    yield piece
            for piece in reply.close():
                yield piece
        except LLMError:
            raise
        except TimeoutError:
            raise LLMTimeout(reply.phase, phase=reply.phase) from None
        except Exception as error:  # noqa: BLE001 - whatever the client raises, callers get LLMError
            raise translated(error, started=reply.started, key=self._endpoint.api_key) from None
        finally:
            if stream is not None:
                await stream.response.aclose()

    def _request(
        self, messages: Sequence[Mapping[str, Any]], options: GenerationOptions, **more: Any
    ) -> dict[str, Any]:
        limit = "max_completion_tokens" if "max_tokens" in self._dropped else "max_tokens"
        request: dict[str, Any] = {
            "model": self.name,
            "messages": messages,
            limit: options.max_tokens,
            "temperature": options.temperature,
            **_wishes(options),
            **more,
        }
        return {name: value for name, value in request.items() if name not in self._dropped}

    @property
    def _breaker(self) -> breaker.Breaker:
        return breaker.of(self._endpoint)

    def _pause(self, error: LLMError, attempt: int, deadline: float) -> float | None:
        """Tell the breaker of a failure. Seconds before another try; None: there is none."""
        if isinstance(error, LLMUnavailable):
            return None
        self._breaker.failed(error)
        if self._adapt(error):
            return 0.0
        pause = None if self._breaker.shut else retries.pause(error, attempt)
        return pause if pause is not None and time.monotonic() + pause < deadline else None

    def _adapt(self, error: LLMError) -> bool:
        """Leave out a parameter that this server or model refuses by name.

        True when that may help.
        """
        if not isinstance(error, LLMRejected):
            return False
        named = {name for name in OPTIONAL if re.search(rf"\b{name}\b", str(error))}
        fresh = named - self._dropped
        self._dropped |= fresh
        return bool(fresh)


def _messages(turns: Sequence[HistoryMessage]) -> list[dict[str, str]]:
    return [{"role": turn.role.value, "content": turn.content} for turn in turns]


def _wishes(options: GenerationOptions) -> dict[str, Any]:
    wished = {"stop": list(options.stop), "seed": options.seed}
    return {name: value for name, value in wished.items() if value not in (None, [])}

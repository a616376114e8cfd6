"""Reading the stream of one reply: what came, how long to wait for more, and how it ended."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from rag.config import Endpoint
from rag.errors import LLMEmptyAnswer, LLMError, LLMInterrupted, LLMServerError
from rag.llms import chunks, failures
from rag.llms.sse import Decoder, Event
from rag.llms.thinking import Thinking
from rag.pieces import Piece, Usage
from rag.ports import GenerationOptions

GRACE = 2.0
"""Seconds for the closing account after the model said that it is done."""
DRAIN = 0.1
"""Seconds for the end of the body after the last event: then its connection can be used again."""
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
    """Something was shown: it must not come twice."""
    finish_reason: str = ""
    usage: Usage | None = None
    _answered: bool = False
    _alive: bool = False
    _done: bool = False
    _characters: int = 0
    _first_token_by: float = 0.0
    _decoder: Decoder = field(default_factory=Decoder)
    _thinking: Thinking = field(default_factory=Thinking)
    _thought: chunks.Mended = field(default_factory=chunks.Mended)
    _said: chunks.Mended = field(default_factory=chunks.Mended)

    def __post_init__(self) -> None:
        self._first_token_by = time.monotonic() + self.endpoint.first_token_timeout

    @property
    def phase(self) -> str:
        """Which limit is running: "total", "idle" or "first_token"."""
        if time.monotonic() >= self.deadline:
            return "total"
        return "idle" if self._alive else "first_token"

    @property
    def patience(self) -> float:
        """Seconds to wait for the next thing. Thinking counts as a sign of life."""
        now = time.monotonic()
        limit = self.endpoint.idle_timeout if self._alive else self._first_token_by - now
        if self.finish_reason:
            limit = GRACE
        if self._done:
            limit = DRAIN
        return max(0.0, min(limit, self.deadline - now))

    @property
    def too_long(self) -> bool:
        """The server ignores the token limit."""
        return self._characters > self.options.max_tokens * CHARACTERS_PER_TOKEN

    async def next_part(self, body: AsyncIterator[bytes]) -> bytes | None:
        """More of the body; None at its end. Silence after the finish reason is an end as well."""
        try:
            async with asyncio.timeout(self.patience):
                return await anext(body, None)
        except TimeoutError:
            if self.finish_reason or self._done:
                return None
            raise

    def take(self, part: bytes) -> Iterator[Piece]:
        """What these bytes say, in as few pieces as possible."""
        return self._pieces(self._decoder.feed(part))

    def close(self) -> Iterator[Piece]:
        """What is left, then the last piece. Raises when the reply broke off or holds nothing."""
        if not self.too_long:
            yield from self._pieces(self._decoder.close())
            yield from _shown(*self._marked(*self._thinking.close()))
        if self.too_long:
            self.finish_reason = "length"
        elif self._done:
            self.finish_reason = self.finish_reason or "stop"
        if not self.finish_reason:
            raise LLMInterrupted("no end") if self.started else LLMServerError("no reply in it")
        if not self._answered:
            raise LLMEmptyAnswer(self.finish_reason, reason=self.finish_reason)
        yield Piece(usage=self.usage, finish_reason=self.finish_reason)

    def _pieces(self, events: Sequence[Event]) -> Iterator[Piece]:
        thought, said = "", ""
        failure: LLMError | ValueError | None = None
        for event in events:
            try:
                more = self._read(event)
            except (LLMError, ValueError) as error:  # what came before it is shown all the same
                failure = error
                break
            thought, said = thought + more[0], said + more[1]
            if self._done or self.too_long:
                break
        yield from _shown(thought, said)
        if failure is not None:
            raise failure

    def _marked(self, thought: str, said: str) -> tuple[str, str]:
        self.started = self.started or bool(thought or said)
        self._answered = self._answered or bool(said)
        return thought, said

    def _read(self, event: Event) -> tuple[str, str]:
        """The thinking and the answer in an event; most events that are neither hold nothing."""
        if self._done:
            return "", ""
        if event.data.strip() == b"[DONE]":
            self._done = True
            return "", ""
        chunk = chunks.parsed(event.data)
        if wrong := chunk.get("error") or (event.name == b"error" and chunk):
            raise failures.told(wrong, started=self.started, key=self.endpoint.api_key)
        self.usage = chunks.usage(chunk.get("usage")) or self.usage
        choice = chunks.first_choice(chunk)
        self.finish_reason = str(choice.get("finish_reason") or self.finish_reason)
        return self._added(chunks.delta(choice))

    def _added(self, delta: chunks.Json) -> tuple[str, str]:
        self._alive = self._alive or any(delta[name] for name in delta if name != "role")
        thought = chunks.text(delta, "reasoning_content") or chunks.text(delta, "reasoning")
        thought = self._thought.add(thought)
        said = self._said.add(chunks.text(delta, "content"))
        self._characters += len(thought) + len(said)
        if said:
            more, said = self._thinking.feed(said)
            thought += more
        return self._marked(thought, said)


def _shown(thought: str, said: str) -> Iterator[Piece]:
    if thought:
        yield Piece(reasoning=thought)
    if said:
        yield Piece(text=said)

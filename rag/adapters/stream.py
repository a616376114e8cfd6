"""Reading one reply, streamed or whole: its chunks, its thinking, its calls, and how it ended.

The body is read as bytes because this runs for every token: the client's decoder and its objects
cost more than all the rest of a chunk (`benchmarks/llm_parsing.py`).
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import jiter

from rag.adapters.endpoint import to_reported_error
from rag.config import Endpoint
from rag.errors import LLMEmptyAnswer, LLMError, LLMInterrupted, LLMServerError
from rag.ports import GenerationOptions, Piece, ToolCall, Usage

MAX_EVENT_BYTES = 8 * 2**20
"""A server that sends more without an end is not read any further."""


class Decoder:
    """Takes the bytes of a body, gives the data of its events: a line each, as all servers send it.

    Blank lines, comments and other fields say nothing, and the last line needs no end. A body that
    is one JSON document becomes one event at its end.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._size = 0
        self._document: bool | None = None

    def feed(self, part: bytes) -> list[bytes]:
        """The events completed by these bytes. Raises `ValueError` if one is too large."""
        if self._document is None and (begun := part.lstrip()):
            self._document = begun.startswith(b"{")
        self._held.append(part)
        self._size += len(part)
        if self._size > MAX_EVENT_BYTES:
            raise ValueError("an event without an end")
        if self._document or not (b"\n" in part or b"\r" in part):
            return []
        lines = b"".join(self._held).splitlines(keepends=True)
        self._held = [] if lines[-1].endswith((b"\n", b"\r")) else [lines.pop()]
        self._size = sum(map(len, self._held))
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]

    def close(self) -> list[bytes]:
        """The event that the body ended in, if any."""
        if self._document:
            return [b"".join(self._held)]
        return self.feed(b"\n")


def parse_chunk(data: bytes) -> Mapping[str, Any]:
    """A chunk's JSON object. Raises `ValueError`.

    Half a surrogate pair and broken UTF-8 are no reason to lose an answer: the slower way reads
    them, the first as they are (`TextMender` joins them), the second as U+FFFD.
    """
    try:
        value = jiter.from_json(data)
    except ValueError:
        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except RecursionError as error:
            raise ValueError("too deep") from error
    if not isinstance(value, dict):
        raise ValueError("a chunk that is no object")  # noqa: TRY004 - as for other bad JSON
    return value


class TextMender:
    """Text without what cannot be stored: halves of pairs are joined or replaced, NULs left out."""

    def __init__(self) -> None:
        self._half = ""

    def mend(self, more: object) -> str:
        """The next part; half a pair at its end waits for the other half. No text adds nothing."""
        if not more or not isinstance(more, str):
            return ""
        more, self._half = self._half + more, ""
        if "\ud800" <= more[-1] <= "\udbff":
            more, self._half = more[:-1], more[-1]
        try:
            more.encode()
        except UnicodeEncodeError:
            more = more.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return more.replace("\x00", "")


OPENING = "<think>"
CLOSING = "</think>"


class ThinkingFilter:
    """Separates thinking from the answer in a streamed text, wherever its tags are cut."""

    def __init__(self) -> None:
        self._begun = False
        self._thinking = False
        self._answering = False
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """What the next part adds to the thinking and to the answer."""
        if self._answering:
            return "", text
        text, self._held = self._held + text, ""
        if not self._begun:
            bare = text.lstrip()
            if not bare.startswith(OPENING) and OPENING.startswith(bare):
                self._held = text
                return "", ""
            self._begun = True
            self._thinking = bare.startswith(OPENING)
            if not self._thinking:
                self._answering = True
                return "", text
            text = bare.removeprefix(OPENING)
        thought = ""
        if self._thinking:
            thought, closed, said = text.partition(CLOSING)
            if not closed:
                kept = len(text) - _measure_begun_tag(text)
                self._held = text[kept:]
                return text[:kept], ""
            self._thinking, text = False, said
        text = text.lstrip()  # the blank lines between the thinking and the answer
        self._answering = bool(text)
        return thought, text

    def close(self) -> tuple[str, str]:
        """What was held back because it might have become a tag."""
        held, self._held = self._held, ""
        return (held, "") if self._thinking else ("", held)


def drop_thoughts(said: str) -> str:
    """A whole reply without thoughts that it only closes: its template opened them in the prompt.

    In a reply that is shown as it comes they cannot be told apart before the tag is there.
    """
    thought, closed, answer = said.partition(CLOSING)
    only_closed = closed and OPENING not in thought
    return (answer if only_closed else said).strip()


def _measure_begun_tag(text: str) -> int:
    """How many of the last characters may begin the closing tag."""
    longest = min(len(text), len(CLOSING) - 1)
    return next((n for n in range(longest, 0, -1) if CLOSING.startswith(text[-n:])), 0)


GRACE_SECONDS = 2.0
"""For the closing account after the model said that it is done."""
DRAIN_SECONDS = 0.1
"""For the end of the body after the last event: then its connection can be used again."""
CHARACTERS_PER_TOKEN = 10
"""No tokeniser makes longer tokens on average.

A reply beyond this ignores `max_tokens` and is cut.
"""


class Body(Protocol):
    """What a reply is read from."""

    async def read(self) -> bytes:
        """More of it as soon as it is there; nothing at its end."""
        ...

    def give_up(self) -> None:
        """Let who reads it hear a `TimeoutError`."""
        ...


@dataclass(slots=True)
class ReplyReader:
    """One attempt: what came, and how long to wait for more."""

    endpoint: Endpoint
    options: GenerationOptions
    deadline: float
    thinking_tokens: int = 0
    """What may be thought beside the answer's own limit."""
    started: bool = False
    """Something was shown, so a retry would repeat it."""
    thought: bool = False
    """There was thinking, perhaps without an answer."""
    finish_reason: str = ""
    usage: Usage | None = None
    calls: tuple[ToolCall, ...] = ()
    """Of tools, in a whole reply."""
    _most_said: int = field(init=False)
    _most_characters: int = field(init=False)
    _answered: bool = False
    _alive: bool = False
    _waits_since: float = 0.0
    """When the wait for more began, while one lasts that `watch` ends."""
    _done: bool = False
    _characters: int = 0
    _answer_characters: int = 0
    _begun: float = field(default_factory=time.monotonic)
    _decoder: Decoder = field(default_factory=Decoder)
    _thinking: ThinkingFilter = field(default_factory=ThinkingFilter)
    _thought: TextMender = field(default_factory=TextMender)
    _said: TextMender = field(default_factory=TextMender)

    def __post_init__(self) -> None:
        self._most_said = self.options.max_tokens * CHARACTERS_PER_TOKEN
        self._most_characters = self._most_said + self.thinking_tokens * CHARACTERS_PER_TOKEN

    @property
    def phase(self) -> str:
        """Which limit is running: "total", "idle" or "first_token"."""
        if time.monotonic() >= self.deadline:
            return "total"
        return "idle" if self._alive else "first_token"

    @property
    def patience(self) -> float:
        """Seconds that are left to wait for the next event. Thinking counts as progress."""
        now = time.monotonic()
        if self._done:
            limit = DRAIN_SECONDS
        elif self.finish_reason:
            limit = GRACE_SECONDS
        elif self._alive:
            limit = (self._waits_since or now) + self.endpoint.idle_timeout - now
        else:
            limit = self._begun + self.endpoint.first_token_timeout - now
        return max(0.0, min(limit, self.deadline - now))

    @property
    def too_long(self) -> bool:
        """The server ignores the token limit, or the answer takes what was left for thinking."""
        return self._answer_characters > self._most_said or self._characters > self._most_characters

    @contextmanager
    def watch(self, body: Body) -> Iterator[None]:
        """Give the body up where it is silent for too long: one timer looks after all its parts."""
        loop = asyncio.get_running_loop()
        timer: asyncio.Handle

        def look() -> None:
            nonlocal timer
            left = self.patience
            if self._waits_since and not left:
                body.give_up()
            else:  # with the first word there may be less left than now
                timer = loop.call_later(
                    min(left or DRAIN_SECONDS, self.endpoint.idle_timeout), look
                )

        timer = loop.call_soon(look)
        try:
            yield
        finally:
            timer.cancel()

    async def next_part(self, body: Body) -> bytes:
        """More of the body; nothing at its end. Silence after the finish reason is one as well.

        Raises `TimeoutError` while it is watched.
        """
        if self.finish_reason or self._done:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.patience):
                    return await body.read()
            return b""
        self._waits_since = time.monotonic()
        part = await body.read()
        self._waits_since = 0.0
        return part

    def read_part(self, part: bytes) -> Iterator[Piece]:
        """What these bytes say, in as few pieces as possible."""
        return self._read_events(self._decoder.feed(part))

    def close(self) -> Iterator[Piece]:
        """What is left, then the last piece. Raises when the reply broke off or holds nothing."""
        if not self.too_long:
            yield from self._read_events(self._decoder.close())
            yield from _to_pieces(*self._note(*self._thinking.close()))
        if self.too_long:
            self.finish_reason = "length"
        elif self._done:
            self.finish_reason = self.finish_reason or "stop"
        if not self.finish_reason:
            raise LLMInterrupted("no end") if self.started else LLMServerError("no reply in it")
        if not self._answered and not self.calls:
            reason = self.finish_reason
            raise LLMEmptyAnswer(reason, reason=reason, thought=self.thought)
        yield Piece(usage=self.usage, finish_reason=self.finish_reason)

    def _read_events(self, events: Sequence[bytes]) -> Iterator[Piece]:
        thought, said = "", ""
        failure: LLMError | ValueError | None = None
        for event in events:
            if self._done or self.too_long:
                break
            try:
                more = self._read(event)
            except (LLMError, ValueError) as error:  # what came before it is shown all the same
                failure = error
                break
            thought, said = thought + more[0], said + more[1]
        yield from _to_pieces(thought, said)
        if failure is not None:
            raise failure

    def _read(self, event: bytes) -> tuple[str, str]:
        """The thinking and the answer in an event; events that are neither hold nothing."""
        if event == b"[DONE]":
            self._done = True
            return "", ""
        chunk = parse_chunk(event)
        if wrong := chunk.get("error"):
            raise to_reported_error(wrong, started=self.started, secrets=self.endpoint.secrets)
        if isinstance(usage := chunk.get("usage"), dict):
            asked, said = usage.get("prompt_tokens"), usage.get("completion_tokens")
            self.usage = Usage(_to_count(asked), _to_count(said))
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return "", ""
        self.finish_reason = str(choice.get("finish_reason") or self.finish_reason)
        if isinstance(message := choice.get("message"), dict):  # it was not streamed
            self._done = True
            self.calls = tuple(_find_calls(message.get("tool_calls")))
            return self._add(message)
        delta = choice.get("delta")
        return self._add(delta) if isinstance(delta, dict) else ("", "")

    def _add(self, delta: Mapping[str, Any]) -> tuple[str, str]:
        self._alive = self._alive or any(delta[name] for name in delta if name != "role")
        thought = self._thought.mend(delta.get("reasoning_content") or delta.get("reasoning"))
        said = self._said.mend(delta.get("content"))
        self._characters += len(thought) + len(said)
        if said:
            more, said = self._thinking.feed(said)
            thought += more
        return self._note(thought, said)

    def _note(self, thought: str, said: str) -> tuple[str, str]:
        self.started = self.started or bool(thought or said)
        self.thought = self.thought or bool(thought.strip())  # "<think>\n\n</think>" is none
        self._answered = self._answered or bool(said.strip())
        self._answer_characters += len(said)
        return thought, said


def _to_count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _to_pieces(thought: str, said: str) -> Iterator[Piece]:
    if thought:
        yield Piece(reasoning=thought)
    if said:
        yield Piece(text=said)


def _find_calls(wanted: object) -> Iterator[ToolCall]:
    for call in wanted if isinstance(wanted, list) else ():
        if function := call.get("function"):
            yield _to_call(str(function.get("name") or ""), function.get("arguments"))


def _to_call(name: str, arguments: Any) -> ToolCall:
    """Arguments come as text that should be JSON; some servers send the object itself."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) and arguments else arguments
    except (ValueError, RecursionError) as error:
        return ToolCall(name, error=f"the arguments are not JSON: {type(error).__name__}")
    if given and not isinstance(given, dict):
        return ToolCall(name, error="the arguments are not an object")
    return ToolCall(name, given or {})

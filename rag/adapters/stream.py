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
        self._pending: list[bytes] = []
        self._size = 0
        self._document: bool | None = None

    def feed(self, part: bytes) -> list[bytes]:
        """The events completed by these bytes. Raises `ValueError` if one is too large."""
        if self._document is None and (start := part.lstrip()):
            self._document = start.startswith(b"{")
        self._pending.append(part)
        self._size += len(part)
        if self._size > MAX_EVENT_BYTES:
            raise ValueError("an event without an end")
        if self._document or not (b"\n" in part or b"\r" in part):
            return []
        lines = b"".join(self._pending).splitlines(keepends=True)
        self._pending = [] if lines[-1].endswith((b"\n", b"\r")) else [lines.pop()]
        self._size = sum(map(len, self._pending))
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]

    def close(self) -> list[bytes]:
        """The event that the body ended in, if any."""
        if self._document:
            return [b"".join(self._pending)]
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

    def mend(self, text: object) -> str:
        """The next part; half a pair at its end waits for the other half. No text adds nothing."""
        if not text or not isinstance(text, str):
            return ""
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text.replace("\x00", "")


OPENING = "<think>"
CLOSING = "</think>"


class ThinkingFilter:
    """Separates thinking from the answer in a streamed text, wherever its tags are cut."""

    def __init__(self) -> None:
        self._has_begun = False
        self._is_thinking = False
        self._is_answering = False
        self._pending = ""

    def feed(self, text: str) -> tuple[str, str]:
        """What the next part adds to the thinking and to the answer."""
        if self._is_answering:
            return "", text
        text, self._pending = self._pending + text, ""
        if not self._has_begun:
            bare = text.lstrip()
            if not bare.startswith(OPENING) and OPENING.startswith(bare):
                self._pending = text
                return "", ""
            self._has_begun = True
            self._is_thinking = bare.startswith(OPENING)
            if not self._is_thinking:
                self._is_answering = True
                return "", text
            text = bare.removeprefix(OPENING)
        thought = ""
        if self._is_thinking:
            thought, closed, answer = text.partition(CLOSING)
            if not closed:
                safe_length = len(text) - _measure_begun_tag(text)
                self._pending = text[safe_length:]
                return text[:safe_length], ""
            self._is_thinking, text = False, answer
        text = text.lstrip()  # the blank lines between the thinking and the answer
        self._is_answering = bool(text)
        return thought, text

    def close(self) -> tuple[str, str]:
        """What was held back because it might have become a tag."""
        pending, self._pending = self._pending, ""
        return (pending, "") if self._is_thinking else ("", pending)


def drop_thoughts(reply: str) -> str:
    """A whole reply without thoughts that it only closes: its template opened them in the prompt.

    In a reply that is shown as it comes they cannot be told apart before the tag is there.
    """
    thought, closed, answer = reply.partition(CLOSING)
    only_closed = closed and OPENING not in thought
    return (answer if only_closed else reply).strip()


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
    """The body of a reply."""

    async def read(self) -> bytes:
        """The next bytes as soon as they arrive; empty at the end."""
        ...

    def abort(self) -> None:
        """Make the pending read raise `TimeoutError`."""
        ...


@dataclass(slots=True)
class ReplyReader:
    """Reads the reply to one attempt, and decides how long to wait for more of it."""

    endpoint: Endpoint
    options: GenerationOptions
    deadline: float
    thinking_tokens: int = 0
    """Tokens of thinking that are allowed in addition to the answer's limit."""
    has_output: bool = False
    """Some output has been shown, which a retry would repeat."""
    has_thought: bool = False
    """There has been thinking, perhaps without an answer."""
    finish_reason: str = ""
    usage: Usage | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of tools, only in replies that are not streamed."""
    _max_answer_characters: int = field(init=False)
    _max_characters: int = field(init=False)
    _has_answered: bool = False
    _has_received: bool = False
    _waiting_since: float = 0.0
    """When the current wait for more began, which `watch` may end; 0 without one."""
    _is_done: bool = False
    _characters: int = 0
    _answer_characters: int = 0
    _began_at: float = field(default_factory=time.monotonic)
    _decoder: Decoder = field(default_factory=Decoder)
    _thinking_filter: ThinkingFilter = field(default_factory=ThinkingFilter)
    _thought_mender: TextMender = field(default_factory=TextMender)
    _answer_mender: TextMender = field(default_factory=TextMender)

    def __post_init__(self) -> None:
        self._max_answer_characters = self.options.max_tokens * CHARACTERS_PER_TOKEN
        self._max_characters = (
            self._max_answer_characters + self.thinking_tokens * CHARACTERS_PER_TOKEN
        )

    @property
    def phase(self) -> str:
        """The limit that applies now: "total", "idle" or "first_token"."""
        if time.monotonic() >= self.deadline:
            return "total"
        return "idle" if self._has_received else "first_token"

    @property
    def seconds_left(self) -> float:
        """Seconds left to wait for the next event. Thinking counts as progress."""
        now = time.monotonic()
        if self._is_done:
            limit = DRAIN_SECONDS
        elif self.finish_reason:
            limit = GRACE_SECONDS
        elif self._has_received:
            limit = (self._waiting_since or now) + self.endpoint.idle_timeout - now
        else:
            limit = self._began_at + self.endpoint.first_token_timeout - now
        return max(0.0, min(limit, self.deadline - now))

    @property
    def is_too_long(self) -> bool:
        """Whether the server ignores the token limit, or the answer uses the room for thinking."""
        return (
            self._answer_characters > self._max_answer_characters
            or self._characters > self._max_characters
        )

    @contextmanager
    def watch(self, body: Body) -> Iterator[None]:
        """Abort the body when it is silent for too long; one timer serves all its parts."""
        loop = asyncio.get_running_loop()
        timer: asyncio.Handle

        def check_silence() -> None:
            nonlocal timer
            left = self.seconds_left
            if self._waiting_since and not left:
                body.abort()
            else:  # once the first word arrives, there may be less time left than now
                timer = loop.call_later(
                    min(left or DRAIN_SECONDS, self.endpoint.idle_timeout), check_silence
                )

        timer = loop.call_soon(check_silence)
        try:
            yield
        finally:
            timer.cancel()

    async def read_next_part(self, body: Body) -> bytes:
        """The next part of the body; empty at its end, and if silence follows the finish reason.

        Raises `TimeoutError` if it is watched.
        """
        if self.finish_reason or self._is_done:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.seconds_left):
                    return await body.read()
            return b""
        self._waiting_since = time.monotonic()
        part = await body.read()
        self._waiting_since = 0.0
        return part

    def parse_part(self, part: bytes) -> Iterator[Piece]:
        """The pieces in these bytes, as few as possible."""
        return self._read_events(self._decoder.feed(part))

    def close(self) -> Iterator[Piece]:
        """The remaining pieces, then the last one. Raises if the reply broke off or is empty."""
        if not self.is_too_long:
            yield from self._read_events(self._decoder.close())
            yield from _to_pieces(*self._note(*self._thinking_filter.close()))
        if self.is_too_long:
            self.finish_reason = "length"
        elif self._is_done:
            self.finish_reason = self.finish_reason or "stop"
        if not self.finish_reason:
            raise LLMInterrupted("no end") if self.has_output else LLMServerError("no reply in it")
        if not self._has_answered and not self.tool_calls:
            reason = self.finish_reason
            raise LLMEmptyAnswer(reason, reason=reason, thought=self.has_thought)
        yield Piece(usage=self.usage, finish_reason=self.finish_reason)

    def _read_events(self, events: Sequence[bytes]) -> Iterator[Piece]:
        thought, answer = "", ""
        failure: LLMError | ValueError | None = None
        for event in events:
            if self._is_done or self.is_too_long:
                break
            try:
                more = self._read(event)
            except (LLMError, ValueError) as error:  # what came before is still shown
                failure = error
                break
            thought, answer = thought + more[0], answer + more[1]
        yield from _to_pieces(thought, answer)
        if failure is not None:
            raise failure

    def _read(self, event: bytes) -> tuple[str, str]:
        """The thinking and the answer in an event; empty for other events."""
        if event == b"[DONE]":
            self._is_done = True
            return "", ""
        chunk = parse_chunk(event)
        if reported := chunk.get("error"):
            raise to_reported_error(
                reported, started=self.has_output, secrets=self.endpoint.secrets
            )
        if isinstance(usage := chunk.get("usage"), dict):
            prompt_tokens, completion_tokens = (
                usage.get("prompt_tokens"),
                usage.get("completion_tokens"),
            )
            self.usage = Usage(_to_count(prompt_tokens), _to_count(completion_tokens))
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return "", ""
        self.finish_reason = str(choice.get("finish_reason") or self.finish_reason)
        if isinstance(message := choice.get("message"), dict):  # it was not streamed
            self._is_done = True
            self.tool_calls = tuple(_find_calls(message.get("tool_calls")))
            return self._add(message)
        delta = choice.get("delta")
        return self._add(delta) if isinstance(delta, dict) else ("", "")

    def _add(self, delta: Mapping[str, Any]) -> tuple[str, str]:
        self._has_received = self._has_received or any(
            delta[name] for name in delta if name != "role"
        )
        thought = self._thought_mender.mend(
            delta.get("reasoning_content") or delta.get("reasoning")
        )
        answer = self._answer_mender.mend(delta.get("content"))
        self._characters += len(thought) + len(answer)
        if answer:
            more, answer = self._thinking_filter.feed(answer)
            thought += more
        return self._note(thought, answer)

    def _note(self, thought: str, answer: str) -> tuple[str, str]:
        self.has_output = self.has_output or bool(thought or answer)
        # "<think>\n\n</think>" is no thinking
        self.has_thought = self.has_thought or bool(thought.strip())
        self._has_answered = self._has_answered or bool(answer.strip())
        self._answer_characters += len(answer)
        return thought, answer


def _to_count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _to_pieces(thought: str, answer: str) -> Iterator[Piece]:
    if thought:
        yield Piece(reasoning=thought)
    if answer:
        yield Piece(text=answer)


def _find_calls(calls: object) -> Iterator[ToolCall]:
    for call in calls if isinstance(calls, list) else ():
        if function := call.get("function"):
            yield _to_call(str(function.get("name") or ""), function.get("arguments"))


def _to_call(name: str, arguments: Any) -> ToolCall:
    """Arguments come as text that should be JSON; some servers send the object itself."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) and arguments else arguments
    except (ValueError, RecursionError) as error:
        return ToolCall(name, error=f"the arguments are not JSON: {type(error).__name__}")
    if value and not isinstance(value, dict):
        return ToolCall(name, error="the arguments are not an object")
    return ToolCall(name, value or {})

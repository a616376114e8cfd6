"""Chat models behind an OpenAI-compatible endpoint: OpenAI, vLLM, Ollama, llama.cpp and others."""

import asyncio
import base64
import math
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from rag import prompts
from rag.adapters.endpoint import choose_retry_pause, get_breaker, post_chat, to_llm_error
from rag.adapters.stream import CHARACTERS_PER_TOKEN, ReplyReader, drop_thoughts
from rag.config import Endpoint
from rag.errors import LLMEmptyAnswer, LLMError, LLMRejected, LLMTimeout, LLMUnavailable
from rag.ports import Choice, GenerationOptions, Piece, Tool
from rag.tokenize.text import neutralise_text
from rag.types import HistoryMessage

THINKING_TOKENS = 4000
"""What a model that thinks may think beside the tokens of its answer.

Qwen3 and gpt-oss think some hundred to three thousand tokens on a question about a few passages.
"""


class OpenAILLM:
    """Streams replies, and asks for tool calls.

    Retries refused connections, 429 and 5xx before the first word, nothing after it. A reply that
    is all thinking is asked for once more, without.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = endpoint.model

    def stream(
        self, turns: Sequence[HistoryMessage], options: GenerationOptions
    ) -> AsyncGenerator[Piece, None]:
        """The reply; its last piece holds usage and `finish_reason`.

        Raises `LLMError` and nothing else.
        """
        usage = {"stream_options": {"include_usage": True}}
        return _Call(self._endpoint, options).stream_pieces(
            _to_messages(turns), stream=True, **usage
        )

    async def choose(self, turns: Sequence[HistoryMessage], tools: Sequence[Tool]) -> Choice:
        """The reply as a whole, with the tools that the model wants called.

        Raises `LLMError` and nothing else: `LLMRejected` from a server that knows no tools.
        """
        tool_specs = [_to_wire(tool) for tool in tools]
        return await self.complete(_to_messages(turns), GenerationOptions(), tools=tool_specs)

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], options: GenerationOptions, **extra: Any
    ) -> Choice:
        """The reply as a whole to messages in the form of the wire.

        Raises `LLMError` and nothing else.
        """
        call = _Call(self._endpoint, options, patient=True)
        texts = [piece.text async for piece in call.stream_pieces(messages, **extra)]
        is_cut = call.reader.finish_reason == "length"
        return Choice(drop_thoughts("".join(texts)), call.reader.tool_calls, cut=is_cut)


class OpenAIVision:
    """Reads pictures: asks a model such as Qwen3-VL for all that a picture says."""

    def __init__(self, endpoint: Endpoint, max_tokens: int) -> None:
        self._model = OpenAILLM(endpoint)
        self._options = GenerationOptions(max_tokens=max_tokens)
        self.name = endpoint.model

    async def describe(self, picture: bytes, content_type: str, language: str) -> str:
        """What stands in the picture, "" where it says nothing.

        The text is neutralised: a picture gives no orders to other models. Retries refused
        connections, 429 and 5xx. Raises `LLMError` and nothing else.
        """
        address = f"data:{content_type};base64,{base64.b64encode(picture).decode()}"
        image = {"type": "image_url", "image_url": {"url": address}}
        question = {"type": "text", "text": prompts.load_prompt("vision_question", language)}
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": prompts.load_prompt("vision", language)},
            {"role": "user", "content": [image, question]},
        ]
        try:
            reply = await self._model.complete(messages, self._options)
        except LLMEmptyAnswer as error:
            if error.params.get("reason") == "stop":
                return ""
            raise
        max_characters = self._options.max_tokens * CHARACTERS_PER_TOKEN
        text = neutralise_text(reply.text[:max_characters]).strip()
        if _NOTHING.fullmatch(text):
            return ""
        return f"{text} …" if reply.cut else text


_NOTHING = re.compile(r"\W*(?:NOTHING|없음)\W*", re.IGNORECASE)
"""What the prompt asks for where a picture says nothing."""


class _Call:
    """One call with all its tries; `reader` is what read the last one.

    A `patient` one waits for the first token as long as for the whole reply.
    """

    def __init__(
        self, endpoint: Endpoint, options: GenerationOptions, *, patient: bool = False
    ) -> None:
        self._endpoint = endpoint
        no_limit = math.inf
        self._limits = (
            replace(endpoint, first_token_timeout=no_limit, idle_timeout=no_limit)
            if patient
            else endpoint
        )
        self._options = options
        self._deadline = time.monotonic() + endpoint.total_timeout
        self._breaker = get_breaker(endpoint)
        self._dialect = get_dialect(endpoint)
        self._tries = 0
        self._thinks_no_more = False
        self.reader = self._make_reader()

    async def stream_pieces(
        self, messages: Sequence[Mapping[str, Any]], **extra: Any
    ) -> AsyncGenerator[Piece, None]:
        """What the reply says; a try that showed nothing may be followed by another."""
        while True:
            self.reader = self._make_reader()
            has_begun = False
            try:
                self._breaker.raise_if_open()
                async with aclosing(self._try_once(messages, extra)) as pieces:
                    async for piece in pieces:
                        if not has_begun:
                            has_begun = True
                            self._breaker.note_success()
                        yield piece
            except LLMError as error:
                if not await self._wait_for_another_try(error):
                    raise
            else:
                self._dialect.note_thoughts(self._options, thought=self.reader.has_thought)
                return

    def _make_reader(self) -> ReplyReader:
        thinking = self._dialect.count_thinking_tokens(self._options)
        room = THINKING_TOKENS if self._thinks_no_more else thinking
        return ReplyReader(self._limits, self._options, self._deadline, room)

    async def _try_once(
        self, messages: Sequence[Mapping[str, Any]], extra: Mapping[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        """One attempt. Reads the body itself: see `rag.adapters.stream`."""
        reader = self.reader
        request = self._dialect.build_request(
            messages, self._options, reader.thinking_tokens, **extra
        )
        async with AsyncExitStack() as connection:
            try:
                async with asyncio.timeout(reader.seconds_left):
                    body = await connection.enter_async_context(post_chat(self._endpoint, request))
                connection.enter_context(reader.watch(body))
                while not reader.is_too_long and (part := await reader.read_next_part(body)):
                    for piece in reader.parse_part(part):
                        yield piece
                for piece in reader.close():
                    yield piece
            except LLMError:
                raise
            except TimeoutError:
                raise LLMTimeout(reader.phase, phase=reader.phase) from None
            except Exception as error:  # noqa: BLE001 - whatever it is, callers get LLMError
                secrets = self._endpoint.secrets
                raise to_llm_error(error, started=reader.has_output, secrets=secrets) from None

    async def _wait_for_another_try(self, error: LLMError) -> bool:
        """Whether the call goes on after this; waits for the pause before it.

        Tells the breaker of failures.
        """
        self._tries += 1
        if not self._thinks_no_more and _is_all_thinking(error):
            self._dialect.note_thoughts(self._options, thought=True)
            self._thinks_no_more = True
            self._options = replace(self._options, thinking=False)
            return True
        if self.reader.has_output or isinstance(error, LLMUnavailable):
            return False
        self._breaker.note_failure(error)
        if isinstance(error, LLMRejected) and self._dialect.adapt(str(error), self._options):
            return True
        pause = None if self._breaker.is_shut else choose_retry_pause(error, self._tries)
        if pause is None or time.monotonic() + pause >= self._deadline:
            return False
        await asyncio.sleep(pause)
        return True


PARAMETERS = ("max_tokens", "temperature", "stream_options", "stop", "seed")
"""Parameters that a server or a model may refuse; a reply without them is better than none."""
LEAST_EFFORTS = ("none", "minimal", "low")
"""How little thinking OpenAI's models, Ollama's and vLLM's can be asked for, the least first."""
_NAMED: Mapping[str, re.Pattern[str]] = {
    "response_format": re.compile(
        r"response_format|json_(?:schema|object)|structured.?outputs?|guided|grammar|schema",
        re.IGNORECASE,
    ),
    "chat_template_kwargs": re.compile(r"chat_template_kwargs|enable_thinking", re.IGNORECASE),
    "reasoning_effort": re.compile(r"reasoning|\bthink(?:ing)?\b", re.IGNORECASE),
}
"""How servers name what they refuse; the first that fits counts."""


@dataclass(slots=True)
class Dialect:
    """What a model at a server takes of a request: learned from what it refused, for the process.

    `effort` is the least that it takes as `reasoning_effort`. `thinks_anyway`: it thought though it
    was asked not to, so that its replies need room for that.
    """

    model: str
    refused: set[str] = field(default_factory=set)
    effort: str = LEAST_EFFORTS[0]
    thinks_anyway: bool = False

    def build_request(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerationOptions,
        thinking_tokens: int,
        **extra: Any,
    ) -> dict[str, Any]:
        """The JSON of the request for a call."""
        limit = "max_completion_tokens" if "max_tokens" in self.refused else "max_tokens"
        request: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            limit: options.max_tokens + thinking_tokens,
            "temperature": options.temperature,
            "stop": list(options.stop) or None,
            "seed": options.seed,
            "response_format": self._build_response_format(options.schema),
            "reasoning_effort": "medium" if options.thinking else self.effort,
            **extra,
        }
        template = {"chat_template_kwargs": {"enable_thinking": options.thinking}}
        return {
            name: value
            for name, value in request.items()
            if value is not None and name not in self.refused
        } | ({} if "chat_template_kwargs" in self.refused else template)

    def count_thinking_tokens(self, options: GenerationOptions) -> int:
        """What the limit of tokens is raised by, as thoughts count in it."""
        return THINKING_TOKENS if options.thinking or self.thinks_anyway else 0

    def note_thoughts(self, options: GenerationOptions, *, thought: bool) -> None:
        """Whether a reply with these options held thinking."""
        self.thinks_anyway = self.thinks_anyway or (thought and not options.thinking)

    def adapt(self, refusal: str, options: GenerationOptions) -> bool:
        """Leave out, or say otherwise, what the refusal of a call names. True: that may help."""
        before = (set(self.refused), self.effort)
        refusal = refusal.replace(self.model, "")  # "deepseek-reasoner does not exist"
        sent_parameters = (
            set(_NAMED) - self.refused - (set() if options.schema else {"response_format"})
        )
        self.refused |= {name for name in PARAMETERS if re.search(rf"\b{name}\b", refusal)}
        refused_names = (
            name
            for name, shape in _NAMED.items()
            if name in sent_parameters and shape.search(refusal)
        )
        refused_name = next(refused_names, "")
        if refused_name == "response_format" and "json_schema" not in self.refused:
            self.refused.add("json_schema")
        elif refused_name == "reasoning_effort" and (lower := self._find_efforts(refusal)):
            self.effort = lower[0]
        elif refused_name:
            self.refused.add(refused_name)
        return before != (self.refused, self.effort)

    def _find_efforts(self, refusal: str) -> list[str]:
        """The next efforts that the refusal says would do."""
        later = LEAST_EFFORTS[LEAST_EFFORTS.index(self.effort) + 1 :]
        return [effort for effort in later if re.search(rf"['\"`]{effort}['\"`]", refusal)]

    def _build_response_format(self, schema: Mapping[str, object] | None) -> dict[str, Any] | None:
        """How the reply's JSON schema is asked for: by itself, or as any JSON."""
        if schema is None:
            return None
        if "json_schema" in self.refused:
            return {"type": "json_object"}
        name = re.sub(r"\W+", "_", str(schema.get("title", "reply")))
        spec = {"name": name, "schema": schema, "strict": True}
        return {"type": "json_schema", "json_schema": spec}


_dialects: dict[tuple[str, str], Dialect] = {}


def get_dialect(endpoint: Endpoint) -> Dialect:
    """What is known of an endpoint's model, one in a process."""
    key = (endpoint.base_url.rstrip("/"), endpoint.model)
    if key not in _dialects:
        # gpt-oss knows low, medium and high alone, and servers differ in refusing others
        effort = LEAST_EFFORTS[-1 if "gpt-oss" in endpoint.model.casefold() else 0]
        _dialects[key] = Dialect(endpoint.model, effort=effort)
    return _dialects[key]


def reset_dialects() -> None:
    """Nothing is known of any endpoint."""
    _dialects.clear()


def _is_all_thinking(error: LLMError) -> bool:
    """Whether a reply ended before its answer, in thoughts that were shown or only counted."""
    if not isinstance(error, LLMEmptyAnswer):
        return False
    return bool(error.params.get("thought")) or error.params.get("reason") == "length"


def _to_messages(turns: Sequence[HistoryMessage]) -> list[dict[str, str]]:
    return [{"role": turn.role.value, "content": turn.content} for turn in turns]


def _to_wire(tool: Tool) -> dict[str, object]:
    """A tool in a request."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters or {"type": "object", "properties": {}}),
    }
    return {"type": "function", "function": function}

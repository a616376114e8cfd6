"""What chat models are asked while a question is answered: kept at the port, passed on as it is."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from rag.context.tokens import MESSAGE_TOKENS, get_counter
from rag.ports import LLM, Choice, GenerationOptions, Piece, Tool, ToolCaller, Usage
from rag.types import HistoryMessage


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a chat model and what came of it. `milliseconds` to the end of the reply."""

    model: str
    messages: tuple[HistoryMessage, ...]
    reply: str
    usage: Usage
    milliseconds: float


@dataclass(slots=True)
class Recorder:
    """Keeps the calls to the models that it wraps, in the order in which they began."""

    calls: list[Call] = field(default_factory=list)

    def wrap(self, model: LLM) -> LLM:
        """The model, recorded; one that can call tools still can."""
        return (
            _RecordedCaller(model, self)
            if isinstance(model, ToolCaller)
            else _Recorded(model, self)
        )

    def begin(self, model: str, messages: Sequence[HistoryMessage]) -> int:
        """The place of a call that begins now: it counts even if it fails."""
        counted = sum(get_counter(model).count(one.content) + MESSAGE_TOKENS for one in messages)
        usage = Usage(counted, 0, estimated=True)
        self.calls.append(Call(model, tuple(messages), "", usage, 0.0))
        return len(self.calls) - 1

    def end(self, place: int, reply: str, usage: Usage | None, milliseconds: float) -> None:
        """Complete a call; tokens that no server counted are counted here."""
        call = self.calls[place]
        written = Usage(
            call.usage.prompt_tokens, get_counter(call.model).count(reply), estimated=True
        )
        self.calls[place] = replace(
            call, reply=reply, usage=usage or written, milliseconds=milliseconds
        )


class _Recorded:
    """Implements `rag.ports.LLM`."""

    def __init__(self, model: LLM, recorder: Recorder) -> None:
        self._model = model
        self._recorder = recorder

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(
        self, turns: Sequence[HistoryMessage], options: GenerationOptions
    ) -> AsyncGenerator[Piece, None]:
        begun, place = time.perf_counter(), self._recorder.begin(self.name, turns)
        said: list[str] = []
        usage: Usage | None = None
        try:
            async with aclosing(self._model.stream(turns, options)) as pieces:
                async for piece in pieces:
                    said.append(piece.text)
                    usage = piece.usage or usage
                    yield piece
        finally:
            self._recorder.end(place, "".join(said), usage, _milliseconds_since(begun))


class _RecordedCaller(_Recorded):
    """Implements `rag.ports.ToolCaller`, too."""

    async def choose(self, turns: Sequence[HistoryMessage], tools: Sequence[Tool]) -> Choice:
        begun, place = time.perf_counter(), self._recorder.begin(self.name, turns)
        text = ""
        try:
            choice = await self._model.choose(turns, tools)  # type: ignore[attr-defined]
            text = choice.text
        finally:
            self._recorder.end(place, text, None, _milliseconds_since(begun))
        return choice  # type: ignore[no-any-return]


def _milliseconds_since(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 2)

"""Looks through a long conversation for what a question needs, within hard budgets.

Driven by a model's tool calls where there is a model that can, else by a fixed order of steps.
Nothing but what was found goes on from here (after the "Recursive Language Models" of Zhang and
Khattab, 2025: the context is an environment, not a prompt).
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rag import prompts
from rag.config import ContextRules
from rag.conversation import Turn
from rag.errors import LLMError
from rag.generation import recalled
from rag.history import environment, recall, select
from rag.history.environment import Environment, Result
from rag.history.said import cut
from rag.language import reply_language
from rag.llms.light import Light
from rag.neutral import neutralise
from rag.ports import ToolCaller
from rag.progress import since
from rag.tools import ToolCall
from rag.types import HistoryMessage, Role

NOTE = 500
"""Characters of one finding."""
NOTES = 8
TURNS = 3
"""Opened turns that are handed over, the last ones."""
FRESH = 2
"""Results that the model sees whole; of older ones the beginning."""
STALE = 160
STEPS = 12
"""Older steps that the model is reminded of."""
SUBCALL = 6000
"""Characters of a text that a sub-call reads."""
SUBCALL_TOKENS = 300
CHARACTERS_PER_TOKEN = 2.5
KEPT_ARGUMENT = 200


@dataclass(frozen=True, slots=True)
class Step:
    """A tool that was called, for the trace. `size`: characters it gave; time in ms."""

    tool: str
    arguments: Mapping[str, str]
    size: int
    ms: float
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Findings:
    """What an exploration hands over.

    `stopped` says why it ended: "found", "done" (the model was), "nothing", "off", or the budget
    that was spent: "calls", "tokens", "seconds". `failure` is the code of the error for which the
    model's lead was done without.
    """

    turns: tuple[Turn, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    stopped: str = ""
    failure: str = ""


def about(text: str) -> int:
    """About how many tokens a text has."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


async def explore(  # noqa: PLR0913 - what is explored, by whom, within what
    question: str,
    place: Environment,
    *,
    caller: ToolCaller | None,
    light: Light | None,
    rules: ContextRules,
    count: Callable[[str], int] = about,
) -> Findings:
    """Explore for a question. Raises nothing that a model or a store can do.

    `light` answers sub-calls; without it there are none. `count` gives the tokens of a text.
    """
    walk = _Walk(question, place, light, rules, count)
    if rules.explore_calls <= 0:
        return Findings(stopped="off")
    failure = ""
    if caller is not None:
        try:
            return walk.findings(await walk.led_by(caller))
        except LLMError as error:
            failure = error.code
    return walk.findings(await walk.fixed(), failure)


@dataclass(slots=True)
class _Walk:
    """One exploration: what it spent and what it has."""

    question: str
    place: Environment
    light: Light | None
    rules: ContextRules
    count: Callable[[str], int]
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    tokens: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def language(self) -> str:
        """Of the question."""
        return reply_language(self.question)

    @property
    def left(self) -> float:
        """Seconds."""
        return self.rules.explore_seconds - (time.monotonic() - self.started)

    def spent(self) -> str:
        """The budget that is spent; empty while there is some of all."""
        if len(self.steps) >= self.rules.explore_calls:
            return "calls"
        if self.tokens >= self.rules.explore_tokens:
            return "tokens"
        return "" if self.left > 0 else "seconds"

    def findings(self, stopped: str, failure: str = "") -> Findings:
        """What there is by now."""
        turns = list(self.place.opened.values())[-TURNS:]
        return Findings(
            turns=tuple(sorted(turns, key=lambda turn: turn.number)),
            notes=tuple(self.notes[:NOTES]),
            steps=tuple(self.steps),
            stopped=stopped,
            failure=failure,
        )

    def note(self, text: str) -> None:
        """Keep a finding."""
        if (line := cut(" ".join(neutralise(text).split()), NOTE)) and line not in self.notes:
            self.notes.append(line)

    async def led_by(self, caller: ToolCaller) -> str:
        """Let the model choose the steps; why it ended. Raises `LLMError`."""
        offered = environment.tools(self.language, subcalls=self.light is not None)
        while not (spent := self.spent()):
            messages = self._messages()
            self.tokens += sum(self.count(message.content) for message in messages)
            if self.tokens > self.rules.explore_tokens:
                return "tokens"
            try:
                async with asyncio.timeout(self.left):
                    choice = await caller.choose(messages, offered)
            except TimeoutError:
                return "seconds"
            self.tokens += self.count(choice.text)
            if not choice.calls:
                self.note(choice.text)
                return "done"
            for call in choice.calls:
                if spent := self.spent():
                    return spent
                await self.step(call)
        return spent

    async def fixed(self) -> str:
        """Turns on the question, then their documents; why it ended."""
        numbers = await self._turns()
        for number in numbers:
            if not await self._call("get_turn", number=number):
                return self.spent()
        turns = [self.place.opened[one] for one in numbers if one in self.place.opened]
        for quote in await asyncio.to_thread(recalled.quoted, self.question, turns):
            self.note(f"{quote.number}: {quote.text}")
        if self.notes:
            return "found"
        for number in numbers:
            if not await self._call("get_turn_docs", number=number):
                return self.spent()
        query = recall.subject(self.question) or self.question
        if self.place.documents and not await self._call("search_chunks", query=query):
            return self.spent()
        for hit in self.place.hits:
            self.note(environment.passage(hit, NOTE))
        return "found" if self.notes else "nothing"

    async def step(self, call: ToolCall) -> Result:
        """One call, bounded in time, noted, and its result kept for the model."""
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(max(0.0, self.left)):
                result = await self._result(call)
        except TimeoutError:
            result = Result("The time is over.", failed=True)
        self.tokens += self.count(result.text)
        told = {name: str(value)[:KEPT_ARGUMENT] for name, value in call.arguments.items()}
        step = Step(call.name[:40], told, len(result.text), since(begun), result.failed)
        self.steps.append(step)
        shown = ", ".join(f"{name}={value}" for name, value in told.items())
        self.results.append(f"{step.tool}({shown})\n{result.text}")
        return result

    async def _result(self, call: ToolCall) -> Result:
        if call.error:
            return Result(f"Bad arguments: {call.error[:200]}", failed=True)
        if call.name == "note":
            self.note(str(call.arguments.get("text", "")))
            return Result("Noted.")
        if call.name == "subcall" and self.light is not None:
            return await self._asked(self.light, call.arguments)
        return await asyncio.to_thread(self.place.run, call.name, call.arguments)

    async def _asked(self, light: Light, arguments: Mapping[str, object]) -> Result:
        """A question on one text, put to the light model alone."""
        text = neutralise(str(arguments.get("text", ""))[:SUBCALL])
        asked = neutralise(str(arguments.get("question", ""))[:NOTE])
        self.tokens += self.count(text) + self.count(asked)
        if self.tokens > self.rules.explore_tokens:
            return Result("The budget is spent.", failed=True)
        user = prompts.fill("explore_subcall_text", self.language, text=text, question=asked)
        system = prompts.text("explore_subcall", self.language)
        try:
            return Result(await light.say(system, user, max_tokens=SUBCALL_TOKENS))
        except LLMError as error:
            return Result(f"The sub-call failed: {error.code}", failed=True)

    async def _call(self, name: str, **arguments: object) -> bool:
        """One step of the fixed order; False when no budget is left for it."""
        if self.spent():
            return False
        await self.step(ToolCall(name, arguments))
        return True

    async def _turns(self) -> list[int]:
        """The turns that the question names or that bear on it."""
        if named := recall.place(self.question):
            return [named]
        query = recall.subject(self.question) or self.question
        await self._call("search_turns", query=query)
        return [
            one.line.number
            for one in self.place.found[:TURNS]
            if one.coverage >= select.COVERED or one.cosine >= select.NEAR
        ]

    def _messages(self) -> Sequence[HistoryMessage]:
        """The task, what was noted, and the latest results: bounded, however long it goes on."""
        older = (cut(" ".join(one.split()), STALE) for one in self.results[:-FRESH][-STEPS:])
        user = prompts.fill(
            "explore_state",
            self.language,
            question=neutralise(self.question),
            notes="\n".join(f"- {note}" for note in self.notes) or "-",
            steps="\n".join(older) or "-",
            results="\n\n".join(self.results[-FRESH:]) or "-",
        )
        system = prompts.text("explore", self.language)
        return [HistoryMessage(Role.SYSTEM, system), HistoryMessage(Role.USER, user)]

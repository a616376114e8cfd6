"""Searches a long conversation for what a question needs, within hard budgets.

The conversation and its documents are an environment that is read piece by piece and never as a
whole (after the "Recursive Language Models" of Zhang and Khattab, 2025): first in a fixed order of
steps; if these find nothing, by a model's tool calls. Only what was found is passed on. Every tool
returns bounded text, even for arguments that make no sense.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated
from uuid import UUID

import structlog
from pydantic import Field, StringConstraints, TypeAdapter, ValidationError
from pydantic import validate_call as check_arguments

from rag import prompts
from rag.adapters.light import Light
from rag.config import ContextRules
from rag.conversation import PastTurn
from rag.errors import LLMError, NuraError
from rag.events import measure_milliseconds_since
from rag.generate.offline import quote_turns
from rag.lexicon import load_patterns
from rag.memory import recall
from rag.memory.recall import MAX_LISTED_CHARACTERS, FoundTurn, RecallResult
from rag.memory.summary import to_one_line
from rag.ports import HistoryStore, PassageStore, Tool, ToolCall, ToolCaller
from rag.retrieve.search import Searcher, SearchOptions
from rag.tokenize.text import choose_reply_language, neutralise_text
from rag.types import HistoryMessage, QuestionType, Scope, ScopeReason, Speaker
from rag.understand.analysis import QuestionAnalysis

logger = structlog.get_logger()

TOOLS = ("list_turns", "search_turns", "get_turn", "search_chunks", "peek", "subcall", "note")
"""Methods of `Explorer`; the prompt "explore_tools" describes them to the model."""
MAX_LISTED_TURNS = 20
MAX_FOUND_TURNS = 8
MAX_PART_CHARACTERS = 1500
"""Of a turn, in one call."""
MAX_PEEK_CHARACTERS = 2000
MAX_CHUNKS = 4
MAX_CHUNK_CHARACTERS = 600
MAX_DOCUMENTS = 50
MAX_FINDING_CHARACTERS = 500
MAX_FINDINGS = 8
MAX_TURNS = 3
"""Opened turns that are passed on, the latest ones."""
MAX_FRESH_RESULTS = 2
"""Latest results that the model sees in full; older ones are cut."""
MAX_STALE_CHARACTERS = 100
MAX_SUBCALL_CHARACTERS = 6000
"""Of a text that a sub-call reads."""
SUBCALL_TOKENS = 300
MAX_ARGUMENT_CHARACTERS = 200


Number = Annotated[int, Field(ge=1, le=10**9)]
Offset = Annotated[int, Field(ge=0, le=10**9)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Query = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class BadArguments(ValueError):
    """A tool was called with arguments that it cannot use."""


@dataclass(slots=True)
class Explorer:
    """One exploration of all turns from number `since` on.

    Turns from `before` on are in the prompt anyway and are not passed on. `caller` chooses the
    steps and `light` answers sub-calls, if they are not None. `count` counts the tokens of a text.
    """

    question: str
    history: HistoryStore
    store: PassageStore
    searcher: Searcher
    rules: ContextRules
    count: Callable[[str], int]
    caller: ToolCaller | None = None
    light: Light | None = None
    since: int = 1
    before: int | None = None
    opened: dict[int, PastTurn] = field(default_factory=dict)
    found: list[FoundTurn] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: list[dict[str, object]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    tokens: int = 0
    model_calls: int = 0

    async def explore(self) -> RecallResult:
        """Explore, first without a model; if that finds nothing, let `caller` choose the steps.

        What is found before a budget is spent or a model fails counts. The trace has every step,
        the number of model calls, and why it `stopped`: "found" (without a model), "done" (the
        model has finished), "nothing", or the budget that was spent: "calls", "tokens", "seconds".
        """
        await self._follow_rules()
        stopped, failure = "found", ""
        if self.caller and self.rules.explore_calls > 0 and not self._has_found():
            try:
                async with asyncio.timeout(self.rules.explore_seconds):
                    stopped = await self._follow_model(self.caller)
            except TimeoutError:
                stopped = "seconds"
            except LLMError as error:
                failure = error.code
            if not self._has_found():  # turns were found, but no call was left to open them
                await self._open_related()
        older = [turn for turn in self.opened.values() if not self._is_shown(turn.number)]
        turns = tuple(sorted(older[-MAX_TURNS:], key=lambda turn: turn.number))
        trace = {
            "steps": self.steps,
            "stopped": stopped if self._has_found() else "nothing",
            "failure": failure,
            "turns": [turn.number for turn in turns],
            "model_calls": self.model_calls,
        }
        return RecallResult(turns, tuple(self.notes[:MAX_FINDINGS]), {"exploration": trace})

    async def _follow_rules(self) -> None:
        """Open turns related to the question and note what they say, or else their documents."""
        query = recall.strip_recall_frame(self.question) or self.question
        if number := recall.find_turn_number(self.question):
            await self._call_tool("get_turn", number=number)
        else:
            await self._call_tool("search_turns", query=query)
            await self._open_related()
        opened = list(self.opened.values())
        quotes = await asyncio.to_thread(quote_turns, self.question, opened)
        for quote in quotes:
            if not self._is_shown(quote.number):
                self.note(f"{quote.number}: {quote.text}")
        if not quotes and any(turn.doc_refs for turn in opened):
            passages = await self._call_tool("search_chunks", query=query)
            self.notes += [
                to_one_line(line, MAX_FINDING_CHARACTERS) for line in passages.splitlines()
            ]

    async def _follow_model(self, caller: ToolCaller) -> str:
        """Let the model choose the steps; returns why it ended. Raises `LLMError`."""
        await self._call_tool("list_turns")  # so that the first choice can open one
        last, tools = len(self.steps) + self.rules.explore_calls, self._list_tools()
        while len(self.steps) < last and self.model_calls < self.rules.explore_calls:
            messages = self._render_state()
            if not self._spend_tokens(message.content for message in messages):
                return "tokens"
            self.model_calls += 1
            choice = await caller.choose(messages, tools)
            if not choice.calls:
                self.note(choice.text)
                return "done"
            for call in choice.calls[: last - len(self.steps)]:
                await self._run_and_record(call)
        return "calls"

    def _render_state(self) -> list[HistoryMessage]:
        """The task, the notes and the latest results, bounded however many steps there were."""
        language = choose_reply_language(self.question)
        stale, fresh = self.results[:-MAX_FRESH_RESULTS], self.results[-MAX_FRESH_RESULTS:]
        older = [to_one_line(result, MAX_STALE_CHARACTERS) for result in stale]
        user = prompts.fill_prompt(
            "explore_state",
            language,
            question=neutralise_text(self.question),
            notes="\n".join(f"- {note}" for note in self.notes) or "-",
            results="\n\n".join([*older, *fresh]),
        )
        system = prompts.load_prompt("explore", language)
        return [HistoryMessage(Speaker.SYSTEM, system), HistoryMessage(Speaker.USER, user)]

    def _list_tools(self) -> list[Tool]:
        lines = prompts.load_prompt(
            "explore_tools", choose_reply_language(self.question)
        ).splitlines()
        descriptions = dict(line.split(": ", 1) for line in lines)
        return [
            Tool(name, descriptions[name], TypeAdapter(getattr(self, name)).json_schema())
            for name in TOOLS
            if name != "subcall" or self.light is not None
        ]

    async def _call_tool(self, name: str, **arguments: object) -> str:
        return await self._run_and_record(ToolCall(name, arguments))

    async def _run_and_record(self, call: ToolCall) -> str:
        """Run a call and record its result for the model; failures are recorded, not raised."""
        started, has_failed = time.perf_counter(), False
        try:
            text = await self._run_tool(call)
        except Exception as error:  # noqa: BLE001 - logged if unexpected
            text, has_failed = _describe_failure(error), True
        arguments = {
            name: str(value)[:MAX_ARGUMENT_CHARACTERS] for name, value in call.arguments.items()
        }
        self.steps.append(
            {
                "tool": call.name[:40],
                "arguments": arguments,
                "size": len(text),
                "ms": measure_milliseconds_since(started),
                "failed": has_failed,
            }
        )
        shown = ", ".join(f"{name}={value}" for name, value in arguments.items())
        self.results.append(f"{call.name[:40]}({shown})\n{text or 'Nothing was found.'}")
        return "" if has_failed else text

    async def _run_tool(self, call: ToolCall) -> str:
        if call.error or call.name not in TOOLS:
            raise BadArguments(call.error[:200] or "there is no such tool")
        tool = check_arguments(getattr(self, call.name))
        if call.name == "subcall":
            return str(await tool(**call.arguments))
        return str(await asyncio.to_thread(tool, **call.arguments))

    async def _open_related(self) -> None:
        """Open the relevant ones of the turns that were found last."""
        for found_turn in [found_turn for found_turn in self.found if found_turn.is_relevant][
            :MAX_TURNS
        ]:
            await self._call_tool("get_turn", number=found_turn.line.number)

    def _has_found(self) -> bool:
        return bool(self.notes or self.opened)

    def _is_shown(self, number: int) -> bool:
        """Whether the prompt contains the turn anyway."""
        return self.before is not None and number >= self.before

    def _spend_tokens(self, texts: Iterable[str]) -> bool:
        """Count the tokens of texts for a model; returns whether the budget covers them."""
        self.tokens += sum(map(self.count, texts))
        return self.tokens <= self.rules.explore_tokens

    # The tools. Their arguments are validated before.

    def list_turns(self, before: Number | None = None) -> str:
        """The newest turns, one line each."""
        lines = self.history.list_turns(MAX_LISTED_TURNS, before)
        rendered = [recall.render_turn_line(line) for line in lines if line.number >= self.since]
        return "\n".join(rendered)

    def search_turns(self, query: Query) -> str:
        """The turns relevant to a query, one line each."""
        lines = self.history.list_turns(recall.MAX_SEARCHED_TURNS)
        lines = [line for line in lines if line.number >= self.since]
        self.found = recall.search_turns(query, lines, self.searcher.embedder)[:MAX_FOUND_TURNS]
        return "\n".join(recall.render_turn_line(found_turn.line) for found_turn in self.found)

    def get_turn(self, number: Number, part: Number = 1) -> str:
        """One part of a turn's text, and the documents that its answer showed."""
        turn = next(iter(self.history.get_turns([number])), None)
        if turn is None or number < self.since:
            raise BadArguments(f"there is no turn {number}")
        self.opened[number] = turn
        whole = neutralise_text(f"Q: {turn.user_text}\nA: {turn.assistant_text}")
        starts = range(0, len(whole), MAX_PART_CHARACTERS)
        parts = [whole[start : start + MAX_PART_CHARACTERS] for start in starts]
        if part > len(parts):
            raise BadArguments(f"turn {number} has {len(parts)} parts")
        documents = (
            f"{ref.slot}. {to_one_line(ref.title, MAX_LISTED_CHARACTERS)} "
            f"(document_id {ref.document_id})"
            for ref in turn.doc_refs[:MAX_DOCUMENTS]
        )
        head = f"Turn {number}, part {part} of {len(parts)}"
        return "\n".join([head, parts[part - 1], *documents])

    def search_chunks(self, query: Query, document_id: UUID | None = None) -> str:
        """Passages on a query from a document, or from all documents of the turns opened so far."""
        document_ids = (ref.document_id for turn in self.opened.values() for ref in turn.doc_refs)
        documents = (
            (document_id,) if document_id else tuple(dict.fromkeys(document_ids))[:MAX_DOCUMENTS]
        )
        if not documents:
            raise BadArguments("document_id is missing")
        scope = Scope(documents, ScopeReason.EXPLICIT)
        analysis = QuestionAnalysis(QuestionType.SINGLE, query, scope, standalone=query)
        options = SearchOptions(top_k=MAX_CHUNKS, filters={})
        hits = self.searcher.search(analysis, self.store.within(documents), options).hits[
            :MAX_CHUNKS
        ]
        return "\n".join(
            f"{to_one_line(hit.passage.document_name, MAX_LISTED_CHARACTERS)}: "
            f"{to_one_line(hit.passage.content, MAX_CHUNK_CHARACTERS)}"
            for hit in hits
        )

    def peek(
        self, document_id: UUID, start: Offset = 0, length: Number = MAX_PEEK_CHARACTERS
    ) -> str:
        """An excerpt of a document."""
        excerpt = self.store.read(document_id, start, min(length, MAX_PEEK_CHARACTERS))
        if excerpt is None:
            raise BadArguments("there is no such document")
        end = excerpt.start + len(excerpt.text)
        text = neutralise_text(excerpt.text[:MAX_PEEK_CHARACTERS])
        return f"Characters {excerpt.start} to {end} of {excerpt.total}\n{text}"

    async def subcall(self, question: Query, text: Text) -> str:
        """Ask the light model a question about one text."""
        language = choose_reply_language(self.question)
        neutral_text, neutral_question = (
            neutralise_text(text[:MAX_SUBCALL_CHARACTERS]),
            neutralise_text(question),
        )
        user = prompts.fill_prompt(
            "explore_subcall_text", language, text=neutral_text, question=neutral_question
        )
        if self.light is None or self.model_calls >= self.rules.explore_calls:
            raise BadArguments("no sub-call is left")
        if not self._spend_tokens([user]):
            raise BadArguments("the tokens are spent")
        self.model_calls += 1
        system = prompts.load_prompt("explore_subcall", language)
        return await self.light.ask_text(system, user, max_tokens=SUBCALL_TOKENS)

    def note(self, text: Text) -> str:
        """Keep a finding, unless it only says that nothing was found."""
        line = to_one_line(text, MAX_FINDING_CHARACTERS)
        if line and line not in self.notes and not load_patterns("recall")["nothing"].search(line):
            self.notes.append(line)
        return "Noted."


def _describe_failure(error: Exception) -> str:
    match error:
        case ValidationError():
            messages = [
                f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()
            ]
            return to_one_line(f"Bad arguments: {'; '.join(messages)}", MAX_FINDING_CHARACTERS)
        case BadArguments():
            return f"Bad arguments: {error}"
        case NuraError():
            return f"The tool failed: {error.code}"
    logger.warning("exploring_tool_failed", exc_info=error)
    return "The tool failed."

"""Answers by a chat model: instructions, conversation and question in messages of their own."""

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from rag import prompts, tracing
from rag.config import ContextRules
from rag.context.assemble import assemble, trim
from rag.context.tokens import PER_MESSAGE, Counter, counter
from rag.errors import ContextOverflow
from rag.generation import blocks
from rag.generation.brief import Assembled, Brief
from rag.neutral import neutralise
from rag.pieces import Piece, Usage
from rag.ports import LLM, GenerationOptions
from rag.types import HistoryMessage, Role


@dataclass(frozen=True, slots=True)
class PromptedAnswerer:
    """Asks the model; when its context overflows, trims once and asks once more."""

    llm: LLM
    options: GenerationOptions

    @property
    def name(self) -> str:
        """The model's name."""
        return self.llm.name

    @property
    def counter(self) -> Counter:
        """Counts as the model does."""
        return counter(self.llm.name)

    def assemble(self, brief: Brief, rules: ContextRules) -> Assembled:
        """What fits into the prompt."""
        return assemble(brief, self.counter, rules, system=_counted_system(brief))

    def sizes(self, brief: Brief) -> Mapping[str, int]:
        """Characters by part."""
        turns = build(brief)
        return {
            "system": len(turns[0].content),
            "history": sum(len(turn.content) for turn in turns[1:-1]),
            "evidence": sum(len(item.text) for item in brief.evidence),
            "question": len(brief.question),
            "total": sum(len(turn.content) for turn in turns),
        }

    async def stream(self, brief: Brief) -> AsyncGenerator[Piece, None]:
        """The model's pieces; one with the new plan before them where it was too long at first."""
        said = False
        try:
            async with aclosing(self._ask(brief)) as pieces:
                async for piece in pieces:
                    said = said or bool(piece.text)
                    yield piece
        except ContextOverflow:
            if said:
                raise
            less = trim(brief, self.counter, system=_counted_system(brief))
            yield Piece(trimmed=tracing.of_plan(less.plan))
            async with aclosing(self._ask(less.brief)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _ask(self, brief: Brief) -> AsyncGenerator[Piece, None]:
        turns = build(brief)
        counted = sum(self.counter.count(turn.content) + PER_MESSAGE for turn in turns)
        said: list[str] = []
        reported: Usage | None = None
        async with aclosing(self.llm.stream(turns, self.options.wished(brief.sampling))) as pieces:
            async for piece in pieces:
                said.append(piece.text)
                reported = piece.usage or reported
                yield piece
        if reported:
            self.counter.learn(counted, reported.prompt_tokens)
        else:
            yield Piece(usage=Usage(counted, self.counter.count("".join(said)), estimated=True))


def build(brief: Brief) -> tuple[HistoryMessage, ...]:
    """The messages for the model.

    Nothing that a user or a document wrote stands in the system message.
    """
    fence = f"=== {secrets.token_hex(6)} ==="
    history = (
        HistoryMessage(message.role, neutralise(message.content)) for message in brief.history
    )
    told = "\n\n".join(blocks.of(brief, fence))
    asked = neutralise(brief.question)
    if told:
        asked = prompts.fill("question", brief.language, blocks=told, question=asked)
    return (
        HistoryMessage(Role.SYSTEM, system(brief, fence)),
        *history,
        HistoryMessage(Role.USER, asked),
    )


def system(brief: Brief, fence: str) -> str:
    """The instructions for what the brief holds."""
    names = ["documents" if brief.evidence else "general"]
    if brief.previous or brief.summary or brief.recalled or brief.findings:
        names.append("conversation")
    names += [notice.replace("notice_", "tell_", 1) for notice in brief.notices]
    if not brief.evidence and not brief.smalltalk:
        names.append("ungrounded")
    text = "\n".join(prompts.text(name, brief.language) for name in (*names, "safety"))
    if not brief.evidence and "conversation" not in names:
        return text
    return f"{text}\n\n{prompts.fill('fence', brief.language, fence=fence)}"


def _counted_system(brief: Brief) -> str:
    return system(brief, blocks.SAMPLE_FENCE)

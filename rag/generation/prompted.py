"""Answers by a chat model: instructions, conversation and question in messages of their own."""

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from rag import prompts
from rag.errors import ContextOverflow
from rag.generation.brief import Brief, Evidence
from rag.neutral import neutralise
from rag.ports import LLM, GenerationOptions
from rag.types import HistoryMessage, Piece, Role

KEPT_TURNS = 2
"""Messages of the conversation that stay when the prompt was too long."""


@dataclass(frozen=True, slots=True)
class PromptedAnswerer:
    """Asks the model; when its context overflows, trims once and asks once more."""

    llm: LLM
    options: GenerationOptions

    @property
    def name(self) -> str:
        """The model's name."""
        return self.llm.name

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
        """The model's pieces."""
        said = False
        try:
            async with aclosing(self._ask(brief)) as pieces:
                async for piece in pieces:
                    said = said or bool(piece.text)
                    yield piece
        except ContextOverflow:
            if said:
                raise
            async with aclosing(self._ask(trimmed(brief))) as pieces:
                async for piece in pieces:
                    yield piece

    async def _ask(self, brief: Brief) -> AsyncGenerator[Piece, None]:
        async with aclosing(self.llm.stream(build(brief), self.options)) as pieces:
            async for piece in pieces:
                yield piece


def trimmed(brief: Brief) -> Brief:
    """Less of the conversation, and the better half of the evidence."""
    half = (len(brief.evidence) + 1) // 2
    return replace(brief, history=brief.history[-KEPT_TURNS:], evidence=brief.evidence[:half])


def build(brief: Brief) -> tuple[HistoryMessage, ...]:
    """The messages for the model.

    Nothing that a user or a document wrote stands in the system message.
    """
    history = tuple(
        HistoryMessage(message.role, neutralise(message.content)) for message in brief.history
    )
    question = neutralise(brief.question)
    if not brief.evidence:
        system = prompts.text("general", brief.language)
        return (_system(system), *history, HistoryMessage(Role.USER, question))
    fence = f"=== {secrets.token_hex(6)} ==="
    asked = prompts.fill(
        "documents_question",
        brief.language,
        fence=fence,
        excerpts=_excerpts(brief.evidence),
        question=question,
    )
    system = prompts.fill("documents", brief.language, fence=fence)
    return (_system(system), *history, HistoryMessage(Role.USER, asked))


def _system(text: str) -> HistoryMessage:
    return HistoryMessage(Role.SYSTEM, text)


def _excerpts(evidence: Sequence[Evidence]) -> str:
    return "\n\n".join(f"{_label(item)}\n{neutralise(item.text)}" for item in evidence)


def _label(item: Evidence) -> str:
    page = f", p. {item.page}" if item.page else ""
    section = f", {item.section}" if item.section else ""
    return f"[{item.slot}] {neutralise(item.document_name + page + section)}"

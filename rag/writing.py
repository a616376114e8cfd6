"""Writing an answer from its brief: what the model says, with its markers checked as it streams."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from rag import evidence
from rag.events import Delta, Reasoning, Replaced, Status
from rag.generation.brief import Answerer, Brief
from rag.generation.style import Stylist
from rag.grounding import support
from rag.grounding.markers import MarkerFilter
from rag.pieces import Piece
from rag.progress import Progress

log = logging.getLogger(__name__)

CUT = "answer_cut"
"""The notice of an answer that ended at its limit of tokens."""


async def write(
    work: Progress, answerer: Answerer, brief: Brief
) -> AsyncGenerator[Reasoning | Delta, None]:
    """The answer as it comes; `work` holds its text, its checks and what it cites at the end."""
    markers = MarkerFilter({source.slot for source in work.sources})
    said: list[str] = []
    async with aclosing(_said(work, answerer, brief, markers)) as events:
        async for event in events:
            if isinstance(event, Delta):
                if not said:
                    work.took("first_delta", work.started)
                said.append(event.text)
            yield event
    work.text = "".join(said)
    work.sources = evidence.mark_cited(work.sources, markers.cited)


async def check(work: Progress, brief: Brief) -> None:
    """Hold the sentences of the answer against its evidence."""
    if not work.sources:
        return
    begun = work.now()
    read = brief.evidence
    try:
        work.checks = await asyncio.to_thread(support.check, work.text, read)
        work.trace["grounding"] = support.summary(work.checks)
    except Exception as error:  # a whole answer must not fail for what is said about it
        log.exception("an answer could not be checked")
        work.trace["grounding"] = {"failure": type(error).__name__}
    work.took("check", begun)


async def polish(
    work: Progress, brief: Brief, stylist: Stylist
) -> AsyncGenerator[Status | Replaced, None]:
    """The whole answer in better words, where nothing of it gets lost."""
    if CUT in work.told:
        return
    begun = work.now()
    yield Status("style", {"model": stylist.light.name})
    slots = {source.slot for source in work.sources}
    styled = await stylist.rewrite(work.text, brief, slots, work.checks)
    work.took("style", begun)
    work.trace["style"] = {"model": stylist.light.name, "draft_kept": styled.reason}
    if styled.text and styled.text != work.text:
        work.text, work.checks = styled.text, styled.checks
        work.trace["grounding"] = support.summary(work.checks)
        yield Replaced(styled.text)


async def _said(
    work: Progress, answerer: Answerer, brief: Brief, markers: MarkerFilter
) -> AsyncGenerator[Reasoning | Delta, None]:
    begun = work.now()
    async with aclosing(answerer.stream(brief)) as pieces:
        async for piece in pieces:
            _note(work, piece)
            if piece.reasoning:
                yield Reasoning(piece.reasoning)
            if text := markers.feed(piece.text):
                yield Delta(text)
    if rest := markers.flush():
        yield Delta(rest)
    work.took("generate", begun)


def _note(work: Progress, piece: Piece) -> None:
    work.usage = piece.usage or work.usage
    if piece.finish_reason:
        work.trace["finish_reason"] = piece.finish_reason
    if piece.finish_reason == "length":
        work.told = (*work.told, CUT)
    if piece.trimmed:
        work.trace["trimmed"] = dict(piece.trimmed)

"""One question through the engine: retrieve, decide, answer, close; every step timed and traced."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from rag import evidence, tracing
from rag.config import RagConfig
from rag.errors import EmbedderFailed, NuraError, RetrievalFailed
from rag.events import Delta, Event, Finished, SourcesFound, Status
from rag.generation.brief import Answerer, Brief
from rag.grounding import MarkerFilter
from rag.history.window import window
from rag.language import reply_language
from rag.ports import HistoryStore, PassageStore
from rag.query import understand
from rag.query.understand import Understood
from rag.question import Question
from rag.retrieval.plan import Asked
from rag.searching import Searcher
from rag.types import HistoryMessage, Hit, Mode, QuestionType, Retrieval, Source, Usage

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Turn:
    """What is known of one question so far."""

    question: Question
    understood: Understood
    history: tuple[HistoryMessage, ...]
    kind: QuestionType
    hits: tuple[Hit, ...] = ()
    sources: tuple[Source, ...] = ()
    usage: Usage | None = None
    characters: int = 0
    trace: dict[str, object] = field(default_factory=dict)
    timings_ms: dict[str, float] = field(default_factory=dict)

    @property
    def mode(self) -> Mode:
        """Documents when something is shown, else general."""
        return Mode.DOCUMENTS if self.sources else Mode.GENERAL


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Answers questions with one configuration. Safe in any number of tasks and loops."""

    config: RagConfig
    searcher: Searcher
    documents_answerer: Answerer
    general_answerer: Answerer

    async def answer(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> AsyncGenerator[Event, None]:
        """The events of an answer. Raises `LLMError` only, before or after deltas."""
        started = time.perf_counter()
        turn = await self._begin(question, history)
        if turn.kind is not QuestionType.SMALLTALK and question.scope.document_ids:
            yield Status("retrieve", {"documents": len(question.scope.document_ids)})
            await self._retrieve(turn, store)
        if filters := tracing.filters_of(turn.trace):
            yield Status("filter", filters)
        if fallback := turn.trace.get("fallback"):
            yield Status("fallback", dict(fallback) if isinstance(fallback, Mapping) else {})
        if turn.sources:
            yield SourcesFound(turn.sources)
        answerer = self.documents_answerer if turn.sources else self.general_answerer
        brief = self._brief(turn)
        turn.trace["prompt"] = {"model": answerer.name, **answerer.sizes(brief)}
        known = {**turn.trace, "timings_ms": dict(turn.timings_ms)}
        yield Status("generate", {"model": answerer.name, "passages": len(brief.evidence)}, known)
        async with aclosing(_generate(turn, answerer, brief, started)) as deltas:
            async for delta in deltas:
                yield delta
        turn.timings_ms["total"] = _since(started)
        yield _finished(turn, brief)

    async def _begin(self, question: Question, store: HistoryStore) -> _Turn:
        pairs = question.history_pairs
        understood = await asyncio.to_thread(
            understand.by_rules, question, store, self.config, self.searcher.embedder
        )
        history = window(
            question.conversation.messages,
            pairs=self.config.history_pairs if pairs is None else pairs,
            characters=self.config.history_message_characters,
        )
        kind = understood.verdict.question_type
        scope = question.scope
        trace: dict[str, object] = {
            "question_type": kind.value,
            "scope": {
                "reason": scope.reason.value,
                "document_ids": [str(key) for key in scope.document_ids],
            },
            "history": {
                "messages": len(history),
                "characters": sum(len(message.content) for message in history),
            },
            "models": {"embedder": self.searcher.embedder.name},
        }
        return _Turn(question, understood, history, kind, trace=trace)

    async def _retrieve(self, turn: _Turn, store: PassageStore) -> None:
        started = time.perf_counter()
        try:
            found = await asyncio.to_thread(self._search, turn, store)
        except NuraError as error:
            log.warning(
                "retrieval failed, going on without documents: %s", error.code, exc_info=error
            )
            turn.trace["fallback"] = {"code": error.code}
            return
        finally:
            turn.timings_ms["retrieve"] = _since(started)
        turn.kind = found.plan.question_type
        turn.trace |= tracing.of_retrieval(found)
        if found.gate.relevant and found.hits:
            several = found.plan.needs_multi_doc  # each document holds but its part of the question
            turn.hits = found.hits if several else evidence.worth_showing(found.hits)
            turn.sources = evidence.sources(
                turn.hits, dense=self.searcher.knows(turn.question.text)
            )

    def _search(self, turn: _Turn, store: PassageStore) -> Retrieval:
        understood = turn.understood
        memory = turn.question.conversation.memory
        asked = Asked(understood.verdict, understood.standalone, memory)
        try:
            scope = understood.scope
            within = understand.searched(store, turn.question, scope)
            return self.searcher.search(asked, scope, within)
        except EmbedderFailed:
            raise
        except Exception as error:
            raise RetrievalFailed("the passage store failed") from error

    def _brief(self, turn: _Turn) -> Brief:
        return Brief(
            question=turn.question.text,
            language=reply_language(turn.question.text),
            history=turn.history,
            evidence=evidence.evidence(turn.hits),
            documents=len(turn.question.scope.document_ids),
            smalltalk=turn.kind is QuestionType.SMALLTALK,
            opening=bool(turn.hits) and "opening" in turn.hits[0].scores,
        )


async def _generate(
    turn: _Turn, answerer: Answerer, brief: Brief, started: float
) -> AsyncGenerator[Delta, None]:
    markers = MarkerFilter({source.slot for source in turn.sources})
    begun = time.perf_counter()
    async with aclosing(answerer.stream(brief)) as pieces:
        async for piece in pieces:
            turn.usage = piece.usage or turn.usage
            if piece.finish_reason:
                turn.trace["finish_reason"] = piece.finish_reason
            if text := markers.feed(piece.text):
                turn.timings_ms.setdefault("first_delta", _since(started))
                turn.characters += len(text)
                yield Delta(text)
    if rest := markers.flush():
        turn.characters += len(rest)
        yield Delta(rest)
    turn.timings_ms["generate"] = _since(begun)
    turn.sources = evidence.mark_cited(turn.sources, markers.cited)


def _finished(turn: _Turn, brief: Brief) -> Finished:
    usage = turn.usage or tracing.estimated_usage(brief, turn.characters)
    trace = {**turn.trace, "mode": turn.mode.value, "timings_ms": turn.timings_ms}
    return Finished(
        mode=turn.mode,
        question_type=turn.kind,
        sources=turn.sources or None,
        usage=replace(usage),
        trace=trace,
    )


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 2)

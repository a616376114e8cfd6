"""One question through the engine: understand, retrieve, decide, recall, answer, close.

Every step is timed and traced.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from rag import evidence, tracing, writing
from rag.config import RagConfig
from rag.errors import EmbedderFailed, NuraError, RetrievalFailed
from rag.events import Delta, Event, Finished, SourcesFound, Status
from rag.generation import fixed
from rag.generation.brief import Answerer, Brief
from rag.generation.fixed import FixedAnswer
from rag.generation.style import Stylist
from rag.history.look_back import LookBack
from rag.history.recall import recalls
from rag.history.window import window
from rag.llms.light import Light
from rag.pieces import Usage
from rag.ports import HistoryStore, PassageStore
from rag.progress import Progress
from rag.query.classify import bound
from rag.query.understand import scope_told, searched, told, understand
from rag.question import Question
from rag.retrieval import snapshot
from rag.retrieval.plan import Asked
from rag.searching import Searcher
from rag.types import HistoryMessage, QuestionType, Retrieval, Role

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Answers questions with one configuration. Safe in any number of tasks and loops."""

    config: RagConfig
    searcher: Searcher
    documents_answerer: Answerer
    general_answerer: Answerer
    look_back: LookBack
    light: Light | None = None
    stylist: Stylist | None = None

    async def answer(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> AsyncGenerator[Event, None]:
        """The events of an answer. Raises `LLMError` only, before or after deltas."""
        work = await self._begin(question, history)
        given = await asyncio.to_thread(
            fixed.answer, question, work.understood, store, work.language
        )
        if given is not None:
            for event in _said(work, given):
                yield event
            return
        if work.searches:
            yield Status("retrieve", {"documents": len(work.scope.document_ids)})
            await self._retrieve(work, store)
        for status in tracing.statuses(work.trace):
            yield status
        if work.question.conversation.total and recalls(work.asked):
            yield Status("explore")
        await self._recall(work, history, store)
        async with aclosing(self._write(work)) as events:
            async for event in events:
                yield event

    async def _begin(self, question: Question, history: HistoryStore) -> Progress:
        begun = time.perf_counter()
        understood = await understand(
            question, history, self.config, self.searcher.embedder, self.light
        )
        pairs = question.history_pairs
        messages = window(
            question.conversation.messages,
            pairs=self.config.history_pairs if pairs is None else pairs,
            characters=self.config.history_message_characters,
        )
        kind = understood.verdict.question_type
        work = Progress(question, understood, messages, kind, understood.scope)
        work.trace = told(question, understood) | {
            "history": _history(question, messages),
            "models": {"embedder": self.searcher.embedder.name},
        }
        work.took("understand", begun)
        return work

    async def _retrieve(self, work: Progress, store: PassageStore) -> None:
        begun = time.perf_counter()
        try:
            found = await asyncio.to_thread(self._search, work, store)
        except NuraError as error:
            log.warning(
                "retrieval failed, going on without documents: %s", error.code, exc_info=error
            )
            work.trace["fallback"] = {"code": error.code}
            work.told = (*work.told, error.code)
            return
        finally:
            work.took("retrieve", begun)
        self._take(work, found)

    def _search(self, work: Progress, store: PassageStore) -> Retrieval:
        understood = work.understood
        memory = work.question.conversation.memory
        asked = Asked(understood.verdict, understood.standalone, memory)
        try:
            within = searched(store, work.question, understood.scope)
            return self.searcher.search(asked, understood.scope, within)
        except EmbedderFailed:
            raise
        except Exception as error:
            raise RetrievalFailed("the passage store failed") from error

    def _take(self, work: Progress, found: Retrieval) -> None:
        """Take over what was found, as far as the gate lets it through."""
        work.kind = found.plan.question_type
        work.scope = found.plan.scope
        if found.plan.follows and not work.understood.verdict.follows:  # the evidence says so
            verdict = bound(work.understood.verdict, work.understood.verdict.certainty)
            work.understood = replace(work.understood, verdict=verdict)
            work.trace |= told(work.question, work.understood)
        work.method = found.plan.strategy.value
        work.trace |= tracing.of_retrieval(found)
        work.trace["scope"] = scope_told(
            work.question, work.understood, work.scope, widened=found.widened
        )
        if found.widened:
            work.notices = (*work.notices, "notice_widened")
        if found.gate.relevant and found.hits:
            several = found.plan.needs_multi_doc  # each document holds but its part of the question
            work.hits = found.hits if several else evidence.worth_showing(found.hits)
        if kept := snapshot.hits(work.gone, self.config.top_k):
            work.hits = (*work.hits, *kept)
            work.notices = (*work.notices, "notice_gone")

    async def _recall(self, work: Progress, history: HistoryStore, store: PassageStore) -> None:
        """What older turns hold on the question; a store that fails is gone on without."""
        total = work.question.conversation.total
        if work.kind is QuestionType.SMALLTALK or not total:
            return
        begun = time.perf_counter()
        try:
            shown = {hit.passage.document_id for hit in work.hits}
            found = await self.look_back.look(
                work.asked, total, self._fitting(work), history, store, documents=shown
            )
        except Exception as error:
            log.warning("older turns could not be read", exc_info=error)
            work.trace["history_failure"] = type(error).__name__
            return
        finally:
            work.took("recall", begun)
        work.recalled, work.findings = found.turns, found.findings
        work.trace |= found.trace
        selected = [turn.number for turn in found.turns]
        work.trace["history"] = _history(work.question, work.window) | {"selected": selected}
        if found.answers and not self.look_back.windowed:
            work.hits = ()  # it asks for what was said, and nobody reads both

    def _fitting(self, work: Progress) -> int:
        """How many of the last turns go into the prompt: what does not fit must be looked for."""
        brief = self._answerer(work).assemble(self._brief(work), self.config.context).brief
        asked = sum(message.role is Role.USER for message in brief.history)
        return asked + (brief.previous is not None)

    def _answerer(self, work: Progress) -> Answerer:
        return self.documents_answerer if work.hits else self.general_answerer

    async def _write(self, work: Progress) -> AsyncGenerator[Event, None]:
        answerer = self._answerer(work)
        brief = self._assembled(work, answerer)
        work.trace["prompt"] = {"model": answerer.name, **answerer.sizes(brief)}
        if work.sources:
            passages = tuple(hit.passage for hit in work.hits)
            yield SourcesFound(work.sources, passages, work.method)
        known = {**work.trace, "timings_ms": dict(work.timings_ms)}
        yield Status("generate", {"model": answerer.name, "passages": len(brief.evidence)}, known)
        async with aclosing(writing.write(work, answerer, brief)) as events:
            async for event in events:
                yield event
        await writing.check(work, brief)
        if self.stylist:
            async for polished in writing.polish(work, brief, self.stylist):
                yield polished
        yield _finished(work, usage=work.usage or tracing.estimated_usage(brief, len(work.text)))

    def _assembled(self, work: Progress, answerer: Answerer) -> Brief:
        """What the answerer will read; only that becomes a source."""
        begun = time.perf_counter()
        assembled = answerer.assemble(self._brief(work), self.config.context)
        work.trace["token_plan"] = tracing.of_plan(assembled.plan)
        work.hits = work.hits[: len(assembled.brief.evidence)]
        dense = self.searcher.knows(work.question.text)
        work.sources = evidence.sources(work.hits, dense=dense)
        work.took("assemble", begun)
        return assembled.brief

    def _brief(self, work: Progress) -> Brief:
        question = work.question
        standalone = work.understood.standalone
        verdict = work.understood.verdict
        return Brief(
            question=work.asked,  # the answer to a question back is no question
            language=work.language,
            history=work.window,
            evidence=evidence.evidence(work.hits),
            documents=len(question.scope.document_ids),
            smalltalk=work.kind is QuestionType.SMALLTALK,
            standalone=standalone.text if standalone.text != work.asked else "",
            previous=question.conversation.last if verdict.follows else None,
            summary=question.conversation.summary.text if question.conversation.summary else "",
            recalled=work.recalled,
            findings=work.findings,
            notices=work.notices if work.hits else (),
            several=work.kind in {QuestionType.COMPARE, QuestionType.MULTI},
            opening=bool(work.hits) and "opening" in work.hits[0].scores,
            sampling=question.sampling,
        )


def _history(question: Question, messages: Sequence[HistoryMessage]) -> dict[str, object]:
    summary = question.conversation.summary
    return {
        "turns": question.conversation.total,
        "messages": len(messages),
        "characters": sum(len(message.content) for message in messages),
        "summary_through": summary.through if summary else None,
    }


def _said(work: Progress, given: FixedAnswer) -> Iterator[Event]:
    """The events of an answer that is whole already."""
    if given.sources:
        work.sources = given.sources
        yield SourcesFound(given.sources, given.passages, given.mode.value)
    yield Status("generate", {"model": "fixed", "passages": 0}, dict(work.trace))
    yield Delta(given.text)
    work.trace["prompt"] = {"model": "fixed"}
    finished = _finished(work, usage=None)
    yield replace(
        finished,
        mode=given.mode,
        trace={**finished.trace, "mode": given.mode.value},
        candidates=given.candidates,
        view=given.view,
    )


def _finished(work: Progress, *, usage: Usage | None) -> Finished:
    work.took("total", work.started)
    trace = {**work.trace, "mode": work.mode.value, "timings_ms": work.timings_ms}
    return Finished(
        mode=work.mode,
        question_type=work.kind,
        sources=work.sources or None,
        usage=usage,
        trace=trace,
        checks=work.checks,
        notices=work.told,
    )

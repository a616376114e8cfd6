"""One question through the engine, from its analysis to the check of its answer.

Every step is timed and traced.
"""

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import ParamSpec, TypeVar
from uuid import UUID

import structlog

from rag.adapters.light import Light
from rag.config import RagConfig
from rag.context.budget import (
    Budget,
    fit_conversation,
    fit_earlier,
    fit_profile,
    make_budget,
    resolve_context_tokens,
)
from rag.context.prompt import AnswerContext, build_messages, count_characters
from rag.conversation import DocRef, Question
from rag.errors import NuraError, RetrievalFailed
from rag.events import (
    ANSWER_CUT,
    PARTS_UNREAD,
    AnswerTrace,
    Delta,
    Event,
    Finished,
    Reasoning,
    Replaced,
    SourcesFound,
    StepBegan,
    describe_retrieval,
    list_statuses,
)
from rag.generate.citations import CitationFilter
from rag.generate.llm import SECONDS_A_PART, Check, Reviser, SectionReader, Writer, Written
from rag.generate.offline import (
    FixedAnswer,
    answer_memory_wish,
    answer_offline,
    find_fixed_answer,
    write_emergency_note,
)
from rag.memory.profile import (
    Packs,
    Slot,
    describe_slots,
    is_medical,
    is_protected,
    load_packs,
    rank_slots,
    write_caution,
)
from rag.memory.recall import Recaller, RecallResult, is_recalling
from rag.memory.summary import Window, open_window, show_last_turn_whole
from rag.ports import HistoryStore, PassageStore, Usage, Verifier
from rag.retrieve.evidence import (
    STRONG_RELEVANCE,
    Selection,
    restore_passages,
    select_evidence,
    select_passages,
    to_evidence,
    to_sources,
)
from rag.retrieve.search import Searcher
from rag.tokenize.text import choose_reply_language
from rag.types import (
    AnswerLabel,
    AnswerMode,
    AnswerSource,
    Checked,
    Citation,
    CitedPassage,
    Evidence,
    HistoryMessage,
    QuestionType,
    Retrieval,
    ScopeReason,
    Span,
    Speaker,
    Topic,
)
from rag.understand.analysis import (
    QuestionAnalysis,
    analyse_question,
    bind_to_conversation,
    describe_analysis,
    describe_scope,
    narrow_store,
)
from rag.understand.kinds import INTENT_TEMPLATES
from rag.verify import Grounds, summarise_verification, verify_answer

logger = structlog.get_logger()
P = ParamSpec("P")
R = TypeVar("R")

MAX_READ_PASSAGES = 10
"""Passages that are looked at where no model reads them."""
MAX_SUPPLY_PASSAGES = 40
"""Passages that a search brings for a prompt."""
OFFLINE_MODEL = "passages"
"""What stands for a model's name where none is configured."""
FIXED_MODEL = "fixed"
"""What stands for a model's name where none is asked."""
MAX_REVIEWED = 8
"""Passages that an answer keeps beside those that it cites."""
MAX_CHECKED_AT_ONCE_CHARACTERS = 400
"""Of an answer that rests on nothing: checking that takes less than a thread to do it in."""
MAX_CAUTION_PASSAGES = 4
"""Of the best passages, in which allergies of the user are looked for."""
MAX_CHUNKS_OUTLINED = 400
"""Chunks of whole documents that are looked at where no model reads them."""


@dataclass(frozen=True, slots=True)
class AnalysedQuestion:
    """A question with what it may read, and what was understood and found of it.

    `found` is None where nothing was searched, or the search failed; `notices` are codes of what
    the reader should know.
    """

    question: Question
    store: PassageStore
    history: HistoryStore
    trace: AnswerTrace
    analysis: QuestionAnalysis
    language: str
    found: Retrieval | None = None
    notices: tuple[str, ...] = ()

    @property
    def is_searched(self) -> bool:
        """Whether documents are looked at."""
        talk = self.analysis.question_type is QuestionType.SMALLTALK
        return not talk and bool(self.analysis.scope.document_ids)

    @property
    def unreadable_documents(self) -> tuple[DocRef, ...]:
        """Documents that the question refers to by number and that can no longer be read."""
        reference = self.analysis.reference
        readable = self.question.conversation.readable
        referred = reference.documents if reference else ()
        return tuple(ref for ref in referred if ref.document_id not in readable)

    @property
    def needs_whole_documents(self) -> bool:
        """Whether documents are read from end to end: those that the question is about."""
        if self.found is None:
            return False
        chosen = self.found.named or self.found.plan.scope.reason is not ScopeReason.ALL
        return self.found.whole or (self.analysis.whole and bool(chosen))

    @property
    def is_fresh_start(self) -> bool:
        """Whether the question puts away what was said before it."""
        return self.analysis.forgets or self.question.topic is Topic.NEW

    @property
    def first_recallable_turn(self) -> int:
        """The first turn that may be recalled: all of them where the user refers back."""
        if self.analysis.reference is not None or is_recalling(self.analysis.text):
            return 1
        conversation = self.question.conversation
        return conversation.total + 1 if self.is_fresh_start else conversation.begins_at

    @property
    def prompt_notices(self) -> tuple[str, ...]:
        """Names of prompts that say how the passages were found."""
        if self.found is None:
            return ()
        widened = ("notice_widened",) if self.found.widened else ()
        return (*widened, *(("notice_gone",) if self.unreadable_documents else ()))

    @property
    def search_method(self) -> str:
        """How passages were searched for."""
        return self.found.plan.strategy.value if self.found else ""


@dataclass(slots=True)
class AnswerDraft:
    """The answer as it grows. `context` is what the model read, shorter where it was too long."""

    context: AnswerContext
    text: str = ""
    citations: tuple[Citation, ...] = ()
    usage: Usage | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Answers questions with one configuration. Safe in any number of tasks and loops.

    `writer` is None where no language model is configured. `light` reads questions and parts of
    documents; the main model where no light one is configured.
    """

    config: RagConfig
    searcher: Searcher
    writer: Writer | None
    recaller: Recaller
    light: Light | None = None
    reviser: Reviser | None = None
    verifier: Verifier | None = None

    @property
    def packs(self) -> Packs:
        """The kinds of things that are remembered of users."""
        return load_packs(self.config.profile.packs)

    def answer(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> AsyncGenerator[Event, None]:
        """The events of an answer. Raises `LLMError` only, before or after deltas.

        Where somebody needs help now, that is said before anything is looked for.
        """
        answer = self._answer(question, store, history)
        note = write_emergency_note(question.text)
        return _prepend_at_once(f"{note}\n\n", answer) if note else answer

    async def _answer(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> AsyncGenerator[Event, None]:
        asked, given = await self._analyse(question, store, history)
        if given is not None:
            for event in _list_fixed_events(given, asked):
                yield event
            return
        if asked.is_searched:
            yield StepBegan("retrieve", {"documents": len(asked.analysis.scope.document_ids)})
        asked = await self._retrieve(asked)
        for status in list_statuses(asked.trace.values):
            yield status
        if question.conversation.total and is_recalling(asked.analysis.text):
            yield StepBegan("explore")
        answer = (
            self._write_answer(self.writer, asked)
            if self.writer
            else self._answer_from_passages(asked)
        )
        caution = self._write_caution(asked, profile) if (profile := question.profile) else ""
        async with aclosing(_prepend_to_text(caution, answer) if caution else answer) as events:
            async for event in events:
                yield event

    def _write_caution(self, asked: AnalysedQuestion, profile: Sequence[Slot]) -> str:
        """What is said first of the user's allergies that the question or its passages name."""
        note = write_caution(profile, _list_relevant_texts(asked), self.packs, asked.language)
        return f"{note}\n\n" if note else ""

    def _rank_profile(self, asked: AnalysedQuestion) -> tuple[Slot, ...]:
        """What is known of the user and still holds, best first; the trace names it by ids."""
        rules, known = self.config.profile, asked.question.profile
        if not known:
            return ()
        slots = rank_slots(
            known,
            asked.analysis.standalone,
            self.packs,
            now=datetime.now(UTC),
            half_life_days=rules.half_life_days,
        )
        if slots:
            asked.trace.add({"profile": {"slots": [slot.id for slot in slots]}})
        return slots

    async def preview_prompt(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> tuple[HistoryMessage, ...]:
        """The prompt of a question, without asking the model that answers.

        Of whole documents that do not fit it shows the passages, and no notes of a reading. Empty
        where no model is asked.
        """
        asked, given = await self._analyse(question, store, history)
        if given is not None or self.writer is None:
            return ()
        asked = await self._retrieve(asked)
        context, budget, selection = await self._prepare_prompt(self.writer, asked)
        if selection.portions:
            selection = selection.with_noted((), budget.room, budget.make_cost(asked.language))
        return build_messages(_add_evidence(context, selection, asked))

    async def _analyse(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> tuple[AnalysedQuestion, FixedAnswer | None]:
        """The analysed question, and its answer where neither a search nor a model is needed."""
        trace = AnswerTrace()
        with trace.time_step("understand"):
            analysis = await analyse_question(
                question, history, self.config, self.searcher.embedder, self.light
            )
        trace.add(describe_analysis(question, analysis))
        trace.add({"models": {"embedder": self.searcher.embedder.name}})
        language = choose_reply_language(question.text)
        if wished := answer_memory_wish(question, self.packs, language):
            return AnalysedQuestion(question, store, history, trace, analysis, language), wished
        reads = analysis.reference is not None and analysis.reference.whole
        given = await _run_in_thread_if(
            reads, find_fixed_answer, question, analysis, store, language
        )
        return AnalysedQuestion(question, store, history, trace, analysis, language), given

    async def _retrieve(self, asked: AnalysedQuestion) -> AnalysedQuestion:
        """The question with what was found; with a notice instead where the search failed."""
        if not asked.is_searched:
            return asked
        trace, analysis = asked.trace, asked.analysis
        try:
            with trace.time_step("retrieve"):
                found = await asyncio.to_thread(self._search, asked)
        except Exception as error:
            logger.warning("retrieval_failed", exc_info=error)
            trace.add({"fallback": {"code": RetrievalFailed.code}})
            return replace(asked, notices=(RetrievalFailed.code,))
        if found.plan.follows and not analysis.follows:  # the evidence says so
            analysis = bind_to_conversation(analysis, analysis.certainty)
            trace.add(describe_analysis(asked.question, analysis))
        trace.add(describe_retrieval(found))
        scope = describe_scope(asked.question, analysis, found.plan.scope, widened=found.widened)
        trace.add({"scope": scope})
        failed = (found.failed,) if found.failed else ()
        if failed:
            trace.add({"fallback": {"code": found.failed}})
        return replace(asked, analysis=analysis, found=found, notices=failed)

    def _search(self, asked: AnalysedQuestion) -> Retrieval:
        within = narrow_store(asked.store, asked.question, asked.analysis.scope)
        return self.searcher.search(asked.analysis, within, depth=MAX_SUPPLY_PASSAGES)

    async def _write_answer(
        self, writer: Writer, asked: AnalysedQuestion
    ) -> AsyncGenerator[Event, None]:
        """The answer of the language model."""
        context, budget, selection = await self._prepare_prompt(writer, asked)
        draft = AnswerDraft(context)
        if selection.portions and self.light:
            patient = replace(self.light, seconds=SECONDS_A_PART)
            reader = SectionReader(patient, asked.language, context.fence)
            parts = reader.read(asked.analysis.standalone, selection.portions)
            async with aclosing(parts) as begun:
                async for part in begun:
                    yield StepBegan("read", {"part": part, "parts": len(selection.portions)})
            notes = reader.fit_notes(budget.room // 2, writer.counter)
            context = replace(context, notes=tuple(note.text for note in notes))
            numbers = {number for note in notes for number in note.numbers}
            room = budget.room - writer.counter.count("\n".join(context.notes))
            selection = selection.with_noted(numbers, room, budget.make_cost(asked.language))
            if reader.unread or selection.incomplete or len(notes) < len(reader.notes):
                draft.notices = (PARTS_UNREAD,)
        draft.context = _add_evidence(context, selection, asked)
        messages = build_messages(draft.context)
        prompt = {"model": writer.name, **count_characters(messages, draft.context)}
        plan = budget.describe(selection.tokens, selection.dropped)
        evidence = selection.describe()
        asked.trace.add({"evidence": evidence, "token_plan": plan, "prompt": prompt})
        sources = self._list_sources(asked, selection.citable)
        if sources:
            yield SourcesFound(sources, asked.search_method)
        detail = {"model": writer.name, "passages": len(selection.citable)}
        yield StepBegan("generate", detail, asked.trace.snapshot())
        answer = self._stream_answer(writer, asked, messages, selection, draft)
        async with aclosing(answer) as events:
            async for event in events:
                yield event
        async with aclosing(self._verify_and_finish(asked, selection, sources, draft)) as events:
            async for event in events:
                yield event

    async def _prepare_prompt(
        self, writer: Writer, asked: AnalysedQuestion
    ) -> tuple[AnswerContext, Budget, Selection]:
        """The conversation as far as it fits, and the passages for the room that is left."""
        context, budget, opened = await self._begin_context(writer, asked)
        looked_back = await self._recall_turns(asked, context.window)
        first = asked.question.conversation.total + 1 - _count_turns(context.window)
        context = replace(
            context,
            recalled=tuple(turn for turn in looked_back.turns if turn.number < first),
            findings=looked_back.findings,
            summary=opened.render_summary({turn.number for turn in looked_back.turns}),
        )
        context, budget = fit_earlier(context, budget)
        with asked.trace.time_step("select"):
            selection = await self._select_evidence(asked, budget)
        return context, budget, selection

    async def _begin_context(
        self, writer: Writer, asked: AnalysedQuestion
    ) -> tuple[AnswerContext, Budget, Window]:
        """The question with the last messages that fit, and what is left for the rest."""
        question, analysis = asked.question, asked.analysis
        pairs = question.history_pairs
        opened = open_window(
            question.conversation,
            pairs=self.config.history_pairs if pairs is None else pairs,
            forgets=asked.is_fresh_start,
        )
        last = question.conversation.last if analysis.follows else None
        known = self._rank_profile(asked)
        # what was said is asked in the conversation's own words: a completed question would mislead
        is_plain = analysis.standalone == analysis.text or is_recalling(analysis.text)
        context = AnswerContext(
            question=analysis.text or question.text,
            language=asked.language,
            today=date.today(),  # noqa: DTZ011 - the day of the place where it runs
            fence=self.config.fence,
            standalone="" if is_plain else analysis.standalone,
            window=show_last_turn_whole(opened.messages, last) if last else opened.messages,
            seen=tuple(ref.title or ref.source for ref in last.doc_refs) if last else (),
            searched=asked.found is not None,
            persona=question.persona,
            shape=INTENT_TEMPLATES[analysis.intent].shape if asked.is_searched else "",
            profile=describe_slots(known, self.packs, asked.language),
            protected=sum(is_protected(slot, self.packs) for slot in known),
            medical=is_medical(_list_relevant_texts(asked)),
            tool_results=question.tool_results,
        )
        tokens = await resolve_context_tokens(self.config)
        budget = make_budget(context, replace(self.config.context, tokens=tokens), writer.counter)
        context, budget = fit_profile(*fit_conversation(context, budget))
        return context, budget, opened

    async def _recall_turns(
        self, asked: AnalysedQuestion, shown: Sequence[HistoryMessage] = ()
    ) -> RecallResult:
        """What older turns say on the question; nothing where their store fails.

        `shown` are the messages that the model reads anyway.
        """
        found = RecallResult()
        conversation, hits = asked.question.conversation, asked.found.hits if asked.found else ()
        history: dict[str, object] = {
            "turns": conversation.total,
            "messages": len(shown),
            "characters": sum(len(message.content) for message in shown),
            "summary_through": conversation.summary.through if conversation.summary else None,
        }
        if asked.analysis.question_type is not QuestionType.SMALLTALK and conversation.total:
            strong = [hit for hit in hits if hit.scores.get("relevance", 0.0) >= STRONG_RELEVANCE]
            # at most two calls of models before the first word, the answer's own among them
            was_read = asked.analysis.by == "light_llm" or bool(asked.analysis.failed)
            try:
                with asked.trace.time_step("recall"):
                    found = await self.recaller.recall_turns(
                        asked.analysis.text,
                        conversation.total,
                        _count_turns(shown),
                        asked.history,
                        asked.store,
                        documents={hit.passage.document_id for hit in strong},
                        since=asked.first_recallable_turn,
                        may_ask=not was_read,
                    )
                history["selected"] = [turn.number for turn in found.turns]
            except Exception as error:
                logger.warning("turns_not_recalled", exc_info=error)
                asked.trace.add({"history_failure": type(error).__name__})
        asked.trace.add({**found.trace, "history": history})
        return found

    async def _select_evidence(self, asked: AnalysedQuestion, budget: Budget) -> Selection:
        """The evidence; what earlier answers kept where the question means unreadable documents."""
        if asked.found is None:
            return Selection()
        cost = budget.make_cost(asked.language)
        if kept := restore_passages(asked.unreadable_documents, MAX_READ_PASSAGES):
            return select_passages(kept, room=budget.room, cost=cost)
        try:
            return await asyncio.to_thread(
                select_evidence,
                replace(asked.found, whole=asked.needs_whole_documents),
                asked.store.within(asked.found.plan.scope.document_ids),
                room=budget.room,
                cost=cost,
            )
        except NuraError as error:  # what was found is there already
            logger.warning("passages_not_selected", code=error.code)
            asked.trace.add({"selection_failure": error.code})
            found = [hit.passage for hit in asked.found.hits]
            return select_passages(found, room=budget.room, cost=cost)

    async def _stream_answer(
        self,
        writer: Writer,
        asked: AnalysedQuestion,
        messages: Sequence[HistoryMessage],
        selection: Selection,
        draft: AnswerDraft,
    ) -> AsyncGenerator[Event, None]:
        """The model's words as they come; `draft` holds the whole at the end."""
        trace = asked.trace
        citations = CitationFilter(selection.citable)

        def reset_citations(less: AnswerContext) -> None:
            nonlocal citations
            draft.context = less
            citations = CitationFilter((*less.evidence, *selection.noted))
            trace.add({"trimmed": {"passages": len(less.evidence), "messages": len(less.window)}})

        said: list[str] = []
        with trace.time_step("generate"):
            pieces = writer.stream_answer(
                draft.context, messages, asked.question.sampling, reset_citations
            )
            async with aclosing(pieces):
                async for piece in pieces:
                    draft.usage = piece.usage or draft.usage
                    if piece.finish_reason:
                        trace.add({"finish_reason": piece.finish_reason})
                    if piece.finish_reason == "length":
                        draft.notices = (*draft.notices, ANSWER_CUT)
                    if piece.reasoning:
                        yield Reasoning(piece.reasoning)
                    if text := citations.feed(piece.text):
                        if not said:
                            trace.note_time_since_start("first_delta")
                        said.append(text)
                        yield Delta(text)
            if text := citations.flush():
                said.append(text)
                yield Delta(text)
        draft.text, draft.citations = "".join(said), citations.citations

    async def _verify_and_finish(
        self,
        asked: AnalysedQuestion,
        selection: Selection,
        sources: Sequence[AnswerSource],
        draft: AnswerDraft,
    ) -> AsyncGenerator[Event, None]:
        """Verify the answer, revise it where that helps, label it, and yield the last events."""
        # a prompt that was too long was cut: what the model never saw bears nothing
        read = (*draft.context.evidence, *selection.noted)
        citable = tuple(sorted(read, key=lambda item: item.number))
        readable = replace(draft.context, evidence=citable)
        check = self._make_check(asked, readable)
        beside = readable.said_before or readable.told_by_tools
        grounded = bool(citable or beside or self.verifier)
        costly = grounded or len(draft.text) > MAX_CHECKED_AT_ONCE_CHARACTERS
        written = await _check_draft(draft, check, asked.trace, costly=costly)
        if written and self.reviser and ANSWER_CUT not in draft.notices:
            for step, better in self.reviser.list_steps(written):
                yield StepBegan(step, {"model": self.reviser.light.name})
                try:
                    with asked.trace.time_step(step):
                        revised = await better(written, readable, check)
                except Exception as error:  # the answer stands as it was written
                    logger.exception("answer_not_revised", step=step)
                    asked.trace.add({step: {"failure": type(error).__name__}})
                    continue
                kept = {"model": self.reviser.light.name, "draft_kept": revised.reason}
                asked.trace.add({step: kept})
                if revised.draft and revised.draft.text != written.text:
                    written = revised.draft
                    yield Replaced(written.text)
        if written:
            asked.trace.add({"grounding": summarise_verification(written.found)})
        cited = {one.number for one in (written or draft).citations}
        spans = written.found.spans if written else {}
        marked = _mark_cited(sources, selection.citable, cited, spans)
        shown = (
            _select_shown_sources(marked, selection.citable, {one.number for one in citable})
            if cited
            else ()
        )
        bearing = [item.document_id for item in citable if not item.weak]
        tied = written.found.citations if written else draft.citations
        yield _make_finished(
            asked,
            mode=AnswerMode.DOCUMENTS if shown else AnswerMode.GENERAL,
            label=written.found.label if written else None,
            sources=shown,
            usage=draft.usage,
            # general knowledge is not checked against passages that it never claimed to rest on
            checks=written.found.checks if written and cited else (),
            citations=_resolve_citations(tied, citable),
            bearing=tuple(dict.fromkeys(bearing)),
            notices=(*asked.notices, *draft.notices),
        )

    def _make_check(self, asked: AnalysedQuestion, readable: AnswerContext) -> Check:
        """What checks a text against what the model could read."""
        return functools.partial(
            verify_answer,
            evidence=readable.evidence,
            grounds=Grounds(asked=asked.found is not None, model=True),
            earlier=readable.said_before,
            tools=readable.told_by_tools,
            verifier=self.verifier,
        )

    async def _answer_from_passages(self, asked: AnalysedQuestion) -> AsyncGenerator[Event, None]:
        """The found passages themselves, where no model is configured; or that there are none."""
        trace = asked.trace
        looked_back = await self._recall_turns(asked)
        with trace.time_step("select"):
            evidence = await asyncio.to_thread(_select_offline_evidence, asked)
        with trace.time_step("generate"):
            answer = await asyncio.to_thread(
                answer_offline,
                asked.analysis,
                evidence,
                looked_back.turns,
                whole=asked.found is not None and asked.found.whole,
                named=_list_named_titles(asked, evidence),
                notices=asked.prompt_notices,
                language=asked.language,
            )
        sources = self._list_sources(asked, answer.evidence)
        if sources:
            yield SourcesFound(sources, asked.search_method)
        trace.add({"prompt": {"model": OFFLINE_MODEL}})
        detail = {"model": OFFLINE_MODEL, "passages": len(answer.cited)}
        yield StepBegan("generate", detail, trace.snapshot())
        trace.note_time_since_start("first_delta")
        yield Delta(answer.text)
        yield _make_finished(
            asked,
            mode=AnswerMode.DOCUMENTS if sources else AnswerMode.GENERAL,
            label=answer.label,
            sources=_mark_cited(sources, answer.evidence, answer.cited, answer.spans),
            citations=_resolve_citations(answer.citations, answer.evidence),
            notices=asked.notices,
        )

    def _list_sources(
        self, asked: AnalysedQuestion, evidence: Sequence[Evidence]
    ) -> tuple[AnswerSource, ...]:
        hits = asked.found.hits if asked.found else ()
        return to_sources(evidence, hits, dense=self.searcher.knows_language(asked.question.text))


def _shift_event(event: Event, opening: str) -> Event:
    """The event with its offsets and text moved behind an opening."""
    match event:
        case Replaced():
            return replace(event, text=opening + event.text)
        case Finished():
            moved = [
                replace(one, start=one.start + len(opening), end=one.end + len(opening))
                for one in event.checks
            ]
            cited = [replace(one, offset=one.offset + len(opening)) for one in event.citations]
            return replace(event, checks=tuple(moved), citations=tuple(cited))
        case _:
            return event


async def _prepend_at_once(
    opening: str, answer: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event, None]:
    """An opening, and the events of an answer that stands behind it."""
    yield Delta(opening)
    async with aclosing(answer) as events:
        async for event in events:
            yield _shift_event(event, opening)


async def _prepend_to_text(
    opening: str, answer: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event, None]:
    """The events of an answer whose text begins with an opening."""
    is_said = False
    async with aclosing(answer) as events:
        async for event in events:
            if isinstance(event, Delta) and not is_said:
                is_said = True
                yield replace(event, text=opening + event.text)
            else:
                yield _shift_event(event, opening)


def _list_relevant_texts(asked: AnalysedQuestion) -> list[str]:
    """The question and the passages that surely bear on it."""
    hits = asked.found.hits if asked.found else ()
    strong = [one for one in hits if one.scores.get("relevance", 0.0) >= STRONG_RELEVANCE]
    texts = [f"{hit.passage.title}\n{hit.passage.content}" for hit in strong[:MAX_CAUTION_PASSAGES]]
    return [asked.question.text, *texts]


def _list_fixed_events(given: FixedAnswer, asked: AnalysedQuestion) -> Iterator[Event]:
    """The events of a fixed answer."""
    if given.sources:
        yield SourcesFound(given.sources, given.mode.value)
    yield StepBegan("generate", {"model": FIXED_MODEL, "passages": 0}, asked.trace.snapshot())
    yield Delta(given.text)
    asked.trace.add({"prompt": {"model": FIXED_MODEL}})
    finished = _make_finished(asked, mode=given.mode, label=given.label, sources=given.sources)
    yield replace(finished, candidates=given.candidates, view=given.view)


def _make_finished(  # noqa: PLR0913 - the end of an answer, by name
    asked: AnalysedQuestion,
    *,
    mode: AnswerMode,
    label: AnswerLabel | None,
    sources: tuple[AnswerSource, ...] = (),
    usage: Usage | None = None,
    checks: tuple[Checked, ...] = (),
    citations: tuple[CitedPassage, ...] = (),
    bearing: tuple[UUID, ...] = (),
    notices: tuple[str, ...] = (),
) -> Finished:
    asked.trace.add({"mode": mode.value, "label": label.value if label else None})
    asked.trace.note_time_since_start("total")
    return Finished(
        mode=mode,
        question_type=asked.analysis.question_type,
        sources=sources or None,
        usage=usage,
        trace=asked.trace.snapshot(),
        label=label,
        checks=checks,
        citations=citations,
        bearing=bearing,
        notices=notices,
    )


def _add_evidence(
    context: AnswerContext, selection: Selection, asked: AnalysedQuestion
) -> AnswerContext:
    """The context with the passages that were chosen, and how they were found."""
    notices = asked.prompt_notices if selection.citable else ()
    return replace(context, evidence=selection.evidence, notices=notices)


def _count_turns(messages: Sequence[HistoryMessage]) -> int:
    return sum(message.role is Speaker.USER for message in messages)


async def _run_in_thread_if(
    costly: bool, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Call in a thread what is `costly`; the rest at once: a thread would cost more than that."""
    if costly:
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)


async def _check_draft(
    draft: AnswerDraft, check: Check, trace: AnswerTrace, *, costly: bool
) -> Written | None:
    """The answer with its check; None where that fails: the answer must not."""
    try:
        with trace.time_step("check"):
            found = await _run_in_thread_if(costly, check, draft.text, draft.citations)
    except Exception as error:
        logger.exception("answer_not_checked")
        trace.add({"grounding": {"failure": type(error).__name__}})
        return None
    return Written(draft.text, draft.citations, found)


def _mark_cited(
    sources: Sequence[AnswerSource],
    evidence: Sequence[Evidence],
    cited: Collection[int],
    spans: Mapping[int, tuple[Span, ...]],
) -> tuple[AnswerSource, ...]:
    """The sources with what the answer cites of each; both in the same order."""
    return tuple(
        replace(source, cited=item.number in cited, spans=spans.get(item.number, ()))
        for source, item in zip(sources, evidence, strict=True)
    )


def _resolve_citations(
    citations: Sequence[Citation], evidence: Sequence[Evidence]
) -> tuple[CitedPassage, ...]:
    """The citations with the passages that they stand for, in the order of the text."""
    known = {item.number: item for item in evidence}
    return tuple(
        CitedPassage(
            one.offset, known[one.number].slot, known[one.number].passage.chunk_id, one.spans
        )
        for one in sorted(citations, key=lambda one: one.offset)
        if one.number in known
    )


def _select_shown_sources(
    sources: Sequence[AnswerSource], evidence: Sequence[Evidence], read: Collection[int]
) -> tuple[AnswerSource, ...]:
    """The sources that an answer keeps: what it cites, and the best of what else was read.

    Each document up to the last one that is cited keeps a source, so that slots have no gaps.
    """
    last = max(source.slot for source in sources if source.cited)
    kept: list[AnswerSource] = []
    for source, item in zip(sources, evidence, strict=True):
        is_first = source.slot not in {one.slot for one in kept}
        has_room = sum(not one.cited for one in kept) < MAX_REVIEWED
        is_reviewed = has_room and not item.weak and item.number in read
        if source.cited or ((is_first or is_reviewed) and source.slot <= last):
            kept.append(source)
    return tuple(kept)


def _select_offline_evidence(asked: AnalysedQuestion) -> tuple[Evidence, ...]:
    """The passages to show without a model: whole documents in order, or the best passages."""
    found = asked.found
    if found is None:
        return ()
    if kept := restore_passages(asked.unreadable_documents, MAX_READ_PASSAGES):
        return to_evidence(kept, {passage.key: 1.0 for passage in kept})
    if found.whole:
        within = asked.store.within(found.named or found.plan.scope.document_ids)
        whole = within.read_all(MAX_CHUNKS_OUTLINED) or within.read_openings(MAX_CHUNKS_OUTLINED)
        return to_evidence(whole, {passage.key: 1.0 for passage in whole})
    relevance = {hit.passage.key: hit.scores.get("relevance", 0.0) for hit in found.hits}
    return to_evidence([hit.passage for hit in found.hits[:MAX_READ_PASSAGES]], relevance)


def _list_named_titles(asked: AnalysedQuestion, evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """Names, without the ending, of the documents that the question is about, where it says so."""
    found = asked.found
    if found is None:
        return ()
    chosen = found.plan.scope.reason in (ScopeReason.EXPLICIT, ScopeReason.SLOT)
    if not chosen and not found.plan.filters:
        return ()
    return tuple(dict.fromkeys(item.passage.name for item in evidence))

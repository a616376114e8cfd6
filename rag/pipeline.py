"""Answers a question, from its analysis to the check of the answer.

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
    fit_earlier_conversation,
    fit_profile,
    make_budget,
    resolve_context_tokens,
)
from rag.context.prompt import AnswerContext, build_messages, count_characters
from rag.conversation import DocRef, Question
from rag.errors import NuraError, RetrievalFailed
from rag.events import (
    ANSWER_CUT,
    OTHER_LANGUAGE,
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
from rag.generate.llm import SECONDS_PER_PART, Check, CheckedAnswer, Reviser, SectionReader, Writer
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
    CheckedSentence,
    Citation,
    CitedPassage,
    Evidence,
    HistoryMessage,
    Hit,
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
"""Passages considered if there is no language model."""
MAX_SUPPLY_PASSAGES = 40
"""Passages that a search supplies for a prompt."""
OFFLINE_MODEL = "passages"
"""Model name in events and traces if no model is configured."""
FIXED_MODEL = "fixed"
"""Model name in events and traces of fixed answers."""
MAX_UNSHOWN_PASSAGES = 8
"""Passages that an answer keeps in addition to those it cites."""
MAX_CHECKED_AT_ONCE_CHARACTERS = 400
"""Shorter answers without evidence are checked without a thread, which would take longer."""
MAX_CAUTION_PASSAGES = 4
"""Best passages in which the user's allergies are looked for."""
MAX_PASSAGES_SAMPLED = 20
"""First passages of documents that tell which language they are in."""
MAX_CHUNKS_OUTLINED = 400
"""Chunks of whole documents considered if there is no language model."""


@dataclass(frozen=True, slots=True)
class AnalysedQuestion:
    """A question with its store and history, its analysis, and what was found.

    `retrieval` is None if nothing was searched or the search failed; `notices` are codes of what
    the reader should know.
    """

    question: Question
    store: PassageStore
    history: HistoryStore
    trace: AnswerTrace
    analysis: QuestionAnalysis
    language: str
    retrieval: Retrieval | None = None
    notices: tuple[str, ...] = ()

    @property
    def is_searched(self) -> bool:
        """Whether documents are searched."""
        is_smalltalk = self.analysis.question_type is QuestionType.SMALLTALK
        return not is_smalltalk and bool(self.analysis.scope.document_ids)

    @property
    def unreadable_documents(self) -> tuple[DocRef, ...]:
        """Documents that the question refers to by number and that can no longer be read."""
        reference = self.analysis.reference
        readable = self.question.conversation.readable
        documents = reference.documents if reference else ()
        return tuple(ref for ref in documents if ref.document_id not in readable)

    @property
    def needs_whole_documents(self) -> bool:
        """Whether the documents that it is about are to be read from end to end."""
        if self.retrieval is None:
            return False
        is_chosen = (
            self.retrieval.named_documents
            or self.retrieval.plan.scope.reason is not ScopeReason.ALL
        )
        return self.retrieval.whole or (self.analysis.whole and bool(is_chosen))

    @property
    def is_fresh_start(self) -> bool:
        """Whether the question starts afresh."""
        return self.analysis.forgets or self.question.topic is Topic.NEW

    @property
    def first_recallable_turn(self) -> int:
        """Number of the first turn that may be recalled; 1 if the user refers back."""
        if self.analysis.reference is not None or is_recalling(self.analysis.text):
            return 1
        conversation = self.question.conversation
        return conversation.total + 1 if self.is_fresh_start else conversation.begins_at

    @property
    def prompt_notices(self) -> tuple[str, ...]:
        """Names of prompts that tell the model how the passages were found."""
        if self.retrieval is None:
            return ()
        widened = ("notice_widened",) if self.retrieval.widened else ()
        return (*widened, *(("notice_gone",) if self.unreadable_documents else ()))

    @property
    def hits(self) -> tuple[Hit, ...]:
        """What was found, best first; empty if nothing was searched."""
        return self.retrieval.hits if self.retrieval else ()

    @property
    def strong_hits(self) -> list[Hit]:
        """The hits that are clearly relevant."""
        return [hit for hit in self.hits if hit.scores.get("relevance", 0.0) >= STRONG_RELEVANCE]

    @property
    def search_method(self) -> str:
        """How passages were searched for."""
        return self.retrieval.plan.strategy.value if self.retrieval else ""


@dataclass(slots=True)
class AnswerDraft:
    """The answer as it grows. `context` is what the model read, shortened if it was too long."""

    context: AnswerContext
    text: str = ""
    citations: tuple[Citation, ...] = ()
    usage: Usage | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Answers questions with one configuration. Safe in any number of tasks and loops.

    `writer` is None if no language model is configured. `light` reads questions and parts of
    documents; it is the main model if no light one is configured.
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
        """The kinds of facts remembered about users."""
        return load_packs(self.config.profile.packs)

    def answer(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> AsyncGenerator[Event, None]:
        """The events of an answer. Raises `LLMError` only, before or after deltas.

        In an emergency, the numbers to call come first, before anything is searched.
        """
        answer = self._answer(question, store, history)
        note = write_emergency_note(question.text)
        return _prepend_at_once(f"{note}\n\n", answer) if note else answer

    async def _answer(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> AsyncGenerator[Event, None]:
        analysed, fixed_answer = await self._analyse(question, store, history)
        if fixed_answer is not None:
            for event in _list_fixed_events(fixed_answer, analysed):
                yield event
            return
        if analysed.is_searched:
            yield StepBegan("retrieve", {"documents": len(analysed.analysis.scope.document_ids)})
        analysed = await self._retrieve(analysed)
        for status in list_statuses(analysed.trace.values):
            yield status
        if question.conversation.total and is_recalling(analysed.analysis.text):
            yield StepBegan("explore")
        answer = (
            self._write_answer(self.writer, analysed)
            if self.writer
            else self._answer_from_passages(analysed)
        )
        caution = self._write_caution(analysed, profile) if (profile := question.profile) else ""
        async with aclosing(_prepend_to_text(caution, answer) if caution else answer) as events:
            async for event in events:
                yield event

    def _write_caution(self, analysed: AnalysedQuestion, profile: Sequence[Slot]) -> str:
        """A warning about allergies of the user that the question or its passages mention."""
        note = write_caution(profile, _list_relevant_texts(analysed), self.packs, analysed.language)
        return f"{note}\n\n" if note else ""

    def _rank_profile(self, analysed: AnalysedQuestion) -> tuple[Slot, ...]:
        """What is remembered about the user and still valid, best first; the trace has only ids."""
        rules, profile = self.config.profile, analysed.question.profile
        if not profile:
            return ()
        slots = rank_slots(
            profile,
            analysed.analysis.standalone,
            self.packs,
            now=datetime.now(UTC),
            half_life_days=rules.half_life_days,
        )
        if slots:
            analysed.trace.add({"profile": {"slots": [slot.id for slot in slots]}})
        return slots

    async def preview_prompt(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> tuple[HistoryMessage, ...]:
        """The prompt of a question, without calling the model that answers.

        For whole documents that do not fit, it shows passages instead of notes. Empty if no model
        would be called.
        """
        analysed, fixed_answer = await self._analyse(question, store, history)
        if fixed_answer is not None or self.writer is None:
            return ()
        analysed = await self._retrieve(analysed)
        context, budget, selection = await self._prepare_prompt(self.writer, analysed)
        if selection.portions:
            selection = selection.with_noted_passages(
                (), budget.room, budget.make_cost_counter(analysed.language)
            )
        return build_messages(_add_evidence(context, selection, analysed))

    async def _analyse(
        self, question: Question, store: PassageStore, history: HistoryStore
    ) -> tuple[AnalysedQuestion, FixedAnswer | None]:
        """The analysed question, and its answer if that takes neither a search nor a model."""
        trace = AnswerTrace()
        with trace.time_step("understand"):
            analysis = await analyse_question(
                question, history, self.config, self.searcher.embedder, self.light
            )
        trace.add(describe_analysis(question, analysis))
        trace.add({"models": {"embedder": self.searcher.embedder.name}})
        language = choose_reply_language(question.text)
        if reply := answer_memory_wish(question, self.packs, language):
            return AnalysedQuestion(question, store, history, trace, analysis, language), reply
        needs_document = analysis.reference is not None and analysis.reference.whole
        fixed_answer = await _run_in_thread_if(
            needs_document, find_fixed_answer, question, analysis, store, language
        )
        return AnalysedQuestion(question, store, history, trace, analysis, language), fixed_answer

    async def _retrieve(self, analysed: AnalysedQuestion) -> AnalysedQuestion:
        """The question with what was found, or with a notice if the search failed."""
        if not analysed.is_searched:
            return analysed
        trace, analysis = analysed.trace, analysed.analysis
        try:
            with trace.time_step("retrieve"):
                retrieval = await asyncio.to_thread(self._search, analysed)
        except Exception as error:
            logger.warning("retrieval_failed", exc_info=error)
            trace.add({"fallback": {"code": RetrievalFailed.code}})
            return replace(analysed, notices=(RetrievalFailed.code,))
        if retrieval.plan.follows and not analysis.follows:  # the search found it to be a follow-up
            analysis = bind_to_conversation(analysis, analysis.certainty)
            trace.add(describe_analysis(analysed.question, analysis))
        trace.add(describe_retrieval(retrieval))
        scope = describe_scope(
            analysed.question, analysis, retrieval.plan.scope, widened=retrieval.widened
        )
        trace.add({"scope": scope})
        notices = (retrieval.error_code,) if retrieval.error_code else ()
        if notices:
            trace.add({"fallback": {"code": retrieval.error_code}})
        return replace(analysed, analysis=analysis, retrieval=retrieval, notices=notices)

    def _search(self, analysed: AnalysedQuestion) -> Retrieval:
        store = narrow_store(analysed.store, analysed.question, analysed.analysis.scope)
        return self.searcher.search(analysed.analysis, store, depth=MAX_SUPPLY_PASSAGES)

    async def _write_answer(
        self, writer: Writer, analysed: AnalysedQuestion
    ) -> AsyncGenerator[Event, None]:
        """The answer of the language model."""
        context, budget, selection = await self._prepare_prompt(writer, analysed)
        draft = AnswerDraft(context)
        if selection.portions and self.light:
            patient_light = replace(self.light, seconds=SECONDS_PER_PART)
            reader = SectionReader(patient_light, analysed.language, context.fence)
            reading = reader.read(analysed.analysis.standalone, selection.portions)
            async with aclosing(reading) as parts:
                async for part in parts:
                    yield StepBegan("read", {"part": part, "parts": len(selection.portions)})
            notes = reader.fit_notes(budget.room // 2, writer.counter)
            context = replace(context, notes=tuple(note.text for note in notes))
            numbers = {number for note in notes for number in note.numbers}
            room = budget.room - writer.counter.count("\n".join(context.notes))
            selection = selection.with_noted_passages(
                numbers, room, budget.make_cost_counter(analysed.language)
            )
            if reader.unread or selection.incomplete or len(notes) < len(reader.notes):
                draft.notices = (PARTS_UNREAD,)
        draft.context = _add_evidence(context, selection, analysed)
        messages = build_messages(draft.context)
        prompt = {"model": writer.name, **count_characters(messages, draft.context)}
        token_plan = budget.describe(selection.tokens, selection.dropped_count)
        evidence = selection.describe()
        analysed.trace.add({"evidence": evidence, "token_plan": token_plan, "prompt": prompt})
        sources = self._list_sources(analysed, selection.citable)
        if sources:
            yield SourcesFound(sources, analysed.search_method)
        detail = {"model": writer.name, "passages": len(selection.citable)}
        yield StepBegan("generate", detail, analysed.trace.snapshot())
        answer = self._stream_answer(writer, analysed, messages, selection, draft)
        async with aclosing(answer) as events:
            async for event in events:
                yield event
        async with aclosing(self._verify_and_finish(analysed, selection, sources, draft)) as events:
            async for event in events:
                yield event

    async def _prepare_prompt(
        self, writer: Writer, analysed: AnalysedQuestion
    ) -> tuple[AnswerContext, Budget, Selection]:
        """The context of the prompt, its budget, and the passages for the remaining room."""
        context, budget, window = await self._begin_context(writer, analysed)
        recalled = await self._recall_turns(analysed, context.window)
        first_shown_turn = analysed.question.conversation.total + 1 - _count_turns(context.window)
        context = replace(
            context,
            recalled_turns=tuple(turn for turn in recalled.turns if turn.number < first_shown_turn),
            findings=recalled.findings,
            summary=window.render_summary({turn.number for turn in recalled.turns}),
        )
        context, budget = fit_earlier_conversation(context, budget)
        with analysed.trace.time_step("select"):
            selection = await self._select_evidence(analysed, budget)
        return context, budget, selection

    async def _begin_context(
        self, writer: Writer, analysed: AnalysedQuestion
    ) -> tuple[AnswerContext, Budget, Window]:
        """The question with the last messages that fit, the remaining budget, and the window."""
        question, analysis = analysed.question, analysed.analysis
        pairs = question.history_pairs
        window = open_window(
            question.conversation,
            pairs=self.config.history_pairs if pairs is None else pairs,
            forgets=analysed.is_fresh_start,
        )
        messages, last_titles = window.messages, tuple[str, ...]()
        last_turn = question.conversation.last_turn
        if analysis.follows and last_turn:
            messages = show_last_turn_whole(window.messages, last_turn)
            last_titles = tuple(ref.title or ref.source for ref in last_turn.doc_refs)
        slots = self._rank_profile(analysed)
        # a question about the conversation keeps its wording: a completed one would mislead
        is_plain = analysis.standalone == analysis.text or is_recalling(analysis.text)
        context = AnswerContext(
            question=analysis.text or question.text,
            language=analysed.language,
            today=date.today(),  # noqa: DTZ011 - the day of the place where it runs
            fence=self.config.fence,
            standalone="" if is_plain else analysis.standalone,
            window=messages,
            last_titles=last_titles,
            was_searched=analysed.retrieval is not None,
            persona=question.persona,
            shape=INTENT_TEMPLATES[analysis.intent].shape if analysed.is_searched else "",
            profile=describe_slots(slots, self.packs, analysed.language),
            protected_count=sum(is_protected(slot, self.packs) for slot in slots),
            is_medical=is_medical(_list_relevant_texts(analysed)),
            tool_results=question.tool_results,
        )
        tokens = await resolve_context_tokens(self.config)
        budget = make_budget(context, replace(self.config.context, tokens=tokens), writer.counter)
        context, budget = fit_profile(*fit_conversation(context, budget))
        return context, budget, window

    async def _recall_turns(
        self, analysed: AnalysedQuestion, window: Sequence[HistoryMessage] = ()
    ) -> RecallResult:
        """Older turns relevant to the question; none if their store fails.

        `window` are the messages in the prompt anyway.
        """
        recalled = RecallResult()
        conversation = analysed.question.conversation
        history: dict[str, object] = {
            "turns": conversation.total,
            "messages": len(window),
            "characters": sum(len(message.content) for message in window),
            "summary_through": conversation.summary.through if conversation.summary else None,
        }
        if analysed.analysis.question_type is not QuestionType.SMALLTALK and conversation.total:
            # at most two model calls before the first word, including the answer's own
            has_asked_model = analysed.analysis.by == "light_llm" or bool(analysed.analysis.failed)
            try:
                with analysed.trace.time_step("recall"):
                    recalled = await self.recaller.recall_turns(
                        analysed.analysis.text,
                        conversation.total,
                        _count_turns(window),
                        analysed.history,
                        analysed.store,
                        documents={hit.passage.document_id for hit in analysed.strong_hits},
                        since=analysed.first_recallable_turn,
                        may_ask=not has_asked_model,
                    )
                history["selected"] = [turn.number for turn in recalled.turns]
            except Exception as error:
                logger.warning("turns_not_recalled", exc_info=error)
                analysed.trace.add({"history_failure": type(error).__name__})
        analysed.trace.add({**recalled.trace, "history": history})
        return recalled

    async def _select_evidence(self, analysed: AnalysedQuestion, budget: Budget) -> Selection:
        """The evidence; for documents no longer readable, what earlier answers showed of them."""
        if analysed.retrieval is None:
            return Selection()
        cost = budget.make_cost_counter(analysed.language)
        if restored := restore_passages(analysed.unreadable_documents, MAX_READ_PASSAGES):
            return select_passages(restored, room=budget.room, cost=cost)
        try:
            return await asyncio.to_thread(
                select_evidence,
                replace(analysed.retrieval, whole=analysed.needs_whole_documents),
                analysed.store.within(analysed.retrieval.plan.scope.document_ids),
                room=budget.room,
                cost=cost,
            )
        except NuraError as error:  # the hits are still there
            logger.warning("passages_not_selected", code=error.code)
            analysed.trace.add({"selection_failure": error.code})
            passages = [hit.passage for hit in analysed.retrieval.hits]
            return select_passages(passages, room=budget.room, cost=cost)

    async def _stream_answer(
        self,
        writer: Writer,
        analysed: AnalysedQuestion,
        messages: Sequence[HistoryMessage],
        selection: Selection,
        draft: AnswerDraft,
    ) -> AsyncGenerator[Event, None]:
        """The model's text as it arrives; `draft` holds all of it at the end."""
        trace = analysed.trace
        citations = CitationFilter(selection.citable)

        def reset_citations(trimmed: AnswerContext) -> None:
            nonlocal citations
            draft.context = trimmed
            citations = CitationFilter((*trimmed.evidence, *selection.noted))
            trace.add(
                {"trimmed": {"passages": len(trimmed.evidence), "messages": len(trimmed.window)}}
            )

        texts: list[str] = []
        with trace.time_step("generate"):
            pieces = writer.stream_answer(
                draft.context, messages, analysed.question.sampling, reset_citations
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
                        if not texts:
                            trace.note_time_since_start("first_delta")
                        texts.append(text)
                        yield Delta(text)
            if text := citations.flush():
                texts.append(text)
                yield Delta(text)
        draft.text, draft.citations = "".join(texts), citations.citations

    async def _verify_and_finish(
        self,
        analysed: AnalysedQuestion,
        selection: Selection,
        sources: Sequence[AnswerSource],
        draft: AnswerDraft,
    ) -> AsyncGenerator[Event, None]:
        """Verify the answer, revise it if that helps, label it, and yield the last events."""
        # only what the model saw counts: a prompt that was too long has been cut
        evidence = (*draft.context.evidence, *selection.noted)
        citable = tuple(sorted(evidence, key=lambda item: item.number))
        readable = replace(draft.context, evidence=citable)
        check = self._make_check(analysed, readable)
        other_texts = readable.conversation_texts or readable.tool_texts
        is_checkable = bool(citable or other_texts or self.verifier)
        is_costly = is_checkable or len(draft.text) > MAX_CHECKED_AT_ONCE_CHARACTERS
        answer = await _check_draft(draft, check, analysed.trace, is_costly=is_costly)
        if answer and self.reviser and ANSWER_CUT not in draft.notices:
            for step, improve in self.reviser.list_steps(answer):
                yield StepBegan(step, {"model": self.reviser.light.name})
                try:
                    with analysed.trace.time_step(step):
                        revision = await improve(answer, readable, check)
                except Exception as error:  # the answer stands as it was written
                    logger.exception("answer_not_revised", step=step)
                    analysed.trace.add({step: {"failure": type(error).__name__}})
                    continue
                outcome = {"model": self.reviser.light.name, "draft_kept": revision.reason}
                analysed.trace.add({step: outcome})
                if revision.draft and revision.draft.text != answer.text:
                    answer = revision.draft
                    yield Replaced(answer.text)
        label = answer.verification.label if answer else None
        if answer:
            analysed.trace.add({"grounding": summarise_verification(answer.verification)})
        cited_numbers = {citation.number for citation in (answer or draft).citations}
        spans = answer.verification.spans if answer else {}
        marked_sources = _mark_cited(sources, selection.citable, cited_numbers, spans)
        shown_sources = (
            _select_shown_sources(
                marked_sources, selection.citable, {item.number for item in citable}
            )
            if cited_numbers
            else ()
        )
        relevant_document_ids = [item.document_id for item in citable if not item.weak]
        citations = answer.verification.citations if answer else draft.citations
        yield _make_finished(
            analysed,
            mode=AnswerMode.DOCUMENTS if shown_sources else AnswerMode.GENERAL,
            label=label,
            sources=shown_sources,
            usage=draft.usage,
            # general knowledge is not shown as checked against passages it never cited
            checks=answer.verification.checks if answer and cited_numbers else (),
            citations=_resolve_citations(citations, citable),
            relevant_document_ids=tuple(dict.fromkeys(relevant_document_ids)),
            notices=await self._list_notices(analysed, label, draft.notices),
        )

    def _make_check(self, analysed: AnalysedQuestion, readable: AnswerContext) -> Check:
        """A function that checks a text against what the model could read."""
        return functools.partial(
            verify_answer,
            evidence=readable.evidence,
            grounds=Grounds(asked=analysed.retrieval is not None, model=True),
            earlier=readable.conversation_texts,
            tools=readable.tool_texts,
            verifier=self.verifier,
        )

    async def _answer_from_passages(
        self, analysed: AnalysedQuestion
    ) -> AsyncGenerator[Event, None]:
        """Without a model: the passages themselves, or that none was found."""
        trace = analysed.trace
        recalled = await self._recall_turns(analysed)
        with trace.time_step("select"):
            evidence = await asyncio.to_thread(_select_offline_evidence, analysed)
        with trace.time_step("generate"):
            answer = await asyncio.to_thread(
                answer_offline,
                analysed.analysis,
                evidence,
                recalled.turns,
                is_whole_document=analysed.retrieval is not None and analysed.retrieval.whole,
                named_titles=_list_named_titles(analysed, evidence),
                notices=analysed.prompt_notices,
                language=analysed.language,
            )
        sources = self._list_sources(analysed, answer.evidence)
        if sources:
            yield SourcesFound(sources, analysed.search_method)
        trace.add({"prompt": {"model": OFFLINE_MODEL}})
        detail = {"model": OFFLINE_MODEL, "passages": len(answer.cited)}
        yield StepBegan("generate", detail, trace.snapshot())
        trace.note_time_since_start("first_delta")
        yield Delta(answer.text)
        yield _make_finished(
            analysed,
            mode=AnswerMode.DOCUMENTS if sources else AnswerMode.GENERAL,
            label=answer.label,
            sources=_mark_cited(sources, answer.evidence, answer.cited, answer.spans),
            citations=_resolve_citations(answer.citations, answer.evidence),
            notices=await self._list_notices(analysed, answer.label),
        )

    async def _list_notices(
        self,
        analysed: AnalysedQuestion,
        label: AnswerLabel | None,
        draft_notices: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        """What readers of an answer with this label should know."""
        notices = (*analysed.notices, *draft_notices)
        is_unfound = label is AnswerLabel.INSUFFICIENT and analysed.retrieval is not None
        if is_unfound and await self._is_in_other_language(analysed):
            notices += (OTHER_LANGUAGE,)
        return notices

    async def _is_in_other_language(self, analysed: AnalysedQuestion) -> bool:
        """Whether all documents in scope are in another language than the question.

        Not if the embedder knows both languages: it finds what one says in the other.
        """
        store = narrow_store(analysed.store, analysed.question, analysed.analysis.scope)
        try:
            passages = await asyncio.to_thread(store.read_openings, MAX_PASSAGES_SAMPLED)
        except Exception as error:  # the answer stands without the notice
            logger.warning("language_not_compared", exc_info=error)
            return False
        is_known = self.searcher.knows_language(analysed.question.text) and all(
            self.searcher.knows_language(passage.text) for passage in passages
        )
        languages = {choose_reply_language(passage.text) for passage in passages}
        return bool(languages) and analysed.language not in languages and not is_known

    def _list_sources(
        self, analysed: AnalysedQuestion, evidence: Sequence[Evidence]
    ) -> tuple[AnswerSource, ...]:
        """The sources of the evidence, in the same order, with the scores of their hits."""
        return to_sources(
            evidence, analysed.hits, dense=self.searcher.knows_language(analysed.question.text)
        )


def _shift_event(event: Event, opening: str) -> Event:
    """The event with its text and offsets shifted by an opening."""
    match event:
        case Replaced():
            return replace(event, text=opening + event.text)
        case Finished():
            checks = [
                replace(check, start=check.start + len(opening), end=check.end + len(opening))
                for check in event.checks
            ]
            citations = [
                replace(citation, offset=citation.offset + len(opening))
                for citation in event.citations
            ]
            return replace(event, checks=tuple(checks), citations=tuple(citations))
        case _:
            return event


async def _prepend_at_once(
    opening: str, answer: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event, None]:
    """An opening at once, then the events of the answer."""
    yield Delta(opening)
    async with aclosing(answer) as events:
        async for event in events:
            yield _shift_event(event, opening)


async def _prepend_to_text(
    opening: str, answer: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event, None]:
    """The events of an answer, with an opening before its first text."""
    has_begun = False
    async with aclosing(answer) as events:
        async for event in events:
            if isinstance(event, Delta) and not has_begun:
                has_begun = True
                yield replace(event, text=opening + event.text)
            else:
                yield _shift_event(event, opening)


def _list_relevant_texts(analysed: AnalysedQuestion) -> list[str]:
    """The question and the passages that are clearly relevant."""
    passages = [hit.passage for hit in analysed.strong_hits[:MAX_CAUTION_PASSAGES]]
    texts = [f"{passage.title}\n{passage.content}" for passage in passages]
    return [analysed.question.text, *texts]


def _list_fixed_events(answer: FixedAnswer, analysed: AnalysedQuestion) -> Iterator[Event]:
    """The events of a fixed answer."""
    if answer.sources:
        yield SourcesFound(answer.sources, answer.mode.value)
    yield StepBegan("generate", {"model": FIXED_MODEL, "passages": 0}, analysed.trace.snapshot())
    yield Delta(answer.text)
    analysed.trace.add({"prompt": {"model": FIXED_MODEL}})
    finished = _make_finished(
        analysed, mode=answer.mode, label=answer.label, sources=answer.sources
    )
    yield replace(finished, candidates=answer.candidates, view=answer.view)


def _make_finished(  # noqa: PLR0913 - the end of an answer, by name
    analysed: AnalysedQuestion,
    *,
    mode: AnswerMode,
    label: AnswerLabel | None,
    sources: tuple[AnswerSource, ...] = (),
    usage: Usage | None = None,
    checks: tuple[CheckedSentence, ...] = (),
    citations: tuple[CitedPassage, ...] = (),
    relevant_document_ids: tuple[UUID, ...] = (),
    notices: tuple[str, ...] = (),
) -> Finished:
    analysed.trace.add({"mode": mode.value, "label": label.value if label else None})
    analysed.trace.note_time_since_start("total")
    return Finished(
        mode=mode,
        question_type=analysed.analysis.question_type,
        sources=sources or None,
        usage=usage,
        trace=analysed.trace.snapshot(),
        label=label,
        checks=checks,
        citations=citations,
        relevant_document_ids=relevant_document_ids,
        notices=notices,
    )


def _add_evidence(
    context: AnswerContext, selection: Selection, analysed: AnalysedQuestion
) -> AnswerContext:
    """The context with the selected passages and how they were found."""
    notices = analysed.prompt_notices if selection.citable else ()
    return replace(context, evidence=selection.evidence, notices=notices)


def _count_turns(messages: Sequence[HistoryMessage]) -> int:
    return sum(message.role is Speaker.USER for message in messages)


async def _run_in_thread_if(
    is_costly: bool, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Call `function`, in a thread if that takes longer than starting one."""
    if is_costly:
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)


async def _check_draft(
    draft: AnswerDraft, check: Check, trace: AnswerTrace, *, is_costly: bool
) -> CheckedAnswer | None:
    """The draft with its verification; None if that fails, which must not fail the answer."""
    try:
        with trace.time_step("check"):
            verification = await _run_in_thread_if(is_costly, check, draft.text, draft.citations)
    except Exception as error:
        logger.exception("answer_not_checked")
        trace.add({"grounding": {"failure": type(error).__name__}})
        return None
    return CheckedAnswer(draft.text, draft.citations, verification)


def _mark_cited(
    sources: Sequence[AnswerSource],
    evidence: Sequence[Evidence],
    cited_numbers: Collection[int],
    spans: Mapping[int, tuple[Span, ...]],
) -> tuple[AnswerSource, ...]:
    """The sources, marked as cited, with their spans; `evidence` is in the same order."""
    return tuple(
        replace(source, cited=item.number in cited_numbers, spans=spans.get(item.number, ()))
        for source, item in zip(sources, evidence, strict=True)
    )


def _resolve_citations(
    citations: Sequence[Citation], evidence: Sequence[Evidence]
) -> tuple[CitedPassage, ...]:
    """The citations with their passages, in the order of the text."""
    evidence_by_number = {item.number: item for item in evidence}
    return tuple(
        CitedPassage(
            citation.offset,
            evidence_by_number[citation.number].slot,
            evidence_by_number[citation.number].passage.chunk_id,
            citation.spans,
        )
        for citation in sorted(citations, key=lambda citation: citation.offset)
        if citation.number in evidence_by_number
    )


def _select_shown_sources(
    sources: Sequence[AnswerSource], evidence: Sequence[Evidence], read_numbers: Collection[int]
) -> tuple[AnswerSource, ...]:
    """The sources that an answer keeps: those cited, and the best of the others.

    Each document up to the last cited one keeps a source, so that slots have no gaps.
    """
    last_cited_slot = max(source.slot for source in sources if source.cited)
    shown: list[AnswerSource] = []
    for source, item in zip(sources, evidence, strict=True):
        is_first = source.slot not in {other.slot for other in shown}
        has_room = sum(not other.cited for other in shown) < MAX_UNSHOWN_PASSAGES
        is_reviewed = has_room and not item.weak and item.number in read_numbers
        if source.cited or ((is_first or is_reviewed) and source.slot <= last_cited_slot):
            shown.append(source)
    return tuple(shown)


def _select_offline_evidence(analysed: AnalysedQuestion) -> tuple[Evidence, ...]:
    """The passages to show without a model: whole documents in order, or the best passages."""
    retrieval = analysed.retrieval
    if retrieval is None:
        return ()
    if restored := restore_passages(analysed.unreadable_documents, MAX_READ_PASSAGES):
        return to_evidence(restored, {passage.key: 1.0 for passage in restored})
    if retrieval.whole:
        store = analysed.store.within(
            retrieval.named_documents or retrieval.plan.scope.document_ids
        )
        passages = store.read_all(MAX_CHUNKS_OUTLINED) or store.read_openings(MAX_CHUNKS_OUTLINED)
        return to_evidence(passages, {passage.key: 1.0 for passage in passages})
    relevance = {hit.passage.key: hit.scores.get("relevance", 0.0) for hit in retrieval.hits}
    return to_evidence([hit.passage for hit in retrieval.hits[:MAX_READ_PASSAGES]], relevance)


def _list_named_titles(analysed: AnalysedQuestion, evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """File names, without extension, of the documents that the question explicitly is about."""
    retrieval = analysed.retrieval
    if retrieval is None:
        return ()
    is_chosen = retrieval.plan.scope.reason in (ScopeReason.EXPLICIT, ScopeReason.SLOT)
    if not is_chosen and not retrieval.plan.filters:
        return ()
    return tuple(dict.fromkeys(item.passage.name for item in evidence))

"""One run from its lease to its end, and what becomes of a run whose worker is gone.

The engine's events go to the log, the end goes to the database. A run ends in one of four ways: the
engine finishes, the user stops it, the engine fails, or the lease is lost (then somebody else ends
it and nothing more is written here).
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import Error as DatabaseError
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from redis.exceptions import RedisError

from chats import access
from chats.errors import RunLost
from chats.history import Branch, BranchHistory, get_history_pairs, load_conversation
from chats.models import Assistant, Feedback, Message, ProfileSlot, Run, Turn
from chats.runs import log, reader
from chats.runs.dispatch import dispatch_run_again
from chats.runs.log import RunEvent
from chats.runs.summaries import summarise_held_turn
from chats.runs.writer import RunWriter
from chats.serializers import to_sources_json, to_started_data, to_terminal_event
from chats.services import answer_cache, tools
from chats.services.answer_cache import CacheHit, CacheKey
from chats.services.assistants import to_persona
from chats.services.memory import extract_from_turn, learn_from_turn, load_profiles
from chats.services.turn_store import AnswerOutcome
from chats.services.turns import close_turn
from documents import spaces
from documents.connected.choice import ModelNotAllowed, choose_config
from documents.libraries import find_unreadable_documents
from documents.models import Document
from documents.search.store import ReleasingStore, ScopedStore
from documents.spaces import SpaceInUse
from jobs.connections import KEYS, KeptQuery, in_database
from jobs.lease import Heartbeat, Lease, claim_job, claim_next_jobs, release_lease, renew_leases
from rag.config import RagConfig
from rag.conversation import DocRef, Memory, Persona, Question, Sampling
from rag.errors import NuraError
from rag.events import (
    Delta,
    Event,
    Finished,
    Reasoning,
    Replaced,
    SourcesFound,
    StepBegan,
    measure_milliseconds_since,
)
from rag.factory import get_embedding_model_name, get_engine, get_main_model
from rag.memory.profile import Slot
from rag.ports import ToolCaller
from rag.types import AnswerSource, CheckedSentence, CitedPassage, Scope, ScopeReason, Topic

logger = structlog.get_logger()

CLOSE_SECONDS = 60.0
"""How long the end of an answer waits for a database that is away."""
RETRY_SECONDS = 1.0
BEATS_A_TEXT = 3
"""The text so far is stored with one heartbeat in so many."""


# The question


@dataclass(frozen=True, slots=True)
class LoadedQuestion:
    """A question, its two stores, and the configuration that goes with the vectors in them."""

    question: Question
    store: ScopedStore
    history: BranchHistory
    config: RagConfig


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run claimed by this process, with its message, question, chat and owner, and its space.

    `profile` is what memory knows about the owner; None if the answer must not use it. `refused` is
    why its language model may no longer answer.
    """

    lease: Lease[Run]
    run: Run
    space_in_use: SpaceInUse
    profile: tuple[Slot, ...] | None = None
    refused: NuraError | None = None


def claim_run(run_id: UUID) -> list[ClaimedRun]:
    """Claim a run; empty if somebody else holds it."""
    lease = claim_job(Run, run_id)
    return load_claimed_runs([lease]) if lease else []


def claim_waiting_runs(limit: int) -> list[ClaimedRun]:
    """Claim the runs whose turn it is, at most `limit`, and of one owner as many as he may have."""
    limit_per_owner = settings.LIMITS["answers"]
    return load_claimed_runs(claim_next_jobs(Run, limit=limit, limit_per_owner=limit_per_owner))


def _select_runs(run_ids: object) -> QuerySet[Run]:
    profile_slots = ProfileSlot.objects.filter(owner=OuterRef("owner"))
    rows: QuerySet[Run] = Run.objects.annotate(is_owner_known=Exists(profile_slots))  # type: ignore[no-redef]
    joined = rows.select_related("message__parent", "message__chat__owner__profile_choice")
    return joined.extra(where=["chats_run.id = ANY(%s)"], params=[run_ids])


_runs = KeptQuery(_select_runs, KEYS)


def load_claimed_runs(leases: Sequence[Lease[Run]]) -> list[ClaimedRun]:
    """Load in one go what runs need before they begin; runs that are gone are left out."""
    if not leases:
        return []
    runs = {run.pk: run for run in _runs.fetch([lease.job_id for lease in leases])}
    space_in_use = spaces.get_space_in_use()
    known_owner_ids = {run.owner_id for run in runs.values() if run.is_owner_known}
    profiles = load_profiles([run.message for run in runs.values()], known_owner_ids)
    return [
        _choose_model(ClaimedRun(lease, run, space_in_use, profiles.get(run.message_id)))
        for lease in leases
        if (run := runs.get(lease.job_id))
    ]


def _choose_model(claimed: ClaimedRun) -> ClaimedRun:
    """The run with the language model chosen for it, if its owner may still use that."""
    message, space_in_use = claimed.run.message, claimed.space_in_use
    try:
        config = choose_config(space_in_use.config, message.chat.owner, message.model)
    except ModelNotAllowed as error:
        return replace(claimed, refused=error)
    return replace(claimed, space_in_use=replace(space_in_use, config=config))


def is_first_question(run: Run) -> bool:
    """Whether the question is the first of its chat, so that there is no history to load."""
    return run.message.parent is None or run.message.parent.parent_id is None


def load_question(
    run: Run, space_in_use: SpaceInUse, profile: tuple[Slot, ...] | None = None
) -> LoadedQuestion:
    """The question of a run, with the scope that was fixed when it was asked.

    Queries the database for the history. Raises `RunLost` for a run without a question.
    """
    message = run.message
    if message.parent is None or message.scope is None:
        raise RunLost
    chat = message.parent.chat = message.chat
    branch = Branch.to_message(message.parent)
    pairs = get_history_pairs(chat)
    topic = Topic(message.scope.get("topic", Topic.AUTO))
    conversation = load_conversation(branch, pairs=pairs)
    if topic is Topic.NEW:
        conversation = replace(conversation, memory=Memory())
    ids = _narrow_to_readable(run, message.scope["document_ids"])
    _note_libraries(run, {*conversation.readable} - {*ids})
    return LoadedQuestion(
        question=Question(
            text=message.parent.content,
            scope=Scope(ids, ScopeReason(message.scope["reason"])),
            conversation=conversation,
            topic=topic,
            history_pairs=pairs,
            sampling=Sampling.from_stored(run.sampling),
            profile=profile,
            persona=find_persona(message, chat.owner),
        ),
        store=ScopedStore(
            [*dict.fromkeys((*ids, *conversation.readable))], space=space_in_use.space
        ),
        history=BranchHistory(branch, embedding=get_embedding_model_name(space_in_use.config)),
        config=space_in_use.config,
    )


def _narrow_to_readable(run: Run, document_ids: Sequence[str]) -> tuple[UUID, ...]:
    """The scope as fixed at asking, less documents that the owner may no longer read."""
    ids = tuple(UUID(pk) for pk in document_ids)
    if run.library_ids is None or not access.may_be_closed(run):
        return ids
    closed = find_unreadable_documents(run.owner_id, ids)
    return tuple(pk for pk in ids if pk not in closed)


def _note_libraries(run: Run, document_ids: set[UUID]) -> None:
    """Note the libraries of earlier answers' documents: the run ends if its owner loses one."""
    if not document_ids:
        return
    rows = Document.objects.filter(pk__in=document_ids, library__isnull=False)
    library_ids = set(rows.values_list("library_id", flat=True))
    if new_ids := library_ids - set(run.library_ids or ()):
        run.library_ids = sorted(new_ids | set(run.library_ids or ()))
        Run.objects.filter(pk=run.pk).update(library_ids=run.library_ids)


def find_persona(message: Message, user: User) -> Persona | None:
    """The assistant that was asked, in its present state, if the user may still use it."""
    reference = (message.scope or {}).get("assistant")
    if not reference:
        return None
    assistant = (
        Assistant.objects.visible_to(user).defer("picture").filter(pk=reference["id"]).first()
    )
    return to_persona(assistant) if assistant else None


# The lease


class _HeldRun:
    """A run that is being answered in this process."""

    def __init__(self, writer: RunWriter) -> None:
        self.loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self.loop.create_future()
        """Raises `RunLost` when somebody else has the run."""
        self.writer = writer
        self._beats = 0
        self._saved_text = ""

    def find_unsaved_text(self) -> str | None:
        """The text so far, every few beats and where it grew."""
        self._beats += 1
        if self._beats % BEATS_A_TEXT or (text := self.writer.text) == self._saved_text:
            return None
        self._saved_text = text
        return text

    def notify_loss(self) -> None:
        """Called by the heartbeat's thread."""
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self.loop.call_soon_threadsafe(self._lose)

    def _lose(self) -> None:
        if not self.lost.done():
            self.lost.set_exception(RunLost())


_held: dict[Lease[Run], _HeldRun] = {}


def renew_runs(leases: Sequence[Lease[Run]]) -> set[Lease[Run]]:
    """Prolong leases and save the texts so far; the leases that are still held."""
    texts: dict[Lease[Run], str] = {}
    for lease in leases:
        held_run = _held.get(lease)
        if held_run is not None and (text := held_run.find_unsaved_text()) is not None:
            texts[lease] = text
    with transaction.atomic():
        standing = renew_leases(leases)
        save_texts({lease: text for lease, text in texts.items() if lease in standing})
    return standing


def save_texts(texts: dict[Lease[Run], str]) -> None:
    """Save the texts of answers so far; the caller holds their leases."""
    if not texts:
        return
    keys = [lease.job_id for lease in texts]
    message_ids = dict(Run.objects.filter(pk__in=keys).values_list("pk", "message_id"))
    changed = [Message(pk=message_ids[lease.job_id], content=text) for lease, text in texts.items()]
    streaming = Message.objects.filter(status=Message.Status.STREAMING)
    streaming.bulk_update(changed, ["content"], batch_size=100)


HEARTBEAT: Heartbeat[Run] = Heartbeat(Run, renew=renew_runs)


@contextmanager
def _hold_run(lease: Lease[Run], writer: RunWriter) -> Iterator[asyncio.Future[None]]:
    """Keep the lease of a run; a future that raises `RunLost` when somebody else has it."""
    held_run = _held[lease] = _HeldRun(writer)
    try:
        with HEARTBEAT.hold(lease, held_run.notify_loss):
            yield held_run.lost
    finally:
        del _held[lease]
        if not held_run.lost.cancel():
            held_run.lost.exception()  # seen, also where it came too late to matter


# The answer


@dataclass(slots=True)
class _Progress:
    """What is known of an answer while it is written."""

    finished: Finished | None = None
    retrieval: SourcesFound | None = None
    error: NuraError | None = None
    cache_key: CacheKey | None = None
    cached_outcome: AnswerOutcome | None = None
    trace: dict[str, object] = field(default_factory=dict)
    model: str = ""
    """What its server calls the language model."""
    usage: dict[str, Any] | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    notices: tuple[str, ...] = ()


async def answer_run(run_id: UUID) -> None:
    """Answer the run if nobody else holds it. When cancelled it ends the run or hands it on."""
    for claimed in await in_database(claim_run, run_id):
        await answer_claimed_run(claimed)


async def answer_claimed_run(claimed: ClaimedRun, started_json: str = "") -> None:
    """Answer a run that this process holds, and write the summary of its turn.

    `started_json` is the data of the first event of its log, where that is at hand. When cancelled
    it ends the run or hands it on.
    """
    lease, run = claimed.lease, claimed.run
    with structlog.contextvars.bound_contextvars(run_id=str(run.pk)):
        writer, turn = RunWriter(run.pk), None
        try:
            with _hold_run(lease, writer) as lost:
                if run.attempts > 1 and await in_database(end_lost_run, lease, is_claimed=True):
                    return  # the lease ran out, and no reaper came by before us
                if started_json and run.attempts == 1:
                    writer.begin(RunEvent.from_encoded(1, log.STARTED, started_json))
                else:
                    await writer.open()
                if not writer.events:  # claimed before the web process began the log
                    writer.add(log.STARTED, await in_database(to_started_data, run))
                turn = await _answer(claimed, writer, lost)
        except RunLost:
            logger.warning("run_lost")
        except asyncio.CancelledError:
            await in_database(leave_run, lease, writer.text)
            raise
        finally:
            await writer.abandon()
        if turn is not None:
            await summarise_held_turn(turn, claimed.space_in_use.config)


async def _answer(
    claimed: ClaimedRun, writer: RunWriter, lost: asyncio.Future[None]
) -> Turn | None:
    progress = _Progress()
    work = asyncio.create_task(_run_engine(claimed, writer, progress))
    stopped = await log.wait_unless_stopped(claimed.lease.job_id, work, lost)
    if lost.done():
        lost.result()  # raises RunLost
    if work.done() and not work.cancelled():
        work.result()
    outcome = _to_outcome(progress, writer, stopped)
    if writer.first_word_at is not None:
        wait = writer.first_word_at - claimed.run.created_at
        outcome = replace(outcome, first_word_ms=max(0, wait // timedelta(milliseconds=1)))
    kind, data, turn = await _store_end(claimed, outcome, progress.cache_key)
    writer.add(kind, data)
    await writer.close()
    return turn


async def _run_engine(claimed: ClaimedRun, writer: RunWriter, progress: _Progress) -> None:
    """Let the engine answer. Raises `RunLost`, and database errors while the question is loaded."""
    if claimed.refused is not None:
        progress.error = claimed.refused
        return
    asks_database = bool((claimed.run.message.scope or {}).get("assistant"))
    asks_database = asks_database or claimed.run.library_ids is not None
    if is_first_question(claimed.run) and not asks_database:
        loaded = load_question(claimed.run, claimed.space_in_use, claimed.profile)
    else:
        loaded = await in_database(
            load_question, claimed.run, claimed.space_in_use, claimed.profile
        )
    if settings.ANSWER_CACHE_HOURS and not claimed.run.message.chat.temporary:
        progress.cache_key, hit = await _look_up_cache(claimed.run, loaded)
        if hit is not None:
            _write_cached_answer(hit, writer)
            progress.cached_outcome = hit.outcome
            return
    loaded = await _consult_tools(claimed.run, loaded, writer, progress)
    store = ReleasingStore(loaded.store)
    progress.model = loaded.config.llm.model if loaded.config.llm else ""
    try:
        answer = get_engine(loaded.config).answer(loaded.question, store, loaded.history)
        async with aclosing(answer) as events:
            async for event in events:
                _record(event, writer, progress)
    except NuraError as error:
        logger.warning("answer_failed", code=error.code, error=str(error)[:300])
        progress.error = error
    except Exception:  # whatever it was: the run must end, and its reader must know
        logger.exception("answer_failed")
        progress.error = NuraError()


async def _consult_tools(
    run: Run, loaded: LoadedQuestion, writer: RunWriter, progress: _Progress
) -> LoadedQuestion:
    """The question with the results of tools, where some are switched on for its chat.

    A call that writes is made in the first attempt only: nobody knows how far a lost attempt got.
    """
    options = (run.message.scope or {}).get("tools")
    model: object = get_main_model(loaded.config.llm)
    if not options or not isinstance(model, ToolCaller):
        return loaded

    def report_use(use: tools.ToolUse) -> None:
        detail = {"server": use.server, "tool": use.tool, "state": use.state}
        writer.add(log.STATUS, {"step": "tool", "detail": detail})

    owner = run.message.chat.owner
    servers = await in_database(tools.find_usable_servers, owner, options["servers"])
    try:
        findings = await tools.consult_tools(
            loaded.question.text,
            servers,
            model,
            language=run.language,
            confirmed=options["confirmed"] if run.attempts == 1 else (),
            on_use=report_use,
        )
    except NuraError as error:
        logger.warning("tools_failed", code=error.code)
        progress.notices = ("tools_failed",)
        return loaded
    progress.tool_calls = findings.to_json()
    return replace(loaded, question=replace(loaded.question, tool_results=findings.results))


async def _look_up_cache(
    run: Run, loaded: LoadedQuestion
) -> tuple[CacheKey | None, CacheHit | None]:
    """The cache key of a question and the answer kept under it, each None if there is none."""
    started_at, owner = time.perf_counter(), run.message.chat.owner
    key = await in_database(answer_cache.make_key, loaded.question, loaded.config, owner=owner)
    if key is None:
        return None, None
    key = await asyncio.to_thread(answer_cache.embed_key, key, get_engine(loaded.config))
    if run.anew:
        return key, None
    hit = await in_database(answer_cache.find_answer, key, owner=owner)
    if hit is None:
        return key, None
    trace = {
        **hit.outcome.trace,
        "timings_ms": {"total": measure_milliseconds_since(started_at)},
    }
    return key, replace(hit, outcome=replace(hit.outcome, trace=trace))


def _write_cached_answer(hit: CacheHit, writer: RunWriter) -> None:
    detail = {"made_at": hit.made_at.isoformat(), "near": hit.near}
    writer.add(log.STATUS, {"step": "cache", "detail": detail})
    writer.add(log.SOURCES, hit.outcome.sources)
    writer.add(log.DELTA, {"text": hit.outcome.content})


def _record(event: Event, writer: RunWriter, progress: _Progress) -> None:
    match event:
        case Delta():
            writer.add(log.DELTA, {"text": event.text})
        case StepBegan():
            progress.trace = {**progress.trace, **event.trace}
            writer.add(log.STATUS, {"step": event.step, "detail": dict(event.detail)})
        case SourcesFound():
            progress.retrieval = event
            writer.add(log.SOURCES, to_sources_json(event.sources))
        case Reasoning():
            writer.add(log.REASONING, {"text": event.text})
        case Replaced():
            writer.add(log.REPLACE, {"text": event.text})
        case Finished():
            progress.finished = event
            if event.usage is not None:
                progress.usage = asdict(event.usage) | {"model": progress.model}
                writer.add("usage", progress.usage)


def _to_outcome(progress: _Progress, writer: RunWriter, stopped: bool) -> AnswerOutcome:
    if progress.cached_outcome is not None:
        return progress.cached_outcome
    finished, retrieval = progress.finished, progress.retrieval
    sources = retrieval.sources if retrieval else ()
    common_fields: dict[str, Any] = {
        "passages": {source.chunk_id: source.text for source in sources},
        "method": retrieval.method if retrieval else "",
        "content": writer.text,
        "reasoning": writer.reasoning,
        "tool_calls": progress.tool_calls,
    }
    tool_trace: dict[str, object] = {"tools": progress.tool_calls} if progress.tool_calls else {}
    if finished is not None:
        return AnswerOutcome(
            status=Message.Status.COMPLETED,
            mode=finished.mode,
            label=finished.label or "",
            question_type=finished.question_type,
            relevant_document_ids=finished.relevant_document_ids,
            sources=_to_sources(finished.sources),
            candidates=_to_plain(finished.candidates),
            view=log.to_plain(asdict(finished.view)) if finished.view else None,
            usage=progress.usage,
            grounding=_to_plain(finished.checks) or None,
            citations=_to_plain(finished.citations),
            notices=(*progress.notices, *finished.notices),
            trace=log.to_plain(dict(finished.trace) | tool_trace),
            **common_fields,
        )
    error = NuraError() if progress.error is None else progress.error
    error_fields = (
        {} if stopped else {"error_code": error.code, "error_params": log.to_plain(error.params)}
    )
    return AnswerOutcome(
        status=Message.Status.STOPPED if stopped else Message.Status.FAILED,
        mode=Message.Mode.DOCUMENTS if retrieval else "",
        question_type=str(progress.trace.get("question_type", "")),
        sources=_to_sources(retrieval.sources if retrieval else None),
        trace=log.to_plain(progress.trace | tool_trace),
        **common_fields,
        **error_fields,
    )


def _to_sources(sources: tuple[AnswerSource, ...] | None) -> list[dict[str, Any]] | None:
    return None if sources is None else to_sources_json(sources)


def _to_plain(items: tuple[DocRef | CheckedSentence | CitedPassage, ...]) -> list[dict[str, Any]]:
    return log.to_plain([asdict(item) for item in items])  # type: ignore[no-any-return]


async def _store_end(
    claimed: ClaimedRun, outcome: AnswerOutcome, key: CacheKey | None
) -> tuple[str, dict[str, Any], Turn | None]:
    """Close the turn and build the last event; with the turn if its summary is to be written here.

    Raises `RunLost` if somebody else holds the run by now.
    """
    async with asyncio.timeout(CLOSE_SECONDS):
        while True:
            try:
                return await in_database(_close_and_describe, claimed, outcome, key)
            except DatabaseError as error:
                logger.warning("turn_not_closed", error=str(error)[:200])
                await asyncio.sleep(RETRY_SECONDS)


def _close_and_describe(
    claimed: ClaimedRun, outcome: AnswerOutcome, key: CacheKey | None
) -> tuple[str, dict[str, Any], Turn | None]:
    run = claimed.run
    turn = close_turn(lease=claimed.lease, outcome=outcome, run=run, summary_follows=True, key=key)
    if turn is not None:
        _note_profile(turn)
        # an answer that ends now has no feedback yet: one query less
        prefetched = {"feedback": Feedback.objects.none()}
        run.message._prefetched_objects_cache = prefetched  # type: ignore[attr-defined] # noqa: SLF001
        return (*to_terminal_event(run), turn)
    run = Run.objects.select_related("message__parent").get(pk=run.pk)
    if run.message.status == Message.Status.STREAMING:
        raise RunLost
    return (*to_terminal_event(run), None)


def _note_profile(turn: Turn) -> None:
    """Store what the turn says about its user before its page is told that the answer has ended.

    Most turns say nothing: that is stored later with the summary, without a query of its own.
    """
    try:
        if not extract_from_turn(turn).is_empty:
            learn_from_turn(turn.pk)
    except Exception:  # the answer has ended well; the job of its summary tries again
        logger.exception("profile_not_noted")
    else:
        turn.profile_read_at = timezone.now()


# Runs whose worker is gone


def leave_run(lease: Lease[Run], content: str) -> None:
    """Give up a run midway: save its text, then end it or hand it on at once."""
    if renew_leases([lease]):
        save_texts({lease: content})
        if lease.rows().update(lease_until=Now()):
            recover_run(lease.job_id)


def end_runs_without_rights() -> None:
    """Stop answers whose owners have lost the right to them, and end those not yet begun."""
    for run_id in access.stop_runs_without_rights():
        lease = claim_job(Run, run_id, is_attempt=False)
        if lease is not None:
            end_lost_run(lease)


def recover_run(run_id: UUID) -> None:
    """Run again, or end, a run whose lease has run out."""
    lease = claim_job(Run, run_id, is_attempt=False)
    if lease is not None and not end_lost_run(lease) and release_lease(lease):
        dispatch_run_again(run_id)


def end_lost_run(lease: Lease[Run], *, is_claimed: bool = False) -> bool:
    """End a lost run as INTERRUPTED (STOPPED if a stop was requested), keeping its text.

    False for a run without text that may be tried again. Either way its former worker can write no
    more. `lease` is the reaper's own, or with `is_claimed` that of the attempt that begins.
    """
    run = Run.objects.select_related("message").get(pk=lease.job_id)
    events, stopped = _fence_log(run.pk)
    content = max(log.join_text(events), run.message.content, key=len)
    if not content and not stopped and (is_claimed or run.attempts < Run.MAX_ATTEMPTS):
        return False
    sources = next((event.data for event in events if event.type == log.SOURCES), None)
    outcome = AnswerOutcome(
        status=Message.Status.STOPPED if stopped else Message.Status.INTERRUPTED,
        content=content,
        mode=Message.Mode.DOCUMENTS if sources else "",
        sources=sources,
        error_code="" if stopped else "interrupted",
    )
    if close_turn(lease=lease, outcome=outcome) is not None:
        reader.finish_log(run.pk)
    return True


def _fence_log(run_id: UUID) -> tuple[list[RunEvent], bool]:
    """Fence the log; the events that it holds for good, and whether a stop was requested.

    The worker may be alive and merely have renewed its lease too late.
    """
    try:
        return log.fence_log(run_id), log.is_stop_requested(run_id)
    except RedisError:
        return [], False

"""Answering one run: the engine's events go to the log, its end goes to the database.

A run ends in one of four ways: the engine finishes, the user stops it, the engine fails, or the
hold on it is lost (then somebody else ends it and nothing more is written here).
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import structlog
from django.conf import settings
from django.db import Error as DatabaseError

from chats import history, runs, stops
from chats.calls import in_database, released
from chats.errors import RunLost
from chats.models import Message, Run
from chats.services import leases
from chats.services.leases import Claim
from chats.services.turns import Outcome, close_turn
from chats.shapes import terminal_event
from chats.writer import RunWriter
from documents import spaces
from documents.store import ScopedStore
from rag.conversation import of_messages
from rag.errors import NuraError
from rag.events import Delta, Event, Finished, SourcesFound, Status
from rag.factory import Engine, engine
from rag.ports import PassageStore
from rag.question import Question
from rag.types import Excerpt, Hit, Named, Passage, Scope, ScopeReason, Source

logger = structlog.get_logger()
T = TypeVar("T")

CLOSE_SECONDS = 60.0
"""How long the end of an answer waits for a database that is away."""
RETRY_SECONDS = 1.0


class ReleasingStore:
    """A store that gives its connection back after every search.

    Threads of the loop hold none while tokens arrive.
    """

    def __init__(self, store: PassageStore) -> None:
        self._store = store

    def similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """As `PassageStore.similar`."""
        return released(self._store.similar, vector, limit)

    def within(self, document_ids: Collection[UUID]) -> "ReleasingStore":
        """As `PassageStore.within`."""
        return ReleasingStore(self._store.within(document_ids))

    def named(self, names: Sequence[str]) -> list[Named]:
        """As `PassageStore.named`."""
        return released(self._store.named, names)

    def vectors(self, keys: Sequence[int]) -> dict[int, Sequence[float]]:
        """As `PassageStore.vectors`."""
        return released(self._store.vectors, keys)

    def bm25(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """As `PassageStore.bm25`."""
        return released(self._store.bm25, terms, limit)

    def opening(self, limit: int) -> list[Passage]:
        """As `PassageStore.opening`."""
        return released(self._store.opening, limit)

    def chunks(self, keys: Sequence[int]) -> list[Passage]:
        """As `PassageStore.chunks`."""
        return released(self._store.chunks, keys)

    def read(self, document_id: UUID, start: int, length: int) -> Excerpt | None:
        """As `PassageStore.read`."""
        return released(self._store.read, document_id, start, length)


@dataclass(slots=True)
class Draft:
    """What is known of an answer while it is written."""

    finished: Finished | None = None
    sources: tuple[Source, ...] | None = None
    error: NuraError | None = None
    trace: dict[str, object] = field(default_factory=dict)


async def answer_run(run_id: UUID) -> None:
    """Answer the run if nobody else does."""
    claim = await in_database(leases.claim_run, run_id=run_id)
    if claim is None:
        return
    with structlog.contextvars.bound_contextvars(run_id=str(run_id)):
        writer = RunWriter(run_id)
        await writer.open()
        try:
            question = await in_database(load_question, run_id)
            await _answer(claim, question, writer)
        except RunLost:
            logger.warning("run_lost")
        finally:
            await writer.abandon()


async def _answer(claim: Claim, question: Question, writer: RunWriter) -> None:
    draft = Draft()
    used = await in_database(spaces.in_use)
    store = ReleasingStore(ScopedStore(question.scope.document_ids, space=used.space))
    work = asyncio.create_task(_consume(engine(used.config), question, store, writer, draft))
    async with stops.watch(claim.run_id) as stopped:
        guards = [
            asyncio.create_task(stopped.wait()),
            asyncio.create_task(_keep_alive(claim, writer)),
        ]
        try:
            await asyncio.wait([work, *guards], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(work, guards[0])
    if guards[1].done():
        guards[1].result()  # the lease was lost: raises RunLost
    try:
        await _close(claim, _outcome(draft, writer.text, stopped.is_set()), writer)
    finally:
        await _cancel(guards[1])


async def _consume(
    rag_engine: Engine, question: Question, store: PassageStore, writer: RunWriter, draft: Draft
) -> None:
    try:
        async with aclosing(rag_engine.answer(question, store)) as events:
            async for event in events:
                _record(event, writer, draft)
    except NuraError as error:
        logger.warning("answer_failed", code=error.code, error=str(error)[:300])
        draft.error = error
    except Exception:  # whatever it was: the run must end, and its reader must know
        logger.exception("answer_failed")
        draft.error = NuraError()


def _record(event: Event, writer: RunWriter, draft: Draft) -> None:
    match event:
        case Status():
            draft.trace = {**draft.trace, **event.trace}
            writer.add("status", {"step": event.step, "detail": dict(event.detail)})
        case SourcesFound():
            draft.sources = event.sources
            writer.add(runs.SOURCES, [asdict(source) for source in event.sources])
        case Delta():
            writer.add(runs.DELTA, {"text": event.text})
        case Finished():
            draft.finished = event
            if event.usage is not None:
                writer.add("usage", asdict(event.usage))


async def _keep_alive(claim: Claim, writer: RunWriter) -> None:
    """Renew the lease until cancelled. Raises `RunLost`; a database that is away is waited for."""
    while True:
        await asyncio.sleep(leases.HEARTBEAT_SECONDS)
        try:
            held = await in_database(leases.renew, claim=claim, content=writer.text)
        except DatabaseError as error:
            logger.warning("lease_not_renewed", error=str(error)[:200])
            continue
        if not held:
            raise RunLost


def _outcome(draft: Draft, text: str, stopped: bool) -> Outcome:
    finished = draft.finished
    if finished is not None:
        return Outcome(
            status=Message.Status.COMPLETED,
            content=text,
            mode=finished.mode,
            question_type=finished.question_type,
            sources=_plain(finished.sources),
            usage=asdict(finished.usage) if finished.usage else None,
            trace=runs.plain(dict(finished.trace)),
        )
    error = NuraError() if draft.error is None else draft.error
    failed = {} if stopped else {"error_code": error.code, "error_params": runs.plain(error.params)}
    return Outcome(
        status=Message.Status.STOPPED if stopped else Message.Status.FAILED,
        content=text,
        mode=Message.Mode.DOCUMENTS if draft.sources else "",
        question_type=str(draft.trace.get("question_type", "")),
        sources=_plain(draft.sources),
        trace=runs.plain(draft.trace),
        **failed,
    )


def _plain(sources: tuple[Source, ...] | None) -> list[dict[str, Any]] | None:
    if sources is None:
        return None
    return runs.plain([asdict(source) for source in sources])  # type: ignore[no-any-return]


async def _close(claim: Claim, outcome: Outcome, writer: RunWriter) -> None:
    kind, data = await _persist(claim, outcome)
    writer.add(kind, data)
    await writer.close()


async def _persist(claim: Claim, outcome: Outcome) -> tuple[str, dict[str, Any]]:
    """Close the turn and build the last event.

    Raises `RunLost` when the turn was not ours to close.
    """
    async with asyncio.timeout(CLOSE_SECONDS):
        while True:
            try:
                return await in_database(_close_and_describe, claim, outcome)
            except DatabaseError as error:
                logger.warning("turn_not_closed", error=str(error)[:200])
                await asyncio.sleep(RETRY_SECONDS)


def _close_and_describe(claim: Claim, outcome: Outcome) -> tuple[str, dict[str, Any]]:
    closed = close_turn(run_id=claim.run_id, claim=claim.token, outcome=outcome)
    run = Run.objects.select_related("message__parent").get(pk=claim.run_id)
    if not closed and run.message.status == Message.Status.STREAMING:
        raise RunLost
    return terminal_event(run)


def load_question(run_id: UUID) -> Question:
    """The question of a run, with the scope that was fixed when it was asked."""
    run = Run.objects.select_related("message__parent", "message__chat").get(pk=run_id)
    message, chat = run.message, run.message.chat
    if message.parent is None or message.scope is None:
        raise RunLost
    pairs = settings.RAG.history_pairs if chat.history_pairs is None else chat.history_pairs
    ids = tuple(UUID(pk) for pk in message.scope["document_ids"])
    return Question(
        text=message.parent.content,
        scope=Scope(ids, ScopeReason(message.scope["reason"])),
        conversation=of_messages(history.earlier(message=message.parent, pairs=pairs)),
        history_pairs=pairs,
    )


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task

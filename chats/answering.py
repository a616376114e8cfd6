"""Answering one run: the engine's events go to the log, its end goes to the database.

A run ends in one of four ways: the engine finishes, the user stops it, the engine fails, or the
hold on it is lost (then somebody else ends it and nothing more is written here).
"""

import asyncio
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import structlog
from django.db import Error as DatabaseError

from chats import keeping, questions, stops
from chats.calls import in_database
from chats.errors import RunLost
from chats.models import Message, Run
from chats.questions import Loaded
from chats.runs import log
from chats.runs.writer import RunWriter
from chats.serializers import terminal_event, to_sources_json
from chats.services import leases
from chats.services.leases import Claim
from chats.services.outcome import Outcome
from chats.services.turns import close_turn
from chats.stores import ReleasingStore
from rag.conversation import DocRef
from rag.errors import NuraError
from rag.events import Delta, Event, Finished, Reasoning, Replaced, SourcesFound, Status
from rag.factory import engine
from rag.types import Source
from rag.verify.label import Checked

logger = structlog.get_logger()
T = TypeVar("T")

CLOSE_SECONDS = 60.0
"""How long the end of an answer waits for a database that is away."""
RETRY_SECONDS = 1.0


@dataclass(slots=True)
class Draft:
    """What is known of an answer while it is written."""

    finished: Finished | None = None
    found: SourcesFound | None = None
    error: NuraError | None = None
    trace: dict[str, object] = field(default_factory=dict)


async def answer_run(run_id: UUID) -> None:
    """Answer the run if nobody else does. Cancelled it settles what becomes of the run."""
    claim = await in_database(leases.claim_run, run_id=run_id)
    if claim is None:
        return
    with structlog.contextvars.bound_contextvars(run_id=str(run_id)):
        writer = RunWriter(run_id)
        try:
            with keeping.held(claim, writer) as lost:
                await writer.open()
                loaded = await in_database(questions.load, run_id)
                await _answer(claim, loaded, writer, lost)
        except RunLost:
            logger.warning("run_lost")
        except asyncio.CancelledError:
            await in_database(leases.leave, claim=claim, content=writer.text)
            raise
        finally:
            await writer.abandon()


async def _answer(
    claim: Claim, loaded: Loaded, writer: RunWriter, lost: asyncio.Future[None]
) -> None:
    draft = Draft()
    work = asyncio.create_task(_consume(loaded, writer, draft))
    async with stops.watch(claim.run_id) as stopped:
        stop = asyncio.create_task(stopped.wait())
        ends: list[asyncio.Future[Any]] = [work, stop, lost]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(work, stop)
    if lost.done():
        lost.result()  # raises RunLost
    await _close(claim, _outcome(draft, writer, stopped.is_set()), writer)


async def _consume(loaded: Loaded, writer: RunWriter, draft: Draft) -> None:
    store = ReleasingStore(loaded.store)
    try:
        answer = engine(loaded.config).answer(loaded.question, store, loaded.history)
        async with aclosing(answer) as events:
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
        case Delta():
            writer.add(log.DELTA, {"text": event.text})
        case Status():
            draft.trace = {**draft.trace, **event.trace}
            writer.add("status", {"step": event.step, "detail": dict(event.detail)})
        case SourcesFound():
            draft.found = event
            writer.add(log.SOURCES, to_sources_json(event.sources))
        case Reasoning():
            writer.add(log.REASONING, {"text": event.text})
        case Replaced():
            writer.add(log.REPLACE, {"text": event.text})
        case Finished():
            draft.finished = event
            if event.usage is not None:
                writer.add("usage", asdict(event.usage))


def _outcome(draft: Draft, writer: RunWriter, stopped: bool) -> Outcome:
    finished, found = draft.finished, draft.found
    sources = found.sources if found else ()
    shown: dict[str, Any] = {
        "passages": {source.chunk_id: source.text for source in sources},
        "method": found.method if found else "",
        "content": writer.text,
        "reasoning": writer.reasoning,
    }
    if finished is not None:
        return Outcome(
            status=Message.Status.COMPLETED,
            mode=finished.mode,
            label=finished.label or "",
            question_type=finished.question_type,
            bearing=finished.bearing,
            sources=_sources(finished.sources),
            candidates=_plain(finished.candidates) or [],
            view=log.to_plain(asdict(finished.view)) if finished.view else None,
            usage=asdict(finished.usage) if finished.usage else None,
            grounding=_plain(finished.checks) or None,
            notices=finished.notices,
            trace=log.to_plain(dict(finished.trace)),
            **shown,
        )
    error = NuraError() if draft.error is None else draft.error
    failed = (
        {} if stopped else {"error_code": error.code, "error_params": log.to_plain(error.params)}
    )
    return Outcome(
        status=Message.Status.STOPPED if stopped else Message.Status.FAILED,
        mode=Message.Mode.DOCUMENTS if found else "",
        question_type=str(draft.trace.get("question_type", "")),
        sources=_sources(found.sources if found else None),
        trace=log.to_plain(draft.trace),
        **shown,
        **failed,
    )


def _sources(shown: tuple[Source, ...] | None) -> list[dict[str, Any]] | None:
    return None if shown is None else to_sources_json(shown)


def _plain(shown: tuple[DocRef | Checked, ...] | None) -> list[dict[str, Any]] | None:
    if shown is None:
        return None
    return log.to_plain([asdict(one) for one in shown])  # type: ignore[no-any-return]


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


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task

"""Summarising a turn after its answer: a line, its terms, and the running summary.

A job like the others (`jobs.lease`), done by the answers processes: they hold the connections to
the language model and wait for it without a thread, and no queue of documents delays the summary
beyond the chat's next question.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from django.db import transaction
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from chats.history import Branch, to_past_turn, to_running_summary
from chats.models import Message
from chats.models import Turn as Row
from chats.runs.dispatch import dispatch_summary
from chats.services.memory import find_text_for_model, learn_from_turn, store_model_statements
from documents import notices, spaces
from jobs.connections import in_database
from jobs.lease import (
    RELEASED,
    Heartbeat,
    Lease,
    announce_unclaimed_jobs,
    claim_job,
    reap_lost_jobs,
    release_lease,
)
from rag.config import RagConfig
from rag.conversation import PastTurn, RunningSummary
from rag.errors import LLMError
from rag.factory import Engine, get_engine
from rag.memory.summary import TurnNote, list_turns_to_fold

logger = structlog.get_logger()

PATIENCE = timedelta(seconds=30)
"""After so long a turn without a summary is announced to the workers again."""
MAX_TURNS_A_REAPING = 200
"""So that an old installation is summarised gradually."""
MAX_AT_ONCE = 4
"""Summaries that a process writes at the same time: answers that stream need the processor."""

HEARTBEAT: Heartbeat[Row] = Heartbeat(Row)


@dataclass(frozen=True, slots=True)
class _TurnToSummarise:
    """A turn, and the earlier turns to fold into the running summary with it."""

    turn: PastTurn
    earlier_turns: tuple[PastTurn, ...]
    running_summary: RunningSummary | None
    config: RagConfig
    running_turn_id: UUID | None = None
    """The turn that stores `running_summary`."""
    earlier_turn_ids: Mapping[int, UUID] = field(default_factory=dict)
    """Ids of `earlier_turns` by number."""


async def summarise_turn(turn_id: UUID) -> None:
    """Write the summary of a turn that has none, unless somebody else holds it.

    An error is raised, and the reaper tries again.
    """
    async with _get_semaphore():
        lease = await in_database(claim_job, Row, turn_id)
        if lease is not None:
            with HEARTBEAT.hold(lease):
                await _summarise(lease)


async def summarise_held_turn(row: Row, config: RagConfig) -> None:
    """Write the summary of a turn that this process has just stored, and holds."""
    if row.claim is None:
        raise ValueError("a turn that nobody holds")
    lease = Lease(Row, row.pk, row.claim)
    # before the first turn there is nothing to fold
    loaded = _TurnToSummarise(to_past_turn(row), (), None, config) if row.number == 1 else None
    with HEARTBEAT.hold(lease):
        async with _get_semaphore():
            engine = get_engine(config)
            is_profile_read = row.profile_read_at is not None
            jobs = (
                _summarise(lease, loaded, is_profile_read=is_profile_read),
                _suggest_follow_ups(row, engine),
            )
            for error in await asyncio.gather(*jobs, return_exceptions=True):
                if error is not None:
                    raise error


async def _suggest_follow_ups(row: Row, engine: Engine) -> None:
    """Let the light model suggest next questions, and show them. A failure costs only these."""
    if engine.light is None or not row.assistant_text:
        return
    headings = await in_database(_list_headings, row)
    if headings is None:
        return
    try:
        questions = await engine.suggest_follow_ups(row.user_text, row.assistant_text, headings)
    except LLMError as error:
        logger.warning("follow_ups_not_suggested", error=error.code)
        return
    if questions:
        await in_database(_store_follow_ups, row, questions)


def _list_headings(row: Row) -> list[str] | None:
    """The headings of an answer's passages; None where documents did not give the answer."""
    message = Message.objects.filter(pk=row.message_id, status=Message.Status.COMPLETED).first()
    if message is None or message.mode != Message.Mode.DOCUMENTS:
        return None
    return list(
        dict.fromkeys(filter(None, (source.get("section") for source in message.sources or ())))
    )


def _store_follow_ups(row: Row, questions: Sequence[str]) -> None:
    """Store them with the answer, and notify the owner's open pages."""
    if not Message.objects.filter(pk=row.message_id).update(follow_ups=questions):
        return  # the chat was deleted meanwhile
    chat = row.message.chat
    data = {"chat_id": chat.pk, "message_id": row.message_id, "questions": questions}
    notices.send_notices(chat.owner_id, {"type": "follow_ups", "data": data})


async def _extract_profile_statements(turn_id: UUID, engine: Engine) -> None:
    """Let the light model extract facts about the user from text in which the rules found none.

    After a failure the turn is not read again.
    """
    if engine.light is None:
        return
    unread = await in_database(find_text_for_model, turn_id)
    if unread is None:
        return
    try:
        statements = await engine.read_profile(*unread)
    except LLMError as error:
        logger.warning("profile_not_read", error=error.code)
        return
    if statements:
        await in_database(store_model_statements, turn_id, statements)


async def _summarise(
    lease: Lease[Row], loaded: _TurnToSummarise | None = None, *, is_profile_read: bool = False
) -> None:
    """`is_profile_read`: the facts about its user have been stored."""
    try:
        if not is_profile_read:
            await in_database(learn_from_turn, lease.job_id)
        work = await in_database(_load_turn, lease.job_id) if loaded is None else loaded
        engine = get_engine(work.config)
        note = await engine.note_turn(work.turn, work.earlier_turns, work.running_summary)
        await _extract_profile_statements(lease.job_id, engine)
        await in_database(_store_summary, lease, note, work)
    except BaseException:
        await in_database(release_lease, lease)
        raise


def reap_summaries() -> int:
    """Announce turns whose summary is missing to the workers; the number of turns."""

    def give_up(lease: Lease[Row]) -> None:
        lease.rows().update(**RELEASED)  # it stays without; its attempts are used up

    lost = reap_lost_jobs(Row, announce=dispatch_summary, give_up=give_up)
    late = announce_unclaimed_jobs(
        Row, announce=dispatch_summary, patience=PATIENCE, limit=MAX_TURNS_A_REAPING
    )
    return len(lost) + len(late)


_semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _get_semaphore() -> asyncio.Semaphore:
    return _semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_AT_ONCE))


def _load_turn(turn_id: UUID) -> _TurnToSummarise:
    rows = Row.objects.without_search_columns()
    row = rows.select_related("message__chat").get(pk=turn_id)
    branch = Branch.to_message(row.message)
    summarised = rows.filter(pk__in=filter(None, [branch.summarised])).first()
    running = to_running_summary(summarised)
    config = spaces.get_space_in_use().config
    pairs = row.message.chat.history_pairs
    numbers = list_turns_to_fold(
        row.number,
        running,
        pairs=config.history_pairs if pairs is None else pairs,
        begins_at=branch.begins_at,
    )
    ids = {step.number: step.turn_id for step in branch.steps if step.number in numbers}
    folding = rows.filter(pk__in=ids.values()).order_by("number")
    folded_turns = tuple(map(to_past_turn, folding))
    return _TurnToSummarise(
        to_past_turn(row), folded_turns, running, config, branch.summarised, ids
    )


@transaction.atomic
def _store_summary(lease: Lease[Row], note: TurnNote, work: _TurnToSummarise) -> None:
    """End the job and store its results; does nothing if the lease was lost.

    If somebody has edited the running summary since it was read, the folded one is dropped: the
    next turn folds into the edited text.
    """
    running_fields: dict[str, Any] = {}
    if (
        note.running is not None
        and note.running != work.running_summary
        and _is_summary_unchanged(work)
    ):
        running_fields = {
            "running_summary": note.running.text,
            "running_through": note.running.through,
            "running_model": note.running.model,
        }
    updated_count = lease.rows().update(
        summary=note.summary,
        summary_model=note.model,
        summarised_at=timezone.now(),
        terms=dict(note.terms),
        profile_read_at=Coalesce("profile_read_at", Now()),
        **running_fields,
        **RELEASED,
    )
    for number, vector in note.vectors.items() if updated_count else ():
        rows = Row.objects.filter(pk=work.earlier_turn_ids.get(number, lease.job_id))
        rows.update(vector=list(vector), embedding=note.embedding)


def _is_summary_unchanged(work: _TurnToSummarise) -> bool:
    """Whether the running summary is still as it was read; locks its row."""
    if work.running_turn_id is None:
        return True
    rows = Row.objects.without_search_columns().select_for_update().filter(pk=work.running_turn_id)
    return to_running_summary(rows.first()) == work.running_summary

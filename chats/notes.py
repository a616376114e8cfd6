"""The note of a turn: a line, its terms and vector, and the running summary; after its answer."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from django.db.models import F
from django.utils import timezone

from chats import records
from chats.calls import in_database
from chats.history import Branch
from chats.models import Turn as Row
from chats.services.dispatch import note_later
from documents import spaces
from rag.config import RagConfig
from rag.conversation import RunningSummary, Turn
from rag.factory import engine
from rag.memory.summary import Noted, to_fold

MOST_ATTEMPTS = 3
LATE = timedelta(seconds=30)
"""A turn without its note for so long is enqueued again: its task may have been lost."""
AT_ONCE = 200
"""Turns that one sweep enqueues: an old installation is noted little by little."""


@dataclass(frozen=True, slots=True)
class Work:
    """A turn to be noted, and what is to be folded with it."""

    turn: Turn
    folding: tuple[Turn, ...]
    running: RunningSummary | None
    config: RagConfig


TOGETHER = 4
"""Notes that are written at the same time: answers that stream meanwhile need the processor."""
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _in_turn() -> asyncio.Semaphore:
    return _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(TOGETHER))


async def write(turn_id: UUID) -> None:
    """Note a turn that has no note. Raises what the database raises; the sweeper tries again."""
    async with _in_turn():
        work = await in_database(_take, turn_id)
        if work is not None:
            noted = await engine(work.config).note(work.turn, work.folding, work.running)
            await in_database(_keep, turn_id, noted, work.running)


def sweep() -> int:
    """Enqueue turns whose note is late; how many."""
    late = Row.objects.unsummarised().filter(
        created_at__lt=timezone.now() - LATE, note_attempts__lt=MOST_ATTEMPTS
    )
    ids = list(late.order_by("created_at").values_list("pk", flat=True)[:AT_ONCE])
    for turn_id in ids:
        note_later(turn_id)
    return len(ids)


def _take(turn_id: UUID) -> Work | None:
    waiting = Row.objects.unsummarised().filter(pk=turn_id, note_attempts__lt=MOST_ATTEMPTS)
    if not waiting.update(note_attempts=F("note_attempts") + 1):
        return None
    rows = Row.objects.told()
    row = rows.select_related("message__chat").get(pk=turn_id)
    branch = Branch.to_message(row.message)
    summarised = rows.filter(pk__in=filter(None, [branch.summarised])).first()
    running = records.running(summarised)
    config = spaces.get_space_in_use().config
    pairs = row.message.chat.history_pairs
    wanted = to_fold(
        row.number,
        running,
        pairs=config.history_pairs if pairs is None else pairs,
        begins_at=branch.begins_at,
    )
    folded = [step.turn_id for step in branch.steps if step.number in wanted]
    folding = rows.filter(pk__in=folded).order_by("number")
    return Work(records.turn(row), tuple(map(records.turn, folding)), running, config)


def _keep(turn_id: UUID, noted: Noted, before: RunningSummary | None) -> None:
    """Store the note; whoever comes second changes nothing."""
    folded: dict[str, Any] = {}
    if noted.running is not None and noted.running != before:
        folded = {
            "running_summary": noted.running.text,
            "running_through": noted.running.through,
            "running_model": noted.running.model,
        }
    Row.objects.unsummarised().filter(pk=turn_id).update(
        summary=noted.summary,
        summary_model=noted.model,
        summarised_at=timezone.now(),
        terms=dict(noted.terms),
        vector=list(noted.vector) if noted.vector else None,
        embedding=noted.embedding,
        **folded,
    )

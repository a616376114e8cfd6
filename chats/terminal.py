"""A question at a terminal: asked like any other, and answered here when no worker takes it up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import UUID

from chats import notes
from chats.answering import answer_run
from chats.calls import in_database
from chats.models import Run, Turn
from chats.runs import log, reader
from chats.runs.log import RunEvent

PATIENCE_SECONDS = 1.0
"""A worker takes up a run within milliseconds; after that nobody is there."""


class Terminal:
    """Follows answers. Once nobody was there, the next question is answered here at once."""

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        self._patience = patience

    async def events(self, run_id: UUID) -> AsyncIterator[RunEvent]:
        """The events of a run to its end; who goes away before stops it.

        Raises what kept us from answering it.
        """
        over = asyncio.Event()
        here = asyncio.create_task(self._answer_here(run_id, over))
        try:
            async for event in reader.follow_run(run_id):
                if event is not None:
                    yield event
                elif here.done():
                    here.result()
        except (asyncio.CancelledError, GeneratorExit):
            await asyncio.to_thread(log.request_stop, run_id)
            raise
        finally:
            over.set()
            await here

    async def _answer_here(self, run_id: UUID, over: asyncio.Event) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), self._patience)
            return
        if not await in_database(_is_waiting, run_id):
            return
        self._patience = 0.0
        await answer_run(run_id)
        if turn_id := await in_database(_turn_of, run_id):
            await notes.write(turn_id)


def _is_waiting(run_id: UUID) -> bool:
    return Run.objects.open().filter(pk=run_id, claim=None).exists()


def _turn_of(run_id: UUID) -> UUID | None:
    return Turn.objects.filter(message__run=run_id).values_list("pk", flat=True).first()

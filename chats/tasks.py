"""Work for the answers queue."""

from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from celery import shared_task
from celery.exceptions import Reject

from chats import asked, loop
from chats.calls import released
from chats.services import leases


@shared_task(name="chats.tasks.answer_message")
def answer_message(run_id: str) -> None:
    """Answer one run; a second delivery finds it claimed and leaves."""
    from chats.answering import answer_run

    _hand_over(answer_run(UUID(run_id)))


@shared_task(name="chats.tasks.complete")
def complete(run_id: str, request: dict[str, Any]) -> None:
    """Answer a request of the gateway that is stored nowhere."""
    from chats import stateless

    _hand_over(stateless.answer(UUID(run_id), request))


def _hand_over(work: Coroutine[Any, Any, None]) -> None:
    """Leave work to the loop. A worker that ends gives it back to the queue."""
    if not loop.hand_over(work):
        raise Reject("the worker ends", requeue=True)


@shared_task(name="chats.tasks.search")
def search(reply_to: str, request: dict[str, Any]) -> None:
    """Search for a web process that waits at `reply_to`."""
    from chats.services import search

    asked.answer(reply_to, lambda: released(search.find, request))


@shared_task(name="chats.tasks.sweep_runs")
def sweep_runs() -> None:
    """End or restart runs whose worker is gone, enqueue those that nobody took."""
    released(leases.sweep)


@shared_task(name="chats.tasks.note_turn")
def note_turn(turn_id: str) -> None:
    """Write the note of a turn; a second delivery finds it written."""
    from chats import notes

    _hand_over(notes.write(UUID(turn_id)))


@shared_task(name="chats.tasks.sweep_notes")
def sweep_notes() -> None:
    """Enqueue turns whose note did not come."""
    from chats import notes

    released(notes.sweep)

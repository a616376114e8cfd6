"""Who holds a run: claims, heartbeats, and what becomes of a run whose worker is gone."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog
from django.db import models, transaction
from django.db.models import F, Q
from django.utils import timezone
from redis.exceptions import RedisError

from chats.models import Message, Run
from chats.runs import log
from chats.runs.log import RunEvent
from chats.serializers import started_data, terminal_event
from chats.services.dispatch import dispatch_again
from chats.services.outcome import Outcome
from chats.services.turns import close_turn, new_claim

logger = structlog.get_logger()

LEASE = timedelta(seconds=15)
HEARTBEAT_SECONDS = 3.0
UNCLAIMED = timedelta(seconds=6)
"""A run that nobody took for so long is enqueued again: its task may have been lost."""
MAX_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's hold on a run."""

    run_id: UUID
    token: UUID


def claim_run(*, run_id: UUID, attempt: int = 1) -> Claim | None:
    """Take a run that nobody holds; None when somebody does or it has ended.

    `attempt` 0 does not count as a try.
    """
    now = timezone.now()
    token = new_claim()
    free = Run.objects.open().filter(Q(lease_until=None) | Q(lease_until__lt=now), pk=run_id)
    taken = free.update(claim=token, lease_until=now + LEASE, attempts=F("attempts") + attempt)
    return Claim(run_id, token) if taken else None


@transaction.atomic
def renew(*, texts: Mapping[Claim, str | None]) -> set[Claim]:
    """Prolong leases and keep the texts so far, where given; the claims that still hold."""
    runs_held = [claim.run_id for claim in texts]
    tokens = [claim.token for claim in texts]
    held = Run.objects.open().filter(pk__in=runs_held, claim__in=tokens)
    held.update(lease_until=timezone.now() + LEASE)
    messages = dict(held.values_list("claim", "message_id"))
    ours = {claim for claim in texts if claim.token in messages}
    said = [
        Message(pk=messages[claim.token], content=text)
        for claim, text in texts.items()
        if claim in ours and text is not None
    ]
    streaming = Message.objects.filter(status=Message.Status.STREAMING)
    streaming.bulk_update(said, ["content"], batch_size=100)
    return ours


def leave(*, claim: Claim, content: str) -> None:
    """Give up a run in the middle: its text is kept, and what becomes of it is settled now."""
    if renew(texts={claim: content}):
        Run.objects.filter(pk=claim.run_id, claim=claim.token).update(lease_until=timezone.now())
        recover(run_id=claim.run_id)


def sweep() -> int:
    """Enqueue what nobody took, end or restart what its worker left.

    Returns the number of runs touched.
    """
    now = timezone.now()
    unclaimed = Run.objects.open().filter(lease_until=None, enqueued_at__lt=now - UNCLAIMED)
    abandoned = Run.objects.open().filter(lease_until__lt=now)
    lost = _ids(abandoned)
    waiting = _ids(unclaimed)
    for run_id in lost:
        recover(run_id=run_id)
    for run_id in waiting:
        dispatch_again(run_id)
    return len(lost) + len(waiting)


def _ids(rows: models.QuerySet[Run]) -> list[UUID]:
    return list(rows.order_by("created_at").values_list("pk", flat=True)[:500])


def recover(*, run_id: UUID) -> None:
    """Run again what had said nothing.

    End the rest INTERRUPTED (STOPPED if that was asked) with its text kept.
    """
    claim = claim_run(
        run_id=run_id, attempt=0
    )  # the same conditional step as a worker's: only one sweeper gets on
    if claim is None:
        return
    run = Run.objects.select_related("message").get(pk=run_id)
    events, stopped = _logged(run_id)
    said = max(log.join_text(events), run.message.content, key=len)
    if not said and not stopped and run.attempts < MAX_ATTEMPTS:
        Run.objects.filter(pk=run_id, claim=claim.token).update(claim=None, lease_until=None)
        dispatch_again(run_id)
        return
    status = Message.Status.STOPPED if stopped else Message.Status.INTERRUPTED
    sources = next((event.data for event in events if event.type == log.SOURCES), None)
    outcome = Outcome(
        status=status,
        content=said,
        mode=Message.Mode.DOCUMENTS if sources else "",
        sources=sources,
        error_code="" if stopped else "interrupted",
    )
    if close_turn(run_id=run_id, claim=claim.token, outcome=outcome):
        finish_log(run_id=run_id)


def _logged(run_id: UUID) -> tuple[list[RunEvent], bool]:
    """What the log holds for good, and whether a stop was asked for.

    The worker may live and only have been too late with its sign of life.
    """
    try:
        return log.fence_log(run_id), log.is_stop_requested(run_id)
    except RedisError:
        return [], False


def finish_log(*, run_id: UUID) -> None:
    """Bring the log of an ended run to its end, from the database."""
    run = Run.objects.select_related("message__parent", "message__chat").get(pk=run_id)
    if run.message.status == Message.Status.STREAMING:
        return
    kind, data = terminal_event(run)
    log.repair_log(
        run_id,
        started=started_data(run),
        content=run.message.content,
        terminal_type=kind,
        terminal=data,
    )

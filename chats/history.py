"""Earlier messages of a chat, as the engine may see them."""

from chats.models import Message
from rag.types import HistoryMessage, Role

BRANCH_ROWS = 4
"""Rows fetched for each message wanted: other branches lie between those of ours."""


def earlier(*, message: Message, pairs: int) -> tuple[HistoryMessage, ...]:
    """The branch that leads to the user's `message`, oldest first, without it.

    At least the last `pairs` pairs of it.
    """
    rows = Message.objects.filter(chat_id=message.chat_id, created_at__lt=message.created_at)
    recent = rows.order_by("-created_at", "-id")[: max(1, pairs) * 2 * BRANCH_ROWS]
    by_id = {row.pk: row for row in recent}
    branch: list[HistoryMessage] = []
    here = message
    while here.parent_id in by_id:
        here = by_id[here.parent_id]
        if here.content:
            branch.append(HistoryMessage(Role(here.role), here.content))
    return tuple(reversed(branch))

"""Earlier messages of a chat, as the engine may see them."""

from chats.models import Message
from rag.types import HistoryMessage, Role

BRANCH_ROWS = 4
"""Rows fetched for each message wanted: other branches lie between those of ours."""


def earlier(*, message: Message, pairs: int) -> tuple[HistoryMessage, ...]:
    """The branch that leads to the user's `message`, oldest first, without it; at least the last `pairs` pairs of it."""
    rows = Message.objects.filter(chat_id=message.chat_id, created_at__lt=message.created_at)
    recent = rows.order_by("-created_at", "-id")[: max(1, pairs) * 2 * BRANCH_ROWS]
    by_id = {row.pk: row for row in recent}
    branch: list[HistoryMessage] = []
    parent = by_id.get(message.parent_id)
    while parent is not None:
        if parent.content:
            branch.append(HistoryMessage(Role(parent.role), parent.content))
        parent = by_id.get(parent.parent_id)
    return tuple(reversed(branch))

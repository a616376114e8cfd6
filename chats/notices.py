"""Tells a user's open pages that a chat has changed."""

from uuid import UUID

from chats import runs
from chats.models import Chat
from chats.shapes import ChatShape
from documents import notices


def chat_changed(chat_id: UUID) -> None:
    """Send the chat as it is now, with `deleted` when it is gone for its owner."""
    rows = Chat.objects.with_answering().prefetch_related("document_links")
    chat = rows.filter(pk=chat_id).first()
    if chat is None:
        return
    data = runs.plain(ChatShape(chat).data) | {"deleted": chat.deleted_at is not None}
    notices.send(chat.owner_id, {"type": "chat", "data": data})

"""Tells a user's open pages that a chat has changed."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import structlog

from chats.calls import released
from chats.models import Chat
from chats.serializers import ChatSerializer
from documents import notices

logger = structlog.get_logger()

_post = ThreadPoolExecutor(1, thread_name_prefix="notices")
"""Nobody waits for a notice, a question least of all."""


def chat_changed(chat_id: UUID) -> None:
    """Send the chat as it will be in a moment, with `deleted` when it is gone for its owner."""
    _post.submit(_tell, chat_id)


def _tell(chat_id: UUID) -> None:
    try:
        released(_send, chat_id)
    except Exception:  # in a thread of its own nobody else would say so
        logger.exception("chat_notice_lost", chat_id=str(chat_id))


def _send(chat_id: UUID) -> None:
    rows = Chat.objects.with_answering().prefetch_related("document_links")
    chat = rows.filter(pk=chat_id).first()
    if chat is None:
        return
    data = {**ChatSerializer(chat).data, "deleted": chat.deleted_at is not None}
    notices.send(chat.owner_id, {"type": "chat", "data": data})

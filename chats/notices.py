"""Tells a user's open pages that a chat has changed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import structlog

from chats.models import Chat
from chats.serializers import to_chat_json
from documents import notices
from jobs.connections import released

logger = structlog.get_logger()

_post = ThreadPoolExecutor(1, thread_name_prefix="notices")
"""Nobody waits for a notice, a question least of all."""


def chat_changed(chat_id: UUID) -> None:
    """Send the chat as it will be in a moment, with `deleted` when it is gone for its owner."""
    _post.submit(_log_failure, released, _load_and_send, chat_id)


def answer_began(chat: Chat) -> None:
    """Send a chat in which an answer has just begun; one without documents as it is at hand."""
    if getattr(chat, "has_documents", True):
        chat_changed(chat.pk)
        return
    data = to_chat_json(chat, links=()) | {"answering": True}
    _post.submit(_log_failure, _send, chat, data)


def _log_failure(send: Callable[..., None], *arguments: Any) -> None:
    try:
        send(*arguments)
    except Exception:  # in a thread of its own nobody else would say so
        logger.exception("chat_notice_lost")


def _load_and_send(chat_id: UUID) -> None:
    rows = Chat.objects.with_answering().prefetch_related("document_links")
    chat = rows.filter(pk=chat_id).first()
    if chat is not None:
        _send(chat, to_chat_json(chat))


def _send(chat: Chat, data: dict[str, Any]) -> None:
    data["deleted"] = chat.deleted_at is not None
    notices.send(chat.owner_id, {"type": "chat", "data": data})

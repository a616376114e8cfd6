"""Tells a user's open pages what changed. Notices are a convenience: the REST API is the truth."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from documents.models import Document
from documents.representation import to_document_json

logger = structlog.get_logger()

SEND_SECONDS = 2.0
"""A notice is not worth more waiting."""


def send(user_id: int, *payloads: Mapping[str, Any]) -> None:
    """Send payloads (`{type, data}`, plain JSON) to the sockets of one user."""
    layer = get_channel_layer()
    messages = [{"type": "notice", "payload": dict(payload)} for payload in payloads]
    try:
        async_to_sync(_send)(layer, f"user.{user_id}", messages)
    except (RedisError, OSError) as error:  # a time-out is an OSError too
        logger.warning("notices_lost", user_id=user_id, error=type(error).__name__)


async def _send(layer: Any, group: str, messages: Sequence[dict[str, Any]]) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        for message in messages:
            await layer.group_send(group, message)


def notify_document_changed(document: Document) -> None:
    """Show the owner's pages where the document stands now."""
    notify_documents_changed([document])


def notify_documents_changed(documents: Sequence[Document]) -> None:
    """The same for several documents of one owner."""
    if documents:
        send(documents[0].owner_id, *map(_to_notice, documents))


def _to_notice(document: Document) -> dict[str, Any]:
    return {"type": "document", "data": to_document_json(document)}


def notify_document_deleted(document: Document) -> None:
    """Let the owner's pages drop the document."""
    data = to_document_json(document) | {"deleted": True}
    send(document.owner_id, {"type": "document", "data": data})

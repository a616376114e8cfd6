"""Tells a user's open pages what changed. Notices are a convenience: the REST API is the truth."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from documents.models import Document
from documents.representation import document_json

logger = logging.getLogger(__name__)

SEND_SECONDS = 2.0
"""A notice is not worth more waiting."""


def send(user_id: int, payload: Mapping[str, Any]) -> None:
    """Send `payload` (`{type, data}`, plain JSON) to the sockets of one user."""
    layer = get_channel_layer()
    message = {"type": "notice", "payload": dict(payload)}
    try:
        async_to_sync(_send)(layer, f"user.{user_id}", message)
    except (RedisError, OSError):  # a time-out is an OSError too
        logger.warning("a notice to user %s was lost: Redis is down", user_id, exc_info=True)


async def _send(layer: Any, group: str, message: dict[str, Any]) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await layer.group_send(group, message)


def document_changed(document: Document) -> None:
    """Show the owner's pages where the document stands now."""
    send(document.owner_id, {"type": "document", "data": document_json(document)})


def document_deleted(document: Document) -> None:
    """Let the owner's pages drop the document."""
    data = document_json(document) | {"deleted": True}
    send(document.owner_id, {"type": "document", "data": data})

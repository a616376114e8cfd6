"""Tells a user's open pages what changed. Notices are a convenience: the REST API is the truth."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from django.core.serializers.json import DjangoJSONEncoder
from redis.exceptions import RedisError

from documents.models import Document
from documents.representation import to_document_json
from jobs import connections

logger = structlog.get_logger()


def get_channel() -> str:
    """The Redis channel of all notices; channels know no databases, so it names its own."""
    return f"nura:notices:{connections.sync().connection_pool.connection_kwargs.get('db', 0)}"


def send(user_id: int, *payloads: Mapping[str, Any]) -> None:
    """Send payloads (`{type, data}`) to the sockets of one user."""
    channel = get_channel()
    try:
        with connections.sync().pipeline(transaction=False) as pipe:
            for payload in payloads:
                data = json.dumps(payload["data"], cls=DjangoJSONEncoder, ensure_ascii=False)
                pipe.publish(channel, f"{user_id} {payload['type']} {data}")
            pipe.execute()
    except (RedisError, OSError) as error:  # a time-out is an OSError too
        logger.warning("notices_lost", user_id=user_id, error=type(error).__name__)


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

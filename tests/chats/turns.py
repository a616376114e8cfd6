"""Turns that a test lets happen: asked and answered without an engine."""

import uuid

from chats.history import Branch, load_conversation
from chats.models import Message, Run, Turn
from chats.services import turns
from chats.services.turn_store import AnswerOutcome
from chats.services.turns import close_turn, open_turn
from jobs.lease import claim_job


def source(document, slot=1, *, cited=True, index=0, similarity=0.9, text="본문"):
    """A source as an outcome carries it; `document` may be an id."""
    pk = str(getattr(document, "pk", document))
    return {
        "slot": slot,
        "document_id": pk,
        "document_name": getattr(document, "name", "없는 파일.pdf"),
        "chunk_id": f"{pk}_{index}",
        "page": 3,
        "similarity": similarity,
        "content_preview": text[:200],
        "section": "",
        "cited": cited,
        "boxes": [],
        "version": getattr(document, "version", 1),
    }


def sources(*documents):
    """One of each, in this order."""
    return [source(document, slot) for slot, document in enumerate(documents, 1)]


def outcome(*documents, **fields):
    """A completed answer that shows these documents."""
    shown = sources(*documents) or None
    known = {
        "status": Message.Status.COMPLETED,
        "content": "답",
        "mode": "documents" if shown else "general",
        "question_type": "single",
        "sources": shown,
    }
    return AnswerOutcome(**known | fields)


def end(turn, *documents, **fields):
    """Close an opened turn; its row in the store."""
    lease = claim_job(Run, turn.run.pk)
    assert close_turn(lease=lease, outcome=outcome(*documents, **fields))
    return Turn.objects.get(message=turn.assistant_message)


def say(owner, asked, *documents, chat_id=None, parent=None, topic="auto", **fields):
    """A whole turn after `parent` (a turn), else after the newest message."""
    opened = open_turn(
        user=owner,
        content=asked,
        chat_id=chat_id or (parent and parent.chat_id),
        parent_id=parent and parent.message_id,
        topic=topic,
    )
    return end(opened, *documents, **fields)


def again(turn, *documents, topic="auto", **fields):
    """Another answer to the same question."""
    opened = turns.regenerate_answer(message=turn.message, language="ko", topic=topic)
    return end(opened, *documents, **fields)


def known_after(turn, pairs=10):
    """What a question that follows the turn is told of the conversation."""
    message = Message.objects.select_related("chat__owner").get(pk=turn.message_id)
    return load_conversation(Branch.to_message(message), pairs=pairs)


def gone():
    """The id of a document that is not there."""
    return str(uuid.uuid4())

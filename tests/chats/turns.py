"""Turns made for tests: asked and answered without an engine."""

import uuid

from chats.history import Branch, load_conversation
from chats.models import Message, Run, Turn
from chats.services import turns
from chats.services.turn_store import AnswerOutcome
from chats.services.turns import close_turn, open_turn
from jobs.lease import claim_job


def build_source(document, slot=1, *, cited=True, index=0, similarity=0.9, text="본문"):
    """A source in the form that outcomes have; `document` may be an id."""
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


def build_sources(*documents):
    """A source of each document, in this order."""
    return [build_source(document, slot) for slot, document in enumerate(documents, 1)]


def build_outcome(*documents, **fields):
    """The outcome of a completed answer that shows these documents; `fields` replace its fields."""
    shown_sources = build_sources(*documents) or None
    defaults = {
        "status": Message.Status.COMPLETED,
        "content": "답",
        "mode": "documents" if shown_sources else "general",
        "question_type": "single",
        "sources": shown_sources,
    }
    return AnswerOutcome(**defaults | fields)


def answer_turn(turn, *documents, **fields):
    """Answer an opened turn; returns its row in the store."""
    lease = claim_job(Run, turn.run.pk)
    assert close_turn(lease=lease, outcome=build_outcome(*documents, **fields))
    return Turn.objects.get(message=turn.assistant_message)


def open_answered_turn(owner, content="질문", **fields):
    """Open a turn (`fields` as of `open_turn`) and answer it; returns the opened turn."""
    turn = open_turn(user=owner, content=content, **fields)
    answer_turn(turn, content=f"{content}의 답")
    return turn


def add_turn(owner, question, *documents, chat_id=None, parent=None, topic="auto", **fields):
    """Ask and answer a question after the turn `parent`, else after the newest message."""
    opened = open_turn(
        user=owner,
        content=question,
        chat_id=chat_id or (parent and parent.chat_id),
        parent_id=parent and parent.message_id,
        topic=topic,
    )
    return answer_turn(opened, *documents, **fields)


def add_answer(turn, *documents, topic="auto", **fields):
    """Answer the question of a turn once more; returns the new turn."""
    opened = turns.regenerate_answer(message=turn.message, language="ko", topic=topic)
    return answer_turn(opened, *documents, **fields)


def load_conversation_after(turn, pairs=10):
    """The conversation as a question after this turn gets it."""
    message = Message.objects.select_related("chat__owner").get(pk=turn.message_id)
    return load_conversation(Branch.to_message(message), pairs=pairs)


def make_missing_id():
    """The id of a document that does not exist."""
    return str(uuid.uuid4())

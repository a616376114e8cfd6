"""The way from a chat's first turn to one of its messages."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self
from uuid import UUID

from django.db import connection

from chats.models import Chat, Message
from rag.types import QuestionType

SPINE = """
    WITH RECURSIVE up AS (
        SELECT id, parent_id FROM chats_message WHERE id = %s
        UNION ALL
        SELECT m.id, m.parent_id FROM chats_message m JOIN up ON m.id = up.parent_id
         WHERE NOT EXISTS (SELECT FROM chats_turn t WHERE t.message_id = up.id)
    ), spine AS (
        SELECT t.id, t.parent_id, t.number, t.document_ids, t.running_through, t.forgets,
               t.question_type, t.ts
          FROM chats_turn t JOIN up ON t.message_id = up.id
        UNION ALL
        SELECT t.id, t.parent_id, t.number, t.document_ids, t.running_through, t.forgets,
               t.question_type, t.ts
          FROM chats_turn t JOIN spine ON t.id = spine.parent_id
    )
    SELECT id, number, document_ids, running_through, forgets, question_type, ts
      FROM spine ORDER BY number
"""


class Step(NamedTuple):
    """A turn of a branch, without its texts."""

    turn_id: UUID
    number: int
    document_ids: list[UUID]
    running_through: int | None
    forgets: bool
    question_type: str
    ts: datetime


@dataclass(frozen=True, slots=True)
class Branch:
    """The turns up to a message and with it, oldest first; of an unanswered one those before it."""

    chat: Chat
    steps: tuple[Step, ...] = ()

    @classmethod
    def to(cls, message: Message) -> Self:
        """The branch of a message, whose chat should be at hand. One query."""
        with connection.cursor() as cursor:
            cursor.execute(SPINE, [message.pk])
            return cls(message.chat, tuple(Step(*row) for row in cursor.fetchall()))

    @classmethod
    def newest(cls, chat: Chat) -> Self:
        """The branch in which something was said last."""
        last = Message.objects.filter(chat=chat).order_by("-created_at", "-id").first()
        if last is None:
            return cls(chat)
        last.chat = chat
        return cls.to(last)

    @property
    def turn_ids(self) -> list[UUID]:
        """All turns."""
        return [step.turn_id for step in self.steps]

    @property
    def document_ids(self) -> set[UUID]:
        """The documents of all turns."""
        return {document_id for step in self.steps for document_id in step.document_ids}

    @property
    def begins_at(self) -> int:
        """The number of the first turn since the last new start, be it not asked yet.

        A turn that only asked for the new start is left behind; one that asked more begins it.
        """
        cleared = self.chat.memory_cleared_at
        for step in reversed(self.steps):
            if cleared is not None and step.ts <= cleared:
                return step.number + 1
            if step.forgets:
                return step.number + (step.question_type == QuestionType.RESET)
        return 1

    @property
    def summarised(self) -> UUID | None:
        """The latest turn since the last new start that carries a running summary of it."""
        begins = self.begins_at
        return next(
            (s.turn_id for s in reversed(self.steps) if (s.running_through or 0) >= begins), None
        )

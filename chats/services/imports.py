"""Chats that were held elsewhere, written as if they had been held here.

What is imported twice is there once: a chat is known by `external_id`, a message by a key that is
made from that of the chat. What its owner has deleted of it meanwhile stays deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from chats.models import Chat, Message, Turn
from chats.models.chat import make_title
from documents.models import Deletion, DeletionKind

OUR_CHATS = "nura:"
"""How the keys of chats begin that were exported by Nura, this installation perhaps."""
TITLE_CHARACTERS = 200
TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """A message of a `ForeignChat`; `key` names it there, `parent` the one that it follows.

    A question follows nothing or an answer, an answer a question.
    """

    key: str
    parent: str | None
    role: Message.Role
    text: str
    said_at: datetime | None


@dataclass(frozen=True, slots=True)
class ForeignChat:
    """A chat from elsewhere; its `key` names it. Messages stand after their parent."""

    key: str
    title: str
    begun_at: datetime
    messages: Sequence[ForeignMessage]


@transaction.atomic
def import_chat(*, owner: User, foreign: ForeignChat) -> int:
    """Store what is not there yet of a chat, all of it or nothing; how many messages."""
    if _is_at_home(owner, foreign.key):
        return 0
    chat = Chat.objects.select_for_update().filter(owner=owner, external_id=foreign.key).first()
    if chat is not None and chat.deleted_at is not None:
        Chat.objects.filter(pk=chat.pk).update(external_id="")  # it is wanted anew
        chat = None
    if chat is None:
        chat = Chat.objects.create(owner=owner, title=_to_title(foreign), external_id=foreign.key)
        Chat.objects.filter(pk=chat.pk).update(created_at=foreign.begun_at)
    count, latest = _add_messages(chat, foreign)
    if count:
        Chat.objects.filter(pk=chat.pk).update(updated_at=latest)
    return count


def _is_at_home(owner: User, key: str) -> bool:
    """Whether the chat is one of the owner's that was exported here."""
    if not key.startswith(OUR_CHATS):
        return False
    return Chat.objects.visible_to(owner).filter(pk=UUID(key.removeprefix(OUR_CHATS))).exists()


def _add_messages(chat: Chat, foreign: ForeignChat) -> tuple[int, datetime]:
    """Store the messages that are missing; how many, and when the latest was said."""
    keys = {one.key: uuid5(chat.pk, one.key) for one in foreign.messages}
    known = Message.objects.filter(chat=chat).in_bulk(list(keys.values()))
    turns = {turn.message_id: turn for turn in Turn.objects.told().filter(chat=chat)}
    gone = set(
        Deletion.objects.filter(
            kind=DeletionKind.MESSAGE, key__in=[str(key) for key in keys.values()]
        ).values_list("key", flat=True)
    )
    placed: dict[str | None, Message | None] = {None: None}
    now, new, latest = timezone.now(), 0, foreign.begun_at
    for one in foreign.messages:
        above = placed[one.parent]
        pk = keys[one.key]
        if pk in known or str(pk) in gone:
            placed[one.key] = known.get(pk, above)
            continue
        earliest = above.created_at + TICK if above else foreign.begun_at
        said_at = max(min(one.said_at or earliest, now), earliest)
        message = Message.objects.create(
            pk=pk, chat=chat, parent=above, role=one.role, content=one.text, created_at=said_at
        )
        placed[one.key] = message
        if one.role == Message.Role.ASSISTANT:
            turns[pk] = _add_turn(message, turns)
        new, latest = new + 1, max(latest, said_at)
    return new, latest


def _add_turn(answer: Message, turns: dict[UUID, Turn]) -> Turn:
    """The turn of an answer, with which the chat can go on.

    It gets no summary: thousands of them would keep the language model busy for a day.
    """
    question = answer.parent
    before = turns.get(question.parent_id) if question and question.parent_id else None
    return Turn.objects.create(
        chat_id=answer.chat_id,
        message=answer,
        parent=before,
        number=before.number + 1 if before else 1,
        ts=answer.created_at,
        user_text=question.content if question else "",
        assistant_text=answer.content,
        attempts=Turn.MAX_ATTEMPTS,
        enqueued_at=timezone.now(),
    )


def _to_title(foreign: ForeignChat) -> str:
    return " ".join(foreign.title.split())[:TITLE_CHARACTERS] or make_title(
        foreign.messages[0].text
    )

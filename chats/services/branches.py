"""Branches: another answer to a question, or another question in its place.

What was there stays.
"""

from django.contrib.auth.models import User
from django.db import transaction

from chats.errors import NotFound, StillAnswering, WrongRole
from chats.models import Chat, Message
from chats.services.chats import touch_chat
from chats.services.turns import OpenedTurn, new_question, open_answer
from documents.models import Document
from rag.types import Topic


@transaction.atomic
def regenerate_answer(*, message: Message, language: str, topic: str = Topic.AUTO) -> OpenedTurn:
    """Answer the question of an assistant's message once more, over the documents as they are now.

    `topic` is what the user says of its bond to the conversation.

    Raises `WrongRole`, `StillAnswering`.
    """
    if message.role != Message.Role.ASSISTANT or message.parent is None:
        raise WrongRole
    chat = _hold_chat(message)
    if message.status == Message.Status.STREAMING:
        raise StillAnswering
    return open_answer(chat=chat, question=message.parent, language=language, topic=topic)


@transaction.atomic
def edit_question(*, user: User, message: Message, content: str, language: str) -> OpenedTurn:
    """Ask again, with other words, where a user's message stands; its named documents stay named.

    Raises `WrongRole`, `EmptyMessage`.
    """
    if message.role != Message.Role.USER:
        raise WrongRole
    chat = _hold_chat(message)
    visible = set(Document.objects.visible_to(user).filter(message_links__message=message))
    links = message.document_links.select_related("document")
    named = [link.document for link in links if link.document in visible | {None}]
    question = new_question(chat, message.parent_id, content)
    return open_answer(chat=chat, question=question, documents=named, language=language)


def _hold_chat(message: Message) -> Chat:
    chat = touch_chat(message.chat.owner, message.chat_id)
    if chat is None:
        raise NotFound
    return chat

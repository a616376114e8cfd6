"""Branches: another answer to a question, or another question in its place.

What was there stays.
"""

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from chats.errors import StillAnswering, WrongRole
from chats.models import Chat, Message, MessageDocument
from chats.services.turns import OpenedTurn, open_answer, store_question
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
    chat = _locked(message)
    if message.status == Message.Status.STREAMING:
        raise StillAnswering
    answer, run = open_answer(
        chat=chat, user_message=message.parent, language=language, topic=topic
    )
    return OpenedTurn(run, message.parent, answer, created=True)


@transaction.atomic
def edit_question(*, user: User, message: Message, content: str, language: str) -> OpenedTurn:
    """Ask again, with other words, where a user's message stands; its named documents stay named.

    Raises `WrongRole`, `EmptyMessage`.
    """
    if message.role != Message.Role.USER:
        raise WrongRole
    chat = _locked(message)
    question = store_question(
        chat=chat,
        parent=message.parent,
        content=content,
        documents=list(Document.objects.visible_to(user).filter(message_links__message=message)),
    )
    if message.document_links.filter(document=None).exists():  # what was named stays named
        MessageDocument.objects.create(message=question, document=None)
    answer, run = open_answer(chat=chat, user_message=question, language=language)
    return OpenedTurn(run, question, answer, created=True)


def _locked(message: Message) -> Chat:
    chat = Chat.objects.select_for_update().get(pk=message.chat_id)
    chat.updated_at = timezone.now()
    chat.save(update_fields=("updated_at",))
    return chat

"""Questions of programs that keep their own copy of a conversation, put where they belong in ours.

Such a program sends all its messages with every question. What it sends says which of the
branches stored here it goes on with.
"""

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.db import models, transaction
from django.db.models import F, Func, Value

from chats.models import Chat, Message
from chats.models.chat import title_of
from chats.services.chats import find_documents
from chats.services.turns import OpenedTurn, clean, open_answer, store_question
from documents.models import Document
from rag.conversation import Sampling


@dataclass(frozen=True, slots=True)
class Place:
    """Where a question stands, as its program tells it.

    `answer` is the text of the answer before it, None without one, and `question` that of the
    question so answered. `whole` says that the program sends the whole conversation, so that no
    answer means its beginning.
    """

    answer: str | None = None
    question: str = ""
    whole: bool = False


@transaction.atomic
def ask(  # noqa: PLR0913 - the parts of a question, by name
    *,
    user: User,
    key: str,
    content: str,
    place: Place,
    document_ids: Collection[UUID],
    language: str,
    sampling: Sampling,
) -> OpenedTurn:
    """Store a question of the chat called `key`, made at its first one, and begin its answer.

    The question that stands there already gets another answer. Raises `NotFound`, `EmptyMessage`.
    """
    text = clean(content)
    chat = find_or_create(user=user, key=key, title=title_of(text))
    chat = Chat.objects.select_for_update().get(pk=chat.pk)
    chat.save(update_fields=("updated_at",))
    documents = find_documents(owner=user, document_ids=document_ids)
    parent = _parent(chat, place)
    question = _asked_before(chat, parent, text, documents) or store_question(
        chat=chat, parent=parent, content=text, documents=documents
    )
    answer, run = open_answer(
        chat=chat, user_message=question, language=language, sampling=sampling
    )
    return OpenedTurn(run, question, answer, created=True)


def find_or_create(*, user: User, key: str, title: str) -> Chat:
    """The user's chat with this id, else the one that a program calls so; made where none is.

    A deleted chat keeps its rows and gives its name away.
    """
    if own := _own(user, key):
        return own
    named = Chat.objects.filter(owner=user, external_id=key)
    named.exclude(deleted_at=None).update(external_id="")
    chat, _created = Chat.objects.get_or_create(
        owner=user, external_id=key, defaults={"title": title}
    )
    return chat


def _own(user: User, key: str) -> Chat | None:
    try:
        pk = UUID(key)
    except ValueError:
        return None
    return Chat.objects.owned_by(user).filter(pk=pk).first()


def _parent(chat: Chat, place: Place) -> Message | None:
    """The message that the question follows; None at the beginning of a chat."""
    messages = Message.objects.filter(chat=chat).order_by("-created_at", "-id")
    if place.answer is None and place.whole:
        return None
    return _answered(messages, place) or messages.first()


def _answered(messages: models.QuerySet[Message], place: Place) -> Message | None:
    """The newest answer with the text that was sent, to the same question where there is one."""
    if place.answer is None:
        return None
    answers = messages.filter(role=Message.Role.ASSISTANT).annotate(
        bare=_bare("content"), asked=_bare("parent__content")
    )
    same = answers.filter(bare=place.answer.strip())
    asked = unicodedata.normalize("NFC", place.question).strip()
    return same.filter(asked=asked).first() or same.first()


def _bare(field: str) -> Func:
    blanks = Value(" \t\r\n")
    return Func(F(field), blanks, function="BTRIM", output_field=models.TextField())


def _asked_before(
    chat: Chat, parent: Message | None, text: str, documents: list[Document]
) -> Message | None:
    """The same question at the same place about the same documents."""
    same = Message.objects.filter(
        chat=chat, parent=parent, role=Message.Role.USER, content=text
    ).order_by("-created_at", "-id")
    wanted = {document.pk for document in documents}
    for question in same.prefetch_related("document_links"):
        if {link.document_id for link in question.document_links.all()} == wanted:
            return question
    return None

"""Changes to a branch of a chat that ask nothing: deleting, copying, rewording."""

import uuid
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Model
from django.utils.translation import gettext as _

from chats.errors import NotFound, StillAnswering, SummaryChanged, WrongRole
from chats.history import Branch
from chats.models import Chat, ChatDocument, ChatShare, Message, MessageDocument, Run, Trace, Turn
from chats.models.chat import cut_title
from chats.runs import log
from chats.runs.dispatch import dispatch_summary
from chats.services import answer_cache, turn_store
from chats.services.chats import send_chat_change
from chats.services.turns import clean_content
from documents import deletions
from documents.audit import Action, record_event
from documents.models import DeletionKind

if TYPE_CHECKING:
    from django.contrib.auth.models import User

TITLE_CHARACTERS = 200
OWN_WORDS = "user"
"""The model of a running summary that a person has edited."""
Row = TypeVar("Row", bound=Model)

UP = """
    WITH RECURSIVE up AS (
        SELECT id, parent_id, 0 AS steps FROM chats_message WHERE id = %s
        UNION ALL
        SELECT m.id, m.parent_id, up.steps + 1 FROM chats_message m JOIN up ON m.id = up.parent_id
    )
    SELECT m.* FROM chats_message m JOIN up ON up.id = m.id ORDER BY up.steps DESC
"""


def list_branch(message_id: UUID) -> list[Message]:
    """The messages from the first of a chat to this one."""
    return list(Message.objects.raw(UP, [message_id]))


@transaction.atomic
def delete_message(*, message: Message, actor: "User | None" = None) -> None:
    """Delete a question with all its answers, or an answer with the question that only it answers.

    What follows it in the branch is attached to what preceded it, so that the rest of the
    conversation stays and memory is as if the pair had never been said.

    Raises `StillAnswering`.
    """
    chat = _lock_chat(message.chat_id)
    target = Message.objects.filter(pk=message.pk).first()
    if target is None:
        raise NotFound
    if target.role == Message.Role.USER or target.parent_id is None:
        removed = [*Message.objects.filter(parent=target, role=Message.Role.ASSISTANT), target]
        parent_id = target.parent_id
    else:
        others = Message.objects.filter(parent_id=target.parent_id).exclude(pk=target.pk)
        question = Message.objects.get(pk=target.parent_id)
        removed, parent_id = [target], question.parent_id
        if not others.exists():
            removed.append(question)
    refuse_unfinished(removed)
    runs = list(Run.objects.filter(message__in=removed).values_list("pk", flat=True))
    for turn in (
        Turn.objects.without_search_columns().select_related("chat").filter(message__in=removed)
    ):
        turn_store.unlink_turn(turn)
    keys = [row.pk for row in removed]
    Message.objects.filter(parent__in=keys).exclude(pk__in=keys).update(parent=parent_id)
    if parent_id is not None:
        ChatShare.objects.filter(last_message__in=keys).update(last_message=parent_id)
    Message.objects.filter(pk__in=keys).delete()
    if actor is not None:
        record_event(Action.DATA_DELETED, actor=actor, target=f"message:{message.pk}")
    deletions.record_deletions(
        DeletionKind.MESSAGE, keys, owner_id=chat.owner_id, days=0, is_erased=True
    )
    transaction.on_commit(lambda: log.delete_logs(runs), robust=True)
    transaction.on_commit(partial(send_chat_change, chat.pk))


@transaction.atomic
def rewrite_question(*, message: Message, content: str) -> Message:
    """Reword a question in place without asking it again: its answers stay as they are.

    Raises `WrongRole`, `EmptyMessage`, `StillAnswering`.
    """
    if message.role != Message.Role.USER:
        raise WrongRole
    text = clean_content(content)
    chat = _lock_chat(message.chat_id)
    answers = list(Message.objects.filter(parent=message))
    refuse_unfinished(answers)
    Message.objects.filter(pk=message.pk).update(content=text)
    answer_cache.forget_answers(Message.objects.filter(parent=message))
    for turn in (
        Turn.objects.without_search_columns().select_related("chat").filter(message__in=answers)
    ):
        turn_store.reword_question(turn, text)
        transaction.on_commit(partial(dispatch_summary, turn.pk))
    transaction.on_commit(partial(send_chat_change, chat.pk))
    message.content = text
    return message


@transaction.atomic
def edit_running_summary(
    *, chat: Chat, message: Message | None, text: str, through: int | None = None
) -> None:
    """Replace the running summary of a branch by a person's own words.

    `message` is one of the branch, None for the newest branch; `through` is the last turn that the
    text he edited covers. Raises `SummaryChanged`.
    """
    locked = _lock_chat(chat.pk)
    turn = None
    while turn is None:  # a worker may fold more turns until the row is locked
        branch = _find_branch(locked, message)
        if branch.summarised is None:
            raise SummaryChanged
        row = Turn.objects.without_search_columns().select_for_update().get(pk=branch.summarised)
        if _find_branch(locked, message).summarised == row.pk:
            turn = row
    if through is not None and turn.running_through != through:
        raise SummaryChanged
    Turn.objects.filter(pk=turn.pk).update(running_summary=text, running_model=OWN_WORDS)
    transaction.on_commit(partial(send_chat_change, locked.pk))


def _find_branch(chat: Chat, message: Message | None) -> Branch:
    if message is None:
        return Branch.find_newest(chat)
    message.chat = chat
    return Branch.to_message(message)


@transaction.atomic
def fork_chat(*, user: "User", chat: Chat, message_id: UUID) -> Chat:
    """A new chat with a copy of the branch up to a message; of a question, up to its newest answer.

    The copy shares nothing with the original; feedback and runs are not copied.

    Raises `NotFound`, `StillAnswering`.
    """
    original = _lock_chat(chat.pk)
    last = Message.objects.filter(pk=message_id, chat=original).first()
    if last is None:
        raise NotFound
    if last.role == Message.Role.USER:
        answers = Message.objects.filter(parent=last, role=Message.Role.ASSISTANT)
        last = answers.order_by("-created_at", "-id").first() or last
    branch = list_branch(last.pk)
    refuse_unfinished(branch)
    title = _("Branch · %(title)s") % {"title": original.title}
    fork = Chat(
        owner=user,
        title=cut_title(title, TITLE_CHARACTERS),
        category_id=original.category_id,
        history_pairs=original.history_pairs,
        memory_cleared_at=original.memory_cleared_at,
        library_ids=original.library_ids,
    )
    last.chat = original
    turn_ids = Branch.to_message(last).turn_ids
    fork.save(force_insert=True)
    new_ids = {copied.pk: uuid.uuid4() for copied in branch}
    _copy_rows(ChatDocument.objects.filter(chat=original), chat=fork)
    keys = list(new_ids)
    links = list(MessageDocument.objects.filter(message__in=keys))
    traces = list(Trace.objects.filter(message__in=keys))
    for copied in branch:
        copied.pk, copied.parent_id, copied.chat = (
            new_ids[copied.pk],
            _map_key(copied.parent_id, new_ids),
            fork,
        )
    Message.objects.bulk_create(branch)
    for link in links:
        link.message_id = new_ids[link.message_id]
    for trace in traces:
        trace.message_id = new_ids[trace.message_id]
    _copy_rows(links)
    _copy_rows(traces)
    _copy_turns(turn_ids, fork, new_ids)
    return fork


def _copy_turns(turn_ids: Collection[UUID], fork: Chat, messages: dict[UUID, UUID]) -> None:
    turns = list(Turn.objects.filter(pk__in=turn_ids).order_by("number"))
    new_ids = {row.pk: uuid.uuid4() for row in turns}
    for turn in turns:
        turn.pk, turn.chat = new_ids[turn.pk], fork
        turn.message_id = messages[turn.message_id]
        turn.parent_id, turn.shown_id = (
            _map_key(turn.parent_id, new_ids),
            _map_key(turn.shown_id, new_ids),
        )
        turn.claim, turn.lease_until = None, None
        if turn.summarised_at is None:
            transaction.on_commit(partial(dispatch_summary, turn.pk))
    Turn.objects.bulk_create(turns)


def _map_key(key: UUID | None, new_ids: dict[UUID, UUID]) -> UUID | None:
    return new_ids.get(key) if key else None


def _copy_rows(rows: Iterable[Row], **changes: object) -> None:
    """Store copies of rows under new keys."""
    copies = list(rows)
    for row in copies:
        row.pk = None
        row._state.adding = True  # noqa: SLF001 - Django's own way to copy a row
        for name, value in changes.items():
            setattr(row, name, value)
    if copies:
        type(copies[0])._default_manager.bulk_create(copies)  # noqa: SLF001 - the documented one


def _lock_chat(chat_id: UUID) -> Chat:
    """The chat with its row locked: its turns are written one by one. Raises `NotFound`."""
    chat = Chat.objects.select_for_update().filter(pk=chat_id, deleted_at=None).first()
    if chat is None:
        raise NotFound
    return chat


def refuse_unfinished(messages: Iterable[Message]) -> None:
    """Raise `StillAnswering` where one of these is being written."""
    if any(message.status == Message.Status.STREAMING for message in messages):
        raise StillAnswering

"""Creating, changing and deleting chats and categories; and how much a user may ask."""

import math
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from chats.errors import NotFound, QuotaMessages, QuotaTokens
from chats.models import Assistant, Category, Chat, ChatDocument, ChatShare, DailyMessages, Message
from chats.models.chat import ChatQuerySet
from chats.serializers import to_chat_json
from chats.services import answer_cache
from chats.services.tools import find_servers
from documents import deletions, notices, quotas
from documents.audit import Action, record_event
from documents.connected.choice import find_allowed_model
from documents.libraries import find_libraries
from documents.models import DeletionKind, Document, QuotaMeasure
from documents.notices import announce_rights_change
from documents.quotas import QuotaLimits
from jobs.connections import ANY_KEY, KeptQuery, run_and_release

logger = structlog.get_logger()

_notice_executor = ThreadPoolExecutor(1, thread_name_prefix="notices")
"""Notices are sent in a thread of their own: no request, least of all a question, waits for one."""


def send_chat_change(chat_id: UUID) -> None:
    """Send the chat's current state to its owner's pages; `deleted`: it is gone."""
    _notice_executor.submit(_log_failure, run_and_release, _load_and_send, chat_id)


def send_answer_start(chat: Chat) -> None:
    """Send a chat in which an answer has just begun, marked as `answering`."""
    chat.answering = True
    send_loaded_chat(chat)


def send_loaded_chat(chat: Chat) -> None:
    """Send a chat without documents as it was loaded; look others up again."""
    if getattr(chat, "has_documents", True):
        send_chat_change(chat.pk)
    else:
        _notice_executor.submit(_log_failure, _send_chat, chat, to_chat_json(chat, links=()))


def _log_failure(send: Callable[..., None], *arguments: Any) -> None:
    try:
        send(*arguments)
    except Exception:  # nobody else would log it: the thread's result is not read
        logger.exception("chat_notice_lost")


_chat_query = KeptQuery(
    lambda key: Chat.objects.filter(pk=key).with_answering().prefetch_related("document_links"),
    ANY_KEY,
)


def _load_and_send(chat_id: UUID) -> None:
    for chat in _chat_query.fetch(chat_id):
        _send_chat(chat, to_chat_json(chat))


def _send_chat(chat: Chat, data: dict[str, Any]) -> None:
    data["deleted"] = chat.deleted_at is not None
    notices.send_notices(chat.owner_id, {"type": "chat", "data": data})


TOUCH = """
    UPDATE chats_chat SET updated_at = %s, archived = FALSE
     WHERE owner_id = %s AND deleted_at IS NULL AND (id = %s OR external_id = %s)
    RETURNING *, EXISTS (
        SELECT FROM chats_chatdocument WHERE chat_id = chats_chat.id
    ) AS has_documents
"""
END = """
    UPDATE chats_chat SET updated_at = %s, unread = TRUE
     WHERE id = %s
    RETURNING *, EXISTS (
        SELECT FROM chats_chatdocument WHERE chat_id = chats_chat.id
    ) AS has_documents, EXISTS (
        SELECT FROM chats_message
         WHERE chat_id = chats_chat.id AND status = 'STREAMING' AND id <> %s
    ) AS answering
"""
COUNT = """
    INSERT INTO chats_dailymessages AS today (owner_id, day, count)
    SELECT %(owner)s, %(day)s, 1 WHERE %(most)s > 0
    ON CONFLICT (owner_id, day) DO UPDATE SET count = today.count + 1 WHERE today.count < %(most)s
"""
ADD_TOKENS = """
    INSERT INTO chats_dailymessages AS today (owner_id, day, count, tokens) VALUES (%s, %s, 0, %s)
    ON CONFLICT (owner_id, day) DO UPDATE SET tokens = today.tokens + excluded.tokens
"""
UNLIMITED = 2**31 - 1
TEMPORARY = timedelta(hours=24)
"""How long a temporary chat is kept after its last question."""
PLAIN_FIELDS = (
    *("title", "history_pairs", "pinned", "archived", "unread"),
    *("use_memory", "temporary"),
)
"""Fields of a chat that are stored as they come."""


def touch_chat(user: User, chat_id: UUID | None = None, external_id: str = "") -> Chat | None:
    """Move the user's chat up in the list and lock its row in one statement; None if none.

    It is found by its own id, else by what a program calls it; `has_documents` says whether
    documents are linked to it. The row is locked for the caller's transaction.
    """
    parameters = [timezone.now(), user.pk, chat_id, external_id or None]
    rows = list(Chat.objects.raw(TOUCH, parameters))
    chat = next((row for row in rows if row.pk == chat_id), rows[0] if rows else None)
    if chat is not None:
        chat.owner = user
    return chat


def touch_answered_chat(answer: Message) -> Chat:
    """Mark the chat of a finished answer unread, move it up and lock its row, in one statement.

    `has_documents` says whether documents are linked to it, `answering` whether another answer is
    being written.
    """
    (chat,) = Chat.objects.raw(END, [timezone.now(), answer.chat_id, answer.pk])
    return chat


@transaction.atomic
def create_chat(  # noqa: PLR0913 - the fields of a new chat, by name
    *,
    owner: User,
    title: str,
    document_ids: Collection[UUID] = (),
    category_id: UUID | None = None,
    history_pairs: int | None = None,
    use_memory: bool = True,
    temporary: bool = False,
    model: str | None = None,
    library_ids: Collection[UUID] = (),
    assistant_id: UUID | None = None,
    tool_ids: Collection[UUID] = (),
) -> Chat:
    """Create a chat about these documents and libraries, all of it or nothing.

    Raises `NotFound`, `LibraryNotFound`, `ModelNotAllowed`.
    """
    documents = find_documents(owner=owner, document_ids=document_ids)
    libraries = find_libraries(user=owner, library_ids=library_ids)
    category = find_category(owner=owner, category_id=category_id)
    chat = add_chat(owner, title, documents, category, history_pairs, libraries)
    if temporary or not use_memory:
        chat.use_memory, chat.temporary = use_memory, temporary
        chat.save(update_fields=("use_memory", "temporary"))
    if model:
        set_model(chat, model)
    if assistant_id:
        set_assistant(chat, assistant_id)
    if tool_ids:
        set_tools(chat, tool_ids)
    return chat


def set_tools(chat: Chat, tool_ids: Collection[UUID]) -> None:
    """Let answers of the chat use the tools of these servers. Raises `NotFound`."""
    find_servers(chat.owner, list(tool_ids))
    chat.tool_ids = list(dict.fromkeys(tool_ids))
    chat.save(update_fields=("tool_ids",))


def set_model(chat: Chat, model: str) -> None:
    """Let a language model answer in the chat; "" for the usual one. Raises `ModelNotAllowed`."""
    if model:
        find_allowed_model(chat.owner, model)
    chat.model = model
    chat.save(update_fields=("model",))


def set_assistant(chat: Chat, assistant_id: UUID | None) -> None:
    """Let an assistant answer in the chat; None: Nura itself. Raises `NotFound`."""
    rows = Assistant.objects.visible_to(chat.owner)
    if assistant_id is not None and not rows.filter(pk=assistant_id).exists():
        raise NotFound
    chat.assistant_id = assistant_id
    chat.save(update_fields=("assistant",))


def add_chat(  # noqa: PLR0913, PLR0917 - the same
    owner: User,
    title: str,
    documents: Collection[Document] = (),
    category: Category | None = None,
    history_pairs: int | None = None,
    library_ids: Collection[UUID] = (),
) -> Chat:
    """Create a chat in the caller's transaction, of documents and libraries looked up before."""
    chat = Chat(owner=owner, title=title, category=category, history_pairs=history_pairs)
    chat.library_ids = list(library_ids) or None
    chat.has_documents = bool(documents)
    chat.save(force_insert=True)
    if documents:
        link_documents(chat=chat, documents=documents)
    return chat


@transaction.atomic
def update_chat(*, chat: Chat, changes: dict[str, object]) -> Chat:
    """Apply changes, a subset of the fields of `ChatChange`.

    Changes to one chat are made one after the other. Raises `NotFound`, `LibraryNotFound`,
    `ModelNotAllowed`.
    """
    locked = Chat.objects.select_for_update().filter(pk=chat.pk, deleted_at=None).first()
    if locked is None:
        raise NotFound
    fields: list[str] = [name for name in PLAIN_FIELDS if name in changes]
    for name in fields:
        setattr(locked, name, changes[name])
    if "category_id" in changes:
        category_id: UUID | None = changes["category_id"]  # type: ignore[assignment]
        locked.category = find_category(owner=locked.owner, category_id=category_id)
        fields.append("category")
    if "tool_ids" in changes:
        tools: Collection[UUID] = changes["tool_ids"]  # type: ignore[assignment]
        set_tools(locked, tools)
    if "model" in changes:
        set_model(locked, str(changes["model"] or ""))
    if "assistant_id" in changes:
        set_assistant(locked, changes["assistant_id"])  # type: ignore[arg-type]
    if "document_ids" in changes:
        ids: Collection[UUID] = changes["document_ids"]  # type: ignore[assignment]
        documents = find_documents(owner=locked.owner, document_ids=ids)
        ChatDocument.objects.filter(chat=locked).exclude(document__in=documents).delete()
        link_documents(chat=locked, documents=documents)
    if "library_ids" in changes:
        library_ids: Collection[UUID] = changes["library_ids"]  # type: ignore[assignment]
        libraries = find_libraries(user=locked.owner, library_ids=library_ids)
        locked.library_ids = libraries or None
        fields.append("library_ids")
    # not updated_at: a chat moves up in the list when something is said in it
    locked.save(update_fields=fields)
    transaction.on_commit(lambda: send_chat_change(locked.pk))
    return locked


@transaction.atomic
def change_chats(*, owner: User, chat_ids: Collection[UUID], changes: dict[str, object]) -> int:
    """Apply `pinned`, `archived`, `unread` and `category_id` where given; the number of chats.

    All of them or none. Raises `NotFound` where one is not the owner's.
    """
    values = dict(changes)
    if "category_id" in values:
        category_id: UUID | None = values.pop("category_id")  # type: ignore[assignment]
        values["category"] = find_category(owner=owner, category_id=category_id)
    return _find_chats(owner, chat_ids).update(**values) if values else 0


@transaction.atomic
def delete_chats(*, owner: User, chat_ids: Collection[UUID], actor: User | None = None) -> int:
    """Hide the chats from their owner, all or none; the number of chats. Raises `NotFound`.

    They are purged after their retention. With an `actor` the deletion goes into the audit log.
    """
    count = _find_chats(owner, chat_ids).update(deleted_at=timezone.now())
    keys = set(chat_ids)
    if ChatShare.objects.filter(chat__in=keys).delete()[0]:
        announce_rights_change()
    answer_cache.forget_answers(Message.objects.filter(chat__in=keys))
    days = settings.RETENTION_DELETED_DAYS
    deletions.record_deletions(DeletionKind.CHAT, keys, owner_id=owner.pk, days=days)
    if actor is not None:
        for pk in sorted(keys):
            record_event(Action.DATA_DELETED, actor=actor, target=f"chat:{pk}")
    return count


def _find_chats(owner: User, chat_ids: Collection[UUID]) -> ChatQuerySet:
    """The owner's chats with these ids, locked; his pages are notified on commit."""
    ids = set(chat_ids)
    locked = Chat.objects.visible_to(owner).filter(pk__in=ids).select_for_update().order_by("pk")
    if len(locked) != len(ids):
        raise NotFound
    for chat_id in ids:
        transaction.on_commit(partial(send_chat_change, chat_id))
    return Chat.objects.filter(pk__in=ids)


def delete_chat(*, chat: Chat, actor: User | None = None) -> None:
    """Hide one chat from its owner; does nothing if it is hidden already."""
    with suppress(NotFound):
        delete_chats(owner=chat.owner, chat_ids=[chat.pk], actor=actor)


def delete_idle_chats() -> int:
    """Hide temporary chats that have expired, to be purged; the number of chats."""
    idle = find_idle_chats().values_list("owner_id", "pk")
    for owner_id, pk in list(idle):
        with suppress(NotFound):  # its owner has just deleted it
            delete_chats(owner=User.objects.get(pk=owner_id), chat_ids=[pk])
    return len(idle)


def find_idle_chats() -> ChatQuerySet:
    """Temporary chats that have expired."""
    cutoff = timezone.now() - TEMPORARY
    return Chat.objects.filter(temporary=True, deleted_at=None, updated_at__lt=cutoff)


@transaction.atomic
def restore_chats(*, chat_ids: Collection[UUID]) -> int:
    """Restore deleted chats to their owners; the number of chats."""
    deleted = Chat.objects.filter(pk__in=chat_ids).exclude(deleted_at=None)
    keys = list(deleted.values_list("pk", flat=True))
    count = deleted.update(deleted_at=None)
    deletions.withdraw_deletions(DeletionKind.CHAT, keys)
    return count


def clear_memory(*, chat: Chat) -> None:
    """Forget the documents that the conversation was about; its turns stay stored."""
    Chat.objects.filter(pk=chat.pk).update(memory_cleared_at=timezone.now())
    send_chat_change(chat.pk)


def find_category(*, owner: User, category_id: UUID | None) -> Category | None:
    """The owner's category, or none when none is named. Raises `NotFound`."""
    if category_id is None:
        return None
    category = Category.objects.owned_by(owner).filter(pk=category_id).first()
    if category is None:
        raise NotFound
    return category


def find_documents(*, owner: User, document_ids: Collection[UUID]) -> list[Document]:
    """The documents with these ids, in their order.

    Raises `NotFound` when one is not there for this user.
    """
    ids = dict.fromkeys(document_ids)
    documents = Document.objects.visible_to(owner).in_bulk(list(ids)) if ids else {}
    if len(documents) != len(ids):
        raise NotFound
    return [documents[pk] for pk in ids]


def link_documents(*, chat: Chat, documents: Collection[Document]) -> None:
    """Link these documents to the chat as well."""
    links = [ChatDocument(chat=chat, document=document) for document in documents]
    ChatDocument.objects.bulk_create(links, ignore_conflicts=True)


def count_question(owner_id: int) -> None:
    """Count one question; the caller's transaction undoes that if the question fails.

    Raises `QuotaMessages`, `QuotaTokens`.
    """
    limits = quotas.find_limits(owner_id)
    _check_tokens(owner_id, limits)
    limit = limits[QuotaMeasure.QUESTIONS].hard
    parameters: dict[str, Any] = {"owner": owner_id, "day": quotas.get_today()}
    with connection.cursor() as cursor:
        cursor.execute(COUNT, parameters | {"most": UNLIMITED if limit is None else limit})
        if not cursor.rowcount:
            seconds_left = _count_seconds_until(quotas.get_next_day())
            raise QuotaMessages(limit=limit, retry_after=seconds_left)


def check_tokens(owner_id: int) -> None:
    """Check that tokens of the month are left, for a request that is no question.

    Raises `QuotaTokens`.
    """
    _check_tokens(owner_id, quotas.find_limits(owner_id))


def _check_tokens(owner_id: int, limits: QuotaLimits) -> None:
    """An answer under way may exceed the limit; the next question is refused."""
    limit = limits[QuotaMeasure.TOKENS].hard
    if limit is not None and count_tokens_this_month(owner_id) >= limit:
        next_month = quotas.get_next_month()
        raise QuotaTokens(
            limit=limit,
            until=timezone.localdate(next_month, timezone.get_default_timezone()).isoformat(),
            retry_after=_count_seconds_until(next_month),
        )


def add_tokens(owner_id: int, usage: Mapping[str, Any] | None) -> None:
    """Count the tokens of an answer, with the fields of `rag.ports.Usage`; None: not known."""
    tokens = sum((usage or {}).get(name) or 0 for name in ("prompt_tokens", "completion_tokens"))
    if tokens:
        with connection.cursor() as cursor:
            cursor.execute(ADD_TOKENS, [owner_id, quotas.get_today(), tokens])


def count_questions_today(owner_id: int) -> int:
    """Questions of today."""
    today = DailyMessages.objects.filter(owner_id=owner_id, day=quotas.get_today())
    return today.values_list("count", flat=True).first() or 0


def count_tokens_this_month(owner_id: int) -> int:
    """Tokens of the answers that ended this month."""
    days = DailyMessages.objects.filter(owner_id=owner_id)
    month = days.filter(day__gte=quotas.get_today().replace(day=1))
    return int(month.aggregate(sum=Coalesce(Sum("tokens"), 0))["sum"])


def _count_seconds_until(moment: datetime) -> int:
    return max(1, math.ceil((moment - timezone.now()).total_seconds()))

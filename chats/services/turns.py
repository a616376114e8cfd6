"""Turns: a question and its answer, opened in one transaction and closed in another.

Between the two is the run. Another answer to a question, or another question in its place, becomes
a branch; nothing is overwritten.
"""

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from chats.errors import EmptyMessage, NotFound, StillAnswering, WrongRole
from chats.models import (
    Assistant,
    Chat,
    ChatDocument,
    Message,
    MessageDocument,
    Run,
    Trace,
    Turn,
)
from chats.models.chat import make_title
from chats.models.tool import ToolState
from chats.runs.dispatch import dispatch_run, dispatch_summary
from chats.services import answer_cache, turn_store
from chats.services.answer_cache import CacheKey
from chats.services.assistants import apply_temperature, choose_model, find_assistant
from chats.services.chats import (
    add_chat,
    add_tokens,
    count_question,
    find_category,
    find_documents,
    send_loaded_chat,
    set_assistant,
    set_model,
    set_tools,
    touch_answered_chat,
    touch_chat,
)
from chats.services.erasure import mark_deleted_documents
from chats.services.turn_store import AnswerOutcome
from documents.connected.choice import MainModel, find_allowed_model
from documents.libraries import find_libraries
from documents.models import Document
from jobs import replica
from jobs.connections import ANYBODY, KEYS, KeptQuery
from jobs.lease import RELEASED, Lease
from rag.context.tokens import get_counter
from rag.conversation import Sampling
from rag.errors import NuraError
from rag.events import read_filters
from rag.retrieve.scope import select_scope
from rag.types import Scope, ScopeReason, Topic

logger = structlog.get_logger()

DEFAULT_SAMPLING = Sampling()


@dataclass(frozen=True, slots=True)
class OpenedTurn:
    """A question waiting for its answer; `created` is False if its `client_id` was sent before."""

    run: Run
    user_message: Message
    assistant_message: Message
    created: bool


def open_turn(  # noqa: PLR0913 - the parts of the public message
    *,
    user: User,
    content: str,
    chat_id: UUID | None = None,
    parent_id: UUID | None = None,
    document_ids: Collection[UUID] = (),
    library_ids: Collection[UUID] = (),
    category_id: UUID | None = None,
    client_id: str = "",
    language: str = "ko",
    topic: str = Topic.AUTO,
    sampling: Sampling = DEFAULT_SAMPLING,
    asked_with: str = "",
    model: str = "",
    assistant_id: UUID | None = None,
    tool_ids: Collection[UUID] = (),
) -> OpenedTurn:
    """Store the question and an empty answer; on commit the run goes to a worker.

    Sending a `client_id` again returns the run that it began. `asked_with` is the digest of the API
    key used. `model` is the id of the language model for this answer, empty: the chat's, and
    `assistant_id` the assistant asked, None: the chat's. A new chat keeps both, and `tool_ids`, the
    tool servers that it may use. Raises `NotFound`, `LibraryNotFound`, `EmptyMessage`,
    `QuotaMessages`, `QuotaTokens`, `ModelNotAllowed`.
    """
    text = clean_content(content)
    try:
        with transaction.atomic():
            documents = find_documents(owner=user, document_ids=document_ids)
            libraries = find_libraries(user=user, library_ids=library_ids)
            chat = _find_or_add_chat(user, chat_id, text, documents, libraries, category_id)
            assistant = find_assistant(user=user, assistant_id=assistant_id)
            if model and chat_id is None:
                set_model(chat, model)
            if assistant and chat_id is None:
                set_assistant(chat, assistant.pk)
            if tool_ids and chat_id is None:
                set_tools(chat, tool_ids)
            parent = _find_parent(chat, parent_id) if chat_id or parent_id else None
            return open_answer(
                chat=chat,
                question=make_question(chat, parent, text, libraries),
                documents=documents,
                client_id=client_id,
                language=language,
                topic=topic,
                sampling=sampling,
                asked_with=asked_with,
                model=model,
                assistant=assistant,
            )
    except (IntegrityError, NuraError):  # perhaps sent before, and only refused now
        earlier = _find_opened_turn(user, client_id) if client_id else None
        if earlier is None:
            raise
        return earlier


def _find_opened_turn(user: User, client_id: str) -> OpenedTurn | None:
    run = (
        Run.objects.filter(owner=user, client_id=client_id)
        .select_related("message__parent", "message__chat")
        .first()
    )
    if run is None:
        return None
    if run.message.parent is None:
        raise NotFound
    return OpenedTurn(run, run.message.parent, run.message, created=False)


def _find_or_add_chat(  # noqa: PLR0913, PLR0917 - what `open_turn` knows
    user: User,
    chat_id: UUID | None,
    text: str,
    documents: list[Document],
    library_ids: list[UUID],
    category_id: UUID | None,
) -> Chat:
    category = find_category(owner=user, category_id=category_id)
    if chat_id is None:
        return add_chat(user, make_title(text), documents, category, library_ids=library_ids)
    chat = touch_chat(user, chat_id)
    if chat is None:
        raise NotFound
    if category is not None:
        chat.category = category
        chat.save(update_fields=("category",))
    return chat


def _find_parent(chat: Chat, parent_id: UUID | None) -> UUID | None:
    """The message that a question follows: the one named, else the newest of the chat."""
    messages = Message.objects.filter(chat=chat).values_list("pk", flat=True)
    if parent_id is None:
        return messages.order_by("-created_at", "-id").first()
    parent = messages.filter(pk=parent_id).first()
    if parent is None:
        raise NotFound
    return parent


def make_question(
    chat: Chat, parent_id: UUID | None, content: str, library_ids: Collection[UUID] = ()
) -> Message:
    """A user's message, not stored yet: `open_answer` does that. Raises `EmptyMessage`."""
    return Message(
        chat=chat,
        parent_id=parent_id,
        role=Message.Role.USER,
        content=clean_content(content),
        library_ids=list(library_ids) or None,
        created_at=timezone.now(),
    )


def open_answer(  # noqa: PLR0913 - everything that is settled when a question is asked
    *,
    chat: Chat,
    question: Message,
    language: str,
    documents: Collection[Document | None] | None = None,
    client_id: str = "",
    topic: str = Topic.AUTO,
    sampling: Sampling = DEFAULT_SAMPLING,
    asked_with: str = "",
    anew: bool = False,
    memory: bool = True,
    model: str = "",
    assistant: Assistant | None = None,
    confirmed: Sequence[dict[str, Any]] = (),
) -> OpenedTurn:
    """Store an empty answer to `question` with its run, which goes to a worker on commit.

    A new question is stored too, with the `documents` that it names (None in them: one deleted
    since); without `documents` the question is a stored one. `model` is the id of the language
    model; empty: the chat's, else the assistant's, else the user's usual one. `assistant` answers;
    None: the chat's. `memory`: the answer may use what is remembered of the user, and add to it.
    `anew`: do not reuse a cached answer. `confirmed` are calls of tools that the user agreed to.
    Raises `QuotaMessages`, `QuotaTokens`, `ModelNotAllowed`.
    """
    answering = assistant or _find_chat_assistant(chat)
    main_model = _choose_model(chat, answering, model)
    named_documents = _list_named_documents(question) if documents is None else documents
    count_question(chat.owner_id)
    scope, scope_libraries = find_scope(
        chat=chat,
        named_documents=named_documents,
        library_ids=question.library_ids or (),
        topic=topic,
        chosen_assistant=assistant,
        chat_assistant=answering,
    )
    options = _describe_options(answering, topic=topic, memory=memory)
    if main_model:
        options |= _describe_tools(chat, answering, confirmed)
    options |= _describe_libraries(chat, question, scope)
    answer = _make_answer(
        chat, question, model=main_model.id if main_model else "", scope=scope, **options
    )
    _store_messages(question, answer, named=documents)
    run = _start_run(
        answer,
        named_documents,
        sampling=apply_temperature(sampling, answering),
        library_ids=sorted(scope_libraries) or None,
        client_id=client_id,
        language=language,
        asked_with=asked_with,
        anew=anew,
    )
    return OpenedTurn(run, question, answer, created=True)


def _list_named_documents(question: Message) -> list[Document | None]:
    """The documents that a stored question names; None: one deleted since."""
    return [link.document for link in question.document_links.select_related("document")]


def _choose_model(chat: Chat, assistant: Assistant | None, model: str) -> MainModel | None:
    """The language model of an answer; None if there is none. Raises `ModelNotAllowed`."""
    model_id = model or chat.model or (choose_model(assistant, chat.owner) if assistant else "")
    return find_allowed_model(chat.owner, model_id)


def _describe_options(
    assistant: Assistant | None, *, topic: str, memory: bool
) -> dict[str, object]:
    """What is set for an answer other than by default, as kept with its scope."""
    options: dict[str, object] = {} if topic == Topic.AUTO else {"topic": str(topic)}
    if not memory:
        options["memory"] = False
    if assistant:
        options["assistant"] = {"id": str(assistant.pk), "name": assistant.name}
    return options


def _describe_tools(
    chat: Chat, assistant: Assistant | None, confirmed: Sequence[dict[str, Any]]
) -> dict[str, object]:
    """The tool servers of the chat and its assistant, with the calls that the user confirmed."""
    servers = dict.fromkeys([*chat.tool_ids, *(assistant.tool_ids if assistant else ())])
    if not servers:
        return {}
    server_ids = [str(server_id) for server_id in servers]
    return {"tools": {"servers": server_ids, "confirmed": list(confirmed)}}


def _make_answer(
    chat: Chat, question: Message, *, model: str, scope: Scope, **extra: object
) -> Message:
    """The empty answer to a question, not stored yet; `extra` is kept with its scope."""
    return Message(
        chat=chat,
        parent=question,
        role=Message.Role.ASSISTANT,
        status=Message.Status.STREAMING,
        model=model,
        scope={
            "document_ids": [str(pk) for pk in scope.document_ids],
            "reason": scope.reason,
            **extra,
        },
        # the answer sorts after its question, however coarse the clock is
        created_at=max(timezone.now(), question.created_at + timedelta(microseconds=1)),
    )


def _store_messages(
    question: Message, answer: Message, *, named: Collection[Document | None] | None
) -> None:
    """Store an answer, and a new question with the documents that it names.

    `named` is None for a question that is stored already.
    """
    Message.objects.bulk_create([answer] if named is None else [question, answer])
    links = [MessageDocument(message=question, document=document) for document in named or ()]
    if links:
        MessageDocument.objects.bulk_create(links)


def _start_run(
    answer: Message,
    named_documents: Collection[Document | None],
    *,
    sampling: Sampling,
    **fields: Any,
) -> Run:
    """Create the run of an answer, with these other fields, and dispatch it on commit."""
    owner_id = answer.chat.owner_id
    run = Run.objects.create(
        owner_id=owner_id,
        message=answer,
        enqueued_at=timezone.now(),
        sampling={} if sampling == DEFAULT_SAMPLING else asdict(sampling),
        **fields,
    )
    document_ids = [document.pk for document in named_documents if document is not None]
    replica.note_write(f"user:{owner_id}")
    transaction.on_commit(lambda: dispatch_run(run, document_ids=document_ids))
    return run


@transaction.atomic
def regenerate_answer(  # noqa: PLR0913 - the options of an answer
    *,
    message: Message,
    language: str,
    topic: str = Topic.AUTO,
    asked_with: str = "",
    model: str = "",
    confirm_call: int | None = None,
) -> OpenedTurn:
    """Answer the question of an assistant's message again, from the documents as they are now.

    `topic` says whether the question follows the conversation, `model` is the id of the language
    model for this answer. `confirm_call` is the index of a tool call of the message that waits for
    the user's consent: it is now made, once.

    Raises `WrongRole`, `StillAnswering`, `ModelNotAllowed`, `NotFound`.
    """
    if message.role != Message.Role.ASSISTANT or message.parent is None:
        raise WrongRole
    chat = _lock_chat(message)
    if message.status == Message.Status.STREAMING:
        raise StillAnswering
    confirmed = [] if confirm_call is None else [_confirm_call(message, confirm_call)]
    return open_answer(
        chat=chat,
        question=message.parent,
        language=language,
        topic=topic,
        asked_with=asked_with,
        anew=True,
        model=model,
        assistant=_find_assistant_of_answer(message),
        confirmed=confirmed,
    )


def _confirm_call(message: Message, place: int) -> dict[str, Any]:
    """Mark a tool call that waits for the user's consent as confirmed, so that it is made once.

    The caller has locked the chat. Raises `NotFound`.
    """
    current = Message.objects.get(pk=message.pk)
    calls: list[dict[str, Any]] = current.tool_calls or []
    if not 0 <= place < len(calls) or calls[place]["state"] != ToolState.ASKS:
        raise NotFound
    calls[place]["state"] = ToolState.CONFIRMED
    Message.objects.filter(pk=message.pk).update(tool_calls=calls)
    return calls[place]


@transaction.atomic
def edit_question(
    *, user: User, message: Message, content: str, language: str, asked_with: str = ""
) -> OpenedTurn:
    """Ask a changed question in place of a user's message, about the same named documents.

    Raises `WrongRole`, `EmptyMessage`.
    """
    if message.role != Message.Role.USER:
        raise WrongRole
    chat = _lock_chat(message)
    visible = set(Document.objects.visible_to(user).filter(message_links__message=message))
    documents = [
        document for document in _list_named_documents(message) if document in visible | {None}
    ]
    question = make_question(chat, message.parent_id, content, message.library_ids or ())
    return open_answer(
        chat=chat, question=question, documents=documents, language=language, asked_with=asked_with
    )


def _find_assistant_of_answer(answer: Message) -> Assistant | None:
    """The assistant that gave an answer, if the chat's owner may still use it."""
    reference = (answer.scope or {}).get("assistant")
    if not reference:
        return None
    try:
        return find_assistant(user=answer.chat.owner, assistant_id=UUID(reference["id"]))
    except NotFound:
        return None


def _lock_chat(message: Message) -> Chat:
    chat = touch_chat(message.chat.owner, message.chat_id)
    if chat is None:
        raise NotFound
    return chat


def clean_content(content: str) -> str:
    """The content as stored: NFC, stripped. Raises `EmptyMessage` if nothing in it is visible."""
    text = unicodedata.normalize("NFC", content).strip()
    if not any(sign.isprintable() and not sign.isspace() for sign in text):
        raise EmptyMessage
    return text


def _find_chat_assistant(chat: Chat) -> Assistant | None:
    """The assistant of the chat, if its owner may still use it."""
    if chat.assistant_id is None:
        return None
    try:
        return find_assistant(user=chat.owner, assistant_id=chat.assistant_id)
    except NotFound:
        return None


def find_scope(  # noqa: PLR0913 - everything that narrows it
    *,
    chat: Chat,
    named_documents: Collection[Document | None],
    library_ids: Collection[UUID] = (),
    topic: str = Topic.AUTO,
    chosen_assistant: Assistant | None = None,
    chat_assistant: Assistant | None = None,
) -> tuple[Scope, set[UUID]]:
    """The indexed documents that a question searches, and the ids of the libraries they are in.

    These are the documents and libraries that it names, else the chat's, else everything that its
    owner may read. The topic "all" ignores the chat's. The `chosen_assistant`, picked for this
    question, searches its own libraries; the `chat_assistant` does so unless the chat has documents
    or libraries.
    """
    if named_documents or library_ids:
        ids = [document.pk for document in named_documents if document is not None]
        condition = Q(pk__in=ids) | Q(library__in=library_ids)
        documents = dict(_select_searchable(chat.owner_id, condition))
        scope = select_scope([*documents], (), ())
    elif (
        (chat.has_documents or chat.library_ids) and topic != Topic.ALL and chosen_assistant is None
    ):
        linked = ChatDocument.objects.filter(chat=chat).values("document")
        condition = Q(pk__in=linked) | Q(library__in=chat.library_ids or ())
        documents = dict(_select_searchable(chat.owner_id, condition))
        scope = select_scope(None, [*documents], (), chat_named=True)
    elif (assistant := chosen_assistant or chat_assistant) and assistant.library_ids:
        documents = dict(_select_searchable(chat.owner_id, Q(library__in=assistant.library_ids)))
        scope = select_scope(None, [*documents], (), chat_named=True)
    else:
        documents = list_readable_documents(chat.owner_id)
        scope = select_scope(None, (), [*documents])
    return scope, {library for library in documents.values() if library is not None}


def _describe_libraries(chat: Chat, question: Message, scope: Scope) -> dict[str, object]:
    """The libraries chosen for the question or for its chat, as kept with the scope."""
    library_ids = {
        ScopeReason.EXPLICIT: question.library_ids,
        ScopeReason.CHAT: chat.library_ids,
    }.get(scope.reason)
    return {"library_ids": [str(pk) for pk in library_ids]} if library_ids else {}


def _select_searchable(owner_id: int, condition: Q) -> QuerySet[Document, tuple[UUID, UUID | None]]:
    """Ids of the documents that a user may read, oldest first, with those of their libraries."""
    rows = Document.objects.filter(condition).visible_to(User(pk=owner_id)).searchable()
    return rows.order_by("created_at", "id").values_list("pk", "library_id")


def _select_searchable_among(
    owner_id: int, document_ids: object
) -> QuerySet[Document, tuple[UUID, UUID | None]]:
    rows = _select_searchable(owner_id, Q())
    return rows.extra(where=["documents_document.id = ANY(%s)"], params=[document_ids])


_readable = KeptQuery(lambda owner_id: _select_searchable(owner_id, Q()), ANYBODY)
_readable_among = KeptQuery(_select_searchable_among, ANYBODY, KEYS)


def list_readable_documents(
    owner_id: int, among: Collection[UUID] | None = None
) -> dict[UUID, UUID | None]:
    """Indexed documents that a user may read (`among` these), oldest first, with library ids."""
    if among is None:
        return dict(_readable.fetch(owner_id))
    return dict(_readable_among.fetch(owner_id, list(among))) if among else {}


@transaction.atomic
def close_turn(
    *,
    lease: Lease[Run],
    outcome: AnswerOutcome,
    run: Run | None = None,
    summary_follows: bool = False,
    key: CacheKey | None = None,
) -> Turn | None:
    """Store the end of an answer and return its turn.

    None if the lease was lost; then nothing is stored. `run`, loaded with its message and question,
    saves a query, and its message is updated. `summary_follows`: the caller holds the turn's
    summary and writes it; otherwise a worker is woken for it. `key`: the answer is cached under it.
    """
    end_fields = {"ended_at": Now(), "first_word_ms": outcome.first_word_ms}
    if not lease.rows().update(**end_fields, **RELEASED):
        return None
    closed_run = run or Run.objects.select_related("message__parent").get(pk=lease.job_id)
    answer = closed_run.message
    chat = touch_answered_chat(answer)  # and locks its row
    outcome = mark_deleted_documents(outcome)  # a chat is locked before documents
    _store_outcome(answer, outcome)
    turn = turn_store.record_turn(answer=answer, outcome=outcome, is_held=summary_follows)
    if outcome.made_at is None:  # a cached answer cost nothing
        add_tokens(closed_run.owner_id, outcome.usage or estimate_usage(outcome))
    if key is not None:
        answer_cache.store_answer(key, answer=answer, outcome=outcome)
    replica.note_write(f"user:{closed_run.owner_id}")
    transaction.on_commit(lambda: send_loaded_chat(chat))
    if not summary_follows:
        transaction.on_commit(lambda: dispatch_summary(turn.pk))
    transaction.on_commit(lambda: log_run_end(closed_run, outcome))
    return turn


def _store_outcome(answer: Message, outcome: AnswerOutcome) -> None:
    """Write the outcome to the answer's row and to `answer`, and store the trace."""
    scope = answer.scope
    fields: dict[str, Any] = {
        "status": outcome.status,
        "content": outcome.content,
        "mode": outcome.mode,
        "label": outcome.label,
        "question_type": outcome.question_type,
        "sources": outcome.sources,
        "scope": scope and scope | outcome.scope | read_filters(outcome.trace),
        "candidates": _describe_candidates(outcome),
        "view": outcome.view,
        "usage": outcome.usage,
        "reasoning": outcome.reasoning,
        "grounding": outcome.grounding,
        "citations": outcome.citations,
        "tool_calls": outcome.tool_calls or None,
        "notices": [*outcome.notices],
        "error_code": outcome.error_code,
        "error_params": dict(outcome.error_params),
        "made_at": outcome.made_at,
    }
    Message.objects.filter(pk=answer.pk).update(**fields)
    for name, value in fields.items():
        setattr(answer, name, value)
    Trace.objects.bulk_create(
        [Trace(message_id=answer.pk, steps=dict(outcome.trace))],
        update_conflicts=True,
        unique_fields=["message"],
        update_fields=["steps"],
    )


def estimate_usage(outcome: AnswerOutcome) -> dict[str, int] | None:
    """Estimate the tokens of an answer that was stopped or broke off; None without a model.

    Servers report usage only at the end of an answer.
    """
    plan, prompt = (outcome.trace.get(name) for name in ("token_plan", "prompt"))
    if not isinstance(plan, Mapping) or not isinstance(prompt, Mapping):
        return None
    count = get_counter(str(prompt["model"])).count
    completion_tokens = count(outcome.content) + count(outcome.reasoning)
    return {"prompt_tokens": int(plan["used"]), "completion_tokens": completion_tokens}


def log_run_end(run: Run, outcome: AnswerOutcome) -> None:
    """Log the run in one line: owner, outcome, tokens and times of steps, but no text."""
    usage = outcome.usage or {}
    logger.info(
        "run_ended",
        run_id=str(run.pk),
        user_id=run.owner_id,
        status=str(outcome.status),
        code=outcome.error_code,
        mode=str(outcome.mode),
        label=str(outcome.label),
        attempts=run.attempts,
        model=usage.get("model", ""),
        prompt_tokens=usage.get("prompt_tokens", 0),
        completion_tokens=usage.get("completion_tokens", 0),
        timings_ms=outcome.trace.get("timings_ms", {}),
    )


def _describe_candidates(outcome: AnswerOutcome) -> list[dict[str, Any]] | None:
    """The documents that a clarifying question offers, as a page shows them."""
    fields = ("slot", "document_id", "title")
    return [{name: candidate[name] for name in fields} for candidate in outcome.candidates] or None

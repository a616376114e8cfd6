"""Searching: passages as for a question, and words in everything of a user; nothing is stored.

A search for passages chooses its scope by the same rules as a question. The search behind Ctrl+K
finds words in titles, messages, and names and texts of documents, without any model.
"""

import asyncio
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection

from chats.errors import NotFound
from chats.history import (
    Branch,
    BranchHistory,
    get_history_pairs,
    load_conversation,
    read_conversation,
)
from chats.models import Chat, Message, Turn
from chats.models.chat import to_text_filter
from chats.models.memory import TurnQuerySet
from chats.runs.dispatch import ask_worker
from chats.serializers import to_time_json
from chats.services.chats import find_documents
from chats.services.erasure import hide_closed, hide_closed_in_turns, load_closed_documents
from chats.services.turns import find_scope
from documents import spaces
from documents.libraries import find_libraries
from documents.models import Document
from documents.search import excerpts
from documents.search.excerpts import MarkedExcerpt, cut_excerpt
from documents.search.store import ScopedStore
from jobs.replica import fetch_rows
from rag.conversation import Conversation, MemoryHistory, Question
from rag.factory import NO_HISTORY, get_embedding_model_name, get_engine
from rag.generate.markdown import to_plain_text
from rag.ports import HistoryStore
from rag.types import HistoryMessage, Hit, Retrieval, Scope, ScopeReason, StrategyName

BEGINNING_CHARACTERS = 240
"""Characters of an answer in a list of turns."""
MAX_CHATS, MAX_MESSAGES, MAX_DOCUMENTS, MAX_PASSAGES = 6, 8, 6, 6


def find_everything(*, user: User, query: str) -> dict[str, list[dict[str, Any]]]:
    """Chats, messages, documents and passages of the user that hold all words of the query."""
    query = unicodedata.normalize("NFC", query)
    words = excerpts.split_words(query)
    documents = Document.objects.visible_to(user)
    return {
        "chats": [
            {"chat_id": str(chat.pk), **_mark_name(chat.title, words)}
            for chat in fetch_rows(
                _filter_by_words(Chat.objects.visible_to(user).listed(), "title", words),
                0,
                MAX_CHATS,
            )
        ],
        "messages": _find_messages(user, words),
        "documents": [
            {"document_id": str(document.pk), **_mark_name(document.name, words)}
            for document in fetch_rows(_filter_by_words(documents, "name", words), 0, MAX_DOCUMENTS)
        ],
        "passages": _find_passages(documents, query),
    }


def find_turns(turns: TurnQuerySet, query: str) -> TurnQuerySet:
    """The turns that contain every word of a search, the latest first."""
    for word in excerpts.split_words(unicodedata.normalize("NFC", query)):
        turns = turns.matching(word)
    return turns.order_by("-number")


@dataclass(frozen=True, slots=True)
class DescribedTurn:
    """A turn for a list: its texts in pieces, each flagged if it is a hit."""

    turn: Turn
    question: list[tuple[str, bool]]
    answer: list[tuple[str, bool]]
    summary: list[tuple[str, bool]]


def describe_turns(turns: Iterable[Turn], query: str) -> list[DescribedTurn]:
    """The turns with hits marked; without a search, their beginnings."""
    words = excerpts.split_words(unicodedata.normalize("NFC", query))
    rows = list(turns)
    visible = hide_closed_in_turns(rows, user_id=rows[0].chat.owner_id) if rows else []
    return [
        DescribedTurn(
            turn,
            MarkedExcerpt(turn.user_text, excerpts.find_hits(turn.user_text, words)).split(),
            _cut_marked(turn.assistant_text, words),
            _cut_marked(turn.summary, words),
        )
        for turn in visible
    ]


def _cut_marked(text: str, words: list[str]) -> list[tuple[str, bool]]:
    excerpt = cut_excerpt(text, words)
    if excerpt.marks:
        return excerpt.split()
    plain = to_plain_text(text)
    is_whole = len(plain) <= BEGINNING_CHARACTERS
    return [(plain if is_whole else f"{plain[:BEGINNING_CHARACTERS]}…", False)] if plain else []


def _filter_by_words(rows: Any, field: str, words: list[str]) -> Any:
    """Rows whose field contains every word; none without words."""
    for word in words:
        rows = rows.filter(to_text_filter(field, word))
    return rows if words else rows.none()


def _find_messages(user: User, words: list[str]) -> list[dict[str, Any]]:
    """Matching messages, newest first; hits that only Markdown syntax matches are left out."""
    rows = _filter_by_words(
        Message.objects.visible_to(user).filter(chat__temporary=False), "content", words
    )
    rows = rows.order_by("-created_at", "id").select_related("chat")
    results: list[dict[str, Any]] = []
    fields = ("content", "role", "created_at", "label", "mode", "sources", "chat__title")
    messages = fetch_rows(rows.only(*fields), 0, 2 * MAX_MESSAGES)
    load_closed_documents(messages, user_id=user.pk)
    for message in messages:
        excerpt = cut_excerpt(hide_closed(message).content, words)
        if excerpt.marks and len(results) < MAX_MESSAGES:
            results.append(
                {
                    "chat_id": str(message.chat_id),
                    "message_id": str(message.pk),
                    "chat_title": message.chat.title,
                    "role": message.role,
                    "created_at": to_time_json(message.created_at),
                    **asdict(excerpt),
                }
            )
    return results


def _find_passages(documents: Any, query: str) -> list[dict[str, Any]]:
    ids = documents.searchable().values_list("pk", flat=True)
    marked = excerpts.list_marked_words(query)
    return [
        {
            "document_id": str(passage.document_id),
            "document_name": passage.document_name,
            "chunk_id": passage.chunk_id,
            "page": passage.page,
            "section": passage.section,
            **asdict(cut_excerpt(passage.text, marked)),
        }
        for passage in excerpts.find_passages(ids, query, MAX_PASSAGES)
    ]


def _mark_name(name: str, words: list[str]) -> dict[str, Any]:
    """A short text, shown whole, with its hits."""
    return asdict(MarkedExcerpt(name, excerpts.find_hits(name, words)))


def request_search(  # noqa: PLR0913 - the parts of the public request
    *,
    user: User,
    query: str,
    chat_id: UUID | None,
    history: Sequence[Mapping[str, str]] | None,
    document_ids: Collection[UUID] | None,
    library_ids: Collection[UUID] | None,
    strategy: str,
    rerank: bool,
    top_k: int | None,
    filters: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Search the documents for `query` in an answers worker: only those have the models.

    Raises `NotFound` for ids that are not the user's, and `Unavailable`.
    """
    chat = _find_chat(user, chat_id)
    scope = _narrow_by_metadata(
        find_question_scope(
            user=user, chat=chat, document_ids=document_ids, library_ids=library_ids
        ),
        filters,
    )
    if not connection.in_atomic_block:
        connection.close()  # a search may wait for its turn: hold no connection meanwhile
    return ask_worker(
        "search",
        {
            "query": query,
            "document_ids": [str(pk) for pk in scope.document_ids],
            "reason": scope.reason,
            "strategy": strategy,
            "top_k": top_k,
            "rerank": rerank,
            "filters": filters,
            "history": history,
            "chat_id": str(chat.pk) if chat else None,
        },
    )


def run_search(request: Mapping[str, Any]) -> dict[str, Any]:
    """Search within the document ids of the request. Runs in an answers worker.

    With a chat, the query may also refer to readable documents of its earlier turns.
    """
    ids = tuple(UUID(pk) for pk in request["document_ids"])
    current = spaces.get_space_in_use()
    conversation, history = _load_conversation(request, get_embedding_model_name(current.config))
    retrieval = get_engine(current.config).search(
        request["query"],
        Scope(ids, ScopeReason(request["reason"])),
        ScopedStore([*dict.fromkeys((*ids, *conversation.readable))], space=current.space),
        strategy=StrategyName(request["strategy"]),
        top_k=request["top_k"],
        rerank=request["rerank"],
        filters=request["filters"],
        conversation=conversation,
        history=history,
    )
    return describe_retrieval(retrieval)


def preview_prompt(
    *, user: User, query: str, chat_id: UUID | None = None
) -> tuple[HistoryMessage, ...]:
    """The messages a model would be sent for a question of the user; stores nothing.

    Empty if no model is used. Raises `NotFound` for a chat that is not the user's.
    """
    chat = _find_chat(user, chat_id)
    scope = find_question_scope(user=user, chat=chat)
    current = spaces.get_space_in_use()
    request = {"history": None, "chat_id": chat_id}
    conversation, history = _load_conversation(request, get_embedding_model_name(current.config))
    question = Question(
        query, scope, conversation, history_pairs=get_history_pairs(chat) if chat else None
    )
    ids = (*scope.document_ids, *conversation.readable)
    store = ScopedStore([*dict.fromkeys(ids)], space=current.space)
    engine = get_engine(current.config)
    return asyncio.run(engine.preview_prompt(question, store, history))


def _load_conversation(
    request: Mapping[str, Any], embedding: str
) -> tuple[Conversation, HistoryStore]:
    """The conversation in the request, else that of the chat's newest branch."""
    if request["history"] is not None:
        conversation = read_conversation(request["history"])
        return conversation, MemoryHistory(conversation.turns)
    chat = Chat.objects.select_related("owner").filter(pk=request["chat_id"]).first()
    if chat is None:
        return Conversation(), NO_HISTORY
    branch = Branch.find_newest(chat)
    conversation = load_conversation(branch, pairs=get_history_pairs(chat))
    return conversation, BranchHistory(branch, embedding=embedding)


def _find_chat(user: User, chat_id: UUID | None) -> Chat | None:
    if chat_id is None:
        return None
    chat = Chat.objects.visible_to(user).filter(pk=chat_id).first()
    if chat is None:
        raise NotFound
    return chat


def find_question_scope(
    *,
    user: User,
    chat: Chat | None = None,
    document_ids: Collection[UUID] | None = None,
    library_ids: Collection[UUID] | None = None,
) -> Scope:
    """The scope that a question of the user in that chat would have.

    Raises `NotFound`, `LibraryNotFound`.
    """
    documents = find_documents(owner=user, document_ids=document_ids or ())
    libraries = find_libraries(user=user, library_ids=library_ids or ())
    if chat is None:
        chat = Chat(owner=user)
        chat.has_documents = False
    else:
        chat.has_documents = chat.document_links.exists()
    scope, _read = find_scope(chat=chat, named_documents=documents, library_ids=libraries)
    return scope


def _narrow_by_metadata(scope: Scope, filters: Mapping[str, str] | None) -> Scope:
    """The scope without documents whose metadata does not match."""
    if not filters:
        return scope
    rows = Document.objects.filter(pk__in=scope.document_ids).with_metadata(filters)
    ids = set(rows.values_list("pk", flat=True))
    return replace(scope, document_ids=tuple(pk for pk in scope.document_ids if pk in ids))


def describe_retrieval(retrieval: Retrieval) -> dict[str, Any]:
    """The public answer of `POST /search`."""
    plan = retrieval.plan
    return {
        "plan": {
            "question_type": plan.question_type,
            "strategy": plan.strategy,
            "top_k": plan.top_k,
            "needs_multi_doc": plan.needs_multi_doc,
            "filters": dict(plan.filters),
            "dropped_filters": dict(retrieval.dropped_filters),
            "document_ids": [str(pk) for pk in plan.scope.document_ids],
            "scope_reason": plan.scope.reason,
            "follows": plan.follows,
            "widened": retrieval.widened,
            "standalone_query": plan.standalone_query,
        },
        "relevant": retrieval.gate.relevant,
        "gate": {"score": retrieval.gate.score, "threshold": retrieval.gate.threshold},
        "hits": [_describe_hit(hit) for hit in retrieval.hits],
        "timings_ms": dict(retrieval.timings_ms),
    }


def _describe_hit(hit: Hit) -> dict[str, Any]:
    passage = hit.passage
    return {
        "chunk_id": passage.chunk_id,
        "document_id": str(passage.document_id),
        "document_name": passage.document_name,
        "page": passage.page,
        "section": passage.section,
        "kind": passage.kind,
        "header": passage.header,
        "text": passage.text,
        "score": hit.score,
        "scores": dict(hit.scores),
        "boxes": [asdict(box) for box in passage.boxes],
    }

"""Searching: passages as for a question, and words in all that a user has; nothing is stored.

A search for passages reads the scope by the same rules as a question. What Ctrl+K opens finds words
where they stand, in titles, messages, names and texts of documents, and asks no model.
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
"""Of an answer in a list of turns."""
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
    """The turns whose question, answer or summary hold each word of a search, the latest first."""
    for word in excerpts.split_words(unicodedata.normalize("NFC", query)):
        turns = turns.matching(word)
    return turns.order_by("-number")


@dataclass(frozen=True, slots=True)
class DescribedTurn:
    """A turn as a list shows it: texts in pieces, each with whether it is a hit."""

    turn: Turn
    question: list[tuple[str, bool]]
    answer: list[tuple[str, bool]]
    summary: list[tuple[str, bool]]


def describe_turns(turns: Iterable[Turn], query: str) -> list[DescribedTurn]:
    """The turns with what was looked for marked in them; without a search their beginnings."""
    words = excerpts.split_words(unicodedata.normalize("NFC", query))
    rows = list(turns)
    shown = hide_closed_in_turns(rows, user_id=rows[0].chat.owner_id) if rows else []
    return [
        DescribedTurn(
            turn,
            MarkedExcerpt(turn.user_text, excerpts.find_hits(turn.user_text, words)).split(),
            _cut_marked(turn.assistant_text, words),
            _cut_marked(turn.summary, words),
        )
        for turn in shown
    ]


def _cut_marked(said: str, words: list[str]) -> list[tuple[str, bool]]:
    found = cut_excerpt(said, words)
    if found.marks:
        return found.split()
    plain = to_plain_text(said)
    is_whole = len(plain) <= BEGINNING_CHARACTERS
    return [(plain if is_whole else f"{plain[:BEGINNING_CHARACTERS]}…", False)] if plain else []


def _filter_by_words(rows: Any, field: str, words: list[str]) -> Any:
    """Rows whose field holds each of the words; none without a word."""
    for word in words:
        rows = rows.filter(to_text_filter(field, word))
    return rows if words else rows.none()


def _find_messages(user: User, words: list[str]) -> list[dict[str, Any]]:
    """Newest first; of what only Markdown's own signs hold, nothing."""
    rows = _filter_by_words(
        Message.objects.visible_to(user).filter(chat__temporary=False), "content", words
    )
    rows = rows.order_by("-created_at", "id").select_related("chat")
    found: list[dict[str, Any]] = []
    fields = ("content", "role", "created_at", "label", "mode", "sources", "chat__title")
    messages = fetch_rows(rows.only(*fields), 0, 2 * MAX_MESSAGES)
    load_closed_documents(messages, user_id=user.pk)
    for message in messages:
        excerpt = cut_excerpt(hide_closed(message).content, words)
        if excerpt.marks and len(found) < MAX_MESSAGES:
            found.append(
                {
                    "chat_id": str(message.chat_id),
                    "message_id": str(message.pk),
                    "chat_title": message.chat.title,
                    "role": message.role,
                    "created_at": to_time_json(message.created_at),
                    **asdict(excerpt),
                }
            )
    return found


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
    """A short text that is shown whole."""
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
    """What the documents hold on `query`, found by an answers worker: only these hold the models.

    Raises `NotFound` for ids that are not the user's, and `Unavailable`.
    """
    chat = _find_chat(user, chat_id)
    scope = _narrow_by_metadata(
        find_asked_scope(user=user, chat=chat, document_ids=document_ids, library_ids=library_ids),
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

    Of a chat, the documents that its owner may read of earlier turns can be referred to as well.
    """
    ids = tuple(UUID(pk) for pk in request["document_ids"])
    used = spaces.get_space_in_use()
    known, history = _load_conversation(request, get_embedding_model_name(used.config))
    retrieval = get_engine(used.config).search(
        request["query"],
        Scope(ids, ScopeReason(request["reason"])),
        ScopedStore([*dict.fromkeys((*ids, *known.readable))], space=used.space),
        strategy=StrategyName(request["strategy"]),
        top_k=request["top_k"],
        rerank=request["rerank"],
        filters=request["filters"],
        conversation=known,
        history=history,
    )
    return describe_retrieval(retrieval)


def preview_prompt(
    *, user: User, query: str, chat_id: UUID | None = None
) -> tuple[HistoryMessage, ...]:
    """What a model would be sent for a question of the user; stores nothing.

    Empty where no model is asked. Raises `NotFound` for a chat that is not the user's.
    """
    chat = _find_chat(user, chat_id)
    scope = find_asked_scope(user=user, chat=chat)
    used = spaces.get_space_in_use()
    request = {"history": None, "chat_id": chat_id}
    known, history = _load_conversation(request, get_embedding_model_name(used.config))
    question = Question(
        query, scope, known, history_pairs=get_history_pairs(chat) if chat else None
    )
    ids = (*scope.document_ids, *known.readable)
    store = ScopedStore([*dict.fromkeys(ids)], space=used.space)
    made = get_engine(used.config)
    return asyncio.run(made.preview_prompt(question, store, history))


def _load_conversation(
    request: Mapping[str, Any], embedding: str
) -> tuple[Conversation, HistoryStore]:
    """What was brought along, else that of the chat's newest branch."""
    if request["history"] is not None:
        known = read_conversation(request["history"])
        return known, MemoryHistory(known.turns)
    chat = Chat.objects.select_related("owner").filter(pk=request["chat_id"]).first()
    if chat is None:
        return Conversation(), NO_HISTORY
    branch = Branch.find_newest(chat)
    known = load_conversation(branch, pairs=get_history_pairs(chat))
    return known, BranchHistory(branch, embedding=embedding)


def _find_chat(user: User, chat_id: UUID | None) -> Chat | None:
    if chat_id is None:
        return None
    chat = Chat.objects.visible_to(user).filter(pk=chat_id).first()
    if chat is None:
        raise NotFound
    return chat


def find_asked_scope(
    *,
    user: User,
    chat: Chat | None = None,
    document_ids: Collection[UUID] | None = None,
    library_ids: Collection[UUID] | None = None,
) -> Scope:
    """As a question of the user's in that chat would have it.

    Raises `NotFound`, `LibraryNotFound`.
    """
    named = find_documents(owner=user, document_ids=document_ids or ())
    chosen = find_libraries(user=user, library_ids=library_ids or ())
    if chat is None:
        chat = Chat(owner=user)
        chat.has_documents = False
    else:
        chat.has_documents = chat.document_links.exists()
    scope, _read = find_scope(chat=chat, named=named, library_ids=chosen)
    return scope


def _narrow_by_metadata(scope: Scope, filters: Mapping[str, str] | None) -> Scope:
    """The scope without documents whose metadata says otherwise."""
    if not filters:
        return scope
    rows = Document.objects.filter(pk__in=scope.document_ids).with_metadata(filters)
    kept = set(rows.values_list("pk", flat=True))
    return replace(scope, document_ids=tuple(pk for pk in scope.document_ids if pk in kept))


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

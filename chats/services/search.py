"""Search as a service: scope by the same rules as a question, nothing stored."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection

from chats.errors import NotFound
from chats.history import (
    Branch,
    BranchHistory,
    history_pairs_of,
    load_conversation,
    read_conversation,
)
from chats.models import Chat
from chats.runs.dispatch import ask_worker
from chats.services.chats import find_documents
from chats.services.turns import find_scope
from documents import spaces
from documents.libraries import find_libraries
from documents.models import Document
from documents.search.store import ScopedStore
from rag.conversation import Conversation, MemoryHistory, Question
from rag.factory import NO_HISTORY, get_embedding_model_name, get_engine
from rag.ports import HistoryStore
from rag.types import HistoryMessage, Hit, Retrieval, Scope, ScopeReason, StrategyName


def search(  # noqa: PLR0913 - the parts of the public request
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
    chat = _chat(user, chat_id)
    scope = _described(
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


def find(request: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's part: search within the ids that the request was given.

    Of a chat, the documents that its owner may read of earlier turns can be referred to as well.
    """
    ids = tuple(UUID(pk) for pk in request["document_ids"])
    used = spaces.get_space_in_use()
    known, history = _conversation(request, get_embedding_model_name(used.config))
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
    return describe(retrieval)


def preview_prompt(
    *, user: User, query: str, chat_id: UUID | None = None
) -> tuple[HistoryMessage, ...]:
    """What a model would be sent for a question of the user; stores nothing.

    Empty where no model is asked. Raises `NotFound` for a chat that is not the user's.
    """
    chat = _chat(user, chat_id)
    scope = find_asked_scope(user=user, chat=chat)
    used = spaces.get_space_in_use()
    request = {"history": None, "chat_id": chat_id}
    known, history = _conversation(request, get_embedding_model_name(used.config))
    question = Question(query, scope, known, history_pairs=history_pairs_of(chat) if chat else None)
    ids = (*scope.document_ids, *known.readable)
    store = ScopedStore([*dict.fromkeys(ids)], space=used.space)
    made = get_engine(used.config)
    return asyncio.run(made.preview_prompt(question, store, history))


def _conversation(request: Mapping[str, Any], embedding: str) -> tuple[Conversation, HistoryStore]:
    """What was brought along, else that of the chat's newest branch."""
    if request["history"] is not None:
        known = read_conversation(request["history"])
        return known, MemoryHistory(known.turns)
    chat = Chat.objects.select_related("owner").filter(pk=request["chat_id"]).first()
    if chat is None:
        return Conversation(), NO_HISTORY
    branch = Branch.find_newest(chat)
    known = load_conversation(branch, pairs=history_pairs_of(chat))
    return known, BranchHistory(branch, embedding=embedding)


def _chat(user: User, chat_id: UUID | None) -> Chat | None:
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


def _described(scope: Scope, filters: Mapping[str, str] | None) -> Scope:
    """The scope without documents whose metadata says otherwise."""
    if not filters:
        return scope
    rows = Document.objects.filter(pk__in=scope.document_ids).described(filters)
    kept = set(rows.values_list("pk", flat=True))
    return replace(scope, document_ids=tuple(pk for pk in scope.document_ids if pk in kept))


def describe(retrieval: Retrieval) -> dict[str, Any]:
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
        "hits": [_hit(hit) for hit in retrieval.hits],
        "timings_ms": dict(retrieval.timings_ms),
    }


def _hit(hit: Hit) -> dict[str, Any]:
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

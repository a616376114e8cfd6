"""Search as a service: scope by the same rules as a question, nothing stored."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User

from chats import asked
from chats import history as chat_history
from chats.errors import NotFound
from chats.models import Chat, Message
from chats.services.chats import find_documents
from documents import spaces
from documents.models import Document
from documents.store import ScopedStore
from rag import selection
from rag.conversation import of_messages
from rag.factory import engine
from rag.types import HistoryMessage, Hit, Retrieval, Role, Scope, ScopeReason, StrategyName


def search(  # noqa: PLR0913 - the parts of the public request
    *,
    user: User,
    history_pairs: int,
    query: str,
    chat_id: UUID | None,
    history: Sequence[Mapping[str, str]] | None,
    document_ids: Collection[UUID] | None,
    strategy: str,
    rerank: bool,
    top_k: int | None,
    filters: Mapping[str, str] | None,
) -> dict[str, Any]:
    """What the documents hold on `query`, found by an answers worker: only these hold the models.

    Raises `NotFound` for ids that are not the user's, and `Unavailable`.
    """
    chat = _chat(user, chat_id)
    scope = _described(_scope(user, chat, document_ids), filters)
    return asked.ask(
        "chats.tasks.search",
        {
            "query": query,
            "document_ids": [str(pk) for pk in scope.document_ids],
            "reason": scope.reason,
            "strategy": strategy,
            "top_k": top_k,
            "rerank": rerank,
            "filters": filters,
            "history": [asdict(item) for item in _history(chat, history, history_pairs)],
        },
    )


def find(request: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's part: search within the ids that the request was given."""
    ids = tuple(UUID(pk) for pk in request["document_ids"])
    used = spaces.in_use()
    retrieval = engine(used.config).search(
        request["query"],
        Scope(ids, ScopeReason(request["reason"])),
        ScopedStore(ids, space=used.space),
        strategy=StrategyName(request["strategy"]),
        top_k=request["top_k"],
        rerank=request["rerank"],
        filters=request["filters"],
        conversation=of_messages(
            [HistoryMessage(Role(item["role"]), item["content"]) for item in request["history"]]
        ),
    )
    return describe(retrieval)


def _chat(user: User, chat_id: UUID | None) -> Chat | None:
    if chat_id is None:
        return None
    chat = Chat.objects.visible_to(user).filter(pk=chat_id).first()
    if chat is None:
        raise NotFound
    return chat


def _scope(user: User, chat: Chat | None, document_ids: Collection[UUID] | None) -> Scope:
    explicit = None
    if document_ids:
        documents = find_documents(owner=user, document_ids=document_ids)
        explicit = [doc.pk for doc in documents if doc.status == Document.Status.COMPLETED]
    ready = Document.objects.visible_to(user).completed().order_by("created_at", "id")
    linked = ready.filter(chat_links__chat=chat) if chat else ready.none()
    return selection.select(
        explicit,
        list(linked.values_list("pk", flat=True)),
        list(ready.values_list("pk", flat=True)),
        chat_named=chat is not None and chat.document_links.exists(),
    )


def _described(scope: Scope, filters: Mapping[str, str] | None) -> Scope:
    """The scope without documents whose metadata says otherwise."""
    if not filters:
        return scope
    rows = Document.objects.filter(pk__in=scope.document_ids).described(filters)
    kept = set(rows.values_list("pk", flat=True))
    return replace(scope, document_ids=tuple(pk for pk in scope.document_ids if pk in kept))


def _history(
    chat: Chat | None, history: Sequence[Mapping[str, str]] | None, pairs: int
) -> tuple[HistoryMessage, ...]:
    if history is not None:
        return tuple(HistoryMessage(Role(item["role"]), item["content"]) for item in history)
    last = Message.objects.filter(chat=chat).order_by("-created_at").first() if chat else None
    return () if last is None else chat_history.earlier(message=last, pairs=pairs)


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
        "text": passage.text,
        "score": hit.score,
        "scores": dict(hit.scores),
        "boxes": [asdict(box) for box in passage.boxes],
    }

"""The models of a key's owner: all of the documents, one of them, or those of a category."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet

from chats.errors import ModelNotFound
from chats.models import Category, ChatDocument
from documents.models import Document
from rag.types import Scope, ScopeReason

EVERYTHING = "nura"
PREFIX = f"{EVERYTHING}/"
LISTED = 200
"""Documents in the list, the newest; older ones can be used all the same."""
DOCUMENTS = 1_000
"""Documents of one category that are read, the newest."""


@dataclass(frozen=True, slots=True)
class Model:
    """What a question may be asked of; `scope` holds what can be searched now."""

    id: str
    name: str
    created: datetime
    scope: Scope


def find(user: User, name: str) -> Model:
    """The user's model of that name. Raises `ModelNotFound`."""
    if name == EVERYTHING:
        return Model(name, "Nura", user.date_joined, _scope(_ready(user), ScopeReason.ALL))
    if (key := _key(name)) is None:
        raise ModelNotFound
    model = _document(user, key) or _category(user, key)
    if model is None:
        raise ModelNotFound
    return model


def described(model: Model) -> dict[str, Any]:
    """A model as the list tells it."""
    return _described(model.id, model.name, model.created)


def listed(user: User) -> dict[str, Any]:
    """Everything first, then categories with documents by name, then the newest documents."""
    ready = _ready(user)
    used = Category.objects.owned_by(user).filter(
        chats__deleted_at=None, chats__document_links__document__in=ready
    )
    categories = ((one.pk, one.name, user.date_joined) for one in used.distinct())
    rows = ready.order_by("-created_at", "id").values_list("pk", "name", "created_at")
    documents = list(rows[: LISTED + 1])
    first = _described(EVERYTHING, "Nura", user.date_joined)
    return {
        "object": "list",
        "data": [first, *_all(categories), *_all(documents[:LISTED])],
        "has_more": len(documents) > LISTED,
    }


def _all(rows: Iterable[tuple[UUID, str, datetime]]) -> list[dict[str, Any]]:
    return [_described(f"{PREFIX}{pk}", name, created) for pk, name, created in rows]


def _described(key: str, name: str, created: datetime) -> dict[str, Any]:
    told = {"id": key, "object": "model", "created": int(created.timestamp())}
    return told | {"owned_by": "nura", "name": name}


def _key(name: str) -> UUID | None:
    """The id in `nura/<id>`, written as ids are written; None for any other name."""
    rest = name.removeprefix(PREFIX)
    try:
        key = UUID(rest)
    except ValueError:
        return None
    return key if name == f"{PREFIX}{key}" else None


def _ready(user: User) -> QuerySet[Document]:
    return Document.objects.visible_to(user).searchable()


def _document(user: User, key: UUID) -> Model | None:
    document = _ready(user).filter(pk=key).first()
    if document is None:
        return None
    scope = Scope((document.pk,), ScopeReason.EXPLICIT)
    return Model(f"{PREFIX}{key}", document.name, document.created_at, scope)


def _category(user: User, key: UUID) -> Model | None:
    """A category over the newest documents that its chats are about; None when there are none."""
    category = Category.objects.owned_by(user).filter(pk=key).first()
    if category is None:
        return None
    newest = _documents_of(user, category).order_by("-created_at", "id")[:DOCUMENTS]
    rows = Document.objects.filter(pk__in=newest.values("pk"))
    scope = _scope(rows, ScopeReason.EXPLICIT)
    model = Model(f"{PREFIX}{key}", category.name, user.date_joined, scope)
    return model if scope.document_ids else None


def _documents_of(user: User, category: Category) -> QuerySet[Document]:
    chats = category.chats.filter(owner=user, deleted_at=None)
    return _ready(user).filter(
        pk__in=ChatDocument.objects.filter(chat__in=chats).values("document")
    )


def _scope(rows: QuerySet[Document], reason: ScopeReason) -> Scope:
    return Scope(tuple(rows.order_by("created_at", "id").values_list("pk", flat=True)), reason)

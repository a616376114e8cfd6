"""The models of a key's owner: all documents, one, those of a library or category, an assistant.

The owner's default language model answers, or the one named after an `@`: `nura@qwen3`. No other id
contains that sign.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet

from chats.errors import ModelNotFound
from chats.models import Assistant, Category, ChatDocument
from chats.services.assistants import list_documents
from chats.services.turns import list_readable_documents
from documents.connected.choice import find_allowed_model, list_allowed_models
from documents.models import Document, Library
from rag.types import Scope, ScopeReason

EVERYTHING = "nura"
PREFIX = f"{EVERYTHING}/"
AT = "@"
"""Before the id of a language model."""
MAX_LISTED_ASSISTANTS = 200
MAX_LISTED_DOCUMENTS = 200
"""The newest documents are listed; older ones can be used too."""
MAX_CATEGORY_DOCUMENTS = 1_000
"""Of a category, the newest documents are searched."""


@dataclass(frozen=True)
class AskableModel:
    """What a question can be put to: a set of documents, and why these."""

    id: str
    name: str
    created: datetime
    list_documents: Callable[[], Iterable[UUID]]
    """Looks up the ids of the documents that can be searched now, in order."""
    reason: ScopeReason
    language_model: str = ""
    """The id of the language model named in the request, else empty."""
    library_id: UUID | None = None
    """The library whose documents these are."""
    assistant: Assistant | None = None

    @cached_property
    def scope(self) -> Scope:
        """The documents that can be searched now; looked up when first asked for."""
        return Scope(tuple(self.list_documents()), self.reason)


def find_model(user: User, name: str) -> AskableModel:
    """The user's model of that name. Raises `ModelNotFound`, `ModelNotAllowed`."""
    name, separator, language_model = name.partition(AT)
    model = _find_scope(user, name)
    if not separator:
        return model
    if not language_model:
        raise ModelNotFound
    main = find_allowed_model(user, language_model)
    display_name = f"{model.name} ({main.name})" if main else model.name
    return replace(
        model, id=f"{name}{AT}{language_model}", name=display_name, language_model=language_model
    )


def _find_scope(user: User, name: str) -> AskableModel:
    if name == EVERYTHING:
        everything = partial(list_readable_documents, user.pk)
        return AskableModel(name, "Nura", user.date_joined, everything, ScopeReason.ALL)
    if (key := _read_key(name)) is None:
        raise ModelNotFound
    model = (
        _find_document(user, key)
        or _find_library(user, key)
        or _find_category(user, key)
        or _find_assistant(user, key)
    )
    if model is None:
        raise ModelNotFound
    return model


def describe_model(model: AskableModel) -> dict[str, Any]:
    """A model as `GET /v1/models` lists it."""
    return _describe(model.id, model.name, model.created)


def list_models(user: User) -> dict[str, Any]:
    """All documents first, once for each language model if there are several; then parts of them.

    The parts are libraries and categories with documents, both by name, and the newest documents.
    """
    searchable = _list_searchable(user)
    used_categories = Category.objects.owned_by(user).filter(
        chats__deleted_at=None, chats__document_links__document__in=searchable
    )
    shared = Library.objects.visible_to(user).values_list("pk", "name", "created_at")
    categories = ((one.pk, one.name, user.date_joined) for one in used_categories.distinct())
    visible = Assistant.objects.visible_to(user)[:MAX_LISTED_ASSISTANTS]
    assistants = visible.values_list("pk", "name", "created_at")
    rows = searchable.order_by("-created_at", "id").values_list("pk", "name", "created_at")
    documents = list(rows[: MAX_LISTED_DOCUMENTS + 1])
    first = _describe(EVERYTHING, "Nura", user.date_joined)
    language_models = list_allowed_models(user)
    others = [
        _describe(f"{EVERYTHING}{AT}{one.id}", f"Nura ({one.name})", user.date_joined)
        for one in (language_models if len(language_models) > 1 else ())
    ]
    return {
        "object": "list",
        "data": [
            first,
            *others,
            *_describe_all(shared),
            *_describe_all(assistants),
            *_describe_all(categories),
            *_describe_all(documents[:MAX_LISTED_DOCUMENTS]),
        ],
        "has_more": len(documents) > MAX_LISTED_DOCUMENTS,
    }


def _describe_all(rows: Iterable[tuple[UUID, str, datetime]]) -> list[dict[str, Any]]:
    return [_describe(f"{PREFIX}{pk}", name, created) for pk, name, created in rows]


def _describe(key: str, name: str, created: datetime) -> dict[str, Any]:
    fields = {"id": key, "object": "model", "created": int(created.timestamp())}
    return fields | {"owned_by": "nura", "name": name}


def _read_key(name: str) -> UUID | None:
    """The id in `nura/<id>`, written as ids are written; None for any other name."""
    text = name.removeprefix(PREFIX)
    try:
        key = UUID(text)
    except ValueError:
        return None
    return key if name == f"{PREFIX}{key}" else None


def _list_searchable(user: User) -> QuerySet[Document]:
    return Document.objects.visible_to(user).searchable()


def _select_ids(rows: QuerySet[Document]) -> QuerySet[Document, UUID]:
    return rows.order_by("created_at", "id").values_list("pk", flat=True)


def _find_document(user: User, key: UUID) -> AskableModel | None:
    document = _list_searchable(user).filter(pk=key).first()
    if document is None:
        return None
    name, created = document.name, document.created_at
    itself = partial(list_readable_documents, user.pk, [key])
    return AskableModel(f"{PREFIX}{key}", name, created, itself, ScopeReason.EXPLICIT)


def _find_library(user: User, key: UUID) -> AskableModel | None:
    library = Library.objects.visible_to(user).filter(pk=key).first()
    if library is None:
        return None
    rows = _select_ids(_list_searchable(user).filter(library=library))
    name, created = library.name, library.created_at
    return AskableModel(
        f"{PREFIX}{key}", name, created, rows.all, ScopeReason.EXPLICIT, library_id=library.pk
    )


def _find_category(user: User, key: UUID) -> AskableModel | None:
    """A category over the newest documents that its chats are about; None when there are none."""
    category = Category.objects.owned_by(user).filter(pk=key).first()
    if category is None:
        return None
    newest = _list_documents(user, category).order_by("-created_at", "id")[:MAX_CATEGORY_DOCUMENTS]
    rows = _select_ids(Document.objects.filter(pk__in=newest.values("pk")))
    name, created = category.name, user.date_joined
    model = AskableModel(f"{PREFIX}{key}", name, created, rows.all, ScopeReason.EXPLICIT)
    return model if model.scope.document_ids else None


def _find_assistant(user: User, key: UUID) -> AskableModel | None:
    """An assistant over its libraries, as far as the user may read them."""
    assistant = Assistant.objects.visible_to(user).defer("picture").filter(pk=key).first()
    if assistant is None:
        return None
    return AskableModel(
        f"{PREFIX}{key}",
        assistant.name,
        assistant.created_at,
        _select_ids(list_documents(assistant, user)).all,
        ScopeReason.CHAT if assistant.library_ids else ScopeReason.ALL,
        assistant=assistant,
    )


def _list_documents(user: User, category: Category) -> QuerySet[Document]:
    chats = category.chats.filter(owner=user, deleted_at=None)
    return _list_searchable(user).filter(
        pk__in=ChatDocument.objects.filter(chat__in=chats).values("document")
    )

"""The pages of conversations. Messages themselves are fetched and drawn by the page's scripts."""

from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from chats.errors import NotFound
from chats.history import Branch
from chats.models import Assistant, Chat, Turn
from chats.serializers import MAX_CONTENT_CHARACTERS, MAX_FIND_CHARACTERS, to_models_json
from chats.services.chat_page import (
    ARCHIVED,
    MAX_EXAMPLE_DOCUMENTS,
    Sidebar,
    SidebarPart,
    list_chats_using,
    list_document_uses,
    suggest_questions,
)
from chats.services.find import describe_turns, find_turns
from chats.services.tools import list_servers
from documents.connected.choice import list_allowed_models
from documents.models import Document, Library

TURNS_A_PAGE = 20
SELECTED_DOCUMENTS = 50
FOLDERS_COOKIE = "folders"
"""Short ids of the folders that are open in the sidebar; front/js/sidebar.js writes it."""


@require_GET
@never_cache
@login_required
def chat_page(request: HttpRequest, chat_id: UUID | None = None) -> HttpResponse:
    """A chat, or the first screen of a new one."""
    user = cast("User", request.user)
    own = Chat.objects.visible_to(user)
    chat = get_object_or_404(own, pk=chat_id) if chat_id else None
    documents = Document.objects.visible_to(user)
    searchable = documents.searchable()
    models = list_allowed_models(user)
    has_model = bool(models)
    assistant = _find_assistant(user, request, chat)
    context = {
        "chat": chat,
        "sidebar": Sidebar.of(user, opened=_list_opened(request), current=chat),
        "processing": 0 if chat else documents.processing().count(),
        "has_model": has_model,
        "examples": []
        if chat
        else suggest_questions(searchable[:MAX_EXAMPLE_DOCUMENTS], has_model=has_model),
        "assistant": assistant,
        "page": {
            "assistant": assistant and _assistant_data(assistant),
            "chat": chat and _chat_data(chat, user),
            "selected": [] if chat else _selected(user, request, searchable),
            "has_model": has_model,
            "models": to_models_json(models),
            "libraries": [_library_data(one) for one in Library.objects.visible_to(user)],
            "tools": list_servers(user) if models else [],
            "documents_total": searchable.count(),
            "content_limit": MAX_CONTENT_CHARACTERS,
            "upload_limit_mb": settings.MAX_UPLOAD_MB,
            "speech": bool(settings.TTS_BASE_URL and settings.TTS_MODEL),
            "administration": _administration(user),
        },
    }
    return render(request, "chat.html", context)


@require_GET
@never_cache
@login_required
def turn_page(request: HttpRequest, chat_id: UUID) -> HttpResponse:
    """The turns of a chat's newest branch, the latest first; those that hold what is looked for."""
    user = cast("User", request.user)
    chat = get_object_or_404(Chat.objects.visible_to(user).select_related("owner"), pk=chat_id)
    query = request.GET.get("q", "").replace("\x00", "").strip()[:MAX_FIND_CHARACTERS]
    rows = Turn.objects.told().filter(pk__in=Branch.find_newest(chat).turn_ids)
    found = Paginator(find_turns(rows, query), TURNS_A_PAGE).get_page(request.GET.get("page"))
    turns = describe_turns(found, query)
    context = {"chat": chat, "query": query, "pages": found, "turns": turns}
    if request.headers.get("HX-Request"):
        return render(request, "panels/turn_list.html", context)
    context["sidebar"] = Sidebar.of(user, opened=_list_opened(request), current=chat)
    return render(request, "turns.html", context)


@require_GET
@never_cache
@login_required
def sidebar_panel(request: HttpRequest) -> HttpResponse:
    """The chats of the sidebar, or a page of those at one of its places."""
    user = cast("User", request.user)
    part = request.GET.get("part", "")
    context: dict[str, Any] = {"current": request.GET.get("current", "")}
    if part:
        try:
            context["part"] = SidebarPart.of(user, part, request.GET.get("page", "1"))
        except NotFound as error:
            raise Http404 from error
        return render(request, "panels/sidebar_part.html", context)
    is_archive = request.GET.get("view") == ARCHIVED
    context["sidebar"] = (
        Sidebar.of_archive(user)
        if is_archive
        else Sidebar.of(user, opened=_list_opened(request), current=_find_chat(user, request))
    )
    return render(request, "panels/sidebar_chats.html", context)


@require_GET
@never_cache
@login_required
def document_chats(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """The chats that have used a document, the last first: on the document's page."""
    user = cast("User", request.user)
    document = get_object_or_404(Document.objects.visible_to(user), pk=document_id)
    context = {"chats": list_chats_using(user, document)}
    return render(request, "panels/document_chats.html", context)


@require_GET
@never_cache
@login_required
def document_uses(request: HttpRequest) -> HttpResponse:
    """When answers last used documents of the list, for its rows: `?documents=id,id`."""
    user = cast("User", request.user)
    visible = Document.objects.visible_to(user).filter(pk__in=_list_named(request))
    uses = list_document_uses(user, set(visible.values_list("pk", flat=True)))
    return render(request, "panels/document_uses.html", {"uses": uses})


def _list_opened(request: HttpRequest) -> str:
    return request.COOKIES.get(FOLDERS_COOKIE, "")


def _find_chat(user: User, request: HttpRequest) -> Chat | None:
    """The chat that the page shows, if it shows one."""
    try:
        chat_id = UUID(request.GET.get("current", ""))
    except ValueError:
        return None
    return Chat.objects.visible_to(user).filter(pk=chat_id).first()


def _administration(user: User) -> str:
    """Where an administrator reads what became of an answer; empty for everybody else."""
    allowed = user.is_staff and user.has_perm("chats.view_message")
    return reverse("admin:chats_message_changelist") if allowed else ""


def _find_assistant(user: User, request: HttpRequest, chat: Chat | None) -> Assistant | None:
    """The assistant of the chat, or of a new one (`/?assistant=ID`), as far as the user has it."""
    try:
        key = chat.assistant_id if chat else UUID(request.GET.get("assistant", ""))
    except ValueError:
        return None
    return Assistant.objects.visible_to(user).filter(pk=key).first() if key else None


def _assistant_data(assistant: Assistant) -> dict[str, Any]:
    return {"id": str(assistant.pk), "name": assistant.name, "symbol": assistant.letter}


def _chat_data(chat: Chat, user: User) -> dict[str, Any]:
    """The chat with what it is about: of that, what is closed to its owner is gone."""
    documents = Document.objects.visible_to(user).filter(chat_links__chat=chat)
    libraries = Library.objects.visible_to(user).filter(pk__in=chat.library_ids or ())
    about = [
        *(_library_data(one) for one in libraries),
        *(_document_data(one) for one in documents.order_by("chat_links__pk")),
    ]
    bound = chat.document_links.count() + len(chat.library_ids or ())
    return {
        "id": str(chat.pk),
        "title": chat.title,
        "unread": chat.unread,
        "model": chat.model,
        "tool_ids": [str(one) for one in chat.tool_ids],
        "documents": about,
        "documents_gone": bound - len(about),
    }


def _library_data(library: Library) -> dict[str, Any]:
    return {"id": str(library.pk), "name": library.name, "is_library": True}


def _document_data(document: Document) -> dict[str, Any]:
    return {
        "id": str(document.pk),
        "name": document.name,
        "content_type": document.content_type,
        "size": document.size,
        "status": document.status,
    }


def _selected(user: User, request: HttpRequest, completed: Any) -> list[dict[str, Any]]:
    """What the address names (`/?documents=ID,ID&libraries=ID`), as far as it can be searched."""
    named = completed.filter(pk__in=_list_named(request))
    libraries = Library.objects.visible_to(user).filter(pk__in=_list_named(request, "libraries"))
    return [*map(_library_data, libraries), *map(_document_data, named)]


def _list_named(request: HttpRequest, name: str = "documents") -> list[UUID]:
    ids = []
    for text in request.GET.get(name, "").split(",")[:SELECTED_DOCUMENTS]:
        try:
            ids.append(UUID(text))
        except ValueError:
            continue
    return ids

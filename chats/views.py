"""The pages of conversations, with the list of chats and the first questions beside them.

Messages themselves are fetched and rendered by the page's scripts.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import chain, zip_longest
from typing import Any, Self, cast
from uuid import UUID
from zlib import crc32

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db.models import Count, Exists, Func, Max, OuterRef, Q, QuerySet, Subquery, UUIDField
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from chats.errors import NotFound
from chats.history import Branch
from chats.models import Assistant, Category, Chat, ChatDocument, Turn
from chats.serializers import MAX_CONTENT_CHARACTERS, MAX_FIND_CHARACTERS, to_models_json
from chats.services.chats import find_category
from chats.services.search import describe_turns, find_turns
from chats.services.tools import list_servers
from documents import metadata
from documents.connected.choice import list_allowed_models
from documents.models import Chunk, Document, Library
from jobs.replica import ReplicaPaginator

PAGE_SIZE = 40
MAX_PAGES_AT_ONCE = 25
"""Pages of the sidebar that are loaded again together."""
PINNED, RECENT, ARCHIVED = "pinned", "recent", "archived"
"""Parts of the sidebar; the others are folders, by their ids."""
SHORT_ID_CHARACTERS = 8
"""Characters of a folder's id in the cookie of open folders."""


@dataclass(frozen=True)
class SidebarRow:
    """A chat of the sidebar; `is_brief`: the page fills it from the list that it has."""

    chat: Chat
    is_brief: bool = False

    @property
    def version(self) -> str:
        """Another one as soon as the row would look different."""
        chat = self.chat
        looks = (chat.title, chat.answering, chat.unread, chat.pinned, chat.archived)
        return f"{crc32(repr((*looks, chat.category_id)).encode()):08x}"


@dataclass(frozen=True)
class SidebarGroup:
    """Chats of one period under its heading, which may be empty."""

    heading: str | Promise
    rows: list[SidebarRow] = field(default_factory=list)

    @property
    def complete(self) -> list[tuple[Chat, str]]:
        """The chats that are written in full, with the versions of their rows."""
        return [(row.chat, row.version) for row in self.rows if not row.is_brief]

    @property
    def brief(self) -> str:
        """The ids and versions of the others, which follow: "id:version id:version"."""
        return " ".join(f"{row.chat.pk}:{row.version}" for row in self.rows if row.is_brief)


@dataclass(frozen=True)
class SidebarPart:
    """A page of the chats in one part of the sidebar, and the number of the next page.

    `name` is "pinned", "recent", "archived" or the id of a folder.
    """

    name: str
    groups: list[SidebarGroup]
    next_page: int | None

    @classmethod
    def load_page(
        cls,
        user: "User",
        name: str,
        page: str | int = 1,
        *,
        pages_at_once: int = 1,
        brief: bool = False,
    ) -> Self:
        """Load a page, newest first; `brief`: of several at once the first is complete.

        Raises `NotFound` for a folder that is not the user's.
        """
        listed = _list_chats(user, name)
        chats = ReplicaPaginator(listed, pages_at_once * PAGE_SIZE).get_page(page)
        next_page = pages_at_once * chats.number + 1 if chats.has_next() else None
        rows = [SidebarRow(chat, brief and place >= PAGE_SIZE) for place, chat in enumerate(chats)]
        if name not in {RECENT, ARCHIVED}:
            return cls(name, [SidebarGroup("", rows)], next_page)
        before = (chats.number - 1) * PAGE_SIZE
        times = listed.values_list("updated_at", flat=True)[before - 1 : before] if before else ()
        return cls(name, _group_by_day(rows, next(iter(times), None)), next_page)


@dataclass(frozen=True)
class SidebarFolder:
    """A category with the number of its chats; `part` has the first of them if it is open."""

    category: Category
    count: int
    part: SidebarPart | None


@dataclass(frozen=True)
class Sidebar:
    """The sidebar: pinned chats, folders, and the rest by day; or only the archive."""

    parts: list[SidebarPart]
    folders: list[SidebarFolder] = field(default_factory=list)
    is_archive: bool = False
    has_archived: bool = False

    @classmethod
    def load(
        cls,
        user: "User",
        *,
        open_folders: str = "",
        current: Chat | None = None,
        pages: int = 1,
        brief: bool = False,
    ) -> Self:
        """The user's chats. `open_folders` are short ids of folders, separated by dots.

        The folder of the `current` chat is opened as well. `pages` of chats in no folder.
        """
        names = {*open_folders.split("."), _to_short_id(current.category_id if current else None)}
        listed = Chat.objects.visible_to(user).listed().filter(archived=False, pinned=False)
        counts = dict(listed.values_list("category").annotate(Count("pk")).order_by())
        folders = [
            SidebarFolder(
                category, counts.get(category.pk, 0), cls._load_if_open(user, category, names)
            )
            for category in Category.objects.owned_by(user)
        ]
        recent = SidebarPart.load_page(user, RECENT, pages_at_once=pages, brief=brief)
        parts = [SidebarPart.load_page(user, PINNED), recent]
        has_archived = Chat.objects.visible_to(user).listed().filter(archived=True).exists()
        return cls(parts, folders, has_archived=has_archived)

    @staticmethod
    def _load_if_open(
        user: "User", category: Category, names: Collection[str]
    ) -> SidebarPart | None:
        is_open = _to_short_id(category.pk) in names
        return SidebarPart.load_page(user, str(category.pk)) if is_open else None

    @classmethod
    def load_archive(cls, user: "User", *, pages: int = 1, brief: bool = False) -> Self:
        """The user's archived chats."""
        archived = SidebarPart.load_page(user, ARCHIVED, pages_at_once=pages, brief=brief)
        return cls([archived], is_archive=True)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.folders and not any(group.rows for p in self.parts for group in p.groups)


def _to_short_id(category_id: UUID | None) -> str:
    return str(category_id)[:SHORT_ID_CHARACTERS] if category_id else "-"


def _list_chats(user: "User", name: str) -> QuerySet[Chat]:
    chats = Chat.objects.visible_to(user).listed().with_answering().order_by("-updated_at", "id")
    if name == ARCHIVED:
        return chats.filter(archived=True)
    chats = chats.filter(archived=False, pinned=name == PINNED)
    if name == PINNED:
        return chats
    if name == RECENT:
        return chats.filter(category=None)
    try:
        category_id = UUID(name)
    except ValueError as error:
        raise NotFound from error
    return chats.filter(category=find_category(owner=user, category_id=category_id))


def _group_by_day(rows: Iterable[SidebarRow], after: datetime | None) -> list[SidebarGroup]:
    """The chats by period; `after` is the time of the chat before them, whose heading stands."""
    today = timezone.localdate()
    shown = choose_heading(timezone.localdate(after), today) if after else ""
    groups: list[SidebarGroup] = []
    for row in rows:
        heading = choose_heading(timezone.localdate(row.chat.updated_at), today)
        if not groups or heading != shown:
            groups.append(SidebarGroup("" if heading == shown else heading))
        groups[-1].rows.append(row)
        shown = heading
    return groups


def choose_heading(day: date, today: date) -> str | Promise:
    """The period that `day` belongs to."""
    if day >= today:
        return gettext_lazy("Today")
    if day == today - timedelta(days=1):
        return gettext_lazy("Yesterday")
    if day > today - timedelta(days=7):
        return gettext_lazy("Last 7 days")
    if day > today - timedelta(days=30):
        return gettext_lazy("Last 30 days")
    return gettext_lazy("Earlier")


MAX_CHATS_USING = 20


def list_chats_using(user: "User", document: Document) -> list[Chat]:
    """The user's chats that are about the document or cite it, by `used_at`, latest first."""
    turns = Turn.objects.filter(chat=OuterRef("pk"), document_ids__contains=[document.pk])
    cited_at = Subquery(turns.order_by("-ts").values("ts")[:1])
    is_linked = Exists(ChatDocument.objects.filter(chat=OuterRef("pk"), document=document))
    chats = Chat.objects.visible_to(user).annotate(cited_at=cited_at)
    chats = chats.filter(Q(cited_at__isnull=False) | is_linked)
    used_at = Coalesce("cited_at", "created_at")
    return list(chats.annotate(used_at=used_at).order_by("-used_at", "id")[:MAX_CHATS_USING])


@dataclass(frozen=True, slots=True)
class DocumentUse:
    """How many of the user's chats have answers from a document, and the latest time."""

    document_id: UUID
    chats: int
    used_at: datetime


def list_document_uses(user: "User", document_ids: Collection[UUID]) -> list[DocumentUse]:
    """The uses of these documents; unused ones are left out."""
    turns = Turn.objects.filter(
        chat__in=Chat.objects.visible_to(user), document_ids__overlap=list(document_ids)
    )
    uses = turns.annotate(used=Func("document_ids", function="unnest", output_field=UUIDField()))
    totals = uses.values("used").annotate(chats=Count("chat", distinct=True), at=Max("ts"))
    return [
        DocumentUse(row["used"], row["chats"], row["at"])
        for row in totals.order_by()
        if row["used"] in document_ids
    ]


MAX_EXAMPLES = 4
MAX_EXAMPLE_DOCUMENTS = 8
"""Number of newest documents considered for example questions."""
MAX_HEADING_CHUNKS = 60
"""Chunks of a document searched for headings."""
MAX_NAME_CHARACTERS = 40
MAX_HEADING_CHARACTERS = 30
_NUMBER = re.compile(
    r"^(?:제\s?\d+\s?[편장절관조항](?:의\s?\d+)?\s*|\d+(?:[.-]\d+)*[.)]?\s+|(?:[가나다라마바사아자차카타파하]|[IVX]+)[.)]\s*)"
)
_HEADING = re.compile(r"[^\W\d_].*\w")
_FORMAL_HEADING = re.compile(
    r"목\s?차|차\s?례|머리말|서문|부록|참고 ?문헌|개정 ?(?:이력|내역)|본 문서.*|"
    r"(?:table of )?contents|preface|revision.*|references|appendix.*|version.*",
    re.IGNORECASE,
)
"""Headings that nobody asks about."""
_DATE_OR_AMOUNT = r"\d{4}(년|[.-] ?\d{1,2}[.-])|\d[\d,]* ?[만억조]? ?(원|달러)|[$₩€] ?\d"
"""In PostgreSQL's regular expression syntax."""


def suggest_questions(documents: Iterable[Document], *, has_model: bool) -> list[str]:
    """At most `MAX_EXAMPLES` questions about these documents.

    Without a language model only those that a passage answers: about headings, dates and amounts.
    """
    newest = list(documents)[:MAX_EXAMPLE_DOCUMENTS]
    questions = [*(_suggest_writing(newest) if has_model else ()), *_suggest_lookups(newest)]
    return questions[:MAX_EXAMPLES]


def _suggest_writing(documents: list[Document]) -> list[str]:
    """Questions that need a language model to write the answer."""
    names = [_to_spoken_name(document) for document in documents]
    questions = [_("Summarise the key points of “{name}”").format(name=name) for name in names[:1]]
    if len(names) > 1:
        questions.append(_("Compare “{name}” with “{other}”").format(name=names[0], other=names[1]))
    return questions


def _suggest_lookups(documents: list[Document]) -> list[str]:
    """Questions about headings, one per document by turns; without headings, dates and amounts."""
    headings = _list_headings(documents)
    others = [document.pk for document in documents if document.pk not in headings]
    chunks = Chunk.objects.filter(document__in=others, index__lt=MAX_HEADING_CHUNKS)
    with_dates = set(chunks.filter(text__regex=_DATE_OR_AMOUNT).values_list("document", flat=True))
    columns = []
    for document in documents:
        name = _to_spoken_name(document)
        questions = [
            _("Find what “{name}” says about “{heading}”").format(name=name, heading=heading)
            for heading in headings.get(document.pk, ())
        ]
        if document.pk in with_dates:
            questions = [_("Find the dates and amounts in “{name}”").format(name=name)]
        columns.append(questions)
    return [question for question in chain(*zip_longest(*columns)) if question]


def _list_headings(documents: list[Document]) -> dict[UUID, list[str]]:
    """The headings of each document, each once, in order, without their numbers."""
    rows = (
        Chunk.objects.filter(document__in=documents, index__lt=MAX_HEADING_CHUNKS)
        .exclude(section="")
        .order_by("document_id", "index")
        .values_list("document_id", "section")
    )
    titles = {
        document.pk: {
            _to_spoken_name(document),
            metadata.to_title(document.name, document.metadata),
        }
        for document in documents
    }
    by_document: dict[UUID, dict[str, None]] = {}
    for document_id, section in rows:
        heading = _NUMBER.sub("", section.rpartition(" > ")[2]).strip(" ()[]【】")
        is_telling = heading not in titles[document_id] and _HEADING.fullmatch(heading)
        if _FORMAL_HEADING.fullmatch(heading):
            continue
        if is_telling and len(heading) <= MAX_HEADING_CHARACTERS:
            by_document.setdefault(document_id, {})[heading] = None
    return {document_id: list(headings) for document_id, headings in by_document.items()}


def _to_spoken_name(document: Document) -> str:
    name = document.name.rpartition(".")[0] or document.name
    return name if len(name) <= MAX_NAME_CHARACTERS else name[: MAX_NAME_CHARACTERS - 1] + "…"


TURNS_A_PAGE = 20
SELECTED_DOCUMENTS = 50
FOLDERS_COOKIE = "folders"
"""Cookie with the short ids of open folders, written by front/js/sidebar.js."""


@require_GET
@never_cache
@login_required
def show_chat(request: HttpRequest, chat_id: UUID | None = None) -> HttpResponse:
    """A chat, or the first screen of a new one."""
    user = cast("User", request.user)
    chats = Chat.objects.visible_to(user)
    chat = get_object_or_404(chats, pk=chat_id) if chat_id else None
    documents = Document.objects.visible_to(user)
    searchable = documents.searchable()
    models = list_allowed_models(user)
    has_model = bool(models)
    assistant = _find_assistant(user, request, chat)
    context = {
        "chat": chat,
        "sidebar": Sidebar.load(user, open_folders=_read_open_folders(request), current=chat),
        "processing": 0 if chat else documents.processing().count(),
        "has_model": has_model,
        "examples": []
        if chat
        else suggest_questions(searchable[:MAX_EXAMPLE_DOCUMENTS], has_model=has_model),
        "assistant": assistant,
        "page": {
            "assistant": assistant and _to_assistant_data(assistant),
            "chat": chat and _to_chat_data(chat, user),
            "selected": [] if chat else _list_selected(user, request, searchable),
            "has_model": has_model,
            "models": to_models_json(models),
            "libraries": [
                _to_library_data(library) for library in Library.objects.visible_to(user)
            ],
            "tools": list_servers(user) if models else [],
            "documents_total": searchable.count(),
            "content_limit": MAX_CONTENT_CHARACTERS,
            "upload_limit_mb": settings.MAX_UPLOAD_MB,
            "speech": bool(settings.TTS_BASE_URL and settings.TTS_MODEL),
            "administration": _find_administration_url(user),
        },
    }
    return render(request, "chat.html", context)


@require_GET
@never_cache
@login_required
def show_turns(request: HttpRequest, chat_id: UUID) -> HttpResponse:
    """The turns of a chat's newest branch, latest first, filtered by a search."""
    user = cast("User", request.user)
    chat = get_object_or_404(Chat.objects.visible_to(user).select_related("owner"), pk=chat_id)
    query = request.GET.get("q", "").replace("\x00", "").strip()[:MAX_FIND_CHARACTERS]
    rows = Turn.objects.without_search_columns().filter(pk__in=Branch.find_newest(chat).turn_ids)
    page = Paginator(find_turns(rows, query), TURNS_A_PAGE).get_page(request.GET.get("page"))
    turns = describe_turns(page, query)
    context = {"chat": chat, "query": query, "pages": page, "turns": turns}
    if request.headers.get("HX-Request"):
        return render(request, "panels/turn_list.html", context)
    context["sidebar"] = Sidebar.load(user, open_folders=_read_open_folders(request), current=chat)
    return render(request, "turns.html", context)


@require_GET
@never_cache
@login_required
def show_sidebar(request: HttpRequest) -> HttpResponse:
    """The sidebar, or a page of one of its parts."""
    user = cast("User", request.user)
    part = request.GET.get("part", "")
    context: dict[str, Any] = {"current": request.GET.get("current", "")}
    if part:
        try:
            context["part"] = SidebarPart.load_page(user, part, request.GET.get("page", "1"))
        except NotFound as error:
            raise Http404 from error
        return render(request, "panels/sidebar_part.html", context)
    pages, brief = _count_pages(request.GET.get("shown", "")), "brief" in request.GET
    context["sidebar"] = (
        Sidebar.load_archive(user, pages=pages, brief=brief)
        if request.GET.get("view") == ARCHIVED
        else Sidebar.load(
            user,
            open_folders=_read_open_folders(request),
            current=_find_chat(user, request),
            pages=pages,
            brief=brief,
        )
    )
    return render(request, "panels/sidebar_chats.html", context)


def _count_pages(shown: str) -> int:
    """How many pages hold as many chats as the sidebar has `shown`."""
    count = int(shown) if shown.isascii() and shown.isdecimal() and len(shown) < 5 else 0
    return min(max(1, -(-count // PAGE_SIZE)), MAX_PAGES_AT_ONCE)


@require_GET
@never_cache
@login_required
def show_document_chats(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """The chats that have used a document, latest first, for the document's page."""
    user = cast("User", request.user)
    document = get_object_or_404(Document.objects.visible_to(user), pk=document_id)
    context = {"chats": list_chats_using(user, document)}
    return render(request, "panels/document_chats.html", context)


@require_GET
@never_cache
@login_required
def show_document_uses(request: HttpRequest) -> HttpResponse:
    """When answers last used the listed documents: `?documents=id,id`."""
    user = cast("User", request.user)
    visible = Document.objects.visible_to(user).filter(pk__in=_parse_ids(request))
    uses = list_document_uses(user, set(visible.values_list("pk", flat=True)))
    return render(request, "panels/document_uses.html", {"uses": uses})


def _read_open_folders(request: HttpRequest) -> str:
    return request.COOKIES.get(FOLDERS_COOKIE, "")


def _find_chat(user: User, request: HttpRequest) -> Chat | None:
    """The chat shown on the page, if any."""
    try:
        chat_id = UUID(request.GET.get("current", ""))
    except ValueError:
        return None
    return Chat.objects.visible_to(user).filter(pk=chat_id).first()


def _find_administration_url(user: User) -> str:
    """The administration's list of messages; empty for users who may not open it."""
    is_allowed = user.is_staff and user.has_perm("chats.view_message")
    return reverse("admin:chats_message_changelist") if is_allowed else ""


def _find_assistant(user: User, request: HttpRequest, chat: Chat | None) -> Assistant | None:
    """The assistant of the chat, or of a new one (`/?assistant=ID`), if the user may use it."""
    try:
        key = chat.assistant_id if chat else UUID(request.GET.get("assistant", ""))
    except ValueError:
        return None
    return Assistant.objects.visible_to(user).filter(pk=key).first() if key else None


def _to_assistant_data(assistant: Assistant) -> dict[str, Any]:
    return {"id": str(assistant.pk), "name": assistant.name, "symbol": assistant.letter}


def _to_chat_data(chat: Chat, user: User) -> dict[str, Any]:
    """The chat with what it is about; what its owner may no longer read counts as gone."""
    documents = Document.objects.visible_to(user).filter(chat_links__chat=chat)
    libraries = Library.objects.visible_to(user).filter(pk__in=chat.library_ids or ())
    items = [
        *(_to_library_data(item) for item in libraries),
        *(_to_document_data(item) for item in documents.order_by("chat_links__pk")),
    ]
    count = chat.document_links.count() + len(chat.library_ids or ())
    return {
        "id": str(chat.pk),
        "title": chat.title,
        "unread": chat.unread,
        "model": chat.model,
        "tool_ids": [str(item) for item in chat.tool_ids],
        "documents": items,
        "documents_gone": count - len(items),
    }


def _to_library_data(library: Library) -> dict[str, Any]:
    return {"id": str(library.pk), "name": library.name, "is_library": True}


def _to_document_data(document: Document) -> dict[str, Any]:
    return {
        "id": str(document.pk),
        "name": document.name,
        "content_type": document.content_type,
        "size": document.size,
        "status": document.status,
    }


def _list_selected(user: User, request: HttpRequest, searchable: Any) -> list[dict[str, Any]]:
    """The searchable items named in the address (`/?documents=ID,ID&libraries=ID`)."""
    documents = searchable.filter(pk__in=_parse_ids(request))
    libraries = Library.objects.visible_to(user).filter(pk__in=_parse_ids(request, "libraries"))
    return [*map(_to_library_data, libraries), *map(_to_document_data, documents)]


def _parse_ids(request: HttpRequest, name: str = "documents") -> list[UUID]:
    ids = []
    for text in request.GET.get(name, "").split(",")[:SELECTED_DOCUMENTS]:
        try:
            ids.append(UUID(text))
        except ValueError:
            continue
    return ids

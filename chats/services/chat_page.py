"""What the page shows beside a thread: the list of chats, and first questions on an empty page."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Self
from uuid import UUID

from django.core.paginator import Page, Paginator
from django.db.models import Exists, F, OuterRef, QuerySet, Subquery
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chats.models import Chat, Message
from documents import metadata
from documents.models import Chunk, Document

if TYPE_CHECKING:
    from django.contrib.auth.models import User


PAGE_SIZE = 40
EXCERPT_BEFORE = 24
EXCERPT_LENGTH = 90
SEARCH_CHARACTERS = 100
"""A longer search is cut: nobody types it, and it costs."""


@dataclass(frozen=True)
class SidebarEntry:
    """A line of the list."""

    id: UUID
    title: str
    answering: bool
    excerpt: str


@dataclass(frozen=True)
class SidebarGroup:
    """Lines of one period under its heading."""

    heading: str | Promise
    entries: list[SidebarEntry] = field(default_factory=list)


@dataclass(frozen=True)
class Sidebar:
    """What the panel shows: the groups of one page, and where the next one starts."""

    groups: list[SidebarGroup]
    query: str
    next_page: int | None

    @classmethod
    def of(cls, user: "User", *, query: str = "", page: str | int = 1) -> Self:
        """The user's chats, newest first."""
        query = query.replace("\x00", "").strip()[:SEARCH_CHARACTERS]
        found = Paginator(_chats(user, query), PAGE_SIZE).get_page(page)
        following = found.next_page_number() if found.has_next() else None
        return cls(_groups(found, query), query, following)


def _chats(user: "User", query: str) -> QuerySet[Chat]:
    chats = Chat.objects.visible_to(user)
    if query:
        chats = chats.matching(query)
    messages = Message.objects.filter(chat=OuterRef("pk"))
    hits = messages.filter(content__icontains=query).values("content")[:1]
    return chats.annotate(
        is_answering=Exists(messages.filter(status=Message.Status.STREAMING)),
        hit=Subquery(hits) if query else F("title"),
    ).order_by("-updated_at", "id")


def _groups(chats: "Page[Chat]", query: str) -> list[SidebarGroup]:
    today = timezone.localdate()
    groups: list[SidebarGroup] = []
    for chat in chats:
        heading = choose_heading(timezone.localdate(chat.updated_at), today)
        if not groups or groups[-1].heading != heading:
            groups.append(SidebarGroup(heading))
        groups[-1].entries.append(_entry(chat, query))
    return groups


def choose_heading(day: date, today: date) -> str | Promise:
    """The period that `day` belongs to."""
    if day >= today:
        return gettext_lazy("Today")
    if day == today - timedelta(days=1):
        return gettext_lazy("Yesterday")
    if day > today - timedelta(days=7):
        return gettext_lazy("Last 7 days")
    return gettext_lazy("Earlier")


def _entry(chat: Chat, query: str) -> SidebarEntry:
    text = getattr(chat, "hit", None) or ""
    shown = cut_excerpt(text, query) if query and query.lower() not in chat.title.lower() else ""
    return SidebarEntry(chat.pk, chat.title, bool(getattr(chat, "is_answering", False)), shown)


def cut_excerpt(text: str, query: str) -> str:
    """A stretch of `text` around the first place of `query`."""
    flat = " ".join(text.split())
    start = max(flat.lower().find(query.lower()) - EXCERPT_BEFORE, 0)
    cut = flat[start : start + EXCERPT_LENGTH]
    return ("…" if start else "") + cut + ("…" if start + EXCERPT_LENGTH < len(flat) else "")


MAX_EXAMPLES = 4
READ_CHUNKS = 60
"""Chunks of a document that are looked through for headings."""
MAX_NAME_CHARACTERS = 40
MAX_HEADING_CHARACTERS = 30
_NUMBER = re.compile(
    r"^(?:제\s?\d+\s?[편장절관조항]\s*|\d+(?:[.-]\d+)*[.)]?\s+|(?:[가나다라마바사아자차카타파하]|[IVX]+)[.)]\s*)"
)
_HEADING = re.compile(r"[^\W\d_].*\w")


def suggest_questions(documents: Iterable[Document], *, has_model: bool) -> list[str]:
    """At most `MAX_EXAMPLES` questions about these documents.

    Without a language model only such as finding a passage answers: what stands under a heading.
    """
    known = list(documents)[:MAX_EXAMPLES]
    found = [*(_written(known) if has_model else ()), *_looked_up(known)]
    return found[:MAX_EXAMPLES]


def _written(documents: list[Document]) -> list[str]:
    """What takes a model: it writes a text of its own."""
    spoken = [_spoken_name(document) for document in documents]
    found = [_("Summarise the key points of “{name}”").format(name=name) for name in spoken[:1]]
    if len(spoken) > 1:
        found.append(_("Compare “{name}” with “{other}”").format(name=spoken[0], other=spoken[1]))
    return found


def _looked_up(documents: list[Document]) -> list[str]:
    """A heading of each document, then the next of each; dates and amounts where it has none."""
    headings = _headings(documents)
    columns = []
    for document in documents:
        name = _spoken_name(document)
        asked = [
            _("Find what “{name}” says about “{heading}”").format(name=name, heading=heading)
            for heading in headings.get(document.pk, ())
        ]
        columns.append(asked or [_("Find the dates and amounts in “{name}”").format(name=name)])
    return [question for question in chain(*zip_longest(*columns)) if question]


def _headings(documents: list[Document]) -> dict[UUID, list[str]]:
    """The headings of each document, each once, in order, without their numbers."""
    rows = (
        Chunk.objects.filter(document__in=documents, index__lt=READ_CHUNKS)
        .exclude(section="")
        .order_by("document_id", "index")
        .values_list("document_id", "section")
    )
    titles = {
        one.pk: {_spoken_name(one), metadata.to_title(one.name, one.metadata)} for one in documents
    }
    found: dict[UUID, dict[str, None]] = {}
    for document_id, section in rows:
        heading = _NUMBER.sub("", section.rpartition(" > ")[2]).strip(" ()[]【】")
        says_something = heading not in titles[document_id] and _HEADING.fullmatch(heading)
        if says_something and len(heading) <= MAX_HEADING_CHARACTERS:
            found.setdefault(document_id, {})[heading] = None
    return {document_id: list(headings) for document_id, headings in found.items()}


def _spoken_name(document: Document) -> str:
    name = document.name.rpartition(".")[0] or document.name
    return name if len(name) <= MAX_NAME_CHARACTERS else name[: MAX_NAME_CHARACTERS - 1] + "…"

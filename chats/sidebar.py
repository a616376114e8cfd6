"""The list of chats beside the thread: grouped by day, searched by title and message."""

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Self
from uuid import UUID

from django.core.paginator import Page, Paginator
from django.db.models import Exists, F, OuterRef, QuerySet, Subquery
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from chats.models import Chat, Message

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PAGE_SIZE = 40
EXCERPT_BEFORE = 24
EXCERPT_LENGTH = 90
SEARCH_CHARACTERS = 100
"""A longer search is cut: nobody types it, and it costs."""


@dataclass(frozen=True)
class Entry:
    """A line of the list."""

    id: UUID
    title: str
    answering: bool
    excerpt: str


@dataclass(frozen=True)
class Group:
    """Lines of one period under its heading."""

    heading: str | Promise
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True)
class Sidebar:
    """What the panel shows: the groups of one page, and where the next one starts."""

    groups: list[Group]
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


def _groups(chats: "Page[Chat]", query: str) -> list[Group]:
    today = timezone.localdate()
    groups: list[Group] = []
    for chat in chats:
        heading = heading_of(timezone.localdate(chat.updated_at), today)
        if not groups or groups[-1].heading != heading:
            groups.append(Group(heading))
        groups[-1].entries.append(_entry(chat, query))
    return groups


def heading_of(day: date, today: date) -> str | Promise:
    """The period that `day` belongs to."""
    if day >= today:
        return _("Today")
    if day == today - timedelta(days=1):
        return _("Yesterday")
    if day > today - timedelta(days=7):
        return _("Last 7 days")
    return _("Earlier")


def _entry(chat: Chat, query: str) -> Entry:
    text = getattr(chat, "hit", None) or ""
    shown = excerpt(text, query) if query and query.lower() not in chat.title.lower() else ""
    return Entry(chat.pk, chat.title, bool(getattr(chat, "is_answering", False)), shown)


def excerpt(text: str, query: str) -> str:
    """A stretch of `text` around the first place of `query`."""
    flat = " ".join(text.split())
    start = max(flat.lower().find(query.lower()) - EXCERPT_BEFORE, 0)
    cut = flat[start : start + EXCERPT_LENGTH]
    return ("…" if start else "") + cut + ("…" if start + EXCERPT_LENGTH < len(flat) else "")

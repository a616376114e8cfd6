"""The shell of the administration: how a page of its own and a list get their place in it.

    @admin_page("queue", MenuPlace(Section.OPERATIONS, "pending_actions", 10, _("Queue")))
    def show_queue(request: HttpRequest) -> HttpResponse:
        return render_page(request, "admin/queue.html", {...})   # extends admin/nura_page.html

is then at `/admin/queue/`, is called `admin:queue`, stands in the navigation, and is a 403 for
whoever `may_open` refuses. A list of rows says where it stands: `navigation = MenuPlace(...)` in
its `ModelAdmin`, and is shown to whoever may view its rows.

It stands on this floor because documents, conversations and the installation all have pages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db.models import TextChoices
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

View = Callable[..., HttpResponse]


class Section(TextChoices):
    """The parts of the navigation, in their order."""

    OVERVIEW = "overview", _("Overview")
    PEOPLE = "people", _("People")
    KNOWLEDGE = "knowledge", _("Knowledge")
    MODELS = "models", _("Models")
    OPERATIONS = "operations", _("Operations")
    QUALITY = "quality", _("Quality")
    RECORD = "record", _("Record")


@dataclass(frozen=True, slots=True)
class MenuPlace:
    """Where something stands in the navigation. `icon` is a name of Material Symbols.

    Entries of a section stand by `order`, then by title; a list without `title` is called as its
    rows are.
    """

    section: Section
    icon: str
    order: int = 50
    title: Any = ""


@dataclass(frozen=True, slots=True)
class AdminPage:
    """A page of its own; without a `place` it is reached from another page only."""

    address: str
    name: str
    view: View
    place: MenuPlace | None
    may_open: Callable[[User | AnonymousUser], bool]


_pages: dict[str, AdminPage] = {}


def is_staff(user: User | AnonymousUser) -> bool:
    """Whether the pages are this user's work."""
    return user.is_active and user.is_staff


def admin_page(
    address: str,
    place: MenuPlace | None = None,
    *,
    name: str = "",
    may_open: Callable[[User | AnonymousUser], bool] = is_staff,
) -> Callable[[View], View]:
    """Make a view a page at `/admin/{address}/`, which may hold converters of Django's.

    It is called `admin:{name}`, as its address where no name is given, and stands in the navigation
    where it has a `place`.
    """

    def register(view: View) -> View:
        @wraps(view)
        def open_page(request: HttpRequest, *values: Any, **named: Any) -> HttpResponse:
            if not may_open(request.user):
                raise PermissionDenied
            return view(request, *values, **named)

        page = AdminPage(address, name or address, open_page, place, may_open)
        _pages[page.name] = page
        return open_page

    return register


def render_page(
    request: HttpRequest, template: str, context: dict[str, Any] | None = None, **options: Any
) -> TemplateResponse:
    """A page in the shell. Its title is the one of its entry where `context` has none."""
    match = request.resolver_match
    page = _pages.get(match.url_name or "") if match else None
    title = page.place.title if page and page.place else ""
    request.current_app = admin.site.name
    filled = {**admin.site.each_context(request), "title": title, **(context or {})}
    return TemplateResponse(request, template, filled, **options)


def list_addresses() -> list[URLPattern]:
    """Routes of all pages, behind the sign-in of the administration."""
    return [
        path(page.address and f"{page.address}/", admin.site.admin_view(page.view), name=page.name)
        for page in _pages.values()
    ]


def list_pages() -> list[AdminPage]:
    """All pages that are registered."""
    return list(_pages.values())


def list_navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The navigation of this user, as unfold wants it."""
    entries = sorted(_list_entries(request), key=lambda one: (one[0].order, str(one[1])))
    groups = []
    for section in Section:
        items = [
            {"title": title, "icon": place.icon, "link": link}
            for place, title, link in entries
            if place.section == section
        ]
        title = "" if section == Section.OVERVIEW else section.label
        groups.append({"title": title, "items": items})
    return groups


def _list_entries(request: HttpRequest) -> Iterator[tuple[MenuPlace, str, str]]:
    for page in _pages.values():
        if page.place and page.may_open(request.user):
            yield page.place, str(page.place.title), reverse(f"admin:{page.name}")
    for rows in admin.site._registry.values():  # noqa: SLF001 - Django has no other way
        place = getattr(rows, "navigation", None)
        if place and rows.has_view_permission(request):
            title = str(place.title or capfirst(rows.opts.verbose_name_plural))
            name = f"{rows.opts.app_label}_{rows.opts.model_name}"
            yield place, title, reverse(f"admin:{name}_changelist")

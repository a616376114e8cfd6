"""The shell of the administration: how a page of its own and a list get their place in it.

    @admin_page("queue", MenuPlace(Section.OPERATIONS, "pending_actions", 10, _("Queue")))
    def show_queue(request: HttpRequest) -> HttpResponse:
        return render_page(request, "admin/queue.html", {...})   # extends admin/nura_page.html

is then at `/admin/queue/`, is called `admin:queue`, stands in the navigation, and is a 403 for
whoever `may_open` refuses. A list of rows says where it stands: `navigation = MenuPlace(...)` in
its `ModelAdmin`, and is shown to whoever may view its rows.

What an administrator adds, changes or deletes is written down; what belongs to somebody is shown
only behind a reason, which is written down first (`AuditedAdmin`, `ContentsAdmin`).

It stands on this floor because documents, conversations and the installation all have pages.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Count, IntegerField, Model, OuterRef, QuerySet, Subquery, TextChoices
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.widgets import UnfoldAdminTextInputWidget

from documents.audit import Action, record_event

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


REASON_CHARACTERS = 500


class AuditedFormSet(forms.BaseInlineFormSet):  # type: ignore[type-arg] # Django's has no types here
    """Rows within the form of another one whose changes have an entry of their own."""

    def record_changes(self, actor: Any) -> None:
        """Write down what was saved just now."""
        raise NotImplementedError


def count_rows(rows: QuerySet[Any], field: str) -> Coalesce:
    """How many of these rows name a row by that field, for `annotate`: 0 where none does.

    It is counted for the rows of the page that is shown alone, where the list is not ordered by it.
    """
    own = rows.filter(**{field: OuterRef("pk")}).order_by().values(field)
    counted = own.annotate(count_of_rows=Count("pk")).values("count_of_rows")
    return Coalesce(Subquery(counted, IntegerField()), 0)


class AuditedAdmin(ModelAdmin):  # type: ignore[misc] # unfold has no types
    """Writes down additions, changes and deletions, in the transaction that does them."""

    changed_as = Action.SETTING_CHANGED
    added_as = Action.SETTING_CHANGED
    deleted_as = Action.DATA_DELETED
    show_full_result_count = False  # it counts all rows once more

    def find_subject(self, row: Any) -> User | None:
        """Whose row it is."""
        owner: User | None = getattr(row, "owner", None)
        return owner

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Somebody added a row."""
        self._record(request, self.added_as, obj, {"added": True})
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Somebody changed a row; the names of the fields are told, not their values."""
        self._record(request, self.changed_as, obj, {"changed": message})
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Iterable[Any]) -> Any:
        """Somebody is about to delete rows."""
        rows = list(queryset)
        for row in rows:
            self._record(request, self.deleted_as, row, {})
        return super().log_deletions(request, rows)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Save rows that stand in the form of another one; some are written down by themselves."""
        super().save_formset(request, form, formset, change)
        if isinstance(formset, AuditedFormSet):
            formset.record_changes(request.user)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """An action on many rows is done whole and written down, or not at all."""
        if request.method != "POST":
            return super().changelist_view(request, extra_context)  # type: ignore[no-any-return]
        with transaction.atomic():
            return super().changelist_view(request, extra_context)  # type: ignore[no-any-return]

    def _record(
        self, request: HttpRequest, kind: Action, row: Any, details: dict[str, Any]
    ) -> None:
        subject = self.find_subject(row)
        record_event(kind, actor=request.user, subject=subject, target=row, details=details)


class ReasonForm(forms.Form):
    """Why somebody looks at what is not theirs."""

    reason = forms.CharField(
        label=_("Reason"),
        min_length=5,
        max_length=REASON_CHARACTERS,
        help_text=_("It is kept in the audit log with your name, and cannot be removed."),
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
    )


class ContentsAdmin(AuditedAdmin):
    """Rows of people whose contents are shown for a reason only, once for each reason given.

    `contents_template` shows what `get_contents` gives.
    """

    contents_template = ""
    actions_detail = ("view_contents",)

    def get_contents(self, row: Any) -> dict[str, Any]:
        """What the template shows of the row."""
        raise NotImplementedError

    @action(  # type: ignore[untyped-decorator] # unfold has no types
        description=_("View contents"), url_path="contents", icon="visibility"
    )
    def view_contents(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for the reason; write it down; show."""
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        form = ReasonForm(request.POST if request.method == "POST" else None)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": row,
            "owner": self.find_subject(row),
            "title": _("View contents"),
            "form": form,
        }
        if form.is_valid():
            reason = {"reason": form.cleaned_data["reason"]}
            self._record(request, Action.DATA_VIEWED, row, reason)
            context |= {"contents": self.contents_template} | self.get_contents(row)
        response = TemplateResponse(request, "admin/contents.html", context)
        response.headers["Cache-Control"] = "no-store"
        return response

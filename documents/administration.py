"""The frame of the administration: how pages and lists get their place in the navigation.

    @admin_page("queue", MenuPlace(Section.OPERATIONS, "pending_actions", 10, _("Queue")))
    def show_queue(request: HttpRequest) -> HttpResponse:
        return render_page(request, "admin/queue.html", {...})   # extends admin/nura_page.html

is then at `/admin/queue/`, has the URL name `admin:queue`, is listed in the navigation, and returns
403 to anybody `may_open` refuses. A list of rows sets `navigation = MenuPlace(...)` in its
`ModelAdmin`, and is listed for everybody who may view its rows.

What administrators add, change or delete is recorded in the audit log. What belongs to a person is
shown only after a reason was entered, which is recorded first (`AuditedAdmin`, `ContentsAdmin`).

It is in this app because documents, conversations and the installation all have pages.
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
from unfold.views import ChangeList
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
    """A place in the navigation. `icon` is a name of Material Symbols.

    Entries of a section are sorted by `order`, then by title. The default title of a list is the
    plural name of its model.
    """

    section: Section
    icon: str
    order: int = 50
    title: Any = ""


@dataclass(frozen=True, slots=True)
class AdminPage:
    """A page of the administration; without a `place` it is reached from other pages only."""

    address: str
    name: str
    view: View
    place: MenuPlace | None
    may_open: Callable[[User | AnonymousUser], bool]


_pages: dict[str, AdminPage] = {}


def is_staff(user: User | AnonymousUser) -> bool:
    """Whether the user is active staff."""
    return user.is_active and user.is_staff


def admin_page(
    address: str,
    place: MenuPlace | None = None,
    *,
    name: str = "",
    may_open: Callable[[User | AnonymousUser], bool] = is_staff,
) -> Callable[[View], View]:
    """Make a view a page at `/admin/{address}/`; the address may have Django's path converters.

    Its URL name is `admin:{name}`, by default the address. It is listed in the navigation if it has
    a `place`.
    """

    def register(view: View) -> View:
        @wraps(view)
        def open_page(request: HttpRequest, *values: Any, **keywords: Any) -> HttpResponse:
            if not may_open(request.user):
                raise PermissionDenied
            return view(request, *values, **keywords)

        page = AdminPage(address, name or address, open_page, place, may_open)
        _pages[page.name] = page
        return open_page

    return register


def render_page(
    request: HttpRequest, template: str, context: dict[str, Any] | None = None, **options: Any
) -> TemplateResponse:
    """Render a page. Its title is that of its navigation entry unless `context` has one."""
    match = request.resolver_match
    page = _pages.get(match.url_name or "") if match else None
    title = page.place.title if page and page.place else ""
    request.current_app = admin.site.name
    full_context = {**admin.site.each_context(request), "title": title, **(context or {})}
    return TemplateResponse(request, template, full_context, **options)


def list_addresses() -> list[URLPattern]:
    """URL patterns of all pages, behind the sign-in of the administration."""
    return [
        path(page.address and f"{page.address}/", admin.site.admin_view(page.view), name=page.name)
        for page in _pages.values()
    ]


def list_pages() -> list[AdminPage]:
    """All pages that are registered."""
    return list(_pages.values())


def list_navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The navigation of this user, in unfold's format."""
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
    """Inline rows whose changes get their own entries in the audit log."""

    def record_changes(self, actor: Any) -> None:
        """Record what was just saved."""
        raise NotImplementedError


def count_rows(rows: QuerySet[Any], field: str) -> Coalesce:
    """An annotation: how many of `rows` refer to each row by `field`.

    Postgres counts only for the rows of the shown page, unless the list is ordered by it.
    """
    own_rows = rows.filter(**{field: OuterRef("pk")}).order_by().values(field)
    counts = own_rows.annotate(count_of_rows=Count("pk")).values("count_of_rows")
    return Coalesce(Subquery(counts, IntegerField()), 0)


class RowList(ChangeList):  # type: ignore[misc] # unfold has no types
    """A list that says how many rows it was narrowed to only where it was narrowed."""

    def get_results(self, request: HttpRequest) -> None:
        """Take the number of rows as that of all, if there is no search and no filter."""
        super().get_results(request)
        if not self.query and not self.get_filters_params():
            self.full_result_count = self.result_count


class AuditedAdmin(ModelAdmin):  # type: ignore[misc] # unfold has no types
    """Records additions, changes and deletions, in the transaction that makes them."""

    change_action = Action.SETTING_CHANGED
    addition_action = Action.SETTING_CHANGED
    deletion_action = Action.DATA_DELETED
    show_full_result_count = False  # it counts all rows once more

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RowList]:
        """The list of rows."""
        return RowList

    def find_subject(self, row: Any) -> User | None:
        """The person to whom the row belongs."""
        owner: User | None = getattr(row, "owner", None)
        return owner

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Record an addition."""
        self._record(request, self.addition_action, obj, {"added": True})
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Record a change: the names of the fields, not their values."""
        self._record(request, self.change_action, obj, {"changed": message})
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Iterable[Any]) -> Any:
        """Record rows that are about to be deleted."""
        rows = list(queryset)
        for row in rows:
            self._record(request, self.deletion_action, row, {})
        return super().log_deletions(request, rows)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Save inline rows, and record their changes if they have entries of their own."""
        super().save_formset(request, form, formset, change)
        if isinstance(formset, AuditedFormSet):
            formset.record_changes(request.user)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Run an action on many rows in one transaction with its record."""
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
    """The reason for looking at somebody else's contents."""

    reason = forms.CharField(
        label=_("Reason"),
        min_length=5,
        max_length=REASON_CHARACTERS,
        help_text=_("It is kept in the audit log with your name, and cannot be removed."),
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
    )


class ContentsAdmin(AuditedAdmin):
    """Rows of people whose contents are shown only after a reason was entered, once each time.

    `contents_template` renders `get_contents`.
    """

    contents_template = ""
    actions_detail = ("view_contents",)

    def get_contents(self, row: Any) -> dict[str, Any]:
        """The context of `contents_template` for the row."""
        raise NotImplementedError

    @action(  # type: ignore[untyped-decorator] # unfold has no types
        description=_("View contents"), url_path="contents", icon="visibility"
    )
    def view_contents(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a reason, record it, show the contents."""
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

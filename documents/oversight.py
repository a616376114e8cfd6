"""Administration under the audit log.

What an administrator adds, changes or deletes is written down; what belongs to somebody is shown
only behind a reason, which is written down first.
"""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.widgets import UnfoldAdminTextInputWidget

from documents.audit import Action, record_event

REASON_CHARACTERS = 500


class AuditedFormSet(forms.BaseInlineFormSet):  # type: ignore[type-arg] # Django's has no types here
    """Rows within the form of another one whose changes have an entry of their own."""

    def record_changes(self, actor: Any) -> None:
        """Write down what was saved just now."""
        raise NotImplementedError


class AuditedAdmin(ModelAdmin):  # type: ignore[misc] # unfold has no types
    """Writes down additions, changes and deletions, in the transaction that does them."""

    changed_as = Action.SETTING_CHANGED
    added_as = Action.SETTING_CHANGED
    deleted_as = Action.DATA_DELETED

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

"""The sections of one's data: take all of it along, or delete the account."""

import json
from typing import Any, cast
from uuid import UUID

from allauth.account.decorators import reauthentication_required
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from documents.errors import explain_code
from documents.notices import announce_change
from nura.accounts import deletion
from nura.accounts.exports import request_export, respond_with_export
from nura.accounts.models import DataExport, DataImport
from nura.accounts.roles import LastAdministrator
from nura.accounts.sections import render_section

SHOWN_EXPORTS = 5


@never_cache
@login_required
@reauthentication_required(allow_get=True)  # type: ignore[untyped-decorator]
@require_http_methods(["GET", "HEAD", "POST"])
def data(request: HttpRequest) -> HttpResponse:
    """The exports and imports; POST asks for an export."""
    user = cast("User", request.user)
    if request.method == "POST":
        request_export(user=user)
        messages.info(
            request, _("The file is being made. It will be listed here when it is ready.")
        )
        return redirect("accounts:data")
    exports = DataExport.objects.filter(owner=user)
    imports = DataImport.objects.filter(owner=user)
    told = {
        "exports": exports[:SHOWN_EXPORTS],
        "is_waiting": exports.filter(DataExport.OPEN).exists(),
        "imports": [
            (one, explain_code(one.error_code) if one.error_code else "")
            for one in imports[:SHOWN_EXPORTS]
        ],
        "is_importing": imports.filter(DataImport.OPEN).exists(),
        "max_mb": settings.MAX_UPLOAD_MB,
    }
    return render_section(request, "accounts:data", "settings/data.html", told)


@never_cache
@login_required
@require_safe
def export_file(request: HttpRequest, export_id: UUID) -> HttpResponseBase:
    """The file, while it can be had."""
    return respond_with_export(request, user=cast("User", request.user), export_id=export_id)


class DeletionForm(forms.Form):
    """One's own name, typed: nobody deletes an account by a slip of the hand."""

    username = forms.CharField(
        label=_("Type your user name to confirm"),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def __init__(self, user: User, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.user = user

    def clean_username(self) -> str:
        """The name."""
        if self.cleaned_data["username"].strip() != self.user.username:
            raise forms.ValidationError(_("This is not your user name."))
        return self.user.username


@never_cache
@login_required
@reauthentication_required(allow_get=True)  # type: ignore[untyped-decorator]
@require_http_methods(["GET", "HEAD", "POST"])
def delete_account(request: HttpRequest) -> HttpResponse:
    """Delete the account with everything, and sign out; the answer holds the receipt."""
    user = cast("User", request.user)
    form = DeletionForm(user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            receipt = deletion.delete_account(user=User.objects.get(pk=user.pk))
        except LastAdministrator as error:
            form.add_error(None, explain_code(error.code))
        else:
            announce_change()
            logout(request)
            told = {"receipt": json.dumps(receipt, ensure_ascii=False, indent=1)}
            return render(request, "account/deleted.html", told)
    return render_section(request, "accounts:delete", "settings/delete.html", {"form": form})

"""Settings sections: API keys, devices, memory, export and import, deletion of the account."""

import json
from datetime import timedelta
from itertools import groupby
from typing import Any, cast
from uuid import UUID

from allauth.account.decorators import reauthentication_required
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from chats.models import KeyScope, ProfileSlot
from chats.models.key import KEY_NAME_CHARACTERS, list_scopes
from chats.services import memory as remembered
from documents.errors import explain_code
from documents.notices import announce_rights_change
from nura.accounts import deletion, services
from nura.accounts.api import to_key_json
from nura.accounts.exports import request_export, respond_with_export
from nura.accounts.preferences import render_section
from nura.accounts.roles import LastAdministrator
from nura.models import DataExport, DataImport
from rag.memory.profile import Effect, Packs, SlotStatus

LIFETIMES = (
    ("30", gettext_lazy("30 days")),
    ("90", gettext_lazy("90 days")),
    ("365", gettext_lazy("One year")),
    ("", gettext_lazy("Does not expire")),
)


class KeyForm(forms.Form):
    """Name, scopes and lifetime of a new key."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=KEY_NAME_CHARACTERS,
        help_text=gettext_lazy("What you will use the key for."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("It may"),
        choices=KeyScope.choices,
        initial=[KeyScope.READ, KeyScope.ASK],
        widget=forms.CheckboxSelectMultiple,
    )
    days = forms.TypedChoiceField(
        label=gettext_lazy("Valid for"),
        choices=LIFETIMES,
        initial="90",
        required=False,
        coerce=lambda days: timedelta(days=int(days)),
        empty_value=None,
    )


@never_cache
@login_required
@reauthentication_required(allow_get=True)  # type: ignore[untyped-decorator]
@require_http_methods(["GET", "HEAD", "POST"])
def manage_keys(request: HttpRequest) -> HttpResponse:
    """The user's keys; POST creates one and shows its secret in this response only."""
    user = cast("User", request.user)
    form = KeyForm(request.POST if request.method == "POST" else None)
    new_key = ""
    if request.method == "POST" and form.is_valid():
        lifetime = form.cleaned_data["days"]
        _stored, new_key = services.make_key(
            user=user,
            name=form.cleaned_data["name"],
            scopes=form.cleaned_data["scopes"],
            expires_at=None if lifetime is None else timezone.now() + lifetime,
        )
        form = KeyForm()
    context = {
        "form": form,
        "new_key": new_key,
        "keys": [
            to_key_json(key)
            | {
                "beginning": key.token_key[: services.SHOWN_CHARACTERS],
                "may": [scope.label for scope in KeyScope if scope in list_scopes(key)],
            }
            for key in services.list_keys(user=user)
        ],
    }
    return render_section(request, "accounts:keys", "settings/keys.html", context)


@login_required
@require_POST
def revoke_key(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Revoke one key of the user."""
    if not services.revoke_key(user=cast("User", request.user), key_id=key_id):
        raise Http404
    messages.success(request, _("The key has been revoked."))
    return redirect("accounts:keys")


@never_cache
@login_required
@require_safe
def show_devices(request: HttpRequest) -> HttpResponse:
    """Where the account is signed in."""
    sessions = services.list_sessions(
        user=cast("User", request.user), current_key=request.session.session_key or ""
    )
    context = {
        "sessions": sessions,
        "has_others": any(not session.is_current for session in sessions),
    }
    return render_section(request, "accounts:devices", "settings/devices.html", context)


@login_required
@require_POST
def end_session(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Sign out one device."""
    if not services.end_session(user=cast("User", request.user), session_id=session_id):
        raise Http404
    messages.success(request, _("That device has been signed out."))
    return redirect("accounts:devices")


@login_required
@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    """Sign out all devices but this one."""
    services.end_sessions(
        user=cast("User", request.user), except_key=request.session.session_key or ""
    )
    messages.success(request, _("All other devices have been signed out."))
    return redirect("accounts:devices")


ROUTE = "accounts:memory"


class SlotForm(forms.Form):
    """A memory that the user enters."""

    kind = forms.ChoiceField(label=gettext_lazy("Kind"))
    key = forms.CharField(label=gettext_lazy("What"), max_length=200)
    value = forms.CharField(label=gettext_lazy("Value"), max_length=200)
    unit = forms.CharField(label=gettext_lazy("Unit"), max_length=50, required=False)

    def __init__(self, *args: Any, packs: Packs, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = cast("forms.ChoiceField", self.fields["kind"])
        field.choices = [
            (kind, packs.get_kind_title(kind, remembered.get_page_language()))
            for kind in packs.kinds
        ]


class EditForm(forms.Form):
    """A new value for a memory."""

    value = forms.CharField(max_length=200)
    unit = forms.CharField(max_length=50, required=False)


@never_cache
@login_required
@require_safe
def show_memory(request: HttpRequest) -> HttpResponse:
    """All memories, proposals first."""
    user = cast("User", request.user)
    packs = remembered.get_packs()
    slots = list(remembered.list_slots(user).select_related("message", "replaces"))
    described = [_describe_slot(slot, packs) for slot in slots]
    confirmed = [entry for entry in described if entry["slot"].status != SlotStatus.PROPOSED]
    context = {
        "proposals": [entry for entry in described if entry["slot"].status == SlotStatus.PROPOSED],
        "kinds": [
            (title, list(rows))
            for title, rows in groupby(
                confirmed, key=lambda entry: cast("str", entry["kind_title"])
            )
        ],
        "is_on": remembered.is_memory_on(user.pk),
        "form": SlotForm(packs=packs),
    }
    return render_section(request, ROUTE, "settings/memory.html", context)


def _describe_slot(slot: ProfileSlot, packs: Packs) -> dict[str, Any]:
    key = packs.get_key_title(slot.key, remembered.get_page_language())
    shown = slot.to_slot().shown
    return {
        "slot": slot,
        "kind_title": packs.get_kind_title(slot.kind, remembered.get_page_language()),
        "key": "" if key == slot.value else key,
        "shown": shown,
        "before": slot.replaces.to_slot().shown if slot.replaces else "",
        "ends": slot.effect == Effect.END.value,
        "history": slot.history[::-1],
    }


@login_required
@require_POST
def add_memory(request: HttpRequest) -> HttpResponse:
    """Store a memory that the user entered."""
    form = SlotForm(request.POST, packs=remembered.get_packs())
    if form.is_valid():
        remembered.add_slot(owner=cast("User", request.user), **form.cleaned_data)
        messages.success(request, _("Remembered."))
    else:
        messages.error(request, _("Something is missing. Nothing was changed."))
    return redirect(ROUTE)


@login_required
@require_POST
def change_memory(request: HttpRequest, slot_id: UUID) -> HttpResponse:
    """Confirm, reject, change or forget one memory: the button says which."""
    rows = ProfileSlot.objects.owned_by(cast("User", request.user)).select_related("owner")
    slot = get_object_or_404(rows, pk=slot_id)
    action = request.POST.get("do", "")
    form = EditForm(request.POST)
    if action in {"yes", "no"}:
        remembered.confirm_slot(slot=slot, accept=action == "yes")
        messages.success(request, _("Thank you, that is settled."))
    elif action == "forget":
        remembered.forget_slot(slot=slot)
        messages.success(request, _("Forgotten."))
    elif action == "edit" and form.is_valid():
        remembered.edit_slot(slot=slot, changes=form.cleaned_data)
        messages.success(request, _("Changed."))
    else:
        messages.error(request, _("Something is missing. Nothing was changed."))
    return redirect(ROUTE)


@login_required
@require_POST
def switch_memory(request: HttpRequest) -> HttpResponse:
    """Turn memory on or off."""
    is_on = request.POST.get("enabled") == "true"
    remembered.switch_memory(owner=cast("User", request.user), enabled=is_on)
    messages.success(request, _("Memory is on.") if is_on else _("Memory is off."))
    return redirect(ROUTE)


@login_required
@require_POST
def forget_memory(request: HttpRequest) -> HttpResponse:
    """Delete all memories."""
    remembered.forget_everything(owner=cast("User", request.user))
    messages.success(request, _("Everything has been forgotten."))
    return redirect(ROUTE)


SHOWN_EXPORTS = 5


@never_cache
@login_required
@reauthentication_required(allow_get=True)  # type: ignore[untyped-decorator]
@require_http_methods(["GET", "HEAD", "POST"])
def manage_data(request: HttpRequest) -> HttpResponse:
    """The exports and imports; POST requests an export."""
    user = cast("User", request.user)
    if request.method == "POST":
        request_export(user=user)
        messages.info(
            request, _("The file is being made. It will be listed here when it is ready.")
        )
        return redirect("accounts:data")
    exports = DataExport.objects.filter(owner=user)
    imports = DataImport.objects.filter(owner=user)
    context = {
        "exports": exports[:SHOWN_EXPORTS],
        "is_waiting": exports.filter(DataExport.OPEN).exists(),
        "imports": [
            (data_import, explain_code(data_import.error_code) if data_import.error_code else "")
            for data_import in imports[:SHOWN_EXPORTS]
        ],
        "is_importing": imports.filter(DataImport.OPEN).exists(),
        "max_mb": settings.MAX_UPLOAD_MB,
    }
    return render_section(request, "accounts:data", "settings/data.html", context)


@never_cache
@login_required
@require_safe
def download_export(request: HttpRequest, export_id: UUID) -> HttpResponseBase:
    """Download the file of an export while it is available."""
    return respond_with_export(request, user=cast("User", request.user), export_id=export_id)


class DeletionForm(forms.Form):
    """Asks for the user name, so that nobody deletes an account by accident."""

    username = forms.CharField(
        label=gettext_lazy("Type your user name to confirm"),
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
    """Delete the account with everything, and sign out; the page shows the receipt."""
    user = cast("User", request.user)
    form = DeletionForm(user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            receipt = deletion.delete_account(user=User.objects.get(pk=user.pk))
        except LastAdministrator as error:
            form.add_error(None, explain_code(error.code))
        else:
            announce_rights_change()
            logout(request)
            context = {"receipt": json.dumps(receipt, ensure_ascii=False, indent=1)}
            return render(request, "account/deleted.html", context)
    return render_section(request, "accounts:delete", "settings/delete.html", {"form": form})

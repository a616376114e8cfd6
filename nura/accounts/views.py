"""What acts on one's behalf: the sections of API keys and of devices that are signed in."""

from datetime import timedelta
from typing import cast
from uuid import UUID

from allauth.account.decorators import reauthentication_required
from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from chats.models import KeyScope
from chats.models.key import KEY_NAME_CHARACTERS, list_scopes
from nura.accounts import services, sessions
from nura.accounts.access_api import to_key
from nura.accounts.sections import render_section

LIFETIMES = (
    ("30", gettext_lazy("30 days")),
    ("90", gettext_lazy("90 days")),
    ("365", gettext_lazy("One year")),
    ("", gettext_lazy("Does not expire")),
)


class KeyForm(forms.Form):
    """What a new key is called, what it may do, and how long it lives."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=KEY_NAME_CHARACTERS,
        help_text=gettext_lazy("What the key is for, so that you know it again."),
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
def keys(request: HttpRequest) -> HttpResponse:
    """The user's keys; POST makes one and shows it in this answer only."""
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
            to_key(key)
            | {
                "beginning": key.token_key[: services.SHOWN_CHARACTERS],
                "may": [one.label for one in KeyScope if one in list_scopes(key)],
            }
            for key in services.list_keys(user=user)
        ],
    }
    return render_section(request, "accounts:keys", "settings/keys.html", context)


@login_required
@require_POST
def revoke(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Revoke one key of the user."""
    if not services.revoke_key(user=cast("User", request.user), key_id=key_id):
        raise Http404
    messages.success(request, _("The key has been revoked."))
    return redirect("accounts:keys")


@never_cache
@login_required
@require_safe
def devices(request: HttpRequest) -> HttpResponse:
    """Where the account is signed in."""
    found = sessions.list_sessions(
        user=cast("User", request.user), current_key=request.session.session_key or ""
    )
    context = {"sessions": found, "has_others": any(not one.is_current for one in found)}
    return render_section(request, "accounts:devices", "settings/devices.html", context)


@login_required
@require_POST
def end_session(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Sign out one device."""
    if not sessions.end_session(user=cast("User", request.user), session_id=session_id):
        raise Http404
    messages.success(request, _("That device has been signed out."))
    return redirect("accounts:devices")


@login_required
@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    """Sign out all devices but this one."""
    sessions.end_sessions(
        user=cast("User", request.user), except_key=request.session.session_key or ""
    )
    messages.success(request, _("All other devices have been signed out."))
    return redirect("accounts:devices")

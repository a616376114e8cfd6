"""The page of API keys."""

from datetime import timedelta
from typing import cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from chats.models.key import make_key_id
from nura.accounts import services
from nura.accounts.sections import render_section

LIFETIMES = (
    ("", gettext_lazy("Does not expire")),
    ("30", gettext_lazy("30 days")),
    ("90", gettext_lazy("90 days")),
    ("365", gettext_lazy("One year")),
)


class KeyForm(forms.Form):
    """How long the new key lives."""

    days = forms.TypedChoiceField(
        label=gettext_lazy("Valid for"),
        choices=LIFETIMES,
        required=False,
        coerce=lambda days: timedelta(days=int(days)),
        empty_value=None,
    )


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def keys(request: HttpRequest) -> HttpResponse:
    """The user's keys; POST makes one and shows it in this answer only."""
    form = KeyForm(request.POST if request.method == "POST" else None)
    new_key = ""
    if request.method == "POST" and form.is_valid():
        new_key = services.create_key(user=_user(request), lifetime=form.cleaned_data["days"])
    context = {
        "form": form,
        "new_key": new_key,
        "keys": [(make_key_id(key), key) for key in services.list_keys(user=_user(request))],
        "shown_characters": f":{services.SHOWN_CHARACTERS}",
    }
    return render_section(request, "accounts:keys", "settings/keys.html", context)


@login_required
@require_POST
def revoke(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Revoke one key of the user."""
    if not services.revoke_key(user=_user(request), key_id=key_id):
        raise Http404
    messages.success(request, _("The key has been revoked."))
    return redirect("accounts:keys")


def _user(request: HttpRequest) -> User:
    """The user that `login_required` let through."""
    return cast("User", request.user)

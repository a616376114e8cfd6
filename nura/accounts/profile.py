"""Who one is and how one wants the pages: the sections of profile and appearance, the password."""

import time
from typing import Any, cast

from allauth.account.decorators import reauthentication_required
from allauth.account.forms import (
    AddEmailForm,
    ChangePasswordForm,
    ResetPasswordForm,
    ResetPasswordKeyForm,
)
from allauth.account.internal.flows import manage_email
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils import translation
from django.utils.translation import gettext_lazy as _
from django.views import i18n
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from nura.accounts.models import MAX_SPEECH_RATE, MIN_SPEECH_RATE, Preferences
from nura.accounts.preferences import get_preferences, save_preferences, set_cookies
from nura.accounts.sections import render_section
from nura.accounts.services import replace_email, revoke_keys
from nura.accounts.sign_on import list_servers

MAX_DISPLAY_NAME_CHARACTERS = 60
MIN_RESET_SECONDS = 0.15
"""How long a request for a new password takes at least, several times what its work takes."""


class ProfileForm(forms.ModelForm[User]):
    """The name that others read; `first_name` of Django's user holds it."""

    first_name = forms.CharField(
        label=_("Display name"),
        required=False,
        max_length=MAX_DISPLAY_NAME_CHARACTERS,
        help_text=_("How others see you. Without one they see your user name."),
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )

    class Meta:
        """The name that one signs in with stays."""

        model = User
        fields = ("first_name",)


def make_keep_keys_field() -> forms.BooleanField:
    """The choice of who sets a new password: somebody may have had the old one, and made keys."""
    return forms.BooleanField(
        label=_("Keep my API keys"),
        required=False,
        help_text=_("Without this, all of them stop working. Programs then need new ones."),
    )


class NewPasswordForm(ChangePasswordForm):  # type: ignore[misc]
    """A new password for who knows the old one."""

    keep_keys = make_keep_keys_field()

    def save(self) -> None:
        """Set it; the keys end with the old one, unless they are to stay."""
        super().save()
        end_keys(self)


class AskForPasswordForm(ResetPasswordForm):  # type: ignore[misc]
    """An address to send a link to; how long that takes does not tell whether it is known."""

    def save(self, request: HttpRequest, **options: Any) -> str:
        """Send the link, or the letter that says that there is no account."""
        ends_at = time.monotonic() + MIN_RESET_SECONDS
        try:
            address: str = super().save(request, **options)
        finally:
            time.sleep(max(0.0, ends_at - time.monotonic()))
        return address


class ForgottenPasswordForm(ResetPasswordKeyForm):  # type: ignore[misc]
    """A new password by the link of a mail."""

    keep_keys = make_keep_keys_field()

    def save(self) -> None:
        """Set it; the keys end with the old one, unless they are to stay."""
        super().save()
        end_keys(self)


def end_keys(form: NewPasswordForm | ForgottenPasswordForm) -> None:
    """Revoke the keys of who has a new password, unless they are to stay."""
    if not form.cleaned_data["keep_keys"]:
        revoke_keys(user=form.user, actor=form.user)


class AppearanceForm(forms.ModelForm[Preferences]):
    """Language, colours, the key that sends, the voice."""

    language = forms.ChoiceField(label=_("Language"), choices=settings.LANGUAGES)
    voice = forms.CharField(
        label=_("Voice"),
        required=False,
        max_length=200,
        help_text=_("A voice of this browser. Where it is missing, the default voice reads."),
    )
    speech_rate = forms.FloatField(
        label=_("Reading speed"),
        min_value=MIN_SPEECH_RATE,
        max_value=MAX_SPEECH_RATE,
        widget=forms.NumberInput(attrs={"step": "0.1"}),
    )

    class Meta:
        """What is chosen from few is shown at once."""

        model = Preferences
        fields = ("language", "theme", "send_key", "voice", "speech_rate")
        labels = {"theme": _("Theme"), "send_key": _("Send with")}
        widgets = {"theme": forms.RadioSelect, "send_key": forms.RadioSelect}


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """Display name; the ways to another address and password."""
    user = cast("User", request.user)
    form = ProfileForm(request.POST or None, instance=user)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, _("Saved."))
        return redirect("accounts:profile")
    told = {"form": form, "has_servers": bool(list_servers())}
    return render_section(request, "accounts:profile", "settings/profile.html", told)


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def appearance(request: HttpRequest) -> HttpResponse:
    """Language, theme, the key that sends and reading aloud, kept with the account."""
    user = cast("User", request.user)
    kept = get_preferences(user=user)
    kept.language = kept.language or translation.get_language()
    form = AppearanceForm(request.POST or None, instance=kept)
    if request.method == "POST" and form.is_valid():
        saved = save_preferences(user=user, **form.cleaned_data)
        with translation.override(saved.language):
            messages.success(request, str(_("Saved.")))
        response = redirect("accounts:appearance")
        set_cookies(response, saved)
        return response
    return render_section(
        request, "accounts:appearance", "settings/appearance.html", {"form": form}
    )


@never_cache
@login_required
@reauthentication_required  # type: ignore[untyped-decorator]
@require_http_methods(["GET", "HEAD", "POST"])
def email(request: HttpRequest) -> HttpResponse:
    """Another address: confirmed there first where mail works, and told to the old one."""
    user = cast("User", request.user)
    form = AddEmailForm(user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        if settings.MAIL_WORKS:
            manage_email.add_email(request, form)
            messages.info(
                request, _("Open the link in the mail that we have sent to the new address.")
            )
        else:
            replace_email(user=user, email=form.cleaned_data["email"])
            messages.success(request, _("Saved."))
        return redirect("accounts:profile")
    return render_section(request, "accounts:profile", "settings/email.html", {"form": form})


def set_language(request: HttpRequest) -> HttpResponseBase:
    """Django's view, which sets a cookie; whoever is signed in keeps the choice everywhere."""
    response: HttpResponseBase = i18n.set_language(request)
    chosen = request.POST.get(i18n.LANGUAGE_QUERY_PARAMETER, "")
    if request.user.is_authenticated and chosen in dict(settings.LANGUAGES):
        save_preferences(user=request.user, language=chosen)
    return response

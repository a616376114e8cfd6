"""Who one is, how one wants the pages and signs in: profile, appearance, password, two steps.

Allauth does the steps of a two-step sign-in. Here are the section of the settings, what the steps
need from us, and who must have them.
"""

import time
from base64 import urlsafe_b64encode
from typing import Any, cast

from allauth.account.decorators import reauthentication_required
from allauth.account.forms import (
    AddEmailForm,
    ChangePasswordForm,
    ResetPasswordForm,
    ResetPasswordKeyForm,
)
from allauth.account.internal.flows import manage_email
from allauth.account.internal.flows.login import get_authentication_records
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser, User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils import translation
from django.utils.encoding import force_bytes
from django.utils.translation import gettext_lazy as _
from django.views import i18n
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from nura.accounts.models import MAX_SPEECH_RATE, MIN_SPEECH_RATE, Preferences
from nura.accounts.preferences import get_preferences, render_section, save_preferences, set_cookies
from nura.accounts.roles import may_enter
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
        help_text=_("A voice of this browser. Where it is missing, the default voice is used."),
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


KEY_PURPOSE = b"nura two-step secrets"
KEY_BYTES = 32


class MFAAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Secrets are stored encrypted, and we are called by our name."""

    error_messages = DefaultMFAAdapter.error_messages | {
        "incorrect_code": _("The code is wrong or has expired."),
    }

    def get_totp_issuer(self) -> str:
        """What the app calls us."""
        return "Nura"

    def get_totp_label(self, user: AbstractBaseUser) -> str:
        """Whose code it is: the name that one signs in with, and where."""
        return f"{user.get_username()} ({context.request.get_host()})"

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """What the browser calls us."""
        return {**super().get_public_key_credential_rp_entity(), "name": "Nura"}

    def encrypt(self, text: str) -> str:
        """What is stored: of no use without the installation's secret key."""
        return _make_cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """What was encrypted."""
        return _make_cipher().decrypt(encrypted_text.encode()).decode()


def _make_cipher() -> Fernet:
    derived = HKDF(SHA256(), KEY_BYTES, None, KEY_PURPOSE).derive(force_bytes(settings.SECRET_KEY))
    return Fernet(urlsafe_b64encode(derived))


def is_second_step_done(*, user: User, code: str) -> bool:
    """Whether a program may go on: the account has no second step, or this is its code."""
    if not is_mfa_enabled(user):
        return True
    return bool(code) and bool(AuthenticateForm({"code": code}, user=user).is_valid())


def may_administer(request: HttpRequest) -> bool:
    """Whether this administrator or auditor has what the installation asks of one."""
    if not settings.STAFF_TWO_STEP:
        return True
    user = cast("User", request.user)
    return is_mfa_enabled(user) and _has_shown_second_step(request, user)


def _has_shown_second_step(request: HttpRequest, user: User) -> bool:
    """Whether this session began with two steps, or set the second one up itself."""
    records = get_authentication_records(request, user)
    if any(record["method"] == "mfa" for record in records):
        return True
    begun = min((record["at"] for record in records), default=0.0)
    first = Authenticator.objects.filter(user=user).order_by("created_at").first()
    return bool(records) and first is not None and first.created_at.timestamp() > begun


@require_safe
@never_cache
@login_required
def two_step(request: HttpRequest) -> HttpResponse:
    """What protects the account, and the ways to change it."""
    user = cast("User", request.user)
    owned = list(Authenticator.objects.filter(user=user).order_by("created_at"))
    by_type: dict[str, list[Authenticator]] = {}
    for one in owned:
        by_type.setdefault(one.type, []).append(one)
    codes = by_type.get(Authenticator.Type.RECOVERY_CODES, [])
    told = {
        "totp": by_type.get(Authenticator.Type.TOTP, []),
        "passkeys": by_type.get(Authenticator.Type.WEBAUTHN, []),
        "codes_left": len(codes[0].wrap().get_unused_codes()) if codes else 0,
        "is_on": bool(owned),
        "is_demanded": settings.STAFF_TWO_STEP and may_enter(user),
    }
    return render_section(request, "accounts:two-step", "settings/two_step.html", told)

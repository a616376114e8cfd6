"""Settings sections for profile, appearance, e-mail, password and two-step sign-in.

Allauth implements two-step sign-in; here are its settings section, our adapter for it, and the rule
for who must use it.
"""

import time
from base64 import urlsafe_b64encode
from typing import Any, cast

from allauth.account.decorators import reauthentication_required
from allauth.account.forms import (
    AddEmailForm,
    ChangePasswordForm,
    ReauthenticateForm,
    ResetPasswordForm,
    ResetPasswordKeyForm,
)
from allauth.account.internal.flows import manage_email
from allauth.account.internal.flows.login import get_authentication_records
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as ReauthenticateByCodeForm
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.utils import is_mfa_enabled
from allauth.mfa.webauthn.forms import AddWebAuthnForm, EditWebAuthnForm
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

from nura.accounts.preferences import get_preferences, render_section, save_preferences, set_cookies
from nura.accounts.roles import may_enter
from nura.accounts.services import replace_email, revoke_keys
from nura.accounts.sign_on import list_servers
from nura.models import MAX_SPEECH_RATE, MIN_SPEECH_RATE, Preferences

MAX_DISPLAY_NAME_CHARACTERS = 60
MIN_RESET_SECONDS = 0.15
"""Minimum duration of a password reset request, several times what it needs."""


class ProfileForm(forms.ModelForm[User]):
    """The display name, stored as `first_name` of Django's user."""

    first_name = forms.CharField(
        label=_("Display name"),
        required=False,
        max_length=MAX_DISPLAY_NAME_CHARACTERS,
        help_text=_("How others see you. Without one they see your user name."),
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )

    class Meta:
        """The user name cannot be changed."""

        model = User
        fields = ("first_name",)


def make_keep_keys_field() -> forms.BooleanField:
    """Whether keys survive a new password: whoever knew the old one may have made some."""
    return forms.BooleanField(
        label=_("Keep my API keys"),
        required=False,
        help_text=_("Without this, all of them stop working. Programs then need new ones."),
    )


class NewPasswordForm(ChangePasswordForm):  # type: ignore[misc]
    """A new password for a user who knows the old one."""

    keep_keys = make_keep_keys_field()

    def save(self) -> None:
        """Set it; the keys end with the old one, unless they are to stay."""
        super().save()
        end_keys(self)


class AskForPasswordForm(ResetPasswordForm):  # type: ignore[misc]
    """An address to send a reset link to; the response time does not reveal whether it is known."""

    def save(self, request: HttpRequest, **options: Any) -> str:
        """Send the link, or a mail saying that there is no account."""
        ends_at = time.monotonic() + MIN_RESET_SECONDS
        try:
            address: str = super().save(request, **options)
        finally:
            time.sleep(max(0.0, ends_at - time.monotonic()))
        return address


class ForgottenPasswordForm(ResetPasswordKeyForm):  # type: ignore[misc]
    """A new password through a mailed link."""

    keep_keys = make_keep_keys_field()

    def save(self) -> None:
        """Set it; the keys end with the old one, unless they are to stay."""
        super().save()
        end_keys(self)


def end_keys(form: NewPasswordForm | ForgottenPasswordForm) -> None:
    """Revoke the keys of the user with a new password, unless they are to be kept."""
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
        """Choices among few options are radio buttons."""

        model = Preferences
        fields = ("language", "theme", "send_key", "voice", "speech_rate")
        labels = {"theme": _("Theme"), "send_key": _("Send with")}
        widgets = {"theme": forms.RadioSelect, "send_key": forms.RadioSelect}


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit_profile(request: HttpRequest) -> HttpResponse:
    """The display name, with links to change address and password."""
    user = cast("User", request.user)
    form = ProfileForm(request.POST or None, instance=user)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, _("Saved."))
        return redirect("accounts:profile")
    context = {"form": form, "has_servers": bool(list_servers())}
    return render_section(request, "accounts:profile", "settings/profile.html", context)


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit_appearance(request: HttpRequest) -> HttpResponse:
    """Language, theme, the key that sends and reading aloud, kept with the account."""
    user = cast("User", request.user)
    preferences = get_preferences(user=user)
    preferences.language = preferences.language or translation.get_language()
    form = AppearanceForm(request.POST or None, instance=preferences)
    if request.method == "POST" and form.is_valid():
        new_preferences = save_preferences(user=user, **form.cleaned_data)
        with translation.override(new_preferences.language):
            messages.success(request, str(_("Saved.")))
        response = redirect("accounts:appearance")
        set_cookies(response, new_preferences)
        return response
    return render_section(
        request, "accounts:appearance", "settings/appearance.html", {"form": form}
    )


@never_cache
@login_required
@reauthentication_required  # type: ignore[untyped-decorator]
@require_http_methods(["GET", "HEAD", "POST"])
def change_email(request: HttpRequest) -> HttpResponse:
    """Change the address: confirmed by mail first if mail works, and announced to the old one."""
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
    """Django's view, which sets a cookie; for a signed-in user the choice is stored as well."""
    response: HttpResponseBase = i18n.set_language(request)
    language = request.POST.get(i18n.LANGUAGE_QUERY_PARAMETER, "")
    if request.user.is_authenticated and language in dict(settings.LANGUAGES):
        save_preferences(user=request.user, language=language)
    return response


KEY_PURPOSE = b"nura two-step secrets"
KEY_BYTES = 32


class ConfirmPasswordForm(ReauthenticateForm):  # type: ignore[misc]
    """The password again, before what protects the account is changed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["password"].widget.attrs |= {"placeholder": "", "autofocus": True}


class CodeFieldMixin:
    """Has the code typed at once, on a phone with the keyboard for digits."""

    fields: dict[str, forms.Field]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["code"].widget.attrs = {
            "autocomplete": "one-time-code",
            "inputmode": "numeric",
            "autofocus": True,
        }


class SecondStepForm(CodeFieldMixin, AuthenticateForm):  # type: ignore[misc]
    """A code, after the password."""


class ConfirmCodeForm(CodeFieldMixin, ReauthenticateByCodeForm):  # type: ignore[misc]
    """A code, before what protects the account is changed."""


class AppForm(CodeFieldMixin, ActivateTOTPForm):  # type: ignore[misc]
    """The first code of an authenticator app."""


class NameFieldMixin:
    """Gives the field for a passkey's name a label in the language of the page."""

    fields: dict[str, forms.Field]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["name"].label = _("Name")


class PasskeyForm(NameFieldMixin, AddWebAuthnForm):  # type: ignore[misc]
    """A new passkey."""


class PasskeyNameForm(NameFieldMixin, EditWebAuthnForm):  # type: ignore[misc]
    """Another name for a passkey."""


class MFAAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Encrypts stored secrets, and names us in authenticator apps and browsers."""

    error_messages = DefaultMFAAdapter.error_messages | {
        "incorrect_code": _("The code is wrong or has expired."),
    }

    def get_totp_issuer(self) -> str:
        """Our name in the authenticator app."""
        return "Nura"

    def get_totp_label(self, user: AbstractBaseUser) -> str:
        """The label of a code: user name and host."""
        return f"{user.get_username()} ({context.request.get_host()})"

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Our name in the browser's passkey dialog."""
        return {**super().get_public_key_credential_rp_entity(), "name": "Nura"}

    def encrypt(self, text: str) -> str:
        """Encrypt with the installation's secret key."""
        return _make_cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Decrypt what `encrypt` returned."""
        return _make_cipher().decrypt(encrypted_text.encode()).decode()


def _make_cipher() -> Fernet:
    derived = HKDF(SHA256(), KEY_BYTES, None, KEY_PURPOSE).derive(force_bytes(settings.SECRET_KEY))
    return Fernet(urlsafe_b64encode(derived))


def is_second_step_done(*, user: User, code: str) -> bool:
    """Whether the account has no second step, or this is its code."""
    if not is_mfa_enabled(user):
        return True
    return bool(code) and bool(AuthenticateForm({"code": code}, user=user).is_valid())


def may_administer(request: HttpRequest) -> bool:
    """Whether this administrator or auditor meets the installation's two-step requirement."""
    if not settings.STAFF_TWO_STEP:
        return True
    user = cast("User", request.user)
    return is_mfa_enabled(user) and _has_shown_second_step(request, user)


def _has_shown_second_step(request: HttpRequest, user: User) -> bool:
    """Whether this session began with two-step sign-in, or set it up itself."""
    records = get_authentication_records(request, user)
    if any(record["method"] == "mfa" for record in records):
        return True
    started_at = min((record["at"] for record in records), default=0.0)
    first = Authenticator.objects.filter(user=user).order_by("created_at").first()
    return bool(records) and first is not None and first.created_at.timestamp() > started_at


@require_safe
@never_cache
@login_required
def show_two_step(request: HttpRequest) -> HttpResponse:
    """The account's authenticators, with links to change them."""
    user = cast("User", request.user)
    authenticators = list(Authenticator.objects.filter(user=user).order_by("created_at"))
    by_type: dict[str, list[Authenticator]] = {}
    for authenticator in authenticators:
        by_type.setdefault(authenticator.type, []).append(authenticator)
    codes = by_type.get(Authenticator.Type.RECOVERY_CODES, [])
    values = {
        "totp": by_type.get(Authenticator.Type.TOTP, []),
        "passkeys": by_type.get(Authenticator.Type.WEBAUTHN, []),
        "codes_left": len(codes[0].wrap().get_unused_codes()) if codes else 0,
        "is_on": bool(authenticators),
        "is_demanded": settings.STAFF_TWO_STEP and may_enter(user),
    }
    return render_section(request, "accounts:two-step", "settings/two_step.html", values)

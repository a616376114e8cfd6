"""Two-step sign-in: codes of an app, passkeys and security keys, recovery codes.

Allauth does the steps. Here are the section of the settings, what the steps need from us, and who
must have them.
"""

from base64 import urlsafe_b64encode
from typing import cast

from allauth.account.internal.flows.login import get_authentication_records
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser, User
from django.http import HttpRequest, HttpResponse
from django.utils.encoding import force_bytes
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from nura.accounts.roles import may_enter
from nura.accounts.sections import render_section

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
        return _cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """What was encrypted."""
        return _cipher().decrypt(encrypted_text.encode()).decode()


def _cipher() -> Fernet:
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
    return is_mfa_enabled(user) and _has_shown_it(request, user)


def _has_shown_it(request: HttpRequest, user: User) -> bool:
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

"""Our rules for allauth: who may sign up and sign in, and how many wrong passwords are allowed.

Four limits, named as in `ACCOUNT_RATE_LIMITS`, apply to every way to sign in (the page, which the
administration uses too, and `POST /auth/token`), since all of them go through the adapter:

`login_failed`: wrong passwords for one name from one address. The name is then locked for that
    address only, longer each time: guessing at a name locks out nobody else who uses the name or
    the address (an office, a proxy). A browser in which a person has signed in before is counted
    separately for that person's name, so that a neighbour's guesses do not lock them out.
`login_name`: wrong passwords for one name from anywhere. Beyond it, the name has one attempt per
    address.
`login_flood`: wrong passwords from one address, whatever the names; far more than an office
    mistypes. Beyond it the address is slowed down, not locked: each name has one attempt, so that
    a right password without a failure before it is always accepted. Attempts are checked one after
    the other, so that a flood costs at most one processor, and a failed one gets a 429.
`login_done`: right passwords of one user. Each makes a session or a key.

A name is whatever was typed. Whether an account has it makes no difference, and a name is never
linked to the e-mail address of the same account: responses and their timing reveal neither.
"""

import math
import secrets
import smtplib
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any

from allauth.account import app_settings as account_settings
from allauth.account import forms
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal import stagekit
from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.models import EmailAddress
from allauth.account.utils import filter_users_by_email
from allauth.core import context, ratelimit
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.core.internal import ratelimit as counters
from allauth.utils import build_absolute_uri
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser, User
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext_lazy as _
from redis.exceptions import LockError

from documents.audit import Action, record_event
from documents.notices import announce_rights_change
from jobs import connections
from nura.accounts.preferences import get_preferences, set_cookies
from nura.accounts.services import check_name
from nura.accounts.signup import consume_invitation, find_invitation
from nura.errors import RETRY_AFTER_SECONDS, too_many_requests
from rag.errors import NuraError


class MailFailed(NuraError):
    """The mail server cannot be reached or refuses."""

    code = "mail_failed"
    retryable = True


def is_signup_open() -> bool:
    """Whether anybody may create an account."""
    return bool(settings.SIGNUP == "open")


DIRECTORY_BACKEND = "nura.accounts.directory.DirectoryBackend"
DIRECTORY_PROVIDER = "ldap"
"""Provider of accounts connected to directory entries; here because its library is optional."""


def may_sign_in_here(user: AbstractBaseUser) -> bool:
    """Whether a user may sign in without a sign-on server: with a password or by a directory."""
    is_from_directory = getattr(user, "backend", "") == DIRECTORY_BACKEND
    is_staff = getattr(user, "is_staff", False)
    return bool(settings.LOCAL_SIGN_IN == "everybody" or is_staff or is_from_directory)


PROOFS = frozenset({"password", "mfa"})
"""allauth's names for what a user enters here: a password, a code, a passkey.

A sign-on server or a mailed link is none: the browser may be signed in there since yesterday.
"""


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Sign-up by setting or invitation; too many wrong passwords give a 429, not a form error."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Whether this visitor may create an account."""
        return is_signup_open() or find_invitation(request) is not None

    @transaction.atomic
    def save_user(
        self, request: HttpRequest, user: User, form: Any, commit: bool = True
    ) -> AbstractBaseUser:
        """Save a new user, and use up the invitation."""
        invitation = find_invitation(request)
        new_user: AbstractBaseUser = super().save_user(request, user, form, commit)
        if not consume_invitation(request, user) and not is_signup_open():
            raise ImmediateHttpResponse(redirect("account_signup"))  # somebody was quicker
        details = {"by": "sign-up", "invitation": invitation.pk if invitation else None}
        record_event(Action.ACCOUNT_CREATED, actor=new_user, subject=new_user, details=details)
        if invitation is not None and invitation.mailed_at:
            self.stash_verified_email(request, invitation.email)
        return new_user

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        """Accept a confirmed address; a change of address is audited."""
        user = email_address.user
        is_replacement = bool(user.email) and user.email.lower() != email_address.email.lower()
        is_confirmed: bool = super().confirm_email(request, email_address)
        if is_confirmed and is_replacement:
            record_event(
                Action.ACCOUNT_CHANGED, actor=user, subject=user, details={"changed": ["email"]}
            )
        return is_confirmed

    def send_notification_mail(
        self, template_prefix: str, user: User, *args: Any, **kwargs: Any
    ) -> None:
        """Mail the user about a change of the account, if there is an address.

        Changes of the second step and of connections with sign-on servers are audited here, the
        only hook allauth has for them.
        """
        folder, _separator, change = template_prefix.rpartition("/")
        if folder == "socialaccount/email":
            details = {"change": change, "server": kwargs["context"]["account"].provider}
            record_event(Action.ACCOUNT_CHANGED, actor=user, subject=user, details=details)
        if folder == "mfa/email":
            record_event(
                Action.SECOND_STEP_CHANGED, actor=user, subject=user, details={"change": change}
            )
        if user.email and settings.MAIL_WORKS:
            super().send_notification_mail(template_prefix, user, *args, **kwargs)

    def get_login_stages(self) -> list[str]:
        """Allauth's stages, with our own rule for who must confirm an address."""
        replacements = {EMAIL_STAGE: "nura.accounts.signup.SignupVerificationStage"}
        return [replacements.get(stage, stage) for stage in super().get_login_stages()]

    def send_account_already_exists_mail(self, email: str) -> None:
        """Tell an address why no account was created: it has one, or the name is taken."""
        if filter_users_by_email(email):
            super().send_account_already_exists_mail(email)
        else:
            address = build_absolute_uri(context.request, reverse("account_signup"))
            self.send_mail("account/email/username_taken", email, {"signup_url": address})

    def authenticate(self, request: HttpRequest, **credentials: Any) -> AbstractBaseUser | None:
        """The user whose password this is; every way to sign in passes through here.

        Raises the finished 429 response: see the module.
        """
        with serialise_password_checks(request, get_typed_name(credentials)):
            user: AbstractBaseUser | None = super().authenticate(request, **credentials)
        if user is not None and not may_sign_in_here(user):
            return None
        if user is not None:
            count_attempt(request, LOGIN_DONE, user=user)
        return user

    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:
        """Whether the user has to prove their identity again; not right after signing in."""
        records = get_authentication_records(self.request, self.request.user)
        newest = max((record["at"] for record in records if record["method"] in PROOFS), default=0)
        if time.time() - newest < account_settings.REAUTHENTICATION_TIMEOUT:
            return False
        return bool(super().is_reauthentication_required(app=app, **kwargs))

    def pre_login(
        self, request: HttpRequest, user: User, *, signal_kwargs: Any = None, **kwargs: Any
    ) -> HttpResponse | None:
        """Refuse a user who has to use a sign-on server, also with a passkey or a new password."""
        is_local = "sociallogin" not in (signal_kwargs or {})
        if is_local and not may_sign_in_here(user):
            stagekit.clear_login(request)
            messages.error(request, _("Use your organization's button to sign in."))
            return redirect("account_login")
        refusal: HttpResponse | None = super().pre_login(
            request, user, signal_kwargs=signal_kwargs, **kwargs
        )
        return refusal

    def get_logout_redirect_url(self, request: HttpRequest) -> str:
        """After sign-on: the page that leads to the sign-on server's own sign-out."""
        records = get_authentication_records(request, request.user)
        for record in records:
            if record["method"] == "socialaccount":
                return reverse("signed-out", args=[record["provider"]])
        return str(super().get_logout_redirect_url(request))

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the attempt as failed until the password turns out right."""
        key = self._get_login_attempts_cache_key(request, **credentials)
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError as error:
            self._record_lock(key, credentials)
            raise make_rate_limit_error(request, LOGIN_FAILED, key=key) from error
        name = get_typed_name(credentials)
        if find_device(request, name) or count_failures(request, key) <= 1:
            return
        for action, subject in ((LOGIN_FLOOD, {}), (LOGIN_NAME, {"key": fold_name(name)})):
            if is_exhausted(request, action, **subject):
                self._rollback_login_failed_rl_usage()
                raise make_rate_limit_error(request, action, **subject)

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        """Count a wrong password against its address and its name too."""
        account = find_account(credentials)
        record_event(Action.SIGN_IN_FAILED, subject=account, details={"known": account is not None})
        name = get_typed_name(credentials)
        if not find_device(request, name):
            count_attempt(request, LOGIN_FLOOD)
            count_attempt(request, LOGIN_NAME, key=fold_name(name))

    def _record_lock(self, key: str, credentials: dict[str, Any]) -> None:
        """Audit that a name is locked, once per lock."""
        if cache.add(f"nura:audited-lock:{sha256(key.encode()).hexdigest()}", 1, LOCK_SECONDS):
            account = find_account(credentials)
            details = {"known": account is not None}
            record_event(Action.SIGN_IN_LOCKED, subject=account, details=details)

    def login(self, request: HttpRequest, user: AbstractBaseUser) -> None:
        """Start a user's session once all steps are done."""
        super().login(request, user)
        record_event(Action.SIGN_IN, actor=user, subject=user)

    def logout(self, request: HttpRequest) -> None:
        """End the session."""
        if request.user.is_authenticated:
            record_event(Action.SIGN_OUT, actor=request.user, subject=request.user)
        super().logout(request)
        announce_rights_change()

    @transaction.atomic
    def set_password(self, user: AbstractBaseUser, password: str) -> None:
        """Change a password, by its owner or through a mailed link."""
        super().set_password(user, password)
        actor = self.request.user if self.request.user.is_authenticated else None
        record_event(Action.PASSWORD_CHANGED, actor=actor, subject=user)
        announce_rights_change()

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        return make_attempt_key(request, get_typed_name(credentials))

    def post_login(self, request: HttpRequest, user: User, **kwargs: Any) -> HttpResponse:
        """Redirect after sign-in, and set the cookies for the account's language and theme."""
        response: HttpResponse = super().post_login(request, user, **kwargs)
        set_cookies(response, get_preferences(user=user))
        remember_device(request, response, user)
        return response

    def clean_username(self, username: str, shallow: bool = False) -> str:
        """The name in the form it is stored in, with composed Hangul."""
        cleaned: str = super().clean_username(User.normalize_username(username), shallow)
        check_name(cleaned)
        return cleaned

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Send a mail. Raises `MailFailed`."""
        try:
            super().send_mail(template_prefix, email, context)
        except (smtplib.SMTPException, OSError) as error:
            raise MailFailed from error


class LoginForm(forms.LoginForm):  # type: ignore[misc]
    """Sign-in form with hints for users and password managers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        login = self.fields["login"]
        login.label = _("User name or e-mail")
        login.widget.attrs = {"autocomplete": "username", "autofocus": True}
        del self.fields["password"].widget.attrs["placeholder"]
        self.fields["remember"].label = _("Keep me signed in")

    def clean_login(self) -> str:
        """The name in the form under which it is stored."""
        return str(User.normalize_username(super().clean_login()))


EMAIL_STAGE = "allauth.account.stages.EmailVerificationStage"
LOGIN_FAILED, LOGIN_FLOOD, LOGIN_NAME = "login_failed", "login_flood", "login_name"
LOGIN_DONE = "login_done"
ALLAUTH_APP = "allauth.account"
"""Whose settings name the limits."""
LOCK_SECONDS = 300
"""A lock is audited at most once in this time."""
MAX_TURN_SECONDS = 10.0
"""How long one attempt may hold up the next."""
MAX_TURN_WAIT_SECONDS = 2.0
"""How long an attempt from a flooding address waits; it holds a thread that others need."""


def find_account(credentials: dict[str, Any]) -> User | None:
    """The account with the name or address typed, if any."""
    name = get_typed_name(credentials)
    matches = Q(username=User.normalize_username(name)) | Q(email__iexact=name)
    return User.objects.filter(matches).order_by("pk").first() if name else None


def get_typed_name(credentials: dict[str, Any]) -> str:
    """The name or address typed to sign in."""
    return str(credentials.get("email", credentials.get("username", "")))


def fold_name(name: str) -> str:
    """A name as it is compared: normalised, case ignored."""
    return unicodedata.normalize("NFKC", name).casefold()


def make_attempt_key(request: HttpRequest, name: str) -> str:
    """Key that wrong passwords are counted by: the name, and its known device or else the address.

    Unlike allauth's it leaves out the Host header: a client could start a new count by changing it.
    """
    device = find_device(request, name)
    return f"{fold_name(name)} {f'device:{device}' if device else counters.get_ip(request)}"


# Known devices: a signed cookie lists the names that have signed in with this browser. It grants
# nothing; it only keeps others' wrong passwords from counting against this browser.

DEVICE_COOKIE, DEVICE_SALT = "nura_device", "nura.accounts.device"
DEVICE_SECONDS = 365 * 24 * 3600
DEVICE_BYTES, MARK_CHARACTERS, MAX_DEVICE_NAMES = 16, 32, 10


def find_device(request: HttpRequest, name: str) -> str:
    """The id of this browser if the name has signed in with it before, else empty."""
    device, marks = _read_device_cookie(request)
    return device if _hash_name(device, name) in marks else ""


def remember_device(request: HttpRequest, response: HttpResponse, user: User) -> None:
    """Make this browser a known device for the user's names."""
    device, marks = _read_device_cookie(request)
    device = device or secrets.token_urlsafe(DEVICE_BYTES)
    own_marks = [_hash_name(device, name) for name in (user.username, user.email) if name]
    all_marks = list(dict.fromkeys([*own_marks, *marks]))[:MAX_DEVICE_NAMES]
    response.set_signed_cookie(
        DEVICE_COOKIE,
        ".".join([device, *all_marks]),
        salt=DEVICE_SALT,
        max_age=DEVICE_SECONDS,
        path=settings.SESSION_COOKIE_PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def _read_device_cookie(request: HttpRequest) -> tuple[str, list[str]]:
    cookie = request.get_signed_cookie(
        DEVICE_COOKIE, default="", salt=DEVICE_SALT, max_age=DEVICE_SECONDS
    )
    device, *marks = str(cookie).split(".")
    return device, marks


def _hash_name(device: str, name: str) -> str:
    """A hash of the name for the cookie, which must not reveal who uses the browser."""
    return salted_hmac(DEVICE_SALT, f"{device} {fold_name(name)}").hexdigest()[:MARK_CHARACTERS]


# Counts


def count_attempt(request: HttpRequest, action: str, **subject: Any) -> None:
    """Count one attempt; `subject` is the `key` or `user` of a limit that is not by address.

    Raises the finished 429 response when there were too many.
    """
    if not ratelimit.consume(request, action=action, **subject):
        raise make_rate_limit_error(request, action, **subject)


def is_exhausted(request: HttpRequest, action: str, **subject: Any) -> bool:
    """Whether a limit allows no further attempt now."""
    return not ratelimit.consume(request, action=action, dry_run=True, **subject)


def count_failures(request: HttpRequest, key: str) -> int:
    """Recent failures of the name from this address, including the current attempt."""
    _rate, history = next(_list_counts(request, LOGIN_FAILED, key=key))
    return len(history)


@contextmanager
def serialise_password_checks(request: HttpRequest, name: str) -> Iterator[None]:
    """Let password checks from a flooding address run one at a time; known devices are exempt.

    Raises the finished 429 response if the wait is too long.
    """
    if not is_exhausted(request, LOGIN_FLOOD) or find_device(request, name):
        yield
        return
    lock = connections.get_client().lock(
        f"nura:sign-in:{counters.get_ip(request)}",
        timeout=MAX_TURN_SECONDS,
        blocking_timeout=MAX_TURN_WAIT_SECONDS,
    )
    if not connection.in_atomic_block:
        connection.close()  # the pool is small, and waiting attempts could hold all of it
    if not lock.acquire():
        raise ImmediateHttpResponse(too_many_requests(request, RETRY_AFTER_SECONDS))
    try:
        yield
    finally:
        with suppress(LockError):  # it took too long, and the lock has expired
            lock.release()


def make_rate_limit_error(
    request: HttpRequest, action: str, **subject: Any
) -> ImmediateHttpResponse:
    """A 429 to raise, with the seconds until the limit allows another attempt."""
    now = time.time()
    waits = [
        history[rate.amount - 1] + rate.duration - now
        for rate, history in _list_counts(request, action, **subject)
        if len(history) >= rate.amount
    ]
    seconds = math.ceil(max(waits, default=0))
    return ImmediateHttpResponse(too_many_requests(request, max(seconds, 1)))


def _list_counts(
    request: HttpRequest, action: str, **subject: Any
) -> Iterator[tuple[counters.Rate, list[float]]]:
    """Each rate of a limit with the times of its counted attempts, newest first."""
    for rate in counters.get_rates(app=ALLAUTH_APP, action=action):
        stored = cache.get(
            counters.get_cache_key(request, app=ALLAUTH_APP, action=action, rate=rate, **subject)
        )
        _allowed, history = counters.apply_rate(stored or [], time.time(), rate, dry_run=True)
        yield rate, history

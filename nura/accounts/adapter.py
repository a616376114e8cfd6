"""Our rules for allauth: who may sign up and sign in, and how many wrong passwords are taken.

Four limits, named as in `ACCOUNT_RATE_LIMITS`, hold for every way to sign in (the page, which is
the administration's too, and `POST /auth/token`), since all of them go through the adapter:

`login_failed`: wrong passwords for one name from one address. Then the name is locked for that
    address, longer each time, and for no other: who guesses at a name locks out himself, and
    nobody else who uses the name or the address (an office, a proxy). A browser in which somebody
    has signed in counts by itself for his name, so that no neighbour's guesses stand in his way.
`login_name`: wrong passwords for one name from anywhere. Beyond it the name has one try at each
    address.
`login_flood`: wrong passwords from one address, whatever the names; far more than an office
    mistypes. Beyond it the address is slowed down and not locked: a name has one try there, so that
    the right password of somebody who has not failed is always taken; tries are checked one after
    the other, so that a flood costs one processor at the most; and a wrong one is told to wait.
`login_done`: right passwords of one user. Each makes a session or a key.

A name is what was typed. Whether somebody has it plays no part, nor is a name ever joined with the
e-mail address of the same account: what is answered, and when, tells nothing about either.
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
"""What connections of accounts with the directory's entries are called; its library is optional."""


def may_sign_in_here(user: AbstractBaseUser) -> bool:
    """Whether somebody may come in without a sign-on server, or by a directory."""
    is_of_directory = getattr(user, "backend", "") == DIRECTORY_BACKEND
    is_staff = getattr(user, "is_staff", False)
    return bool(settings.LOCAL_SIGN_IN == "everybody" or is_staff or is_of_directory)


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Sign-up by setting or invitation; too many wrong passwords are a 429, not a form."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Whether this visitor may create an account."""
        return is_signup_open() or find_invitation(request) is not None

    @transaction.atomic
    def save_user(
        self, request: HttpRequest, user: User, form: Any, commit: bool = True
    ) -> AbstractBaseUser:
        """The new user, whose invitation is used up with it."""
        invited = find_invitation(request)
        saved: AbstractBaseUser = super().save_user(request, user, form, commit)
        if not consume_invitation(request, user) and not is_signup_open():
            raise ImmediateHttpResponse(redirect("account_signup"))  # somebody was quicker
        way = {"by": "sign-up", "invitation": invited.pk if invited else None}
        record_event(Action.ACCOUNT_CREATED, actor=saved, subject=saved, details=way)
        if invited is not None and invited.mailed_at:
            self.stash_verified_email(request, invited.email)
        return saved

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        """Take a confirmed address; one that replaces another is written down."""
        user = email_address.user
        replaces = bool(user.email) and user.email.lower() != email_address.email.lower()
        confirmed: bool = super().confirm_email(request, email_address)
        if confirmed and replaces:
            record_event(
                Action.ACCOUNT_CHANGED, actor=user, subject=user, details={"changed": ["email"]}
            )
        return confirmed

    def send_notification_mail(
        self, template_prefix: str, user: User, *given: Any, **more: Any
    ) -> None:
        """Allauth calls it after each change of an account: tell by mail where there is an address.

        A change of the second step or of a connection with a sign-on server is written down here,
        for there is no other place to.
        """
        folder, _separator, change = template_prefix.rpartition("/")
        if folder == "socialaccount/email":
            told = {"change": change, "server": more["context"]["account"].provider}
            record_event(Action.ACCOUNT_CHANGED, actor=user, subject=user, details=told)
        if folder == "mfa/email":
            record_event(
                Action.SECOND_STEP_CHANGED, actor=user, subject=user, details={"change": change}
            )
        if user.email and settings.MAIL_WORKS:
            super().send_notification_mail(template_prefix, user, *given, **more)

    def get_login_stages(self) -> list[str]:
        """Allauth's, with our own rule of who must confirm an address."""
        ours = {EMAIL_STAGE: "nura.accounts.signup.SignupVerificationStage"}
        return [ours.get(stage, stage) for stage in super().get_login_stages()]

    def send_account_already_exists_mail(self, email: str) -> None:
        """Tell an address why there is no new account: it has one, or the name is taken."""
        if filter_users_by_email(email):
            super().send_account_already_exists_mail(email)
        else:
            address = build_absolute_uri(context.request, reverse("account_signup"))
            self.send_mail("account/email/username_taken", email, {"signup_url": address})

    def authenticate(self, request: HttpRequest, **credentials: Any) -> AbstractBaseUser | None:
        """Whose password it is. Raises the finished 429 answer; see the module.

        All ways to sign in come through here.
        """
        with serialise_password_checks(request, get_typed_name(credentials)):
            user: AbstractBaseUser | None = super().authenticate(request, **credentials)
        if user is not None and not may_sign_in_here(user):
            return None
        if user is not None:
            count_attempt(request, LOGIN_DONE, user=user)
        return user

    def pre_login(
        self, request: HttpRequest, user: User, *, signal_kwargs: Any = None, **told: Any
    ) -> HttpResponse | None:
        """Refuse who has to come by a sign-on server, be it a passkey or a new password."""
        is_ours = "sociallogin" not in (signal_kwargs or {})
        if is_ours and not may_sign_in_here(user):
            stagekit.clear_login(request)
            messages.error(request, _("Use your organization's button to sign in."))
            return redirect("account_login")
        refusal: HttpResponse | None = super().pre_login(
            request, user, signal_kwargs=signal_kwargs, **told
        )
        return refusal

    def get_logout_redirect_url(self, request: HttpRequest) -> str:
        """The page that leads to the sign-out of the server by which the session was begun."""
        records = get_authentication_records(request, request.user)
        for record in records:
            if record["method"] == "socialaccount":
                return reverse("signed-out", args=[record["provider"]])
        return str(super().get_logout_redirect_url(request))

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the attempt as wrong until the password has proved right."""
        key = self._get_login_attempts_cache_key(request, **credentials)
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError as error:
            self._record_lock(key, credentials)
            raise make_rate_limit_error(request, LOGIN_FAILED, key=key) from error
        name = get_typed_name(credentials)
        if find_device(request, name) or count_failures(request, key) <= 1:
            return
        for action, whose in ((LOGIN_FLOOD, {}), (LOGIN_NAME, {"key": fold_name(name)})):
            if is_exhausted(request, action, **whose):
                self._rollback_login_failed_rl_usage()
                raise make_rate_limit_error(request, action, **whose)

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        """Count a wrong password against its address and its name too."""
        account = find_account(credentials)
        record_event(Action.SIGN_IN_FAILED, subject=account, details={"known": account is not None})
        name = get_typed_name(credentials)
        if not find_device(request, name):
            count_attempt(request, LOGIN_FLOOD)
            count_attempt(request, LOGIN_NAME, key=fold_name(name))

    def _record_lock(self, key: str, credentials: dict[str, Any]) -> None:
        """Write down that a name is locked, once as long as it is."""
        if cache.add(f"nura:audited-lock:{sha256(key.encode()).hexdigest()}", 1, LOCK_SECONDS):
            account = find_account(credentials)
            known = {"known": account is not None}
            record_event(Action.SIGN_IN_LOCKED, subject=account, details=known)

    def login(self, request: HttpRequest, user: AbstractBaseUser) -> None:
        """Begin the session of a user, all steps done."""
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
        """Change a password, for its owner or by the link of a mail."""
        super().set_password(user, password)
        actor = self.request.user if self.request.user.is_authenticated else None
        record_event(Action.PASSWORD_CHANGED, actor=actor, subject=user)
        announce_rights_change()

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        return make_attempt_key(request, get_typed_name(credentials))

    def post_login(self, request: HttpRequest, user: User, **told: Any) -> HttpResponse:
        """Where to go after signing in, in the language and colours of the account."""
        response: HttpResponse = super().post_login(request, user, **told)
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
"""A lock is written down once within this time."""
MAX_TURN_SECONDS = 10.0
"""Longest an attempt may take before the next one begins."""
MAX_TURN_WAIT_SECONDS = 2.0
"""Longest an attempt of a flooding address waits; it holds a thread that others need."""


def find_account(credentials: dict[str, Any]) -> User | None:
    """The account with the name or address that was typed, if there is one."""
    name = get_typed_name(credentials)
    named = Q(username=User.normalize_username(name)) | Q(email__iexact=name)
    return User.objects.filter(named).order_by("pk").first() if name else None


def get_typed_name(credentials: dict[str, Any]) -> str:
    """The name or address that somebody wants to sign in with."""
    return str(credentials.get("email", credentials.get("username", "")))


def fold_name(name: str) -> str:
    """A name as it is compared."""
    return unicodedata.normalize("NFKC", name).casefold()


def make_attempt_key(request: HttpRequest, name: str) -> str:
    """What wrong passwords are counted by: the name, and its known device or else the address.

    Not the host that the request names, as allauth has it: with another port in each it would be
    another count.
    """
    device = find_device(request, name)
    return f"{fold_name(name)} {f'device:{device}' if device else counters.get_ip(request)}"


# Known devices: a signed cookie says for which names somebody has signed in with that browser. It
# opens nothing; it only lets wrong passwords of others not count against this browser.

DEVICE_COOKIE, DEVICE_SALT = "nura_device", "nura.accounts.device"
DEVICE_SECONDS = 365 * 24 * 3600
DEVICE_BYTES, MARK_CHARACTERS, MAX_DEVICE_NAMES = 16, 32, 10


def find_device(request: HttpRequest, name: str) -> str:
    """The id of this browser, where somebody has signed in with the name before; else empty."""
    device, marks = _read_device_cookie(request)
    return device if _hash_name(device, name) in marks else ""


def remember_device(request: HttpRequest, response: HttpResponse, user: User) -> None:
    """Let this browser be a known one for the names of the user."""
    device, marks = _read_device_cookie(request)
    device = device or secrets.token_urlsafe(DEVICE_BYTES)
    own = [_hash_name(device, name) for name in (user.username, user.email) if name]
    kept = list(dict.fromkeys([*own, *marks]))[:MAX_DEVICE_NAMES]
    response.set_signed_cookie(
        DEVICE_COOKIE,
        ".".join([device, *kept]),
        salt=DEVICE_SALT,
        max_age=DEVICE_SECONDS,
        path=settings.SESSION_COOKIE_PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def _read_device_cookie(request: HttpRequest) -> tuple[str, list[str]]:
    told = request.get_signed_cookie(
        DEVICE_COOKIE, default="", salt=DEVICE_SALT, max_age=DEVICE_SECONDS
    )
    device, *marks = str(told).split(".")
    return device, marks


def _hash_name(device: str, name: str) -> str:
    """What stands for a name in the cookie, which tells nobody who uses the browser."""
    return salted_hmac(DEVICE_SALT, f"{device} {fold_name(name)}").hexdigest()[:MARK_CHARACTERS]


# Counts


def count_attempt(request: HttpRequest, action: str, **whose: Any) -> None:
    """Count one; `whose` is the `key` or `user` of a limit that is not the address's.

    Raises the finished 429 answer once there were too many.
    """
    if not ratelimit.consume(request, action=action, **whose):
        raise make_rate_limit_error(request, action, **whose)


def is_exhausted(request: HttpRequest, action: str, **whose: Any) -> bool:
    """Whether a limit allows no further attempt now."""
    return not ratelimit.consume(request, action=action, dry_run=True, **whose)


def count_failures(request: HttpRequest, key: str) -> int:
    """Failures of the name from this address within minutes, the current attempt included."""
    _rate, history = next(_list_counts(request, LOGIN_FAILED, key=key))
    return len(history)


@contextmanager
def serialise_password_checks(request: HttpRequest, name: str) -> Iterator[None]:
    """Check a password; those from a flooding address one after the other, but of known devices.

    Raises the finished 429 answer when the turn does not come in time.
    """
    if not is_exhausted(request, LOGIN_FLOOD) or find_device(request, name):
        yield
        return
    turn = connections.sync().lock(
        f"nura:sign-in:{counters.get_ip(request)}",
        timeout=MAX_TURN_SECONDS,
        blocking_timeout=MAX_TURN_WAIT_SECONDS,
    )
    if not connection.in_atomic_block:
        connection.close()  # the pool has few, and a flood could wait with all of them
    if not turn.acquire():
        raise ImmediateHttpResponse(too_many_requests(request, RETRY_AFTER_SECONDS))
    try:
        yield
    finally:
        with suppress(LockError):  # it took too long, and the turn has passed on
            turn.release()


def make_rate_limit_error(request: HttpRequest, action: str, **whose: Any) -> ImmediateHttpResponse:
    """A 429 response to raise, with the seconds until the limit allows another attempt."""
    now = time.time()
    waits = [
        history[rate.amount - 1] + rate.duration - now
        for rate, history in _list_counts(request, action, **whose)
        if len(history) >= rate.amount
    ]
    seconds = math.ceil(max(waits, default=0))
    return ImmediateHttpResponse(too_many_requests(request, max(seconds, 1)))


def _list_counts(
    request: HttpRequest, action: str, **whose: Any
) -> Iterator[tuple[counters.Rate, list[float]]]:
    """Each rate of a limit with the times at which it was counted, the newest first."""
    for rate in counters.get_rates(app=ALLAUTH_APP, action=action):
        kept = cache.get(
            counters.get_cache_key(request, app=ALLAUTH_APP, action=action, rate=rate, **whose)
        )
        _allowed, history = counters.apply_rate(kept or [], time.time(), rate, dry_run=True)
        yield rate, history

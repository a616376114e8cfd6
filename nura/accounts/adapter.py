"""Our rules for allauth."""

import smtplib
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from nura.accounts import attempts
from rag.errors import NuraError


class MailFailed(NuraError):
    """The mail server cannot be reached or refuses."""

    code = "mail_failed"
    retryable = True


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Closed sign-up by setting; too many wrong passwords are a 429, not a form."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Whether strangers may make an account."""
        return settings.OPEN_SIGNUP

    def authenticate(self, request: HttpRequest, **credentials: Any) -> AbstractBaseUser | None:
        """Whose password it is. Raises the finished 429 answer; `nura.accounts.attempts` says when.

        All ways to sign in come through here.
        """
        with attempts.hold_turn(request):
            user: AbstractBaseUser | None = super().authenticate(request, **credentials)
        if user is not None:
            attempts.count_attempt(request, attempts.DONE, user=user)
        return user

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the try as a wrong one, as it is until the password was right."""
        key = self._get_login_attempts_cache_key(request, **credentials)
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError as error:
            raise attempts.to_refusal(request, attempts.FAILED, key=key) from error
        if attempts.count_failures(request, key) > 1 and attempts.is_flooding(request):
            self._rollback_login_failed_rl_usage()
            raise attempts.to_refusal(request, attempts.FLOOD)

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        """Count a wrong password against its address too."""
        attempts.count_attempt(request, attempts.FLOOD)

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        name = credentials.get("email", credentials.get("username", ""))
        return attempts.key_of(request, name)

    def clean_username(self, username: str, shallow: bool = False) -> str:
        """The name in the one form under which it is stored: Hangul may come in parts."""
        cleaned: str = super().clean_username(User.normalize_username(username), shallow)
        return cleaned

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Send a mail. Raises `MailFailed`."""
        try:
            super().send_mail(template_prefix, email, context)
        except (smtplib.SMTPException, OSError) as error:
            raise MailFailed from error

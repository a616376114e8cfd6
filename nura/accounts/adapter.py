"""Our rules for allauth."""

import smtplib
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from nura.errors import too_many_requests
from rag.errors import NuraError


class MailFailed(NuraError):
    """The mail server cannot be reached or refuses."""

    code = "mail_failed"
    retryable = True
    status = 503


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Closed sign-up by setting; too many wrong passwords are a 429, not a form."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Whether strangers may make an account."""
        return settings.OPEN_SIGNUP

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the attempt. Raises the finished 429 answer once there were too many."""
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError as error:
            raise ImmediateHttpResponse(too_many_requests(request)) from error

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

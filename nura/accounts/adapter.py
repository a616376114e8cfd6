"""Our rules for allauth."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from nura.errors import too_many_requests


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

"""Signing up: the form, the link of an invitation, and sign-ups that nobody confirmed.

Where mail works, a form with a name or an address that somebody has is answered as any other: the
mail that follows tells the owner of the address. Without mail a taken name has to be told, since
whoever signs up is signed in at once; who may try is then decided by the invitation.
"""

from datetime import timedelta
from typing import Any

import structlog
from allauth.account import forms
from allauth.account.models import EmailAddress
from allauth.account.stages import EmailVerificationStage
from allauth.account.utils import filter_users_by_username
from allauth.core import context
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from nura.accounts.deletion import delete_account
from nura.accounts.invitations import find_invitation, open_invitation

logger = structlog.get_logger()

UNCONFIRMED_DAYS = 7
"""A sign-up whose address nobody confirmed ends after so long; its name is free again."""


class SignupForm(forms.SignupForm):  # type: ignore[misc]
    """Sign-up that tells nothing of other accounts; an invitation may set the address."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["username"].label = _("User name")
        self.fields["username"].widget.attrs = {"autocomplete": "username", "autofocus": True}
        invited = find_invitation(context.request)
        if invited is not None and invited.name:
            self.initial["username"] = invited.name.replace(" ", "")
        if invited is not None and invited.email:
            self.fields["email"].disabled = True  # whatever is sent, the account gets this one
            self.initial["email"] = invited.email

    def clean_username(self) -> str:
        """The name; one that is taken only shows in the mail, where mail works."""
        name = str(self.cleaned_data["username"])
        if settings.MAIL_WORKS and filter_users_by_username(User.normalize_username(name)).exists():
            self.account_already_exists = True
            return name
        return str(super().clean_username())

    def clean_email(self) -> str:
        """The address; that a name is taken stays known."""
        taken = self.account_already_exists
        email = str(super().clean_email())
        self.account_already_exists = self.account_already_exists or taken
        return email

    def try_save(self, request: HttpRequest) -> Any:
        """The new user, or the answer; both cost as much."""
        if self.account_already_exists:
            make_password(self.cleaned_data["password1"])
        return super().try_save(request)


class SignupVerificationStage(EmailVerificationStage):  # type: ignore[misc]
    """An address is confirmed before the first sign-in of who signed up, and of nobody else.

    Accounts that were there before mail worked, or that administrators made, go on as they are.
    """

    def handle(self) -> Any:
        """The page that asks for the confirmation, where one is due."""
        user = self.login.user
        if user is not None and not is_unconfirmed_signup(user):
            return None, True
        return super().handle()


def is_unconfirmed_signup(user: User) -> bool:
    """Whether somebody signed up with an address that nobody has confirmed."""
    addresses = EmailAddress.objects.filter(user_id=user.pk)
    return user.last_login is None and addresses.exists() and not addresses.filter(verified=True)


@require_GET
@never_cache
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Open an invitation; one that does not hold leads to the page that says so."""
    open_invitation(request, secret)
    return redirect("account_signup")


def find_unconfirmed_signups() -> QuerySet[User]:
    """Accounts that were never used and whose address nobody confirmed in time."""
    if not settings.MAIL_WORKS:
        return User.objects.none()
    old = timezone.now() - timedelta(days=UNCONFIRMED_DAYS)
    waiting = EmailAddress.objects.filter(verified=False, user__last_login=None)
    waiting = waiting.filter(user__date_joined__lt=old, user__is_staff=False)
    proved = EmailAddress.objects.filter(verified=True).values("user_id")
    return User.objects.filter(pk__in=waiting.values("user_id")).exclude(pk__in=proved)


def end_unconfirmed_signups() -> int:
    """Delete accounts that were never used and whose address nobody confirmed; how many."""
    ended = list(find_unconfirmed_signups())
    for user in ended:
        delete_account(user=user)
        logger.info("unconfirmed_signup_ended", user_id=user.pk)
    return len(ended)

"""Invitations: links by which people create accounts, as often as said, until they expire.

Only a digest of a link's secret is kept. Opening the link remembers the invitation in the session
and leaves the address bar without the secret; the account that is created takes it.
"""

import hashlib
import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Case, F, Q, When
from django.db.models.functions import Now
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from documents.audit import Action, record_event
from nura.accounts.groups import change_memberships
from nura.accounts.models import Invitation

SECRET_BYTES = 32
DEFAULT_DAYS = 7
MAX_DAYS = 90
SESSION_KEY = "invitation"


@transaction.atomic
def create_invitation(
    *,
    by: User | None,
    email: str = "",
    days: int = DEFAULT_DAYS,
    max_uses: int = 1,
    groups: Collection[Group] = (),
) -> tuple[Invitation, str]:
    """A new invitation and its secret, which is readable only now.

    One that names an address is for one account, whatever `max_uses` says.
    """
    secret = secrets.token_urlsafe(SECRET_BYTES)
    invitation = Invitation.objects.create(
        digest=hash_secret(secret),
        email=email.lower(),
        max_uses=1 if email else max_uses,
        created_by=by,
        expires_at=timezone.now() + timedelta(days=days),
    )
    invitation.groups.set(groups)
    details: dict[str, Any] = {"added": True, "max_uses": invitation.max_uses}
    details |= {"groups": [group.name for group in groups]} if groups else {}
    record_event(Action.INVITATION_CHANGED, actor=by, target=invitation, details=details)
    return invitation, secret


def hash_secret(secret: str) -> str:
    """What is stored of a secret; it is long and random, so that one fast digest is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def build_path(secret: str) -> str:
    """Where an invitation is opened."""
    return reverse("accounts:invitation", args=[secret])


def mail_invitation(invitation: Invitation, link: str) -> None:
    """Send the link to the invited address, which is proved by opening it. Raises `OSError`."""
    text = render_to_string("account/email/invitation.txt", {"link": link, "one": invitation})
    send_mail(_("[Nura] Your invitation"), text, None, [invitation.email])
    Invitation.objects.filter(pk=invitation.pk).update(mailed_at=Now())


def open_invitation(request: HttpRequest, secret: str) -> bool:
    """Remember an invitation that holds for this visitor; False where none does."""
    found = Invitation.objects.open().filter(digest=hash_secret(secret)).first()
    if found is None:
        return False
    request.session[SESSION_KEY] = found.pk
    return True


def find_invitation(request: HttpRequest) -> Invitation | None:
    """The invitation that this visitor opened, while it holds."""
    if settings.SIGNUP == "closed" or SESSION_KEY not in request.session:
        return None
    return Invitation.objects.open().filter(pk=request.session[SESSION_KEY]).first()


def take_invitation(request: HttpRequest, user: User) -> bool:
    """Use the visitor's invitation for the account that is being created, in its transaction.

    The account joins the groups of it. False where others were first or it has expired.
    """
    key = request.session.get(SESSION_KEY, 0)
    is_last = Q(uses=F("max_uses") - 1)
    used_at = Case(When(is_last, then=Now()), default=F("used_at"))
    held = Invitation.objects.open().filter(pk=key)
    if not held.update(uses=F("uses") + 1, used_by=user, used_at=used_at):
        return False
    del request.session[SESSION_KEY]
    joined = Invitation.objects.get(pk=key).groups.all()
    change_memberships(user=user, join=joined, by=user, way="invitation")
    return True


@transaction.atomic
def withdraw_invitation(*, invitation: Invitation, by: User | None) -> bool:
    """End an invitation before its time; False where it was used up."""
    if not Invitation.objects.open().filter(pk=invitation.pk).update(expires_at=Now()):
        return False
    withdrawn = {"withdrawn": True}
    record_event(Action.INVITATION_CHANGED, actor=by, target=invitation, details=withdrawn)
    return True

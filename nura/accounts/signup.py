"""Signing up: invitations, the form, and sign-ups that nobody confirmed.

Where mail works, a form with a name or an address that somebody has is answered as any other: the
mail that follows tells the owner of the address. Without mail a taken name has to be told, since
whoever signs up is signed in at once; who may try is then decided by the invitation.

An invitation is a link by which people create accounts, as often as said, until it expires. Only
a digest of its secret is kept. Opening the link remembers the invitation in the session and leaves
the address bar without the secret; the account that is created takes it.
"""

import csv
import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from itertools import islice
from typing import Any

import structlog
from allauth.account import forms
from allauth.account.models import EmailAddress
from allauth.account.stages import EmailVerificationStage
from allauth.account.utils import filter_users_by_username
from allauth.core import context
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Case, F, Q, QuerySet, When
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from documents.audit import Action, record_event
from nura.accounts.deletion import delete_account
from nura.accounts.models import Invitation
from nura.accounts.roles import change_memberships
from nura.accounts.services import check_name

SECRET_BYTES = 32
DEFAULT_DAYS = 7
MAX_DAYS = 90
SESSION_KEY = "invitation"
MAX_NAME_CHARACTERS = 150
MAX_LIST_BYTES, MAX_LIST_LINES = 2_000_000, 2_000
MAX_TOLD_ERRORS = 100
LIST_ENCODINGS = ("utf-8-sig", "cp949")
"""As Excel saves lists, with Korean in them."""
COLUMNS = {
    "email": {"email", "e-mail", "mail", "address", "이메일", "메일", "전자우편"},
    "name": {"name", "이름", "성명"},
    "groups": {"groups", "group", "그룹", "부서"},
}
"""What the columns of a list are called."""
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is computed by the program that opens the file."""


@transaction.atomic
def create_invitation(  # noqa: PLR0913 - what an invitation says, by name
    *,
    by: User | None,
    email: str = "",
    name: str = "",
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
        name=name,
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


def consume_invitation(request: HttpRequest, user: User) -> bool:
    """Use up the visitor's invitation for the account being created, in its transaction.

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


# Lists of people


@dataclass(frozen=True, slots=True)
class InvitedPerson:
    """A line of a list that can be invited."""

    email: str
    name: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InvitationList:
    """What a list says: who can be invited, and what is wrong, with the number of the line.

    `left_out` errors are not told one by one.
    """

    people: tuple[InvitedPerson, ...]
    errors: tuple[tuple[int, str], ...]
    left_out: int = 0


def read_invitation_list(content: bytes) -> InvitationList:
    """Read a CSV of addresses, names and groups; nothing is written.

    The first line names the columns; commas, semicolons or tabs part them, and semicolons or
    vertical bars the groups. UTF-8 or CP949.
    """
    if len(content) > MAX_LIST_BYTES:
        return _refuse_list(_("The file is larger than 2 MB."))
    text = _decode_list(content)
    if text is None or "\0" in text:
        return _refuse_list(_("The file is not text in UTF-8 or CP949."))
    head = text.partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    try:
        rows = list(islice(csv.reader(StringIO(text), delimiter=delimiter), MAX_LIST_LINES + 2))
    except csv.Error:
        return _refuse_list(_("The file is not a CSV."))
    columns = _find_columns(rows[0] if rows else [])
    if "email" not in columns:
        return _refuse_list(_("The first line must name the columns: email, name, groups."))
    if len(rows) > MAX_LIST_LINES + 1:
        most = _("The file has more than %(count)d lines. Split it.") % {"count": MAX_LIST_LINES}
        return _refuse_list(most)
    return _check_lines(rows[1:], columns)


def _refuse_list(why: str) -> InvitationList:
    return InvitationList((), ((1, why),))


def _decode_list(content: bytes) -> str | None:
    for encoding in LIST_ENCODINGS:
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    return None


def _find_columns(head: list[str]) -> dict[str, int]:
    named = [cell.strip().casefold() for cell in head]
    found = {}
    for column, names in COLUMNS.items():
        index = next((i for i, name in enumerate(named) if name in names), None)
        if index is not None:
            found[column] = index
    return found


def _check_lines(rows: list[list[str]], columns: dict[str, int]) -> InvitationList:
    known = set(Group.objects.values_list("name", flat=True))
    taken = {email.casefold() for email in User.objects.values_list("email", flat=True)}
    people: list[InvitedPerson] = []
    errors: list[tuple[int, str]] = []
    seen: set[str] = set()
    for number, row in enumerate(rows, start=2):
        cells = {name: row[i].strip() if i < len(row) else "" for name, i in columns.items()}
        if not any(cells.values()):
            continue
        person = InvitedPerson(
            email=cells["email"].lower(),
            name=cells.get("name", ""),
            groups=tuple(filter(None, map(str.strip, re.split("[;|]", cells.get("groups", ""))))),
        )
        if wrong := _find_problem(person, known, taken, seen):
            errors.append((number, wrong))
        else:
            people.append(person)
        seen.add(person.email)
    told = tuple(errors[:MAX_TOLD_ERRORS])
    return InvitationList(tuple(people), told, len(errors) - len(told))


def _find_problem(person: InvitedPerson, known: set[str], taken: set[str], seen: set[str]) -> str:
    try:
        validate_email(person.email)
        if person.name:
            check_name(person.name)
            User.username_validator(person.name.replace(" ", ""))
    except ValidationError as error:
        return " ".join(error.messages)
    if len(person.name) > MAX_NAME_CHARACTERS or person.name.startswith(FORMULA_SIGNS):
        return _("This is not a name.")
    if person.email in seen:
        return _("The address is in the list twice.")
    if person.email in taken:
        return _("Somebody has an account with this address.")
    if missing := sorted(set(person.groups) - known):
        return _("There is no group %(names)s.") % {"names": ", ".join(missing)}
    return ""


@transaction.atomic
def invite_people(
    *, by: User, people: Collection[InvitedPerson], days: int = DEFAULT_DAYS
) -> list[tuple[Invitation, str]]:
    """An invitation for each, all or none, with their secrets, which are readable only now."""
    groups = {group.name: group for group in Group.objects.all()}
    return [
        create_invitation(
            by=by,
            email=person.email,
            name=person.name,
            days=days,
            groups=[groups[name] for name in person.groups],
        )
        for person in people
    ]


def write_links(links: Collection[tuple[Invitation, str]]) -> bytes:
    """The links as a CSV that Excel opens with Korean in it, and computes nothing of."""
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(("email", "name", "link"))
    for invitation, link in links:
        cells = (invitation.email, invitation.name, link)
        writer.writerow([f"'{one}" if one.startswith(FORMULA_SIGNS) else one for one in cells])
    return text.getvalue().encode("utf-8-sig")


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

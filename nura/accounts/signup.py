"""Sign-up: invitations, the form, and unconfirmed sign-ups.

If mail works, a form with a taken name or address gets the same response as any other; the mail
that follows informs the owner of the address. Without mail the form has to say that a name is
taken, since sign-up signs the user in at once; invitations then decide who may try.

An invitation is a link by which people create accounts, a set number of times, until it expires.
Only a digest of its secret is stored. Opening the link remembers the invitation in the session and
redirects, so that the secret leaves the address bar; creating the account uses it up.
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
from allauth.account.internal.flows.login import record_authentication
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
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from documents.audit import Action, record_event
from nura.accounts.deletion import delete_account
from nura.accounts.roles import change_memberships
from nura.accounts.services import check_name
from nura.models import Invitation

SECRET_BYTES = 32
DEFAULT_DAYS = 7
MAX_DAYS = 90
SESSION_KEY = "invitation"
MAX_NAME_CHARACTERS = 150
MAX_LIST_BYTES, MAX_LIST_LINES = 2_000_000, 2_000
MAX_TOLD_ERRORS = 100
LIST_ENCODINGS = ("utf-8-sig", "cp949")
"""As Excel saves lists with Korean."""
COLUMNS = {
    "email": {"email", "e-mail", "mail", "address", "이메일", "메일", "전자우편"},
    "name": {"name", "이름", "성명"},
    "groups": {"groups", "group", "그룹", "부서"},
}
"""Accepted headings of a list's columns."""
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets evaluate cells that begin with one of these."""


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
    """Create an invitation; returns it with its secret, which is readable only now.

    One with an address is for one account, whatever `max_uses` says.
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
    """The stored digest of a secret; one fast hash is enough for a long random secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def build_path(secret: str) -> str:
    """The path of an invitation's link."""
    return reverse("accounts:invitation", args=[secret])


def mail_invitation(invitation: Invitation, link: str) -> None:
    """Send the link to the invited address; opening it verifies the address. Raises `OSError`."""
    text = render_to_string("account/email/invitation.txt", {"link": link, "one": invitation})
    send_mail(_("[Nura] Your invitation"), text, None, [invitation.email])
    Invitation.objects.filter(pk=invitation.pk).update(mailed_at=Now())


def open_invitation(request: HttpRequest, secret: str) -> bool:
    """Remember a valid invitation in the visitor's session; False if it is not valid."""
    row = Invitation.objects.open().filter(digest=hash_secret(secret)).first()
    if row is None:
        return False
    request.session[SESSION_KEY] = row.pk
    return True


def find_invitation(request: HttpRequest) -> Invitation | None:
    """The invitation that this visitor opened, while it is valid."""
    if settings.SIGNUP == "closed" or SESSION_KEY not in request.session:
        return None
    return Invitation.objects.open().filter(pk=request.session[SESSION_KEY]).first()


def consume_invitation(request: HttpRequest, user: User) -> bool:
    """Use the visitor's invitation for the account being created, in the caller's transaction.

    The account joins its groups, and is named by it if it has no display name. False if the
    invitation is used up or has expired.
    """
    key = request.session.get(SESSION_KEY, 0)
    is_last = Q(uses=F("max_uses") - 1)
    used_at = Case(When(is_last, then=Now()), default=F("used_at"))
    invitations = Invitation.objects.open().filter(pk=key)
    if not invitations.update(uses=F("uses") + 1, used_by=user, used_at=used_at):
        return False
    del request.session[SESSION_KEY]
    invitation = Invitation.objects.get(pk=key)
    if not user.first_name:
        user.first_name = invitation.name
        user.save(update_fields=["first_name"])
    change_memberships(user=user, join=invitation.groups.all(), by=user, source="invitation")
    return True


@transaction.atomic
def withdraw_invitation(*, invitation: Invitation, by: User | None) -> bool:
    """Expire an invitation early; False if it was no longer open."""
    if not Invitation.objects.open().filter(pk=invitation.pk).update(expires_at=Now()):
        return False
    details = {"withdrawn": True}
    record_event(Action.INVITATION_CHANGED, actor=by, target=invitation, details=details)
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
    """The content of a list: who can be invited, and errors with their line numbers.

    `left_out` counts errors that are not listed. `missing_groups` are named in the list but do not
    exist.
    """

    people: tuple[InvitedPerson, ...]
    errors: tuple[tuple[int, str], ...]
    left_out: int = 0
    missing_groups: tuple[str, ...] = ()


def read_invitation_list(content: bytes) -> InvitationList:
    """Parse a CSV of addresses, names and groups in UTF-8 or CP949; stores nothing.

    The first line names the columns. Columns are separated by commas, semicolons or tabs, groups by
    semicolons or vertical bars.
    """
    if len(content) > MAX_LIST_BYTES:
        return _refuse_list(_("The file is larger than 2 MB."))
    text = _decode_list(content)
    if text is None or "\0" in text:
        return _refuse_list(_("The file is not text in UTF-8 or CP949."))
    header = text.partition("\n")[0]
    delimiter = max(",;\t", key=header.count)
    try:
        rows = list(islice(csv.reader(StringIO(text), delimiter=delimiter), MAX_LIST_LINES + 2))
    except csv.Error:
        return _refuse_list(_("The file is not a CSV."))
    columns = _find_columns(rows[0] if rows else [])
    if "email" not in columns:
        return _refuse_list(_("The first line must name the columns: email, name, groups."))
    if len(rows) > MAX_LIST_LINES + 1:
        problem = _("The file has more than %(count)d lines. Split it.") % {"count": MAX_LIST_LINES}
        return _refuse_list(problem)
    return _check_lines(rows[1:], columns)


def _refuse_list(problem: str) -> InvitationList:
    return InvitationList((), ((1, problem),))


def _decode_list(content: bytes) -> str | None:
    for encoding in LIST_ENCODINGS:
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    return None


def _find_columns(header: list[str]) -> dict[str, int]:
    titles = [cell.strip().casefold() for cell in header]
    columns = {}
    for column, names in COLUMNS.items():
        index = next((i for i, name in enumerate(titles) if name in names), None)
        if index is not None:
            columns[column] = index
    return columns


def _check_lines(rows: list[list[str]], columns: dict[str, int]) -> InvitationList:
    group_names = set(Group.objects.values_list("name", flat=True))
    known_emails = _list_known_emails()
    people: list[InvitedPerson] = []
    errors: list[tuple[int, str]] = []
    seen_emails: set[str] = set()
    missing_groups: set[str] = set()
    for number, row in enumerate(rows, start=2):
        cells = {name: row[i].strip() if i < len(row) else "" for name, i in columns.items()}
        if not any(cells.values()):
            continue
        person = InvitedPerson(
            email=cells["email"].lower(),
            name=cells.get("name", ""),
            groups=tuple(filter(None, map(str.strip, re.split("[;|]", cells.get("groups", ""))))),
        )
        if problem := _find_problem(person, group_names, known_emails, seen_emails):
            errors.append((number, problem))
        else:
            people.append(person)
        seen_emails.add(person.email)
        missing_groups |= set(person.groups) - group_names
    listed = tuple(errors[:MAX_TOLD_ERRORS])
    left_out = len(errors) - len(listed)
    return InvitationList(tuple(people), listed, left_out, tuple(sorted(missing_groups)))


def _list_known_emails() -> dict[str, str]:
    """Addresses that are not invited, each with the reason."""
    reasons = {}
    for email, expires_at in Invitation.objects.open().values_list("email", "expires_at"):
        day = date_format(timezone.localtime(expires_at))
        reasons[email] = _(
            "Already invited, until %(day)s. To invite again, first withdraw it under Invitations."
        ) % {"day": day}
    for email in User.objects.values_list("email", flat=True):
        reasons[email.casefold()] = _("Somebody has an account with this address.")
    return reasons


def _find_problem(
    person: InvitedPerson,
    group_names: set[str],
    known_emails: dict[str, str],
    seen_emails: set[str],
) -> str:
    try:
        validate_email(person.email)
        if person.name:
            check_name(person.name)
            User.username_validator(person.name.replace(" ", ""))
    except ValidationError as error:
        return " ".join(error.messages)
    if len(person.name) > MAX_NAME_CHARACTERS or person.name.startswith(FORMULA_SIGNS):
        return _("This is not a name.")
    if person.email in seen_emails:
        return _("The address is in the list twice.")
    if person.email in known_emails:
        return known_emails[person.email]
    if missing := sorted(set(person.groups) - group_names):
        return _("There is no group %(names)s.") % {"names": ", ".join(missing)}
    return ""


@transaction.atomic
def invite_people(
    *, by: User, people: Collection[InvitedPerson], days: int = DEFAULT_DAYS
) -> list[tuple[Invitation, str]]:
    """Create an invitation for each person, all or none; with secrets, readable only now.

    People who have been invited or got an account since the list was checked are left out.
    """
    known_emails = _list_known_emails()
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
        if person.email not in known_emails
    ]


def write_links(links: Collection[tuple[Invitation, str]]) -> bytes:
    """The links as a CSV that Excel reads as UTF-8 and without evaluating formulas."""
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(("email", "name", "link"))
    for invitation, link in links:
        cells = (invitation.email, invitation.name, link)
        writer.writerow([f"'{cell}" if cell.startswith(FORMULA_SIGNS) else cell for cell in cells])
    return text.getvalue().encode("utf-8-sig")


logger = structlog.get_logger()

UNCONFIRMED_DAYS = 7
"""After how long an unconfirmed sign-up is deleted and its name is free again."""


class SignupForm(forms.SignupForm):  # type: ignore[misc]
    """Sign-up form that reveals nothing about other accounts; an invitation may set the address."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["username"].label = _("User name")
        self.fields["username"].widget.attrs = {"autocomplete": "username", "autofocus": True}
        invitation = find_invitation(context.request)
        if invitation is not None and invitation.name:
            self.initial["username"] = invitation.name.replace(" ", "")
        if invitation is not None and invitation.email:
            self.fields[
                "email"
            ].disabled = True  # the account gets this address whatever is submitted
            self.initial["email"] = invitation.email

    def clean_username(self) -> str:
        """The name; if mail works, only the mail says that it is taken."""
        name = str(self.cleaned_data["username"])
        if settings.MAIL_WORKS and filter_users_by_username(User.normalize_username(name)).exists():
            self.account_already_exists = True
            return name
        return str(super().clean_username())

    def clean_email(self) -> str:
        """The address; keeps the finding that the name is taken."""
        was_taken = self.account_already_exists
        email = str(super().clean_email())
        self.account_already_exists = self.account_already_exists or was_taken
        return email

    def try_save(self, request: HttpRequest) -> Any:
        """Save the user, or respond without; both take as long."""
        if self.account_already_exists:
            make_password(self.cleaned_data["password1"])
        user, response = super().try_save(request)
        record_authentication(request, user, "password")  # nothing without a user
        return user, response


class SignupVerificationStage(EmailVerificationStage):  # type: ignore[misc]
    """Requires a confirmed address before the first sign-in of people who signed up themselves.

    Accounts from before mail worked, or made by administrators, are exempt.
    """

    def handle(self) -> Any:
        """The page that asks for confirmation, if it is due."""
        user = self.login.user
        if user is not None and not is_unconfirmed_signup(user):
            return None, True
        return super().handle()


def is_unconfirmed_signup(user: User) -> bool:
    """Whether the user signed up and has not confirmed the address."""
    addresses = EmailAddress.objects.filter(user_id=user.pk)
    return user.last_login is None and addresses.exists() and not addresses.filter(verified=True)


@require_GET
@never_cache
def accept_invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Open an invitation and go on to sign-up, which says so if it is not valid."""
    open_invitation(request, secret)
    return redirect("account_signup")


def find_unconfirmed_signups() -> QuerySet[User]:
    """Accounts never used whose address was not confirmed in time."""
    if not settings.MAIL_WORKS:
        return User.objects.none()
    cutoff = timezone.now() - timedelta(days=UNCONFIRMED_DAYS)
    unconfirmed = EmailAddress.objects.filter(verified=False, user__last_login=None)
    unconfirmed = unconfirmed.filter(user__date_joined__lt=cutoff, user__is_staff=False)
    confirmed = EmailAddress.objects.filter(verified=True).values("user_id")
    return User.objects.filter(pk__in=unconfirmed.values("user_id")).exclude(pk__in=confirmed)


def end_unconfirmed_signups() -> int:
    """Delete accounts never used whose address was not confirmed in time; how many."""
    users = list(find_unconfirmed_signups())
    for user in users:
        delete_account(user=user)
        logger.info("unconfirmed_signup_ended", user_id=user.pk)
    return len(users)

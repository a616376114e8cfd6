"""Accounts: their names, API keys, usage, and where they are signed in.

A name is refused if it mixes scripts that no language combines, if all its letters look Latin
("аӏісе" in Cyrillic), or if it contains invisible characters. The data is Unicode's (UTS 39), by
confusable_homoglyphs.

Sessions are listed in allauth's table, a row each, made at sign-in; when one was last seen is
stored at most once a minute. Django's own session is authoritative: a row without one is stale.
"""

import hashlib
import re
import time
import unicodedata
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from allauth.account.models import EmailAddress
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext as _
from knox.models import AuthToken

from chats.models import DailyMessages, KeyDetails
from chats.models.key import ALL_SCOPES, make_key_id, sort_scopes
from chats.services.chats import count_questions_today, count_tokens_this_month
from documents import files, quotas
from documents.audit import Action, record_event
from documents.models import Document, QuotaMeasure
from documents.notices import announce_rights_change

WRITTEN_TOGETHER = (
    frozenset({"LATIN", "HANGUL", "HAN"}),
    frozenset({"LATIN", "HAN", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "HAN", "BOPOMOFO"}),
)
"""Scripts of one language: UTS 39, "highly restrictive"."""
EAST_ASIAN = frozenset({"HANGUL", "HAN", "HIRAGANA", "KATAKANA", "BOPOMOFO"})
SHARED = frozenset({"COMMON", "INHERITED"})
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def check_name(name: str) -> None:
    """Raise `ValidationError`, with a message, if a name could be mistaken for another."""
    from confusable_homoglyphs import categories  # a megabyte of data that few requests need

    if any(unicodedata.category(character) in UNSEEN for character in name):
        raise ValidationError(_("The name contains a character that cannot be seen."), "unseen")
    scripts = {categories.alias(character) for character in name} - SHARED
    has_loose_marks = any(
        unicodedata.category(mark) in {"Mn", "Me"} and categories.alias(mark) == "INHERITED"
        for mark in unicodedata.normalize("NFC", name)
    )
    has_lone_letters = "LATIN" in scripts and any(map(_is_lone_jamo, name))
    is_mixed = len(scripts) > 1 and not any(scripts <= known for known in WRITTEN_TOGETHER)
    if is_mixed or has_loose_marks or has_lone_letters or _looks_latin(name, scripts):
        raise ValidationError(
            _(
                "This name can be mistaken for another one. Use letters of one alphabet, such as "
                "only Korean or only English."
            ),
            "confusable",
        )


def _looks_latin(name: str, scripts: set[str]) -> bool:
    """Whether non-ASCII letters look just like ASCII ones."""
    letters = [letter for letter in name if letter.isalpha() and not letter.isascii()]
    if scripts <= {"LATIN"}:
        return any(map(_has_ascii_twin, letters))
    if scripts & EAST_ASIAN:
        return any(
            _has_ascii_twin(letter) for letter in letters if letter.isalpha() and _is_latin(letter)
        )
    return bool(letters) and all(map(_has_ascii_twin, letters))


def _has_ascii_twin(letter: str) -> bool:
    from confusable_homoglyphs import confusables

    matches = confusables.is_confusable(letter, greedy=True)
    return bool(matches) and any(twin["c"].isascii() for twin in matches[0]["homoglyphs"])


def _is_latin(letter: str) -> bool:
    from confusable_homoglyphs import categories

    return bool(categories.alias(letter) == "LATIN")


def _is_lone_jamo(letter: str) -> bool:
    """Whether it is a lone jamo, such as ㅣ, which looks like l beside Latin."""
    return "\u1100" <= letter <= "\u11ff" or "\u3130" <= letter <= "\u318f"


SHOWN_CHARACTERS = 8
"""Characters of a key that stay readable, so that its owner can tell keys apart."""
USAGE_DAYS = 30
"""Days of questions shown with the usage."""


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """What a user has stored and asked."""

    documents: int
    bytes: int
    pages: int
    messages_today: int
    tokens_this_month: int


def create_key(*, user: User, lifetime: timedelta | None = None) -> str:
    """Create an API key with all scopes; the secret, readable only now."""
    expires_at = None if lifetime is None else timezone.now() + lifetime
    _token, secret = make_key(user=user, name="", scopes=ALL_SCOPES, expires_at=expires_at)
    return secret


@transaction.atomic
def make_key(
    *, user: User, name: str, scopes: Collection[str], expires_at: datetime | None = None
) -> tuple[AuthToken, str]:
    """Create an API key: its row and its secret, of which only the hash is stored."""
    token, secret = AuthToken.objects.create(user)
    token.expiry = expires_at
    token.save(update_fields=("expiry",))
    sorted_scopes = sort_scopes(scopes)
    token.details = KeyDetails.objects.create(key=token, name=name, scopes=sorted_scopes)
    record_event(
        Action.KEY_CREATED,
        actor=user,
        subject=user,
        target=f"key:{make_key_id(token)}",
        details={"scopes": sorted_scopes, "expires_at": token.expiry},
    )
    return token, str(secret)


def list_keys(*, user: User) -> QuerySet[Any]:
    """The user's keys that still work, newest first."""
    keys: QuerySet[Any] = AuthToken.objects.filter(user=user).exclude(expiry__lt=timezone.now())
    return keys.select_related("details").order_by("-created", "digest")


@transaction.atomic
def revoke_key(*, user: User, key_id: UUID) -> bool:
    """Delete a key of the user and end its connections; False if there is no such key."""
    matching = AuthToken.objects.select_for_update().filter(
        user=user, digest__startswith=key_id.hex
    )
    if (key := matching.first()) is None:
        return False
    key.delete()
    record_event(Action.KEY_REVOKED, actor=user, subject=user, target=f"key:{key_id}")
    announce_rights_change()
    return True


@transaction.atomic
def revoke_keys(*, user: User, actor: AbstractBaseUser | AnonymousUser) -> int:
    """Delete all keys of a user and end their connections; how many."""
    keys = AuthToken.objects.filter(user=user)
    count: int = keys.count()
    keys.delete()
    if count:
        announce_rights_change()
        record_event(
            Action.KEY_REVOKED,
            actor=actor,
            subject=user,
            target="key:all",
            details={"count": count},
        )
    return count


@transaction.atomic
def create_or_update_user(*, name: str, password: str, staff: bool, email: str = "") -> User:
    """Create the user of that name, or update an existing one.

    Raises `ValidationError` if a new name could be mistaken for another.
    """
    if not User.objects.filter(username=User.normalize_username(name)).exists():
        check_name(User.normalize_username(name))
    user, created = User.objects.select_for_update().get_or_create(
        username=User.normalize_username(name), defaults={"email": email}
    )
    user.set_password(password)
    user.is_active = True
    user.is_staff = staff or user.is_staff
    user.save()
    action = Action.ACCOUNT_CREATED if created else Action.PASSWORD_CHANGED
    record_event(action, subject=user, details={"by": "command", "is_staff": user.is_staff})
    announce_rights_change()
    return user


@transaction.atomic
def replace_email(*, user: User, email: str) -> None:
    """Replace the account's address, unconfirmed: for installations without mail."""
    EmailAddress.objects.filter(user=user).delete()
    EmailAddress.objects.create(user=user, email=email.lower(), primary=True, verified=False)
    User.objects.filter(pk=user.pk).update(email=email.lower())
    details = {"changed": ["email"]}
    record_event(Action.ACCOUNT_CHANGED, actor=user, subject=user, details=details)


def count_usage(*, user: User) -> AccountUsage:
    """The user's usage, counted from the rows."""
    stored = quotas.measure_usage(user.pk)
    return AccountUsage(
        documents=stored.documents,
        bytes=stored.bytes,
        pages=stored.pages,
        messages_today=count_questions_today(user.pk),
        tokens_this_month=count_tokens_this_month(user.pk),
    )


def list_usage(search: str = "") -> QuerySet[Any]:
    """Accounts with their usage, those that ask most first.

    Each has `kept_documents`, `kept_bytes`, `kept_pages`, and `questions` of the last `USAGE_DAYS`
    days. `search` narrows them to names and addresses that contain it.
    """
    documents = Document.objects.filter(owner=OuterRef("pk")).order_by().values("owner")
    since = quotas.get_today() - timedelta(days=USAGE_DAYS - 1)
    messages = DailyMessages.objects.filter(owner=OuterRef("pk"), day__gte=since).order_by()
    questions = messages.values("owner").annotate(sum=Sum("count")).values("sum")
    figures = {
        "kept_documents": documents.annotate(sum=Count("pk")).values("sum"),
        "kept_bytes": documents.annotate(sum=Sum("size")).values("sum"),
        "kept_pages": documents.annotate(sum=Sum("page_count")).values("sum"),
        "questions": questions,
    }
    totals = {name: Coalesce(Subquery(rows), 0) for name, rows in figures.items()}
    matches = Q(username__icontains=search) | Q(email__icontains=search)
    accounts: QuerySet[Any] = User.objects.filter(matches).annotate(**totals)
    return accounts.order_by("-questions", "username")


def describe_account(*, user: User) -> dict[str, Any]:
    """The response of `GET /me`. None in `limits`, `left` and `soft` means no limit."""
    usage: dict[str, int] = asdict(count_usage(user=user))
    limits = {measure.value: limit for measure, limit in quotas.find_limits(user.pk).items()}
    return {
        "id": user.pk,
        "username": user.username,
        "is_staff": user.is_staff,
        "usage": usage,
        "limits": {
            **{name: limit.hard for name, limit in limits.items()},
            "upload_bytes": settings.MAX_UPLOAD_MB * files.MEGABYTE,
        },
        "left": {name: limit.get_remaining(usage[name]) for name, limit in limits.items()},
        "soft": {name: limit.soft for name, limit in limits.items()},
        "resets_at": {
            QuotaMeasure.QUESTIONS.value: quotas.get_next_day(),
            QuotaMeasure.TOKENS.value: quotas.get_next_month(),
        },
    }


SEEN_NOTED_SECONDS = 60.0
MAX_REMEMBERED = 10_000
"""Sessions of which a process remembers when it last recorded them."""

BROWSERS = (
    ("Edge", r"\bEdgA?/|\bEdgiOS/"),
    ("Whale", r"\bWhale/"),
    ("Samsung Internet", r"\bSamsungBrowser/"),
    ("Opera", r"\bOPR/"),
    ("Firefox", r"\bFirefox/|\bFxiOS/"),
    ("Chrome", r"\b(Headless)?Chrome/|\bCriOS/"),
    ("Safari", r"\bSafari/"),
)
"""In this order: each also claims to be some of those after it."""
SYSTEMS = (
    ("iPhone", r"\biPhone\b"),
    ("iPad", r"\biPad\b"),
    ("Android", r"\bAndroid\b"),
    ("Windows", r"\bWindows\b"),
    ("macOS", r"\bMacintosh\b"),
    ("ChromeOS", r"\bCrOS\b"),
    ("Linux", r"\bLinux\b|\bX11\b"),
)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """One session as its owner sees it."""

    id: UUID
    is_current: bool
    device: str
    address: str
    created_at: datetime
    last_seen_at: datetime


def list_sessions(*, user: User, current_key: str = "") -> list[SignedIn]:
    """The valid sessions, the current one first, then by when they were last seen."""
    rows = UserSession.objects.purge_and_list(user)
    sessions = [
        SignedIn(
            id=make_session_id(row.session_key),
            is_current=row.session_key == current_key,
            device=describe_device(row.user_agent),
            address=row.ip,
            created_at=row.created_at,
            last_seen_at=row.last_seen_at,
        )
        for row in rows
    ]
    return sorted(
        sessions, key=lambda session: (session.is_current, session.last_seen_at), reverse=True
    )


def make_session_id(session_key: str) -> UUID:
    """The public id of a session, whose key must stay secret."""
    return UUID(hashlib.sha256(session_key.encode()).hexdigest()[:32])


def describe_device(user_agent: str) -> str:
    """Browser and system in words, as far as the user agent tells."""
    browser = next((name for name, mark in BROWSERS if re.search(mark, user_agent)), "")
    system = next((name for name, mark in SYSTEMS if re.search(mark, user_agent)), "")
    return " · ".join(filter(None, (browser, system))) or _("Unknown device")


def end_session(*, user: User, session_id: UUID) -> bool:
    """End one session of the user; False if there is no such session."""
    keys = UserSession.objects.filter(user=user).values_list("session_key", flat=True)
    key = next((key for key in keys if make_session_id(key) == session_id), None)
    if key is None:
        return False
    _end_keys(user, [key], actor=user, target=f"session:{session_id}")
    return True


def end_sessions(*, user: User, actor: AbstractBaseUser | None = None, except_key: str = "") -> int:
    """End all sessions of a user except the one with this key; how many."""
    listed = UserSession.objects.filter(user=user).values_list("session_key", flat=True)
    keys = ({*listed} | set(_find_keys(user))) - {except_key}
    _end_keys(user, keys, actor=actor or user, target="session:all")
    return len(keys)


def _find_keys(user: User) -> list[str]:
    """Keys of all the user's sessions, including unlisted ones; reads every session."""
    rows = Session.objects.filter(expire_date__gt=timezone.now()).iterator()
    return [row.session_key for row in rows if row.get_decoded().get(SESSION_KEY) == str(user.pk)]


@transaction.atomic
def _end_keys(user: User, keys: Collection[str], *, actor: AbstractBaseUser, target: str) -> None:
    if not keys:
        return
    Session.objects.filter(session_key__in=keys).delete()
    UserSession.objects.filter(session_key__in=keys).delete()
    details = {"count": len(keys)}
    record_event(Action.SESSION_ENDED, actor=actor, subject=user, target=target, details=details)
    announce_rights_change()


_noted: dict[str, float] = {}
"""When this process last recorded each session; saves statements."""


def is_seen_due(session_key: str) -> bool:
    """Whether this process has not recorded the session for a minute."""
    return time.monotonic() - _noted.get(session_key, -SEEN_NOTED_SECONDS) >= SEEN_NOTED_SECONDS


def record_session_seen(
    *, user: AbstractBaseUser, session_key: str, address: str, user_agent: str
) -> None:
    """Record that a session was seen now; create its row if it has none."""
    if len(_noted) >= MAX_REMEMBERED:
        _noted.clear()
    _noted[session_key] = time.monotonic()
    now = timezone.now()
    agent = user_agent[: UserSession._meta.get_field("user_agent").max_length]  # noqa: SLF001
    rows = UserSession.objects.filter(session_key=session_key)
    stale = rows.filter(last_seen_at__lt=now - timedelta(seconds=SEEN_NOTED_SECONDS))
    updated = stale.update(
        last_seen_at=now, user_agent=agent, **({"ip": address} if address else {})
    )
    if not updated and address and not rows.exists():
        row = UserSession(user=user, session_key=session_key, ip=address, user_agent=agent)
        with suppress(IntegrityError):  # the account was deleted meanwhile
            UserSession.objects.bulk_create([row], ignore_conflicts=True)

"""Accounts: their names, API keys, usage, and where they are signed in.

A name is refused where it mixes scripts that no language writes together, where every letter of it
could be a Latin one ("аӏісе" in Cyrillic), or where it holds what cannot be seen. The data are
Unicode's (UTS 39), by confusable_homoglyphs.

Where an account is signed in stands in allauth's table, a row for each session, made at sign-in;
when it was last seen is written here once a minute at most. Django's own session is the truth: a
row without one is gone.
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
    """Raise `ValidationError`, in words, where a name could pass for another."""
    from confusable_homoglyphs import categories  # a megabyte of data that few requests need

    if any(unicodedata.category(character) in UNSEEN for character in name):
        raise ValidationError(_("The name contains a character that cannot be seen."), "unseen")
    scripts = {categories.alias(character) for character in name} - SHARED
    has_loose_marks = any(
        unicodedata.category(one) in {"Mn", "Me"} and categories.alias(one) == "INHERITED"
        for one in unicodedata.normalize("NFC", name)
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
    """Whether letters that are not plain Latin ones look just like them."""
    letters = [one for one in name if one.isalpha() and not one.isascii()]
    if scripts <= {"LATIN"}:
        return any(map(_has_ascii_twin, letters))
    if scripts & EAST_ASIAN:
        return any(_has_ascii_twin(one) for one in letters if one.isalpha() and _is_latin(one))
    return bool(letters) and all(map(_has_ascii_twin, letters))


def _has_ascii_twin(letter: str) -> bool:
    from confusable_homoglyphs import confusables

    found = confusables.is_confusable(letter, greedy=True)
    return bool(found) and any(twin["c"].isascii() for twin in found[0]["homoglyphs"])


def _is_latin(letter: str) -> bool:
    from confusable_homoglyphs import categories

    return bool(categories.alias(letter) == "LATIN")


def _is_lone_jamo(letter: str) -> bool:
    """A part of a syllable that stands alone, as ㅣ, which beside Latin looks like l."""
    return "\u1100" <= letter <= "\u11ff" or "\u3130" <= letter <= "\u318f"


SHOWN_CHARACTERS = 8
"""Characters of a key that stay readable, so that its owner can tell keys apart."""
USAGE_DAYS = 30
"""Questions of so many days are told with the usage."""


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """What a user has stored and asked."""

    documents: int
    bytes: int
    pages: int
    messages_today: int
    tokens_this_month: int


def create_key(*, user: User, lifetime: timedelta | None = None) -> str:
    """A new API key that may do everything; this is the only time it is readable."""
    expires_at = None if lifetime is None else timezone.now() + lifetime
    _stored, key = make_key(user=user, name="", scopes=ALL_SCOPES, expires_at=expires_at)
    return key


@transaction.atomic
def make_key(
    *, user: User, name: str, scopes: Collection[str], expires_at: datetime | None = None
) -> tuple[AuthToken, str]:
    """Create an API key: its row and its secret, of which only the hash is stored."""
    stored, key = AuthToken.objects.create(user)
    stored.expiry = expires_at
    stored.save(update_fields=("expiry",))
    kept = sort_scopes(scopes)
    stored.details = KeyDetails.objects.create(key=stored, name=name, scopes=kept)
    record_event(
        Action.KEY_CREATED,
        actor=user,
        subject=user,
        target=f"key:{make_key_id(stored)}",
        details={"scopes": kept, "expires_at": stored.expiry},
    )
    return stored, str(key)


def list_keys(*, user: User) -> QuerySet[Any]:
    """The user's keys that still work, newest first."""
    alive: QuerySet[Any] = AuthToken.objects.filter(user=user).exclude(expiry__lt=timezone.now())
    return alive.select_related("details").order_by("-created", "digest")


@transaction.atomic
def revoke_key(*, user: User, key_id: UUID) -> bool:
    """Delete one key of the user; False when the user has no such key. What it has open ends."""
    found = AuthToken.objects.select_for_update().filter(user=user, digest__startswith=key_id.hex)
    if (key := found.first()) is None:
        return False
    key.delete()
    record_event(Action.KEY_REVOKED, actor=user, subject=user, target=f"key:{key_id}")
    announce_rights_change()
    return True


@transaction.atomic
def revoke_keys(*, user: User, actor: AbstractBaseUser | AnonymousUser) -> int:
    """Delete all keys of a user; how many. What they have open ends."""
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
    """Create the user of that name, or bring an existing one to this state.

    Raises `ValidationError` where a new name could be mistaken for another.
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
    done = Action.ACCOUNT_CREATED if created else Action.PASSWORD_CHANGED
    record_event(done, subject=user, details={"by": "command", "is_staff": user.is_staff})
    announce_rights_change()
    return user


@transaction.atomic
def replace_email(*, user: User, email: str) -> None:
    """The account's one address from now on, unconfirmed: for installations without mail."""
    EmailAddress.objects.filter(user=user).delete()
    EmailAddress.objects.create(user=user, email=email.lower(), primary=True, verified=False)
    User.objects.filter(pk=user.pk).update(email=email.lower())
    changed = {"changed": ["email"]}
    record_event(Action.ACCOUNT_CHANGED, actor=user, subject=user, details=changed)


def count_usage(*, user: User) -> AccountUsage:
    """Counted now from the rows."""
    kept = quotas.count_kept(user.pk)
    return AccountUsage(
        documents=kept.documents,
        bytes=kept.bytes,
        pages=kept.pages,
        messages_today=count_questions_today(user.pk),
        tokens_this_month=count_tokens_this_month(user.pk),
    )


def list_usage(wanted: str = "") -> QuerySet[Any]:
    """Accounts with what they keep and ask, those that ask most first.

    Each has `kept_documents`, `kept_bytes`, `kept_pages`, and `questions` of the last `USAGE_DAYS`
    days. `wanted` narrows them to names and addresses that contain it.
    """
    own = Document.objects.filter(owner=OuterRef("pk")).order_by().values("owner")
    since = timezone.localdate() - timedelta(days=USAGE_DAYS - 1)
    asked = DailyMessages.objects.filter(owner=OuterRef("pk"), day__gte=since).order_by()
    questions = asked.values("owner").annotate(sum=Sum("count")).values("sum")
    figures = {
        "kept_documents": own.annotate(sum=Count("pk")).values("sum"),
        "kept_bytes": own.annotate(sum=Sum("size")).values("sum"),
        "kept_pages": own.annotate(sum=Sum("page_count")).values("sum"),
        "questions": questions,
    }
    counted = {name: Coalesce(Subquery(rows), 0) for name, rows in figures.items()}
    named = Q(username__icontains=wanted) | Q(email__icontains=wanted)
    found: QuerySet[Any] = User.objects.filter(named).annotate(**counted)
    return found.order_by("-questions", "username")


def describe_account(*, user: User) -> dict[str, Any]:
    """The response of `GET /me`. None in limits, what is left and soft limits means no limit."""
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
        "left": {name: limit.get_left(usage[name]) for name, limit in limits.items()},
        "soft": {name: limit.soft for name, limit in limits.items()},
        "resets_at": {
            QuotaMeasure.QUESTIONS.value: quotas.get_next_day(),
            QuotaMeasure.TOKENS.value: quotas.get_next_month(),
        },
    }


SEEN_NOTED_SECONDS = 60.0
MAX_REMEMBERED = 10_000
"""Sessions of which a process knows that they were noted just now."""

BROWSERS = (
    ("Edge", r"\bEdgA?/|\bEdgiOS/"),
    ("Whale", r"\bWhale/"),
    ("Samsung Internet", r"\bSamsungBrowser/"),
    ("Opera", r"\bOPR/"),
    ("Firefox", r"\bFirefox/|\bFxiOS/"),
    ("Chrome", r"\b(Headless)?Chrome/|\bCriOS/"),
    ("Safari", r"\bSafari/"),
)
"""Each names itself after those behind it, too."""
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
    """All that still hold, the current one first, then as they were seen last."""
    rows = UserSession.objects.purge_and_list(user)
    found = [
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
    return sorted(found, key=lambda one: (one.is_current, one.last_seen_at), reverse=True)


def make_session_id(session_key: str) -> UUID:
    """What a session is called outside: its key must not be told."""
    return UUID(hashlib.sha256(session_key.encode()).hexdigest()[:32])


def describe_device(user_agent: str) -> str:
    """The browser and the system in words, as far as the browser tells."""
    browser = next((name for name, mark in BROWSERS if re.search(mark, user_agent)), "")
    system = next((name for name, mark in SYSTEMS if re.search(mark, user_agent)), "")
    return " · ".join(filter(None, (browser, system))) or _("Unknown device")


def end_session(*, user: User, session_id: UUID) -> bool:
    """End one session of the user; False when there is none of that name."""
    keys = UserSession.objects.filter(user=user).values_list("session_key", flat=True)
    key = next((key for key in keys if make_session_id(key) == session_id), None)
    if key is None:
        return False
    _end_keys(user, [key], actor=user, target=f"session:{session_id}")
    return True


def end_sessions(*, user: User, actor: AbstractBaseUser | None = None, except_key: str = "") -> int:
    """End all sessions of a user, but the one with this key; how many."""
    noted = UserSession.objects.filter(user=user).values_list("session_key", flat=True)
    keys = ({*noted} | set(_find_keys(user))) - {except_key}
    _end_keys(user, keys, actor=actor or user, target="session:all")
    return len(keys)


def _find_keys(user: User) -> list[str]:
    """Keys of the user's sessions, also of those nobody noted; reads all that there are."""
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
"""When this process noted a session; only to spare statements."""


def is_seen_due(session_key: str) -> bool:
    """Whether that the session was seen has not been written for a minute, by this process."""
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
    known = UserSession.objects.filter(session_key=session_key)
    late = known.filter(last_seen_at__lt=now - timedelta(seconds=SEEN_NOTED_SECONDS))
    seen = late.update(last_seen_at=now, user_agent=agent, **({"ip": address} if address else {}))
    if not seen and address and not known.exists():
        row = UserSession(user=user, session_key=session_key, ip=address, user_agent=agent)
        with suppress(IntegrityError):  # the account has been deleted meanwhile
            UserSession.objects.bulk_create([row], ignore_conflicts=True)

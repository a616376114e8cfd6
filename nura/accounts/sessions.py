"""Where an account is signed in: to list it, to note that it was seen, to end it.

Allauth's table has one row for each session, made at sign-in; when it was last seen is written here
once a minute at most. Django's own session is the truth: a row without one is gone.
"""

import hashlib
import re
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from allauth.usersessions.models import UserSession
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.sessions.models import Session
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from documents.audit import Action, record_event
from documents.notices import announce_change

SEEN_NOTED_SECONDS = 60.0
MAX_REMEMBERED = 10_000
"""Sessions of which a process knows that they were noted just now."""

BROWSERS = (
    ("Edge", r"\bEdgA?/|\bEdgiOS/"),
    ("Whale", r"\bWhale/"),
    ("Samsung Internet", r"\bSamsungBrowser/"),
    ("Opera", r"\bOPR/"),
    ("Firefox", r"\bFirefox/|\bFxiOS/"),
    ("Chrome", r"\bChrome/|\bCriOS/"),
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
    announce_change()


_noted: dict[str, float] = {}
"""When this process noted a session; only to spare statements."""


def is_seen_due(session_key: str) -> bool:
    """Whether that the session was seen has not been written for a minute, by this process."""
    return time.monotonic() - _noted.get(session_key, -SEEN_NOTED_SECONDS) >= SEEN_NOTED_SECONDS


def note_session_seen(
    *, user: AbstractBaseUser, session_key: str, address: str, user_agent: str
) -> None:
    """Write that a session was seen now; one from before there were rows gets its row."""
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

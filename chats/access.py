"""Who is at the other end of a connection: a session of our own pages, or a key of a program."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import Q
from django.http.request import validate_host
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from knox.crypto import hash_token
from knox.models import AuthToken

TOKEN_PREFIX = "token."  # noqa: S105 - not a secret
Scope = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Credential:
    """What somebody showed: a token's digest or a session's key; both empty where nothing counts.

    It is kept as long as the connection is open, so that it can be asked again whether it holds.
    """

    token: str = ""
    session: str = ""


def users_of(credentials: Sequence[Credential]) -> list[User | None]:
    """The active user of each, looked up anew with a few queries; None where none is (any more)."""
    by_token = _by_token({one.token for one in credentials if one.token})
    by_session = _by_session({one.session for one in credentials if one.session})
    return [by_token.get(one.token) or by_session.get(one.session) for one in credentials]


def credential_of(scope: Scope) -> Credential:
    """What a socket shows that may count.

    A session counts only with an Origin of our own (a foreign page's script sends our cookie too);
    a token is enough by itself, but a foreign Origin is refused with it as well.
    """
    origin = _header(scope, b"origin")
    if origin and not _own(origin, scope):
        return Credential()
    token = next((p for p in scope.get("subprotocols", ()) if p.startswith(TOKEN_PREFIX)), None)
    if token is not None:
        return Credential(token=hash_token(token.removeprefix(TOKEN_PREFIX)))
    kept = _cookies(scope).get(settings.SESSION_COOKIE_NAME, "")
    return Credential(session=kept if origin else "")


def language_of(scope: Scope) -> str:
    """The language the page is shown in."""
    wanted = _cookies(scope).get(settings.LANGUAGE_COOKIE_NAME, "")
    return wanted if wanted in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


def _by_token(digests: Collection[str]) -> dict[str, User]:
    if not digests:
        return {}
    unexpired = Q(expiry=None) | Q(expiry__gt=timezone.now())
    rows = AuthToken.objects.filter(unexpired, digest__in=digests, user__is_active=True)
    return {row.digest: row.user for row in rows.select_related("user")}


def _by_session(keys: Collection[str]) -> dict[str, User]:
    """As `django.contrib.auth.get_user`, read fresh: a changed password or a sign-out ends it."""
    sessions = _sessions(keys) if keys else {}
    ids = {str(session[SESSION_KEY]) for session in sessions.values()}
    users = {str(user.pk): user for user in User.objects.filter(pk__in=ids, is_active=True)}
    found = {}
    for key, session in sessions.items():
        user = users.get(str(session[SESSION_KEY]))
        kept = session.get(HASH_SESSION_KEY, "")
        if user is not None and constant_time_compare(kept, user.get_session_auth_hash()):
            found[key] = user
    return found


def _sessions(keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """What living sessions that somebody signed in with hold, by key."""
    rows = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    held = {row.session_key: row.get_decoded() for row in rows}
    known = settings.AUTHENTICATION_BACKENDS
    return {
        key: kept
        for key, kept in held.items()
        if SESSION_KEY in kept and kept.get(BACKEND_SESSION_KEY) in known
    }


def _own(origin: str, scope: Scope) -> bool:
    host = _header(scope, b"host")
    parts = urlsplit(origin)
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    known = validate_host((parts.hostname or "").lower(), settings.ALLOWED_HOSTS)
    return bool(parts.netloc) and known and parts.netloc == host


def _header(scope: Scope, name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope.get("headers", ()) if k == name), "")


def _cookies(scope: Scope) -> dict[str, str]:
    try:
        return {k: v.value for k, v in SimpleCookie(_header(scope, b"cookie")).items()}
    except CookieError:
        return {}

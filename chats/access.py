"""Who is at the other end of a socket: a session of our own pages, or a token of a program."""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.http.request import validate_host
from django.utils.crypto import constant_time_compare
from knox.auth import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

TOKEN_PREFIX = "token."  # noqa: S105 - not a secret


def user_of(scope: Mapping[str, Any]) -> User | None:
    """The active user of a socket, looked up anew on each call; None when there is none (any more).

    A session counts only with an Origin of our own (a foreign page's script sends our cookie too);
    a token is enough by itself, but a foreign Origin is refused with it as well.
    """
    origin = _header(scope, b"origin")
    if origin and not _own(origin, scope):
        return None
    token = next((p for p in scope.get("subprotocols", ()) if p.startswith(TOKEN_PREFIX)), None)
    if token is not None:
        return _token_user(token.removeprefix(TOKEN_PREFIX))
    return _session_user(scope) if origin else None


def language_of(scope: Mapping[str, Any]) -> str:
    """The language the page is shown in."""
    wanted = _cookies(scope).get(settings.LANGUAGE_COOKIE_NAME, "")
    return wanted if wanted in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


def _token_user(token: str) -> User | None:
    try:
        user, _ = TokenAuthentication().authenticate_credentials(token.encode())
    except (AuthenticationFailed, UnicodeError):
        return None
    return user  # type: ignore[no-any-return]


def _session_user(scope: Mapping[str, Any]) -> User | None:
    """As `django.contrib.auth.get_user`, read fresh: a changed password or a sign-out ends it."""
    key = _cookies(scope).get(settings.SESSION_COOKIE_NAME, "")
    session = import_module(settings.SESSION_ENGINE).SessionStore(key) if key else {}
    if session.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return None
    user = User.objects.filter(pk=str(session[SESSION_KEY]), is_active=True).first()
    if user is None:
        return None
    kept = session.get(HASH_SESSION_KEY, "")
    return user if constant_time_compare(kept, user.get_session_auth_hash()) else None


def _own(origin: str, scope: Mapping[str, Any]) -> bool:
    host = _header(scope, b"host")
    parts = urlsplit(origin)
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    known = validate_host((parts.hostname or "").lower(), settings.ALLOWED_HOSTS)
    return bool(parts.netloc) and known and parts.netloc == host


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope.get("headers", ()) if k == name), "")


def _cookies(scope: Mapping[str, Any]) -> dict[str, str]:
    try:
        return {k: v.value for k, v in SimpleCookie(_header(scope, b"cookie")).items()}
    except CookieError:
        return {}

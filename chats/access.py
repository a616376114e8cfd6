"""Who is at the other end of a connection, and that they still may be there.

A session of our own pages or a key of a program lets in. Rights end while something is open (a
socket, server-sent events, a stream of the gateway), so all that is open on an event loop is looked
at together, every few seconds.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import structlog
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import Error as DatabaseError
from django.db.models import Q
from django.http.request import validate_host
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from knox.crypto import hash_token
from knox.models import AuthToken
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request

from chats.calls import in_database

TOKEN_PREFIX = "token."  # noqa: S105 - not a secret
ConnectionScope = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Credential:
    """What somebody showed: a token's digest or a session's key; both empty where nothing counts.

    It is kept as long as the connection is open, so that it can be asked again whether it holds.
    """

    token: str = ""
    session: str = ""


def find_users(credentials: Sequence[Credential]) -> list[User | None]:
    """The active user of each, looked up anew with a few queries; None where none is (any more)."""
    keys = find_keys({one.token for one in credentials if one.token})
    by_session = _by_session({one.session for one in credentials if one.session})
    return [
        keys[one.token].user if one.token in keys else by_session.get(one.session)
        for one in credentials
    ]


def read_credential(scope: ConnectionScope) -> Credential:
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


def read_language(scope: ConnectionScope) -> str:
    """The language the page is shown in."""
    wanted = _cookies(scope).get(settings.LANGUAGE_COOKIE_NAME, "")
    return wanted if wanted in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


def find_keys(digests: Collection[str]) -> dict[str, AuthToken]:
    """The keys that hold, by digest, with their active owners. One query."""
    if not digests:
        return {}
    unexpired = Q(expiry=None) | Q(expiry__gt=timezone.now())
    rows = AuthToken.objects.filter(unexpired, digest__in=digests, user__is_active=True)
    return {row.digest: row for row in rows.select_related("user")}


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


def _own(origin: str, scope: ConnectionScope) -> bool:
    host = _header(scope, b"host")
    parts = urlsplit(origin)
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    known = validate_host((parts.hostname or "").lower(), settings.ALLOWED_HOSTS)
    return bool(parts.netloc) and known and parts.netloc == host


def _header(scope: ConnectionScope, name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope.get("headers", ()) if k == name), "")


def _cookies(scope: ConnectionScope) -> dict[str, str]:
    try:
        return {k: v.value for k, v in SimpleCookie(_header(scope, b"cookie")).items()}
    except CookieError:
        return {}


def get_user(request: Request) -> User:
    """The signed-in user. Raises `NotAuthenticated`."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


def get_credential(request: Request) -> Credential:
    """The key or the session by which the request was let through."""
    if isinstance(request.auth, AuthToken):
        return Credential(token=request.auth.digest)
    return Credential(session=request.session.session_key or "")


logger = structlog.get_logger()

RECHECK_SECONDS = 3.0
"""Rights are looked up so often, and ..."""
CLOSE_SECONDS = 0.5
"""... that long may what ends by it keep the others waiting: together less than five seconds."""

Part = TypeVar("Part")
Ended = Callable[[], Awaitable[None]]


class AccessWatcher:
    """Looks now and then whether everybody may still be here."""

    def __init__(self) -> None:
        self.credentials: dict[Ended, Credential] = {}
        """What to call when a credential holds no longer."""
        # A context of its own: it serves all that is open, not only what came first.
        self._task = asyncio.create_task(self._run(), context=Context())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            credentials = dict(self.credentials)
            if not credentials:
                continue
            try:
                users = await in_database(find_users, [*credentials.values()])
            except DatabaseError as error:  # nobody is sent away for that
                logger.warning("access_not_checked", error=str(error)[:200])
                continue
            except Exception:  # one credential must not end the looking at all others
                logger.exception("access_not_checked")
                continue
            ended = [end for end, user in zip(credentials, users, strict=True) if user is None]
            # A reader that takes nothing may take no close either: it is tried again.
            closing = [asyncio.wait_for(end(), CLOSE_SECONDS) for end in ended]
            await asyncio.gather(*closing, return_exceptions=True)


_watchers: WeakKeyDictionary[asyncio.AbstractEventLoop, AccessWatcher] = WeakKeyDictionary()


def watch_credential(credential: Credential, ended: Ended) -> None:
    """Call `ended` when the credential has no active user any more."""
    loop = asyncio.get_running_loop()
    if loop not in _watchers:
        _watchers[loop] = AccessWatcher()
    _watchers[loop].credentials[ended] = credential


def forget_credential(ended: Ended) -> None:
    """Watch no longer."""
    if watcher := _watchers.get(asyncio.get_running_loop()):
        watcher.credentials.pop(ended, None)


async def stream_while_held(
    credential: Credential,
    parts: AsyncGenerator[Part, None],
    then: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Part, None]:
    """The parts of a stream while the credential holds; `then` is called when it no longer does.

    That comes even while the reader takes nothing, so that nothing more is made for him.
    """
    gone = asyncio.Event()
    waiting: asyncio.Timeout | None = None

    async def end() -> None:
        gone.set()
        forget_credential(end)
        then()
        if waiting is not None:
            waiting.reschedule(0)

    watch_credential(credential, end)
    try:
        async with aclosing(parts):
            while not gone.is_set():
                try:
                    async with asyncio.timeout(None) as waiting:  # `end` sets the time
                        part = await anext(parts)
                except StopAsyncIteration:
                    return
                waiting = None
                yield part
    except TimeoutError:
        if not gone.is_set():
            raise
    finally:
        forget_credential(end)

"""Who is at the other end of a connection, what they may do, and whether they still may.

A session of our own pages or an API key gives access. Rights can end while a connection is open (a
socket, server-sent events, a gateway stream) or an answer is being written. Whoever ends rights
announces it (`documents.notices.announce_change`), and everything open is rechecked at once, and
every second in case an announcement was lost. Either way it ends within two seconds.

Jobs of inactive owners are neither claimed nor continued: see `jobs.lease`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import Error as DatabaseError
from django.db import OperationalError
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http.request import validate_host
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from knox.crypto import hash_token
from knox.models import AuthToken
from redis.exceptions import RedisError
from rest_framework.request import Request

from chats.errors import ScopeMissing, Unavailable
from chats.models import KeyDetails, KeyScope, Run
from chats.models.key import ALL_SCOPES, list_scopes
from chats.runs import log
from documents.libraries import find_unreadable_documents, list_readable_libraries
from documents.models import Document
from documents.notices import get_rights_channel
from jobs import connections
from jobs.background import LoopTask
from jobs.connections import ANY_TIME, KEYS, KeptQuery, in_database

logger = structlog.get_logger()

TOKEN_PREFIX = "token."  # noqa: S105 - not a secret
ConnectionScope = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Credential:
    """A token's digest or a session's key; both empty if the client sent nothing usable.

    Kept as long as the connection is open, so that it can be checked again.
    """

    token: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Principal:
    """The user a credential belongs to, and its scopes."""

    user: User
    scopes: frozenset[str]

    def require(self, scope: KeyScope) -> None:
        """Raise `ScopeMissing` if the credential lacks the scope."""
        if scope not in self.scopes:
            raise ScopeMissing(scope=str(scope))


def find_principals(credentials: Sequence[Credential]) -> list[Principal | None]:
    """The principal of each credential, freshly looked up in a few queries; None if invalid."""
    keys = find_keys({credential.token for credential in credentials if credential.token})
    by_session = _find_users_by_session(
        {credential.session for credential in credentials if credential.session}
    )
    holders: list[Principal | None] = []
    for credential in credentials:
        if key := keys.get(credential.token):
            holders.append(Principal(key.user, list_scopes(key)))
        else:
            user = by_session.get(credential.session)
            holders.append(Principal(user, ALL_SCOPES) if user else None)
    return holders


def authenticate(credential: Credential) -> Principal | None:
    """The principal of a credential, or None if it is not valid. Records when a key was used."""
    if key := find_keys([credential.token]).get(credential.token) if credential.token else None:
        record_key_use(key)
        return Principal(key.user, list_scopes(key))
    (holder,) = find_principals([credential])
    return holder


def read_credential(scope: ConnectionScope) -> Credential:
    """The credential of a socket.

    A session counts only with an Origin of our own (a foreign page's script sends our cookie too);
    a token needs no Origin, but a foreign one is refused with it as well.
    """
    origin = _read_header(scope, b"origin")
    if origin and not _is_own_origin(origin, scope):
        return Credential()
    token = next((p for p in scope.get("subprotocols", ()) if p.startswith(TOKEN_PREFIX)), None)
    if token is not None:
        return Credential(token=hash_token(token.removeprefix(TOKEN_PREFIX)))
    session_key = _read_cookies(scope).get(settings.SESSION_COOKIE_NAME, "")
    return Credential(session=session_key if origin else "")


def read_language(scope: ConnectionScope) -> str:
    """The language the page is shown in."""
    language = _read_cookies(scope).get(settings.LANGUAGE_COOKIE_NAME, "")
    return language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


def find_keys(digests: Collection[str]) -> dict[str, AuthToken]:
    """The valid keys by digest, with their active owners. One query."""
    if not digests:
        return {}
    return {row.digest: row for row in _keys.fetch(list(digests), timezone.now())}


def _select_keys(digests: object, now: datetime) -> QuerySet[AuthToken]:
    rows: QuerySet[AuthToken] = AuthToken.objects.filter(
        _build_unexpired_filter(now), user__is_active=True
    )
    detailed = rows.select_related("user", "details")
    return detailed.extra(where=["knox_authtoken.digest = ANY(%s)"], params=[digests])


_keys = KeptQuery(_select_keys, KEYS, ANY_TIME)


def _build_unexpired_filter(now: datetime) -> Q:
    return Q(expiry=None) | Q(expiry__gt=now)


KEY_USE_SECONDS = 60
"""The last use of a key is recorded at most this often."""


def record_key_use(key: AuthToken) -> None:
    """Record that the key was used, unless that was done within the last minute."""
    now = timezone.now()
    details = getattr(key, "details", None)
    if details is None:  # made by a version without details
        new_details = KeyDetails(key=key, scopes=sorted(ALL_SCOPES), last_used_at=now)
        KeyDetails.objects.bulk_create([new_details], ignore_conflicts=True)
        return
    last_used_at = details.last_used_at
    if last_used_at is not None and now - last_used_at < timedelta(seconds=KEY_USE_SECONDS):
        return
    try:
        unchanged = Q(last_used_at=last_used_at) if last_used_at else Q(last_used_at=None)
        KeyDetails.objects.filter(unchanged, pk=key.pk).update(last_used_at=now)
    except OperationalError as error:  # a full disk: reading still works
        logger.warning("key_use_not_noted", error=str(error)[:200])


def _find_users_by_session(keys: Collection[str]) -> dict[str, User]:
    """Like `django.contrib.auth.get_user`, but always fresh: a new password or sign-out ends it."""
    sessions = _load_sessions(keys) if keys else {}
    ids = {str(session[SESSION_KEY]) for session in sessions.values()}
    users = {str(user.pk): user for user in User.objects.filter(pk__in=ids, is_active=True)}
    by_key = {}
    for key, session in sessions.items():
        user = users.get(str(session[SESSION_KEY]))
        session_hash = session.get(HASH_SESSION_KEY, "")
        if user is not None and constant_time_compare(session_hash, user.get_session_auth_hash()):
            by_key[key] = user
    return by_key


def _load_sessions(keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """The data of unexpired signed-in sessions, by key."""
    rows = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    by_key = {row.session_key: _decode_session(row.session_data) for row in rows}
    backends = settings.AUTHENTICATION_BACKENDS
    return {
        key: data
        for key, data in by_key.items()
        if SESSION_KEY in data and data.get(BACKEND_SESSION_KEY) in backends
    }


@lru_cache(maxsize=4096)
def _decode_session(data: str) -> dict[str, Any]:
    """A session's data. Sessions of open connections are checked every second and hardly change."""
    decoded: dict[str, Any] = Session(session_data=data).get_decoded()
    return decoded


def _is_own_origin(origin: str, scope: ConnectionScope) -> bool:
    """Whether scheme, host and port of the origin are ours."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = urlsplit(origin)
    is_allowed = validate_host((parts.hostname or "").lower(), settings.ALLOWED_HOSTS)
    is_same_host = parts.netloc == _read_header(scope, b"host") and parts.scheme == _read_scheme(
        scope
    )
    return bool(parts.netloc) and is_allowed and is_same_host


def _read_scheme(scope: ConnectionScope) -> str:
    """`http` or `https`, from the proxy's header if Django trusts it."""
    if proxy_header := settings.SECURE_PROXY_SSL_HEADER:
        name = proxy_header[0].removeprefix("HTTP_").replace("_", "-").lower().encode()
        scheme = _read_header(scope, name).partition(",")[0].strip()
        return "https" if scheme == proxy_header[1] else "http"
    return "https" if scope.get("scheme") in {"https", "wss"} else "http"


def _read_header(scope: ConnectionScope, name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope.get("headers", ()) if k == name), "")


def _read_cookies(scope: ConnectionScope) -> dict[str, str]:
    try:
        return {k: v.value for k, v in SimpleCookie(_read_header(scope, b"cookie")).items()}
    except CookieError:
        return {}


def get_credential(request: Request) -> Credential:
    """The key or session that authenticated the request."""
    if isinstance(request.auth, AuthToken):
        return Credential(token=request.auth.digest)
    return Credential(session=request.session.session_key or "")


RECHECK_SECONDS = 1.0
"""How often rights are rechecked, and ..."""
MAX_CLOCK_SKEW = timedelta(seconds=10)
"""How far the database's clock may differ from ours."""
CLOSE_SECONDS = 0.5
"""... how long closing one connection may delay the others: together less than two seconds."""

T = TypeVar("T")
OnEnd = Callable[[], Awaitable[None]]


class RightsListener(LoopTask):
    """Listens for changes of rights and wakes the watchers of this event loop."""

    TROUBLE = "rights_not_heard"

    def __init__(self) -> None:
        self.waiting: set[asyncio.Event] = set()

    async def run_round(self) -> None:
        """Listen until the connection breaks."""
        async with connections.get_async_client().pubsub() as channel:
            await channel.subscribe(get_rights_channel())
            async for message in channel.listen():
                if message["type"] == "subscribe":
                    self.note_success()
                for changed in self.waiting:  # also on subscribing: something may have been missed
                    changed.set()


async def wait_for_change(changed: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until a change of rights is announced, at most `seconds`.

    `RECHECK_SECONDS` by default. `changed` is the caller's own event, registered with
    `RightsListener`.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(RECHECK_SECONDS if seconds is None else seconds):
            await changed.wait()
    changed.clear()


class AccessWatcher(LoopTask):
    """Checks whether the credentials of open connections are still valid."""

    TROUBLE = "access_not_checked"

    def __init__(self) -> None:
        self.credentials: dict[OnEnd, Credential] = {}
        """Callbacks for credentials that are no longer valid."""
        self._changed = asyncio.Event()

    async def run_round(self) -> None:
        """Check once. Nobody is disconnected because the database is down."""
        RightsListener.of_running_loop().waiting.add(self._changed)
        await wait_for_change(self._changed)
        credentials = dict(self.credentials)
        if not credentials:
            return
        holders = await in_database(find_principals, [*credentials.values()])
        expired = [end for end, holder in zip(credentials, holders, strict=True) if holder is None]
        # A client that reads nothing may not accept the close either: it is tried again.
        closing = [asyncio.wait_for(end(), CLOSE_SECONDS) for end in expired]
        await asyncio.gather(*closing, return_exceptions=True)


def watch_credential(credential: Credential, on_end: OnEnd) -> None:
    """Call `on_end` when the credential is no longer valid."""
    AccessWatcher.of_running_loop().credentials[on_end] = credential


def unwatch_credential(on_end: OnEnd) -> None:
    """Stop calling `on_end`."""
    AccessWatcher.of_running_loop().credentials.pop(on_end, None)


def stop_runs_without_rights() -> list[UUID]:
    """Stop running answers whose rights have ended; returns their ids.

    The owner is inactive, the key has ended, or the owner may no longer read what the answer reads:
    they left a library, or a document was moved out of one. For such answers that have already
    ended, the logs are deleted: readers then get the rows, which are filtered by rights.
    Runs that no worker has claimed are left to the reaper (`chats.runs.answering`). Raises
    `Unavailable`.
    """
    closed = _find_closed_runs()
    _forget_logs([pk for pk, has_ended in closed.items() if has_ended])
    running = [pk for pk, has_ended in closed.items() if not has_ended]
    stopped = list({*_without_rights.fetch(timezone.now()), *running})
    for run_id in stopped:
        log.request_stop(run_id)  # repeated until it has ended
    return stopped


def _select_without_rights(now: datetime) -> QuerySet[Run, UUID]:
    valid_keys = AuthToken.objects.filter(_build_unexpired_filter(now), pk=OuterRef("asked_with"))
    has_lost_key = ~Q(asked_with="") & ~Exists(valid_keys)
    rows = Run.objects.filter(Run.OPEN).filter(Q(owner__is_active=False) | has_lost_key)
    return rows.values_list("pk", flat=True)


def _select_of_libraries(
    since: datetime,
) -> QuerySet[Run, tuple[UUID, int, list[UUID] | None, datetime | None, datetime]]:
    rows = Run.objects.filter(Run.OPEN | Q(ended_at__gt=since), library_ids__isnull=False)
    return rows.values_list("pk", "owner_id", "library_ids", "ended_at", "created_at")


_without_rights = KeptQuery(_select_without_rights, ANY_TIME)
_of_libraries = KeptQuery(_select_of_libraries, ANY_TIME)
"""Both run every second."""


def _find_closed_runs() -> dict[UUID, bool]:
    """Runs whose log shows what the owner may no longer read, and whether each has ended."""
    since = timezone.now() - timedelta(seconds=log.CLOSED_SECONDS)
    runs = _of_libraries.fetch(since)
    if not runs:
        return {}
    owners = {owner_id for _pk, owner_id, *_rest in runs}
    readable = list_readable_libraries(owners)
    earliest = min(created_at for *_rest, created_at in runs) - MAX_CLOCK_SKEW
    moved = list(Document.objects.filter(moved_at__gt=earliest).values_list("pk", flat=True))
    unreadable = (
        {owner_id: find_unreadable_documents(owner_id, moved) for owner_id in owners}
        if moved
        else {}
    )
    return {
        pk: ended_at is not None
        for pk, owner_id, library_ids, ended_at, _created_at in runs
        if not readable[owner_id].issuperset(library_ids or ())
        or _has_in_scope(pk, unreadable.get(owner_id, ()))
    }


def _has_in_scope(run_id: UUID, document_ids: Collection[UUID]) -> bool:
    """Whether the run's scope contains one of these documents."""
    if not document_ids:
        return False
    scope = Run.objects.values_list("message__scope", flat=True).get(pk=run_id)
    return not {str(pk) for pk in document_ids}.isdisjoint((scope or {}).get("document_ids", ()))


def _forget_logs(run_ids: Sequence[UUID]) -> None:
    try:
        log.delete_logs(run_ids)
    except RedisError as error:
        raise Unavailable from error
    Run.objects.filter(pk__in=run_ids).update(library_ids=None)


def may_be_closed(run: Run) -> bool:
    """Whether the owner may have lost access, since asking, to something that the run reads."""
    moved = Document.objects.filter(moved_at__gt=run.created_at - MAX_CLOCK_SKEW)
    return not may_read_libraries(run.owner_id, run.library_ids or ()) or moved.exists()


def may_read_libraries(user_id: int, library_ids: Collection[UUID]) -> bool:
    """Whether the user is active and may still read all of these libraries."""
    active = User.objects.filter(pk=user_id, is_active=True).exists()
    return active and list_readable_libraries([user_id])[user_id].issuperset(library_ids)


async def wait_until_any_closed(user_id: int, library_ids: Collection[UUID]) -> None:
    """Wait until the user may no longer read one of these libraries."""
    changed = asyncio.Event()
    listeners = RightsListener.of_running_loop().waiting
    listeners.add(changed)
    try:
        while await in_database(_is_known_open, user_id, library_ids):
            await wait_for_change(changed)
    finally:
        listeners.discard(changed)


def _is_known_open(user_id: int, library_ids: Collection[UUID]) -> bool:
    """Whether they may be read, as far as is known: nothing ends because the database is down."""
    try:
        return may_read_libraries(user_id, library_ids)
    except DatabaseError as error:
        logger.warning("libraries_not_checked", error=str(error)[:200])
        return True


async def stream_while_held(
    credential: Credential,
    parts: AsyncGenerator[T, None],
    on_end: Callable[[], None] = lambda: None,
) -> AsyncGenerator[T, None]:
    """The parts of a stream while the credential is valid; calls `on_end` when it no longer is.

    It is called even while the client reads nothing, so that nothing more is made for it.
    """
    is_over = is_cut_off = False
    reader: asyncio.Task[Any] | None = None

    async def end() -> None:
        nonlocal is_over, is_cut_off
        is_over, is_cut_off = True, reader is not None
        unwatch_credential(end)
        on_end()
        if reader is not None:
            reader.cancel()

    watch_credential(credential, end)
    try:
        async with aclosing(parts):
            while not is_over:
                reader = task = asyncio.current_task()
                try:
                    part = await anext(parts)
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    # by `end`, and by nobody else besides
                    if is_cut_off and task is not None and not task.uncancel():
                        return
                    raise
                finally:
                    reader = None
                yield part
    finally:
        unwatch_credential(end)

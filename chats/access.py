"""Who is at the other end of a connection, what they may do, and that they still may be there.

A session of our own pages or a key of a program lets in. Rights end while something is open (a
socket, server-sent events, a stream of the gateway) or being done (an answer). Whoever ends some
says so (`documents.notices.announce_change`), and what is open or being done is looked at at once;
it is looked at every second besides, for what nobody said or Redis lost. Either way it ends within
two seconds.

Jobs are not claimed for, nor kept by, an owner who is not active: see `jobs.lease`.
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
from rest_framework.exceptions import NotAuthenticated
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
    """What somebody showed: a token's digest or a session's key; both empty where nothing counts.

    It is kept as long as the connection is open, so that it can be asked again whether it holds.
    """

    token: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a credential lets in, and what for."""

    user: User
    scopes: frozenset[str]

    def require(self, scope: KeyScope) -> None:
        """Raise `ScopeMissing` where the credential is not good for this."""
        if scope not in self.scopes:
            raise ScopeMissing(scope=str(scope))


def find_holders(credentials: Sequence[Credential]) -> list[Holder | None]:
    """The active user of each, looked up anew with a few queries; None where none is (any more)."""
    keys = find_keys({one.token for one in credentials if one.token})
    by_session = _find_users_by_session({one.session for one in credentials if one.session})
    found: list[Holder | None] = []
    for one in credentials:
        if key := keys.get(one.token):
            found.append(Holder(key.user, list_scopes(key)))
        else:
            user = by_session.get(one.session)
            found.append(Holder(user, ALL_SCOPES) if user else None)
    return found


def authenticate(credential: Credential) -> Holder | None:
    """The holder of a credential, or None if it is not valid. Notes when a key was used."""
    if key := find_keys([credential.token]).get(credential.token) if credential.token else None:
        record_key_use(key)
        return Holder(key.user, list_scopes(key))
    (holder,) = find_holders([credential])
    return holder


def read_credential(scope: ConnectionScope) -> Credential:
    """What a socket shows that may count.

    A session counts only with an Origin of our own (a foreign page's script sends our cookie too);
    a token is enough by itself, but a foreign Origin is refused with it as well.
    """
    origin = _read_header(scope, b"origin")
    if origin and not _is_own_origin(origin, scope):
        return Credential()
    token = next((p for p in scope.get("subprotocols", ()) if p.startswith(TOKEN_PREFIX)), None)
    if token is not None:
        return Credential(token=hash_token(token.removeprefix(TOKEN_PREFIX)))
    kept = _read_cookies(scope).get(settings.SESSION_COOKIE_NAME, "")
    return Credential(session=kept if origin else "")


def read_language(scope: ConnectionScope) -> str:
    """The language the page is shown in."""
    wanted = _read_cookies(scope).get(settings.LANGUAGE_COOKIE_NAME, "")
    return wanted if wanted in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


def find_keys(digests: Collection[str]) -> dict[str, AuthToken]:
    """The keys that hold, by digest, with their active owners. One query."""
    if not digests:
        return {}
    return {row.digest: row for row in _keys.fetch(list(digests), timezone.now())}


def _select_keys(digests: object, now: datetime) -> QuerySet[AuthToken]:
    rows: QuerySet[AuthToken] = AuthToken.objects.filter(
        _build_unexpired_filter(now), user__is_active=True
    )
    whole = rows.select_related("user", "details")
    return whole.extra(where=["knox_authtoken.digest = ANY(%s)"], params=[digests])


_keys = KeptQuery(_select_keys, KEYS, ANY_TIME)


def _build_unexpired_filter(now: datetime) -> Q:
    return Q(expiry=None) | Q(expiry__gt=now)


USE_NOTED_SECONDS = 60
"""The last use of a key is written so often at most."""


def record_key_use(key: AuthToken) -> None:
    """Record that the key was used, unless that was done within the last minute."""
    now = timezone.now()
    details = getattr(key, "details", None)
    if details is None:  # of a version that knew none
        used = KeyDetails(key=key, scopes=sorted(ALL_SCOPES), last_used_at=now)
        KeyDetails.objects.bulk_create([used], ignore_conflicts=True)
        return
    noted = details.last_used_at
    if noted is not None and now - noted < timedelta(seconds=USE_NOTED_SECONDS):
        return
    try:
        before = Q(last_used_at=noted) if noted else Q(last_used_at=None)
        KeyDetails.objects.filter(before, pk=key.pk).update(last_used_at=now)
    except OperationalError as error:  # a full disk: reading goes on
        logger.warning("key_use_not_noted", error=str(error)[:200])


def _find_users_by_session(keys: Collection[str]) -> dict[str, User]:
    """As `django.contrib.auth.get_user`, read fresh: a changed password or a sign-out ends it."""
    sessions = _load_sessions(keys) if keys else {}
    ids = {str(session[SESSION_KEY]) for session in sessions.values()}
    users = {str(user.pk): user for user in User.objects.filter(pk__in=ids, is_active=True)}
    found = {}
    for key, session in sessions.items():
        user = users.get(str(session[SESSION_KEY]))
        kept = session.get(HASH_SESSION_KEY, "")
        if user is not None and constant_time_compare(kept, user.get_session_auth_hash()):
            found[key] = user
    return found


def _load_sessions(keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """What living sessions that somebody signed in with hold, by key."""
    rows = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    held = {row.session_key: _decode_session(row.session_data) for row in rows}
    known = settings.AUTHENTICATION_BACKENDS
    return {
        key: kept
        for key, kept in held.items()
        if SESSION_KEY in kept and kept.get(BACKEND_SESSION_KEY) in known
    }


@lru_cache(maxsize=4096)
def _decode_session(data: str) -> dict[str, Any]:
    """What a session holds. Those that are open are looked at every second and hardly change."""
    decoded: dict[str, Any] = Session(session_data=data).get_decoded()
    return decoded


def _is_own_origin(origin: str, scope: ConnectionScope) -> bool:
    """Whether it is the page's own: scheme, host and port, as browsers compare them."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = urlsplit(origin)
    known = validate_host((parts.hostname or "").lower(), settings.ALLOWED_HOSTS)
    same = parts.netloc == _read_header(scope, b"host") and parts.scheme == _read_scheme(scope)
    return bool(parts.netloc) and known and same


def _read_scheme(scope: ConnectionScope) -> str:
    """`http` or `https`, from the proxy where Django takes it from there."""
    if trusted := settings.SECURE_PROXY_SSL_HEADER:
        name = trusted[0].removeprefix("HTTP_").replace("_", "-").lower().encode()
        told = _read_header(scope, name).partition(",")[0].strip()
        return "https" if told == trusted[1] else "http"
    return "https" if scope.get("scheme") in {"https", "wss"} else "http"


def _read_header(scope: ConnectionScope, name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope.get("headers", ()) if k == name), "")


def _read_cookies(scope: ConnectionScope) -> dict[str, str]:
    try:
        return {k: v.value for k, v in SimpleCookie(_read_header(scope, b"cookie")).items()}
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


RECHECK_SECONDS = 1.0
"""Rights are looked up so often, and ..."""
CLOCKS_APART = timedelta(seconds=10)
"""How far the database's clock may be from ours."""
CLOSE_SECONDS = 0.5
"""... that long may what ends by it keep the others waiting: together less than two seconds."""

Part = TypeVar("Part")
Ended = Callable[[], Awaitable[None]]


class RightsListener(LoopTask):
    """Hears that rights have changed and wakes those of this event loop who look."""

    TROUBLE = "rights_not_heard"

    def __init__(self) -> None:
        self.waiting: set[asyncio.Event] = set()

    async def work(self) -> None:
        """Listen until the connection breaks."""
        async with connections.asynchronous().pubsub() as channel:
            await channel.subscribe(get_rights_channel())
            async for message in channel.listen():
                if message["type"] == "subscribe":
                    self.note_success()
                for changed in self.waiting:  # also at first: something may have been missed
                    changed.set()


async def wait_for_change(changed: asyncio.Event, seconds: float | None = None) -> None:
    """Until rights have changed, as far as is known, and `seconds` at the most.

    These are `RECHECK_SECONDS` unless given. `changed` is the caller's own, among those that
    `RightsListener` wakes.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(RECHECK_SECONDS if seconds is None else seconds):
            await changed.wait()
    changed.clear()


class AccessWatcher(LoopTask):
    """Looks whether everybody may still be here."""

    TROUBLE = "access_not_checked"

    def __init__(self) -> None:
        self.credentials: dict[Ended, Credential] = {}
        """What to call when a credential holds no longer."""
        self._changed = asyncio.Event()

    async def work(self) -> None:
        """Look once. Nobody is sent away because the database is."""
        RightsListener.of_running_loop().waiting.add(self._changed)
        await wait_for_change(self._changed)
        credentials = dict(self.credentials)
        if not credentials:
            return
        holders = await in_database(find_holders, [*credentials.values()])
        ended = [end for end, holder in zip(credentials, holders, strict=True) if holder is None]
        # A reader that takes nothing may take no close either: it is tried again.
        closing = [asyncio.wait_for(end(), CLOSE_SECONDS) for end in ended]
        await asyncio.gather(*closing, return_exceptions=True)


def watch_credential(credential: Credential, ended: Ended) -> None:
    """Call `ended` when the credential has no active user any more."""
    AccessWatcher.of_running_loop().credentials[ended] = credential


def unwatch_credential(ended: Ended) -> None:
    """Stop calling `ended`."""
    AccessWatcher.of_running_loop().credentials.pop(ended, None)


def stop_runs_without_rights() -> list[UUID]:
    """Stop the answers of those who may not have them any more; the ids of those that go on.

    Their owner is not active, their key has ended, or what they read is closed to him: he is no
    member of a library any more, or a document of one has been moved away. Of such answers that
    have ended the logs are deleted: what they show is asked of the rows.

    Those that nobody has begun are left to whoever ends lost ones (`chats.runs.answering`). Raises
    `Unavailable`.
    """
    closed = _find_closed_runs()
    _forget_logs([pk for pk, has_ended in closed.items() if has_ended])
    going = [pk for pk, has_ended in closed.items() if not has_ended]
    stopped = list({*_without_rights.fetch(timezone.now()), *going})
    for run_id in stopped:
        log.request_stop(run_id)  # again each time, until it has ended
    return stopped


def _select_without_rights(now: datetime) -> QuerySet[Run, UUID]:
    living = AuthToken.objects.filter(_build_unexpired_filter(now), pk=OuterRef("asked_with"))
    ended = ~Q(asked_with="") & ~Exists(living)
    rows = Run.objects.filter(Run.OPEN).filter(Q(owner__is_active=False) | ended)
    return rows.values_list("pk", flat=True)


def _select_of_libraries(
    since: datetime,
) -> QuerySet[Run, tuple[UUID, int, list[UUID] | None, datetime | None, datetime]]:
    kept = Run.objects.filter(Run.OPEN | Q(ended_at__gt=since), library_ids__isnull=False)
    return kept.values_list("pk", "owner_id", "library_ids", "ended_at", "created_at")


_without_rights = KeptQuery(_select_without_rights, ANY_TIME)
_of_libraries = KeptQuery(_select_of_libraries, ANY_TIME)
"""Both are asked every second."""


def _find_closed_runs() -> dict[UUID, bool]:
    """Runs with a log that reads what its owner may not read any more; whether each has ended."""
    since = timezone.now() - timedelta(seconds=log.CLOSED_SECONDS)
    runs = _of_libraries.fetch(since)
    if not runs:
        return {}
    owners = {owner_id for _pk, owner_id, *_rest in runs}
    held = list_readable_libraries(owners)
    first = min(created_at for *_rest, created_at in runs) - CLOCKS_APART
    moved = list(Document.objects.filter(moved_at__gt=first).values_list("pk", flat=True))
    closed = (
        {owner_id: find_unreadable_documents(owner_id, moved) for owner_id in owners}
        if moved
        else {}
    )
    return {
        pk: ended_at is not None
        for pk, owner_id, library_ids, ended_at, _created_at in runs
        if not held[owner_id].issuperset(library_ids or ())
        or _has_in_scope(pk, closed.get(owner_id, ()))
    }


def _has_in_scope(run_id: UUID, closed: Collection[UUID]) -> bool:
    """Whether one of these documents, which were moved away from its owner, is in its scope."""
    if not closed:
        return False
    scope = Run.objects.values_list("message__scope", flat=True).get(pk=run_id)
    return not {str(pk) for pk in closed}.isdisjoint((scope or {}).get("document_ids", ()))


def _forget_logs(run_ids: Sequence[UUID]) -> None:
    try:
        log.delete_logs(run_ids)
    except RedisError as error:
        raise Unavailable from error
    Run.objects.filter(pk__in=run_ids).update(library_ids=None)


def may_be_closed(run: Run) -> bool:
    """Whether something that the run reads may have been closed to its owner since it was asked."""
    moved = Document.objects.filter(moved_at__gt=run.created_at - CLOCKS_APART)
    return not may_read_libraries(run.owner_id, run.library_ids or ()) or moved.exists()


def may_read_libraries(user_id: int, library_ids: Collection[UUID]) -> bool:
    """Whether an active user may read all of these libraries still."""
    active = User.objects.filter(pk=user_id, is_active=True).exists()
    return active and list_readable_libraries([user_id])[user_id].issuperset(library_ids)


async def wait_until_closed(user_id: int, library_ids: Collection[UUID]) -> None:
    """Until the user may not read one of these libraries any more."""
    changed = asyncio.Event()
    waiting = RightsListener.of_running_loop().waiting
    waiting.add(changed)
    try:
        while await in_database(_is_known_open, user_id, library_ids):
            await wait_for_change(changed)
    finally:
        waiting.discard(changed)


def _is_known_open(user_id: int, library_ids: Collection[UUID]) -> bool:
    """Whether they may be read, as far as is known: nothing ends because the database is away."""
    try:
        return may_read_libraries(user_id, library_ids)
    except DatabaseError as error:
        logger.warning("libraries_not_checked", error=str(error)[:200])
        return True


async def stream_while_held(
    credential: Credential,
    parts: AsyncGenerator[Part, None],
    then: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Part, None]:
    """The parts of a stream while the credential holds; `then` is called when it no longer does.

    That comes even while the reader takes nothing, so that nothing more is made for him.
    """
    is_over = is_cut_off = False
    waiting: asyncio.Task[Any] | None = None

    async def end() -> None:
        nonlocal is_over, is_cut_off
        is_over, is_cut_off = True, waiting is not None
        unwatch_credential(end)
        then()
        if waiting is not None:
            waiting.cancel()

    watch_credential(credential, end)
    try:
        async with aclosing(parts):
            while not is_over:
                waiting = task = asyncio.current_task()
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
                    waiting = None
                yield part
    finally:
        unwatch_credential(end)

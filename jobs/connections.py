"""Connections to Redis, and to the database for the duration of a call.

For Redis there is one connection pool per process for threads, and one per event loop for
coroutines. Database connections are returned to their pool at once, so that none is held while
tokens arrive. Queries that every question makes are compiled to SQL once (`KeptQuery`).
"""

import asyncio
import copy
import functools
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha1
from typing import Any, Generic, ParamSpec, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from django.conf import settings
from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from django.db import connection, connections
from django.db.models import QuerySet
from redis.connection import HiredisRespSerializer
from redis.exceptions import NoScriptError, ResponseError

HANGING_SECONDS = 3.0
"""A Redis that takes longer to reply is considered hung, and the connection is dropped."""
KEEPALIVE: Mapping[int, int] = {
    socket.TCP_KEEPIDLE: 3,
    socket.TCP_KEEPINTVL: 1,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 6_000,
}
"""A host that has vanished without closing its connections is given up after 6 s; a Redis that is
merely silent is not. In seconds, seconds, probes and milliseconds.
"""
SENTINEL = "redis+sentinel"
SENTINEL_PORT = 26379
SENTINEL_SECONDS = 1.0
"""How long to wait for one Sentinel before asking the next."""


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """`redis+sentinel://user:password@host1:port,host2/service?db=0`: a service behind Sentinels.

    User and password are for the Redis servers; the parameter `sentinel_password` is for the
    Sentinels.
    """

    hosts: tuple[tuple[str, int], ...]
    service: str
    database: int
    username: str | None
    password: str | None
    sentinel_password: str | None

    @property
    def sentinel_options(self) -> dict[str, Any]:
        """Options of the connections to the Sentinels themselves."""
        seconds = {"socket_timeout": SENTINEL_SECONDS, "socket_connect_timeout": SENTINEL_SECONDS}
        return {"password": self.sentinel_password, **seconds}

    @classmethod
    def from_url(cls, url: str) -> "SentinelAddress":
        """Parse a URL. Raises `ValueError`."""
        parts = urlsplit(url)
        credentials, _, addresses = parts.netloc.rpartition("@")
        user, _, password = credentials.partition(":")
        query = dict(parse_qsl(parts.query))
        hosts = (place.partition(":") for place in addresses.split(",") if place)
        address = cls(
            tuple((host, int(port or SENTINEL_PORT)) for host, _, port in hosts),
            parts.path.strip("/"),
            int(query.get("db", 0)),
            unquote(user) or None,
            unquote(password) or None,
            query.get("sentinel_password"),
        )
        if not (address.hosts and address.service):
            raise ValueError(f"{SENTINEL}://HOST:PORT,HOST:PORT/SERVICE")
        return address


def open_client(library: Any, url: str, **options: Any) -> Any:
    """A client of `library` (`redis` or `redis.asyncio`); with Sentinels, for the primary."""
    if not url.startswith(SENTINEL):
        return library.Redis.from_url(url, **options)
    address = SentinelAddress.from_url(url)
    sentinel = library.sentinel.Sentinel(address.hosts, sentinel_kwargs=address.sentinel_options)
    return sentinel.master_for(
        address.service,
        db=address.database,
        username=address.username,
        password=address.password,
        **options,
    )


class CacheClient(RedisCacheClient):
    """What Django's cache speaks to Redis with: one client, which can use Sentinels too.

    Django makes a client for each command, which takes longer than the command.
    """

    def __init__(self, servers: list[str], **options: Any) -> None:
        super().__init__(servers, **options)
        self._kept = open_client(redis, servers[0])

    def get_client(self, key: object = None, *, write: bool = False) -> Any:
        """The client, whatever it is for."""
        return self._kept


class Cache(RedisCache):
    """Django's cache in Redis, with `CacheClient`."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._class = CacheClient


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()


@functools.cache
def get_client() -> Any:
    """The client for threads. It times out after 5 s: nobody makes blocking reads with it."""
    options = {"decode_responses": True, "socket_timeout": 5.0, "socket_connect_timeout": 2.0}
    return open_client(redis, settings.REDIS_URL, **options)


def get_async_client() -> Any:
    """The client of the running event loop. It has no time-out, as readers block for seconds."""
    loop = asyncio.get_running_loop()
    client = _by_loop.get(loop)
    if client is None:
        keepalive: dict[str, Any] = {}
        if not settings.REDIS_URL.startswith("unix"):
            keepalive = {"socket_keepalive": True, "socket_keepalive_options": KEEPALIVE}
        client = open_client(
            redis.asyncio,
            settings.REDIS_URL,
            decode_responses=True,
            socket_timeout=None,
            socket_connect_timeout=2.0,
            max_connections=10_000,
            **keepalive,
        )
        pool = client.connection_pool
        pool.connection_class = type("Connection", (_LeanConnection, pool.connection_class), {})
        _by_loop[loop] = client
    return client


async def execute(*command: str | int) -> Any:
    """Send a command and return Redis' raw reply; for commands sent many times a second.

    The client's own call takes twice as long: it retries and converts replies. Raises `RedisError`,
    `OSError`.
    """
    (reply,) = await execute_all(command)
    return reply


async def execute_all(*commands: Sequence[str | int]) -> list[Any]:
    """Send commands together and return their replies; not a transaction.

    Once all replies are read, the first error among them is raised. Raises `RedisError`, `OSError`.
    """
    pool = get_async_client().connection_pool
    connection = await pool.get_connection()
    try:
        packed = [part for command in commands for part in connection.pack_command(*command)]
        await connection.send_packed_command(packed)
        replies = [await _read_reply(connection) for _ in commands]
    finally:
        await pool.release(connection)
    if errors := [reply for reply in replies if isinstance(reply, ResponseError)]:
        raise errors[0]
    return replies


async def _read_reply(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


class Script:
    """A Lua script, called by its digest; its text is sent only to a Redis that lacks it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._digest = sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        """Run it and return its reply. Raises `RedisError`, `OSError`."""
        parameters = (len(keys), *keys, *arguments)
        try:
            return await execute("EVALSHA", self._digest, *parameters)
        except NoScriptError:
            return await execute("EVAL", self._text, *parameters)


class _LeanConnection:
    """A mixin for the library's connections that makes commands cheaper.

    Commands are packed by hiredis, as the library does for threads only: eight times as fast, which
    counts as streams are written and read with hundreds of arguments per command. And the check
    before each command does not start a read just to cancel it, which takes as long as the command.
    """

    _reader: Any

    def pack_command(self, *args: Any) -> list[bytes]:
        """The command as bytes to send."""
        packed: list[bytes] = HiredisRespSerializer().pack(*args)
        return packed

    async def can_read_destructive(self) -> bool:
        """Whether it is closed, broken or has unexpected data; the library then reconnects."""
        reader = self._reader
        unread = reader._buffer or reader._eof  # noqa: SLF001 - asyncio has no public way
        return bool(unread) or reader.exception() is not None


P = ParamSpec("P")
R = TypeVar("R")


async def in_database(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `function` in a thread and return its database connection to the pool in any case."""
    return await asyncio.to_thread(lambda: run_and_release(function, *args, **kwargs))


def run_and_release(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function` and return this thread's database connection to the pool in any case."""
    try:
        return function(*args, **kwargs)
    finally:
        connection.close()


ANYBODY = -(2**31) + 1
"""Placeholder for the id of a user in a `KeptQuery`."""
ANY_KEY = UUID(int=2**128 - 2)
"""Placeholder for the id of any other row."""
ANY_TIME = datetime.min.replace(tzinfo=UTC)
"""Placeholder for a time."""
KEYS = object()
"""Placeholder for a list of ids; Django passes parameters of `extra` on unchanged."""


class KeptQuery(Generic[R]):
    """A queryset that is compiled to SQL once per process: compiling takes longer than running it.

        _own = KeptQuery(lambda owner: Chat.objects.filter(owner_id=owner), ANYBODY)
        chats = _own.fetch(user.pk)

    `make` builds the queryset from the placeholders; `fetch` runs it with a value for each. The SQL
    must be the same for all values.
    """

    def __init__(self, make: Callable[..., "QuerySet[Any, R]"], *stand_ins: object) -> None:
        self._make = make
        self._stand_ins = stand_ins

    @functools.cached_property
    def _compiled(self) -> tuple[Any, Any, str, tuple[Any, ...]]:
        rows = self._make(*self._stand_ins)
        compiler = rows.query.get_compiler(rows.db)
        sql, parameters = compiler.as_sql()
        columns = [column for column, *_ in compiler.select[: compiler.col_count]]
        converters = compiler.get_converters(columns)
        compiler.get_converters = lambda _columns: converters
        return rows, compiler, str(sql), tuple(parameters)

    def fetch(self, *values: Any) -> list[R]:
        """The current rows for these values, given in the order of the placeholders."""
        queryset, compiler, sql, parameters = self._compiled
        replacements = list(zip(self._stand_ins, values, strict=True))
        bound = [
            next((new for old, new in replacements if old == parameter), parameter)
            for parameter in parameters
        ]
        own_compiler = copy.copy(compiler)
        own_compiler.connection = connections[queryset.db]  # each thread has its own connection
        own_compiler.as_sql = lambda *_, **__: (sql, bound)
        rows = queryset.all()
        rows.query.get_compiler = lambda *_, **__: own_compiler
        return list(rows)

"""Whether this node is alive, the product can serve, and external services respond.

What must be written is written: a server that only reads looks well on a full disk.
"""

import functools
import os
import shutil
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg
import redis
import structlog
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis import Redis
from redis.exceptions import RedisError

from jobs.connections import open_client
from nura import __version__
from nura.embedded import models

logger = structlog.get_logger()

WORKERS = ("answers", "documents")
BEAT = "beat"
MODELS = "models"
ROOM = "room"
SPARE = frozenset({BEAT, MODELS, ROOM})
"""Nura serves without them: any answers process does what beat does, questions are searched by
words alone, and with the disk nearly full uploads are refused."""
FRESH_SECONDS = 1.0
"""For so long one look serves all who ask: it writes, and anybody may ask."""
HEARTBEAT_SECONDS = 15
WRITTEN_BYTES = 64 * 1024
"""Bytes that must find room on the disk; more than a file system keeps in its tables."""


@dataclass(frozen=True, slots=True)
class Process:
    """A living process: of which kind, where as `host:pid`, and its version."""

    kind: str
    place: str
    version: str


def make_heartbeat_key(kind: str) -> str:
    """Redis key of a sorted set: processes of one kind by when they count as dead."""
    return f"nura:processes:{kind}"


def send_heartbeat(kind: str) -> None:
    """Tell all nodes that this process is alive, for `HEARTBEAT_SECONDS`. Raises `RedisError`."""
    key, now = make_heartbeat_key(kind), read_clock()
    with get_client().pipeline(transaction=False) as pipe:
        pipe.zadd(key, {_name_process(): now + HEARTBEAT_SECONDS})
        pipe.zremrangebyscore(key, "-inf", now)
        pipe.expire(key, HEARTBEAT_SECONDS)
        pipe.execute()


def remove_heartbeat(kind: str) -> None:
    """Tell all nodes that this process is ending. Raises `RedisError`."""
    get_client().zrem(make_heartbeat_key(kind), _name_process())


def list_processes() -> list[Process]:
    """The workers and beats of all nodes that live. Raises `RedisError`."""
    kinds, now = (*WORKERS, BEAT), read_clock()
    with get_client().pipeline(transaction=False) as pipe:
        for kind in kinds:
            pipe.zrangebyscore(make_heartbeat_key(kind), f"({now}", "+inf")
        found = pipe.execute()
    return [
        Process(kind, *sign.decode().split(" "))
        for kind, signs in zip(kinds, found, strict=True)
        for sign in sorted(signs)
    ]


def read_clock() -> int:
    """The seconds of Redis, since those of two machines differ. Raises `RedisError`."""
    return int(cast("tuple[int, int]", get_client().time())[0])


def _name_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()} {__version__}"


@require_safe
@never_cache
def healthz(_request: HttpRequest) -> HttpResponse:
    """200 while this process responds."""
    return HttpResponse("ok", content_type="text/plain")


@require_safe
@never_cache
def readyz(_request: HttpRequest) -> JsonResponse:
    """200 when database, Redis, disk and both kinds of workers are there, else 503 and what is not.

    `status` is "degraded" where Nura serves, but something that it can do without is missing.
    """
    checks = _cached.get_checks()
    ready = all(there for name, there in checks.items() if name not in SPARE)
    status = ("ok" if all(checks.values()) else "degraded") if ready else "unavailable"
    body = {"status": status, "checks": checks}
    response = JsonResponse(body, status=200 if ready else 503)
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 - no error of ours
    return response


def check_all() -> dict[str, bool]:
    """Each part by name; False when it is not reachable now."""
    return {
        "database": check_database(),
        **check_redis_and_workers(),
        **check_disk(),
        **check_models(),
    }


class _CachedChecks:
    """The results of the last checks; one caller at a time runs them, however many ask."""

    def __init__(self) -> None:
        self._looking = threading.Lock()
        self._checks: dict[str, bool] = {}
        self._seen = -FRESH_SECONDS

    def get_checks(self) -> dict[str, bool]:
        """Each part by name, checked at most a second ago."""
        with self._looking:
            if time.monotonic() - self._seen >= FRESH_SECONDS:
                self._checks = check_all()
                self._seen = time.monotonic()
            return self._checks

    def reset(self) -> None:
        """Run the checks again for the next caller."""
        self._seen = -FRESH_SECONDS


_cached = _CachedChecks()


def reset_checks() -> None:
    """Let the next `/readyz` of this process run the checks again."""
    _cached.reset()


def check_disk() -> dict[str, bool]:
    """Whether the data folder can be written to, and has more room than the reserve."""
    folder = Path(settings.DATA_DIR)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * WRITTEN_BYTES)
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        logger.warning("disk_not_writable", error=os.strerror(error.errno or 0))
        return {"disk": False, ROOM: False}
    return {"disk": True, ROOM: free >= settings.DISK_RESERVE_MB * 1024 * 1024}


def check_models() -> dict[str, bool]:
    """Whether the models process responds; nothing if none is needed."""
    if not settings.RAG.needs_models_process:
        return {}
    return {MODELS: models.is_answering(settings.RAG.models_socket)}


def check_database() -> bool:
    """Whether it writes: a message in its log that nobody reads, in a transaction of its own."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_logical_emit_message(true, 'nura', 'ready')")
    except DatabaseError as error:
        logger.warning("database_unreachable", error=type(error).__name__)
        return False
    return True


def check_redis_and_workers() -> dict[str, bool]:
    """Redis, and the workers and beat of which one has told of itself in the last 15 seconds."""
    kinds = (*WORKERS, BEAT)
    try:
        living = {process.kind for process in list_processes()}
    except RedisError as error:
        logger.warning("redis_unreachable", error=type(error).__name__)
        return {"redis": False, **dict.fromkeys(kinds, False)}
    return {"redis": True, **{kind: kind in living for kind in kinds}}


@functools.cache
def get_client() -> Redis:
    """The connections of this process, with short time-outs."""
    found: Redis = open_client(
        redis, settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2
    )
    return found


CONNECT_SECONDS = 5
"""Seconds for a connection. A firewall that drops packets never answers."""


def require_services() -> None:
    """Raise `ImproperlyConfigured`, naming the variable, for a service that does not answer."""
    if not settings.EMBEDDED_POSTGRES:
        require_database(settings.DATABASES["default"])
    if not settings.EMBEDDED_REDIS:
        require_redis(settings.REDIS_URL)


def require_database(database: dict[str, Any]) -> None:
    """The same for one entry of DATABASES."""
    options = {name: value for name, value in database["OPTIONS"].items() if name != "pool"}
    where = {
        "dbname": database["NAME"],
        "user": database["USER"],
        "password": database["PASSWORD"],
        "host": database["HOST"],
        "port": database["PORT"],
    }
    given = {name: value for name, value in where.items() if value}
    try:
        psycopg.connect(**({"connect_timeout": CONNECT_SECONDS} | options | given)).close()
    except psycopg.Error as error:
        raise ImproperlyConfigured(f"DATABASE_URL: {_to_one_line(error)}") from error


def require_redis(url: str) -> None:
    """The same for one URL of a Redis."""
    try:
        with open_client(
            redis, url, socket_connect_timeout=CONNECT_SECONDS, socket_timeout=CONNECT_SECONDS
        ) as redis_client:
            redis_client.ping()
    except (RedisError, ValueError) as error:
        raise ImproperlyConfigured(f"REDIS_URL: {_to_one_line(error)}") from error


def _to_one_line(error: Exception) -> str:
    """The library's message on one line; neither library repeats a password."""
    return " ".join(str(error).split()) or type(error).__name__

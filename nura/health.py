"""Whether this node is alive, the product can serve, and external services respond.

The checks write: a server that can only read looks healthy on a full disk.
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
OPTIONAL_CHECKS = frozenset({BEAT, MODELS, ROOM})
"""Nura serves without them: any answers process stands in for beat, search goes by words alone, and
uploads are refused while the disk is nearly full."""
CACHE_SECONDS = 1.0
"""How long a result is reused: the checks write, and anybody may call."""
HEARTBEAT_SECONDS = 15
PROBE_BYTES = 64 * 1024
"""Bytes written to test the disk; more than a file system stores inline."""


@dataclass(frozen=True, slots=True)
class Process:
    """A running process: its kind, its place as `host:pid`, and its version."""

    kind: str
    place: str
    version: str


def make_heartbeat_key(kind: str) -> str:
    """Redis key of a sorted set: processes of one kind, scored by when they count as dead."""
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
    """The live workers and beats of all nodes. Raises `RedisError`."""
    kinds, now = (*WORKERS, BEAT), read_clock()
    with get_client().pipeline(transaction=False) as pipe:
        for kind in kinds:
            pipe.zrangebyscore(make_heartbeat_key(kind), f"({now}", "+inf")
        results = pipe.execute()
    return [
        Process(kind, *name.decode().split(" "))
        for kind, names in zip(kinds, results, strict=True)
        for name in sorted(names)
    ]


def read_clock() -> int:
    """The time in seconds by Redis: the clocks of machines differ. Raises `RedisError`."""
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
    """200 if database, Redis, disk and both kinds of workers are up, else 503 and what is missing.

    `status` is "degraded" if Nura serves but something optional is missing.
    """
    checks = _cached.get_checks()
    is_ready = all(is_passing for name, is_passing in checks.items() if name not in OPTIONAL_CHECKS)
    status = ("ok" if all(checks.values()) else "degraded") if is_ready else "unavailable"
    body = {"status": status, "checks": checks}
    response = JsonResponse(body, status=200 if is_ready else 503)
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
        self._lock = threading.Lock()
        self._checks: dict[str, bool] = {}
        self._checked_at = -CACHE_SECONDS

    def get_checks(self) -> dict[str, bool]:
        """Each part by name, checked at most a second ago."""
        with self._lock:
            if time.monotonic() - self._checked_at >= CACHE_SECONDS:
                self._checks = check_all()
                self._checked_at = time.monotonic()
            return self._checks

    def reset(self) -> None:
        """Run the checks again for the next caller."""
        self._checked_at = -CACHE_SECONDS


_cached = _CachedChecks()


def reset_checks() -> None:
    """Let the next `/readyz` of this process run the checks again."""
    _cached.reset()


def check_disk() -> dict[str, bool]:
    """Whether the data folder can be written to, and has more room than the reserve."""
    folder = Path(settings.DATA_DIR)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * PROBE_BYTES)
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
    """Whether the database can write: emits a message to its log that nobody reads."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_logical_emit_message(true, 'nura', 'ready')")
    except DatabaseError as error:
        logger.warning("database_unreachable", error=type(error).__name__)
        return False
    return True


def check_redis_and_workers() -> dict[str, bool]:
    """Whether Redis responds, and each kind of worker sent a heartbeat in the last 15 seconds."""
    kinds = (*WORKERS, BEAT)
    try:
        alive = {process.kind for process in list_processes()}
    except RedisError as error:
        logger.warning("redis_unreachable", error=type(error).__name__)
        return {"redis": False, **dict.fromkeys(kinds, False)}
    return {"redis": True, **{kind: kind in alive for kind in kinds}}


@functools.cache
def get_client() -> Redis:
    """This process's Redis client, with short time-outs."""
    client: Redis = open_client(
        redis, settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2
    )
    return client


CONNECT_SECONDS = 5
"""Seconds for a connection. A firewall that drops packets never answers."""


def require_services() -> None:
    """Raise `ImproperlyConfigured`, naming the variable, for a service that does not respond."""
    if not settings.EMBEDDED_POSTGRES:
        require_database(settings.DATABASES["default"])
    if not settings.EMBEDDED_REDIS:
        require_redis(settings.REDIS_URL)


def require_database(database: dict[str, Any]) -> None:
    """The same for one entry of DATABASES."""
    options = {name: value for name, value in database["OPTIONS"].items() if name != "pool"}
    parameters = {
        "dbname": database["NAME"],
        "user": database["USER"],
        "password": database["PASSWORD"],
        "host": database["HOST"],
        "port": database["PORT"],
    }
    parameters = {name: value for name, value in parameters.items() if value}
    try:
        psycopg.connect(**({"connect_timeout": CONNECT_SECONDS} | options | parameters)).close()
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
    """The library's message on one line; neither library includes the password."""
    return " ".join(str(error).split()) or type(error).__name__

"""Whether this node is alive, the product can serve, and external services respond."""

import functools
from typing import Any, cast

import psycopg
import structlog
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis import Redis
from redis.exceptions import RedisError

from nura.embedded import models

logger = structlog.get_logger()

WORKERS = ("answers", "documents")
MODELS = "models"
HEARTBEAT_SECONDS = 15


def heartbeat_key(worker: str) -> str:
    """Redis key that a living worker renews."""
    return f"nura:worker:{worker}"


@require_safe
@never_cache
def healthz(_request: HttpRequest) -> HttpResponse:
    """200 while this process responds."""
    return HttpResponse("ok", content_type="text/plain")


@require_safe
@never_cache
def readyz(_request: HttpRequest) -> JsonResponse:
    """200 when database, Redis and both kinds of workers are there, else 503 and what is not.

    Without the models process Nura serves all the same: it searches words alone, and uploads wait.
    """
    checks = check_all()
    ready = all(there for name, there in checks.items() if name != MODELS)
    status = ("ok" if all(checks.values()) else "degraded") if ready else "unavailable"
    body = {"status": status, "checks": checks}
    response = JsonResponse(body, status=200 if ready else 503)
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 - no error of ours
    return response


def check_all() -> dict[str, bool]:
    """Each part by name; False when it is not reachable now."""
    return {"database": check_database(), **check_redis_and_workers(), **check_models()}


def check_models() -> dict[str, bool]:
    """Whether the models process responds; nothing if none is needed."""
    if not settings.RAG.needs_models_process:
        return {}
    return {MODELS: models.answers(settings.RAG.models_socket)}


def check_database() -> bool:
    """One trivial query."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        logger.warning("database_unreachable", error=type(error).__name__)
        return False
    return True


def check_redis_and_workers() -> dict[str, bool]:
    """Redis, and the workers whose heartbeat is at most 15 seconds old."""
    try:
        keys = [heartbeat_key(name) for name in WORKERS]
        beats = cast("list[bytes | None]", client().mget(keys))
    except RedisError as error:
        logger.warning("redis_unreachable", error=type(error).__name__)
        return {"redis": False, **dict.fromkeys(WORKERS, False)}
    found = zip(WORKERS, (beat is not None for beat in beats), strict=True)
    return {"redis": True, **dict(found)}


@functools.cache
def client() -> Redis:
    """The connections of this process, with short time-outs."""
    return Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)


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
        raise ImproperlyConfigured(f"DATABASE_URL: {_flatten(error)}") from error


def require_redis(url: str) -> None:
    """The same for one URL of a Redis."""
    client = Redis.from_url(
        url, socket_connect_timeout=CONNECT_SECONDS, socket_timeout=CONNECT_SECONDS
    )
    try:
        client.ping()
    except RedisError as error:
        raise ImproperlyConfigured(f"REDIS_URL: {_flatten(error)}") from error
    finally:
        client.close()


def _flatten(error: Exception) -> str:
    """The library's message on one line; neither library repeats a password."""
    return " ".join(str(error).split()) or type(error).__name__

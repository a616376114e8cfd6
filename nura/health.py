"""Is this node alive, and can the product serve: for load balancers and for `up`."""

import functools
import logging
from typing import cast

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis import Redis
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

WORKERS = ("answers", "documents")
HEARTBEAT_SECONDS = 15


def heartbeat_key(worker: str) -> str:
    """Redis key that a living worker keeps fresh."""
    return f"nura:worker:{worker}"


@require_safe
@never_cache
def healthz(_request: HttpRequest) -> HttpResponse:
    """200 as long as this process answers."""
    return HttpResponse("ok", content_type="text/plain")


@require_safe
@never_cache
def readyz(_request: HttpRequest) -> JsonResponse:
    """200 when database, Redis and both kinds of workers are there, else 503 and what is not."""
    checks = all_checks()
    ready = all(checks.values())
    body = {"status": "ok" if ready else "unavailable", "checks": checks}
    response = JsonResponse(body, status=200 if ready else 503)
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 - no error of ours
    return response


def all_checks() -> dict[str, bool]:
    """Each part by name; False when it is not reachable now."""
    return {"database": database_answers(), **redis_and_workers()}


def database_answers() -> bool:
    """One trivial query."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        logger.warning("The database does not answer: %s", type(error).__name__)
        return False
    return True


def redis_and_workers() -> dict[str, bool]:
    """Redis, and the workers that wrote their sign of life there within the last 15 seconds."""
    try:
        keys = [heartbeat_key(name) for name in WORKERS]
        beats = cast("list[bytes | None]", client().mget(keys))
    except RedisError as error:
        logger.warning("Redis does not answer: %s", type(error).__name__)
        return {"redis": False, **dict.fromkeys(WORKERS, False)}
    found = zip(WORKERS, (beat is not None for beat in beats), strict=True)
    return {"redis": True, **dict(found)}


@functools.cache
def client() -> Redis:
    """The connections of this process, with short time-outs."""
    return Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)

"""Do the services that are not ours answer? Asked before a start, to tell a person at once."""

from typing import Any

import psycopg
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from redis import Redis
from redis.exceptions import RedisError

PATIENCE = 5
"""Seconds for a connection. A firewall that drops packets never answers."""


def require() -> None:
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
        psycopg.connect(**({"connect_timeout": PATIENCE} | options | given)).close()
    except psycopg.Error as error:
        raise ImproperlyConfigured(f"DATABASE_URL: {_words(error)}") from error


def require_redis(url: str) -> None:
    """The same for one URL of a Redis."""
    client = Redis.from_url(url, socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE)
    try:
        client.ping()
    except RedisError as error:
        raise ImproperlyConfigured(f"REDIS_URL: {_words(error)}") from error
    finally:
        client.close()


def _words(error: Exception) -> str:
    """The library's own words on one line; neither library repeats a password."""
    return " ".join(str(error).split()) or type(error).__name__

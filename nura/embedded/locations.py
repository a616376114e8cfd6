"""Where the embedded services live and how they are reached. Touches neither disk nor network."""

import hashlib
import hmac
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import psycopg
from psycopg_pool.base import AttemptWithBackoff

from jobs.connections import SENTINEL, SentinelAddress

SOCKET_PATH_LIMIT = 90
"""A Unix socket's path may have 107 bytes; Postgres appends its own file name."""

PROVEN_SECONDS = 1.0
"""A connection that worked this recently is handed out without a check."""


class PooledConnection(psycopg.Connection[Any]):
    """A connection whose pool check (an empty statement) rarely costs a round trip.

    Each step of an answer takes a connection briefly, most within a second of the last.
    """

    _proven_at = 0.0

    def execute(self, query: Any, params: Any = None, **options: Any) -> psycopg.Cursor[Any]:
        """Like `psycopg.Connection.execute`, but skips the pool's check right after a success."""
        if query != "":
            return super().execute(query, params, **options)
        now = time.monotonic()
        if now - self._proven_at < PROVEN_SECONDS and not self.closed:
            return self.cursor()
        self._proven_at = now
        try:
            return super().execute(query, params, **options)
        except psycopg.OperationalError:
            self._drop_all_idle()
            raise

    def _drop_all_idle(self) -> None:
        """Drop all idle connections of the pool: the server is gone, and they are dead.

        Left in the pool, each would cost one request a failed check and a pause.
        """
        pool: Any = self._pool
        if pool is not None:
            pool.drain()


AttemptWithBackoff.INITIAL_DELAY = 0.1
"""Seconds before the second attempt to connect, doubled before each further one. The library's full
second is long for a server that restarts in half a second."""
POOL = {
    "connection_class": PooledConnection,
    "min_size": 0,
    "max_size": 20,
    "timeout": 5.0,
    "max_lifetime": 1800.0,
    "max_idle": 30.0,
    "reconnect_timeout": 2.0,  # otherwise pauses between attempts grow with the outage
}
REPLICA_POOL = POOL | {"timeout": 0.5}
"""Rather than wait for the replica, read from the primary."""
REPLICA_OPTIONS = {
    "connect_timeout": 2,
    "tcp_user_timeout": 3000,  # milliseconds until a vanished machine counts as gone
    "application_name": "nura-replica",
    "options": "-c default_transaction_read_only=on",  # also after it has been promoted
}


def find_socket_dir(data_dir: Path) -> Path:
    """The folder for sockets: in the data folder, or elsewhere if its path is too long."""
    folder = data_dir / "run"
    if len(str(folder).encode()) <= SOCKET_PATH_LIMIT:
        return folder
    digest = hashlib.sha256(str(data_dir).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"nura-{digest}"


ROLE = "nura"
"""Our role in the embedded Postgres and Redis."""


def derive_password(secret_key: str) -> str:
    """Our password there, derived from the key that every process knows."""
    return hmac.digest(secret_key.encode(), b"embedded services", "sha256").hex()


def read_password() -> str:
    """This installation's password for the embedded services."""
    from django.conf import settings

    password: str = settings.SERVICE_PASSWORD
    return password


def build_redis_url(data_dir: Path, password: str = "") -> str:
    """URL of the embedded Redis, with the password of this installation or the given one."""
    path = find_socket_dir(data_dir) / "redis.sock"
    return f"unix://{ROLE}:{password or read_password()}@{path}?db=0"


def build_models_socket(data_dir: Path) -> str:
    """Path of the models process's socket."""
    return str(find_socket_dir(data_dir) / "models.sock")


def to_celery_url(redis_url: str) -> str:
    """The same URL in Celery's spelling."""
    if redis_url.startswith(SENTINEL):
        address = SentinelAddress.from_url(redis_url)
        user, password = (
            quote(value or "", safe="") for value in (address.username, address.password)
        )
        credentials = f"{user}:{password}@" if user or password else ""
        hosts = (f"{host}:{port}" for host, port in address.hosts)
        return ";".join(
            f"sentinel://{credentials}{location}/{address.database}" for location in hosts
        )
    if not redis_url.startswith("unix://"):
        return redis_url
    location, _, query = redis_url.removeprefix("unix://").partition("?")
    database = dict(parse_qsl(query)).get("db", "0")
    return f"redis+socket://{location}?virtual_host={database}"


def build_celery_options(redis_url: str) -> dict[str, Any]:
    """Celery's transport options for Redis with Sentinels; empty otherwise."""
    if not redis_url.startswith(SENTINEL):
        return {}
    address = SentinelAddress.from_url(redis_url)
    return {"master_name": address.service, "sentinel_kwargs": address.sentinel_options}


def build_database_settings(data_dir: Path, url: str, password: str = "") -> dict[str, Any]:
    """Django's settings of the database: `url`, or the embedded Postgres with `password`."""
    parts = urlsplit(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query)) | {"pool": dict(POOL)}
    if not url:
        parameters = {
            "NAME": "nura",
            "USER": ROLE,
            "PASSWORD": password,
            "HOST": str(find_socket_dir(data_dir)),
            "PORT": "",
        }
    else:
        parameters = {
            "NAME": unquote(parts.path.lstrip("/")),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or options.pop("host", ""),
            "PORT": str(parts.port or ""),
        }
    return {
        "ENGINE": "django.db.backends.postgresql",
        **parameters,
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,  # the pool then hands out no connections of a dead server
        "OPTIONS": options,
    }


def build_replica_settings(data_dir: Path, url: str) -> dict[str, Any]:
    """The same for a replica, with shorter time-outs and read-only."""
    database = build_database_settings(data_dir, url)
    database["OPTIONS"] = REPLICA_OPTIONS | database["OPTIONS"] | {"pool": dict(REPLICA_POOL)}
    return database | {"TEST": {"MIRROR": "default"}}

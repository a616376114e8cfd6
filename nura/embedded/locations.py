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
"""A connection that worked so shortly ago is given out without asking the server again."""


class PooledConnection(psycopg.Connection[Any]):
    """A connection that the check of its pool (an empty statement) seldom costs a round trip.

    Every step of an answer takes a connection for a moment, most of them within a second.
    """

    _proven_at = 0.0

    def execute(self, query: Any, params: Any = None, **options: Any) -> psycopg.Cursor[Any]:
        """As `psycopg.Connection.execute`; an empty statement only where that says something."""
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
        """The server has gone, and all that the pool holds with it.

        Left in the pool, each of them would cost one request its check, and a pause after it.
        """
        pool: Any = self._pool
        if pool is not None:
            pool.drain()


AttemptWithBackoff.INITIAL_DELAY = 0.1
"""Seconds before the second attempt at a connection; twice as many before each further one. The
library's whole second is long for a server that restarts in half of one."""
POOL = {
    "connection_class": PooledConnection,
    "min_size": 0,
    "max_size": 20,
    "timeout": 5.0,
    "max_lifetime": 1800.0,
    "max_idle": 30.0,
    "reconnect_timeout": 2.0,  # else the pauses between attempts grow as long as the outage was
}
REPLICA_POOL = POOL | {"timeout": 0.5}
"""Whoever waits for a connection to a replica could read from the primary instead."""
REPLICA_OPTIONS = {
    "connect_timeout": 2,
    "tcp_user_timeout": 3000,  # milliseconds after which a machine that is gone has gone
    "application_name": "nura-replica",
    "options": "-c default_transaction_read_only=on",  # also where somebody has promoted it
}


def find_socket_dir(data_dir: Path) -> Path:
    """The folder for sockets: in the data folder, or elsewhere if its path is too long."""
    inside = data_dir / "run"
    if len(str(inside).encode()) <= SOCKET_PATH_LIMIT:
        return inside
    digest = hashlib.sha256(str(data_dir).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"nura-{digest}"


ROLE = "nura"
"""Our name in the embedded Postgres and Redis."""


def derive_password(secret_key: str) -> str:
    """Our password there: all processes know the key, and nothing else has to be kept."""
    return hmac.digest(secret_key.encode(), b"embedded services", "sha256").hex()


def read_password() -> str:
    """That of this installation."""
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
        address = SentinelAddress.read(redis_url)
        user, password = (quote(one or "", safe="") for one in (address.username, address.password))
        people = f"{user}:{password}@" if user or password else ""
        places = (f"{host}:{port}" for host, port in address.hosts)
        return ";".join(f"sentinel://{people}{place}/{address.database}" for place in places)
    if not redis_url.startswith("unix://"):
        return redis_url
    place, _, query = redis_url.removeprefix("unix://").partition("?")
    database = dict(parse_qsl(query)).get("db", "0")
    return f"redis+socket://{place}?virtual_host={database}"


def build_celery_options(redis_url: str) -> dict[str, Any]:
    """What Celery has to know besides, where Sentinels say who leads."""
    if not redis_url.startswith(SENTINEL):
        return {}
    address = SentinelAddress.read(redis_url)
    return {"master_name": address.service, "sentinel_kwargs": address.sentinel_options}


def build_database_settings(data_dir: Path, url: str, password: str = "") -> dict[str, Any]:
    """Django's settings of the database: `url`, or the embedded Postgres with `password`."""
    parts = urlsplit(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query)) | {"pool": dict(POOL)}
    if not url:
        where = {
            "NAME": "nura",
            "USER": ROLE,
            "PASSWORD": password,
            "HOST": str(find_socket_dir(data_dir)),
            "PORT": "",
        }
    else:
        where = {
            "NAME": unquote(parts.path.lstrip("/")),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or options.pop("host", ""),
            "PORT": str(parts.port or ""),
        }
    return {
        "ENGINE": "django.db.backends.postgresql",
        **where,
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,  # the pool then gives out no connection of a dead server
        "OPTIONS": options,
    }


def build_replica_settings(data_dir: Path, url: str) -> dict[str, Any]:
    """The same of a replica, which gives up sooner and is never written to."""
    built = build_database_settings(data_dir, url)
    built["OPTIONS"] = REPLICA_OPTIONS | built["OPTIONS"] | {"pool": dict(REPLICA_POOL)}
    return built | {"TEST": {"MIRROR": "default"}}

"""What must be done before the first request: migrate, collect static files, seed the first run."""

import contextlib
import hashlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.checks import Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from documents import spaces
from nura.health import WORKERS, client, heartbeat_key

logger = logging.getLogger(__name__)

MIGRATION_LOCK = 0x4E757261
"""Number of the advisory lock: of nodes that start together one migrates, the others wait."""


def prepare(*, seed: bool) -> bool:
    """Bring database and static files up to date; True when this first run was seeded.

    Opens connections of its own and closes them: the caller lives long.
    """
    try:
        migrate()
        collect_static()
        forget_old_workers()
        tell_of_another_model()
        first = seed and not get_user_model().objects.filter(is_superuser=True).exists()
        if first:
            call_command("seed", verbosity=0)
        return first
    finally:
        close_connections()


def close_connections() -> None:
    """Those of this thread, and the pool's."""
    connections.close_all()
    close_pool = getattr(connection, "close_pool", None)
    if close_pool:
        close_pool()


def is_model_local() -> bool:
    """Whether stored vectors are of a model of this machine, whatever the settings name.

    Before `manage.py reindex` has changed over to an endpoint the old model goes on to serve.
    """
    try:
        return spaces.get_space_in_use().config.embedding_endpoint is None
    finally:
        close_connections()


def migrate() -> None:
    """Apply what is missing, one node at a time. Raises `ImproperlyConfigured`."""
    with _one_node_at_a_time():
        for error in run_checks(tags=[Tags.database], databases=[connection.alias]):
            raise ImproperlyConfigured(str(error.msg))
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if missing:
            logger.info("Preparing the database: %d migrations", len(missing))
            call_command("migrate", interactive=False, verbosity=0)


def collect_static() -> bool:
    """Collect the static files when they changed since the last time; True when it did."""
    stamp = Path(settings.STATIC_ROOT) / ".stamp"
    now = static_stamp(settings.BASE_DIR)
    if stamp.is_file() and stamp.read_text(encoding="ascii") == now:
        return False
    shutil.rmtree(settings.STATIC_ROOT, ignore_errors=True)
    call_command("collectstatic", interactive=False, verbosity=0)
    stamp.write_text(now, encoding="ascii")
    return True


def static_stamp(base_dir: Path) -> str:
    """A digest of our static files and of the versions of the packages that bring theirs."""
    digest = hashlib.sha256((base_dir / "requirements" / "lock.txt").read_bytes())
    for path in sorted((base_dir / "static").rglob("*")):
        if path.is_file():
            digest.update(f"{path}:{path.stat().st_size}:{path.stat().st_mtime_ns}\n".encode())
    return digest.hexdigest()


def forget_old_workers() -> None:
    """Drop signs of life that our own Redis kept over a restart: nobody else can be alive."""
    if settings.EMBEDDED_REDIS:
        client().delete(*(heartbeat_key(name) for name in WORKERS))


def tell_of_another_model() -> None:
    """Say when the settings name another embedding model than the stored vectors are of."""
    spaces.note_model_address()
    if reason := spaces.describe_pending_reindex():
        logger.warning("Re-embedding is needed: %s", reason)


@contextlib.contextmanager
def _one_node_at_a_time() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])

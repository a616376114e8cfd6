"""Preparation before the first request: migrate, collect static files, seed the first run.

Under `up` it is a process of its own, so that its memory and connections are freed.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import structlog
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.checks import Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from documents import spaces
from nura.health import BEAT, WORKERS, get_client, make_heartbeat_key
from nura.management.commands.up import OUTCOME_FD
from nura.models import record_version
from nura.static_files import archive_collected_files

logger = structlog.get_logger()

MIGRATION_LOCK = 0x4E757261
"""Number of the advisory lock: of nodes that start together, one migrates and the others wait."""


def main() -> None:
    """Prepare, and write the outcome as JSON to the descriptor named in the environment.

    `seeded` is whether this was the first run, `is_model_local` whether the stored vectors come
    from a model on this machine: until `manage.py reindex` has switched to an endpoint in the
    settings, the old model keeps serving.
    """
    try:
        is_seeded = prepare(seed="--no-seed" not in sys.argv)
        is_model_local = spaces.get_space_in_use().config.embedding_endpoint is None
    except ImproperlyConfigured as error:
        sys.exit(f"Configuration: {error}")
    except Exception:
        logger.exception("preparation_failed")
        sys.exit(1)
    with os.fdopen(int(os.environ[OUTCOME_FD]), "w", encoding="ascii") as outcome:
        json.dump({"seeded": is_seeded, "is_model_local": is_model_local}, outcome)


def prepare(*, seed: bool) -> bool:
    """Bring database and static files up to date; True if this first run was seeded."""
    migrate()
    collect_static()
    remove_old_heartbeats()
    report_changed_model()
    is_first_run = seed and not get_user_model().objects.filter(is_staff=True).exists()
    if is_first_run:
        call_command("seed", verbosity=0)
    return is_first_run


def migrate() -> None:
    """Apply missing migrations, one node at a time. Raises `ImproperlyConfigured`."""
    with hold_migration_lock():
        for error in run_checks(tags=[Tags.database], databases=[connection.alias]):
            raise ImproperlyConfigured(str(error.msg))
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if missing:
            logger.info("database_migrates", migrations=len(missing))
            call_command("migrate", interactive=False, verbosity=0)
        record_version()


def collect_static() -> bool:
    """Collect the static files if they changed since the last time; True if so."""
    stamp = Path(settings.STATIC_ROOT) / ".stamp"
    current = hash_static_files(settings.BASE_DIR)
    if stamp.is_file() and stamp.read_text(encoding="ascii") == current:
        return False
    archive_collected_files()  # for a release that made no archive itself
    shutil.rmtree(settings.STATIC_ROOT, ignore_errors=True)
    call_command("collectstatic", interactive=False, verbosity=0)
    stamp.write_text(current, encoding="ascii")
    return True


def hash_static_files(base_dir: Path) -> str:
    """A digest of our static files and of the versions of packages with their own."""
    digest = hashlib.sha256((base_dir / "requirements" / "lock.txt").read_bytes())
    for path in sorted((base_dir / "static").rglob("*")):
        if path.is_file():
            digest.update(f"{path}:{path.stat().st_size}:{path.stat().st_mtime_ns}\n".encode())
    return digest.hexdigest()


def remove_old_heartbeats() -> None:
    """Remove heartbeats that the embedded Redis kept over a restart: nobody is alive yet."""
    if settings.EMBEDDED_REDIS:
        get_client().delete(*(make_heartbeat_key(name) for name in (*WORKERS, BEAT)))


def report_changed_model() -> None:
    """Warn if the settings name another embedding model than that of the stored vectors."""
    spaces.note_model_address()
    if reason := spaces.describe_pending_reindex():
        logger.warning("reindex_needed", reason=reason)


@contextlib.contextmanager
def hold_migration_lock() -> Iterator[None]:
    """Hold the lock for migrating, waiting for other nodes. It ends with the connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])


if __name__ == "__main__":
    import django

    django.setup()
    main()

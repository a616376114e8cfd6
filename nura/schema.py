"""Whether this code knows the database's schema: an older version must not start on a newer one.

What runs already goes on while a newer version migrates, for migrations only add (see
CONTRIBUTING.md); `up` passes that on to its processes, so that one which dies may start again.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import structlog
from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from nura import __version__

PACKAGES = frozenset({"nura", "chats", "documents", "jobs"})
"""Only our own migrations tell our version: a library may be newer or older by itself."""

KNOWN = "NURA_SCHEMA_KNOWN"
"""Environment variable of a process whose node has been let start: `yes`."""

logger = structlog.get_logger()


def list_our_apps() -> frozenset[str]:
    """The labels of the apps whose migrations are ours."""
    return frozenset(
        app.label for app in apps.get_app_configs() if app.name.partition(".")[0] in PACKAGES
    )


def list_unknown_migrations(connection: BaseDatabaseWrapper) -> list[str]:
    """Migrations of ours that are applied there and that this code does not have."""
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.recorder import MigrationRecorder

    on_disk = MigrationLoader(None).disk_migrations
    known = set(on_disk) | {name for migration in on_disk.values() for name in migration.replaces}
    ours = list_our_apps()
    applied = MigrationRecorder(connection).applied_migrations()
    return [f"{app}.{name}" for app, name in sorted(set(applied) - known) if app in ours]


@register(Tags.database)
def check_schema(databases: Iterable[str] | None = None, **_: object) -> Sequence[CheckMessage]:
    """Refuse to migrate, or to start, where a newer version has migrated."""
    found = []
    for alias in databases or ():
        if unknown := list_unknown_migrations(connections[alias]):
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            found.append(
                Error(
                    f"The database belongs to a newer version of Nura: {unknown[0]}{more} is "
                    f"unknown to this one ({__version__}). Start the newer version, or restore a "
                    "backup from before the upgrade.",
                    id="nura.E002",
                )
            )
    return found


def require_known_schema(alias: str = "default") -> None:
    """Raise `ImproperlyConfigured` for a schema of a newer version.

    A database that cannot be reached now is no reason not to start: `/readyz` tells it.
    """
    if os.environ.get(KNOWN) == "yes":
        return
    try:
        for error in check_schema([alias]):
            raise ImproperlyConfigured(str(error.msg))
    except DatabaseError as error:
        logger.warning("schema_not_checked", error=type(error).__name__)


def exit_unless_known() -> None:
    """The same for the entry of a process, which ends with a sentence."""
    try:
        require_known_schema()
    except ImproperlyConfigured as error:
        sys.exit(f"Configuration: {error}")
    finally:
        connection: Any = connections["default"]
        connection.close()
        connection.close_pool()  # a worker forks after this

"""Whether this code knows the database's schema: an older version must not start on a newer one.

Processes that are already running carry on while a newer version migrates, since migrations only
add (see CONTRIBUTING.md). `up` tells its processes so, and one that dies may start again.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from nura import __version__

if TYPE_CHECKING:
    from django.db.migrations import Migration

MigrationKey = tuple[str, str]
"""App and name of a migration."""

PACKAGES = frozenset({"nura", "chats", "documents", "jobs"})
"""Only our own migrations say which version of Nura it is; libraries have versions of their own."""

KNOWN_VARIABLE = "NURA_SCHEMA_KNOWN"
"""Environment variable: `yes` in processes of a node that passed this check at its start."""

logger = structlog.get_logger()


def list_our_apps() -> frozenset[str]:
    """The labels of the apps whose migrations are ours."""
    return frozenset(
        app.label for app in apps.get_app_configs() if app.name.partition(".")[0] in PACKAGES
    )


def load_migrations() -> "Mapping[MigrationKey, Migration]":
    """The migrations of this code, without their graph, which would take several times as long."""
    from django.db.migrations.loader import MigrationLoader

    loader = MigrationLoader(None, load=False)
    loader.load_disk()
    return loader.disk_migrations


def list_known_migrations() -> frozenset[MigrationKey]:
    """The migrations of this code, and those that they replace."""
    migrations = load_migrations()
    replaced = (key for migration in migrations.values() for key in migration.replaces)
    return frozenset(migrations) | frozenset(replaced)


def list_unknown_migrations(connection: BaseDatabaseWrapper) -> list[str]:
    """Our migrations that are applied there but missing from this code."""
    from django.db.migrations.recorder import MigrationRecorder

    ours = list_our_apps()
    unknown = MigrationRecorder(connection).applied_migrations().keys() - list_known_migrations()
    return [f"{app}.{name}" for app, name in sorted(unknown) if app in ours]


@register(Tags.database)
def check_schema(databases: Iterable[str] | None = None, **_: object) -> Sequence[CheckMessage]:
    """Refuse to migrate, or to start, where a newer version has migrated."""
    errors = []
    for alias in databases or ():
        if unknown := list_unknown_migrations(connections[alias]):
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            errors.append(
                Error(
                    f"The database belongs to a newer version of Nura: {unknown[0]}{more} is "
                    f"unknown to this one ({__version__}). Start the newer version, or restore a "
                    "backup from before the upgrade.",
                    id="nura.E002",
                )
            )
    return errors


@register(Tags.database)
def check_replaced_migrations(
    databases: Iterable[str] | None = None, **_: object
) -> Sequence[CheckMessage]:
    """Refuse a database to which only some of the migrations of a squashed one are applied."""
    from django.db.migrations.recorder import MigrationRecorder

    squashed = [migration for migration in load_migrations().values() if migration.replaces]
    errors = []
    for alias in databases or ():
        applied = MigrationRecorder(connections[alias]).applied_migrations().keys()
        for migration in squashed:
            missing = sorted(set(migration.replaces) - applied)
            if missing and len(missing) < len(migration.replaces):
                errors.append(_to_error(*missing[0]))
    return errors


def _to_error(app: str, name: str) -> CheckMessage:
    return Error(
        f"The database was only partly migrated by an earlier version: {app}.{name} and what "
        "follows is missing. Run `manage.py migrate` of that version to its end, then start this "
        "one.",
        id="nura.E001",
    )


def require_known_schema(alias: str = "default") -> None:
    """Raise `ImproperlyConfigured` for a schema of a newer version.

    An unreachable database is no reason not to start: `/readyz` reports it.
    """
    if os.environ.get(KNOWN_VARIABLE) == "yes":
        return
    try:
        for error in check_schema([alias]):
            raise ImproperlyConfigured(str(error.msg))
    except DatabaseError as error:
        logger.warning("schema_not_checked", error=type(error).__name__)


def exit_unless_known() -> None:
    """The same for a process's entry point: exits with a message."""
    try:
        require_known_schema()
    except ImproperlyConfigured as error:
        sys.exit(f"Configuration: {error}")
    finally:
        connection: Any = connections["default"]
        connection.close()
        connection.close_pool()  # a worker forks after this

"""The installation as a Django app, for its commands, templates and admin."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Tags, register


class NuraConfig(AppConfig):
    """Its tables hold what Nura stores about accounts."""

    name = "nura"
    verbose_name = "Nura"

    def ready(self) -> None:
        """Make our Celery app the one that sends tasks, and register the check of the schema."""
        from nura import celery, schema  # noqa: F401


@register(Tags.database)
def check_replaced_migrations(
    databases: Iterable[str] | None = None, **_: Any
) -> Sequence[CheckMessage]:
    """Refuse a database to which only some of the migrations of a squashed one are applied."""
    from django.db import connections
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.recorder import MigrationRecorder

    migrations = MigrationLoader(None).disk_migrations.values()
    squashed = [migration for migration in migrations if migration.replaces]
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

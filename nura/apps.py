"""The installation as a Django app, for its commands, templates and admin."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Tags, register


class NuraConfig(AppConfig):
    """Its tables: what is kept of accounts."""

    name = "nura"
    verbose_name = "Nura"

    def ready(self) -> None:
        """Let every process that sends tasks send them with our Celery app, web processes too.

        And register the check of the schema.
        """
        from nura import celery, schema  # noqa: F401


@register(Tags.database)
def check_replaced_migrations(
    databases: Iterable[str] | None = None, **_: Any
) -> Sequence[CheckMessage]:
    """Refuse a database in which only some of the migrations are applied that one took over."""
    from django.db import connections
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.recorder import MigrationRecorder

    on_disk = MigrationLoader(None).disk_migrations.values()
    taken_over = [migration for migration in on_disk if migration.replaces]
    found = []
    for alias in databases or ():
        applied = MigrationRecorder(connections[alias]).applied_migrations().keys()
        for migration in taken_over:
            lacking = sorted(set(migration.replaces) - applied)
            if lacking and len(lacking) < len(migration.replaces):
                found.append(_to_error(*lacking[0]))
    return found


def _to_error(app: str, first: str) -> CheckMessage:
    return Error(
        f"The database was only partly migrated by an earlier version: {app}.{first} and what "
        "follows is missing. Run `manage.py migrate` of that version to its end, then start this "
        "one.",
        id="nura.E001",
    )

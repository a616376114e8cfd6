"""`manage.py migrate`: Django's, one node at a time."""

from typing import Any

from django.core.management.commands import migrate

from nura.preparation import hold_migration_lock


class Command(migrate.Command):
    """Migrates under a lock: nodes that start together wait for one, then have nothing to do."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate under the advisory lock."""
        with hold_migration_lock():
            super().handle(*args, **options)

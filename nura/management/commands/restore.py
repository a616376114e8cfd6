"""`manage.py restore DIR [--backup NAME] [--passphrase-file FILE] [--deleted FILE]`."""

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from nura.backup import service
from nura.backup.integrity import list_lost_keys
from nura.backup.vault import BackupError
from nura.management.commands.backup import add_vault_arguments, open_vault


class Command(BaseCommand):
    """Restores a backup onto an empty installation of the same or a newer version."""

    help = "Restore a backup onto an empty installation."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which backup, and the list of deletions."""
        add_vault_arguments(parser)
        parser.add_argument("--backup", default="", help="name of the backup; else the newest")

        parser.add_argument(
            "--deleted", type=Path, help="deleted.json of the installation that was lost"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Restore, and report what was restored."""
        vault = open_vault(options)
        try:
            name, manifest, deleted_count = service.restore(
                vault, self.stderr.write, options["backup"], options["deleted"]
            )
        except (BackupError, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Restored {name} of {manifest.created}: {len(manifest.files)} files")
        if deleted_count:
            self.stdout.write(f"Deleted again, as it was deleted since: {deleted_count}")
        if "SECRET_KEY" in os.environ or not manifest.secret:  # otherwise it was restored too
            for lost in list_lost_keys():
                self.stderr.write(f"Enter the key again, SECRET_KEY is another one: {lost}")

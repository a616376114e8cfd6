"""`manage.py verify [DIR [--backup NAME] [--passphrase-file FILE]]`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from nura.administration.record import record_backup
from nura.backup import service
from nura.backup.integrity import inspect_installation
from nura.backup.vault import BackupError
from nura.management.commands.backup import open_vault
from nura.models import BackupEvent


class Command(BaseCommand):
    """Compares rows, files, checksums, vectors and turns, or reads a whole backup."""

    help = "Check this installation, or a backup, for what is missing or damaged."

    def add_arguments(self, parser: CommandParser) -> None:
        """Without a folder, checks the installation; with one, a backup in it."""
        parser.add_argument("folder", type=Path, nargs="?")
        parser.add_argument("--backup", default="", help="name of the backup; else the newest")
        parser.add_argument("--passphrase-file", type=Path)

    def handle(self, *_args: Any, **options: Any) -> None:
        """One line per finding; status 1 if there are any."""
        if options["folder"]:
            vault = open_vault(options)
            try:
                name, manifest, damaged = service.check_backup(vault, options["backup"])
            except (BackupError, OSError) as error:
                raise CommandError(str(error)) from error
            problem = ", ".join(damaged[:20])
            record_backup(BackupEvent.VERIFIED, place=str(vault.folder), name=name, problem=problem)
            findings, target = [f"damaged: {path}" for path in damaged], f"backup {name}"
            counts = f"{len(manifest.files)} files"
        else:
            inspection = inspect_installation()
            findings, target, counts = (
                inspection.damage,
                "the installation",
                inspection.describe_counts(),
            )
        for line in findings:
            self.stdout.write(line)
        if findings:
            raise CommandError(f"{len(findings)} findings in {target} ({counts})")
        self.stdout.write(f"Nothing is wrong with {target}: {counts}")

"""`manage.py backup DIR [--keep N] [--passphrase-file FILE]`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from nura.administration.record import record_backup
from nura.backup import service
from nura.backup.vault import BackupError, Vault
from nura.models import BackupEvent


def add_vault_arguments(parser: CommandParser) -> None:
    """Add the arguments for the folder of backups and its passphrase."""
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--passphrase-file", type=Path, help="file whose first line encrypts the backups"
    )


def open_vault(options: dict[str, Any], *, create: bool = False) -> Vault:
    """Open the folder of backups. Raises CommandError."""
    file = options["passphrase_file"]
    try:
        passphrase = file.read_text(encoding="utf-8").partition("\n")[0].strip() if file else ""
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    if file and not passphrase:
        raise CommandError(f"{file} has no passphrase in its first line.")
    try:
        return Vault(options["folder"].resolve(), passphrase, create=create)
    except (BackupError, OSError, ValueError) as error:
        raise CommandError(str(error)) from error


class Command(BaseCommand):
    """Takes a backup while the product runs."""

    help = "Back up the database, all files and the secret key to a folder."

    def add_arguments(self, parser: CommandParser) -> None:
        """The folder, and how many backups to keep."""
        add_vault_arguments(parser)
        parser.add_argument("--keep", type=int, default=0, help="delete all but the newest N")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Report the backup; status 1 if a file was already damaged."""
        if options["keep"] < 0:
            raise CommandError("--keep: a number from 0")
        vault = open_vault(options, create=True)
        try:
            name, manifest = service.create_backup(vault, self.stderr.write, options["keep"])
        except (BackupError, OSError) as error:
            record_backup(BackupEvent.TAKEN, place=str(vault.folder), problem=str(error))
            raise CommandError(str(error)) from error
        damage = ", ".join(manifest.damaged[:20])
        record_backup(BackupEvent.TAKEN, place=str(vault.folder), name=name, problem=damage)
        self.stdout.write(f"Backup {name}: database and {len(manifest.files)} files")
        if manifest.damaged:
            raise CommandError(
                f"The backup is whole, but these files were missing or damaged before it: {damage}"
            )

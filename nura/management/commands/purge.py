"""`manage.py purge [--dry-run] [--json]`."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from nura import retention

WORDS = {
    "evidence": "deleted documents whose passages are in old answers",
    "chats": "deleted chats",
    "versions": "replaced or refused versions of documents",
    "postings": "parts of the word index that hold deleted passages",
    "rows": "sessions, keys, confirmations and counts that have run out",
    "signups": "sign-ups that nobody confirmed",
    "files": "stored files that nothing names",
    "pictures": "pictures of pages that are not needed",
    "temporary": "leftovers of processes that were killed",
}


class Command(BaseCommand):
    """Removes expired data."""

    help = "Remove what retention says is kept no longer (see NURA_RETENTION_...)."

    def add_arguments(self, parser: CommandParser) -> None:
        """Dry run, and the format of the output."""
        parser.add_argument("--dry-run", action="store_true", help="only count")
        parser.add_argument("--json", action="store_true", help="counts by name, as JSON")

    def handle(self, *_args: Any, **options: Any) -> None:
        """One line per kind."""
        counts = retention.purge(dry_run=options["dry_run"])
        if options["json"]:
            self.stdout.write(json.dumps(counts))
            return
        for name, count in counts.items():
            self.stdout.write(f"{count:8,} {WORDS[name]}")

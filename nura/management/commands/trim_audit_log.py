"""`manage.py trim_audit_log --before YYYY-MM-DD --out FILE`."""

import sys
from datetime import datetime, time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_date

from documents.audit import trim_log


class Command(BaseCommand):
    """Moves old entries of the audit log to a file."""

    help = (
        "Write the entries of the audit log before a day to a file (JSON Lines), then remove them "
        "from the database. That this was done stays in the log."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """The day and the file."""
        parser.add_argument("--before", required=True, metavar="YYYY-MM-DD")
        parser.add_argument("--out", required=True, help="a new file; `-` is the standard output")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Write, then remove."""
        try:
            day = parse_date(options["before"])
        except ValueError:
            day = None
        if day is None:
            raise CommandError("--before must be a day such as 2026-01-31")
        before = timezone.make_aware(datetime.combine(day, time.min))
        if options["out"] == "-":
            count = trim_log(before=before, out=sys.stdout)
        else:
            try:
                with Path(options["out"]).open("x", encoding="utf-8") as out:
                    Path(options["out"]).chmod(0o600)
                    count = trim_log(before=before, out=out)
            except OSError as error:
                raise CommandError(str(error)) from error
        self.stderr.write(f"{count} entries")

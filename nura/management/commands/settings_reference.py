"""`manage.py settings_reference`: docs/settings.md and .env.example, written from the code."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from nura.settings import reference


class Command(BaseCommand):
    """Prints docs/settings.md; with `--write` both files are written."""

    help = "Print the list of all settings, or write it to docs/settings.md and .env.example."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """`--write`."""
        parser.add_argument("--write", action="store_true", help="write both files")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print or write."""
        if not options["write"]:
            self.stdout.write(reference.write_markdown(), ending="")
            return
        for name, text in (
            ("docs/settings.md", reference.write_markdown()),
            (".env.example", reference.write_example()),
        ):
            (settings.BASE_DIR / name).write_text(text, encoding="utf-8")
            self.stdout.write(name)

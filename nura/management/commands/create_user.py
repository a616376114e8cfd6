"""`manage.py create_user NAME --password P [--staff]`."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from nura.accounts import services

NAME_CHARACTERS = 150


class Command(BaseCommand):
    """Creates a user, or changes an existing one's password, and prints a new API key."""

    help = (
        "Make a user (or set an existing one's password) and print a new API key, alone, on stdout."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Name, password, rights."""
        parser.add_argument("name")
        parser.add_argument("--password", required=True)
        parser.add_argument("--staff", action="store_true", help="may use the administration pages")

    def handle(self, *_args: Any, **options: Any) -> None:
        """The key is the only line on stdout, so that scripts can take it."""
        name, password = options["name"], options["password"]
        if not name.strip() or len(name) > NAME_CHARACTERS or "\0" in name + password:
            raise CommandError(f"the name must have 1 to {NAME_CHARACTERS} characters, no NUL")
        if not password:
            raise CommandError("the password must not be empty")
        try:
            user = services.create_or_update_user(
                name=name, password=password, staff=options["staff"]
            )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        self.stdout.write(services.create_key(user=user))

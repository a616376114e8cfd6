"""`manage.py invite [--email ADDRESS] [--days N]`."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email

from nura.accounts.signup import (
    DEFAULT_DAYS,
    MAX_DAYS,
    build_path,
    create_invitation,
    mail_invitation,
)
from nura.management.commands.up import make_url
from nura.models import MAX_INVITATION_USES


class Command(BaseCommand):
    """Creates an invitation and prints its link."""

    help = "Make a link by which people create accounts, and print it, alone, on stdout."

    def add_arguments(self, parser: CommandParser) -> None:
        """Address, lifetime, and the address of this installation."""
        parser.add_argument("--email", default="", help="the address that the account gets")
        parser.add_argument("--uses", type=int, default=1, help="how many accounts it makes")
        parser.add_argument(
            "--group",
            action="append",
            default=[],
            help="a group that the account joins; repeatable",
        )
        parser.add_argument("--days", type=int, default=DEFAULT_DAYS, help="how long it holds")
        parser.add_argument("--mail", action="store_true", help="send it to the address as well")
        parser.add_argument(
            "--url",
            default=make_url(settings.HOST, settings.PORT),
            help="how people reach this installation, such as https://nura.example.com",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """The link is the only line on stdout."""
        email, days = options["email"], options["days"]
        if not 1 <= days <= MAX_DAYS:
            raise CommandError(f"--days must be 1 to {MAX_DAYS}")
        if not 1 <= options["uses"] <= MAX_INVITATION_USES or (email and options["uses"] > 1):
            raise CommandError(f"--uses must be 1 to {MAX_INVITATION_USES}, and 1 with --email")
        groups = list(Group.objects.filter(name__in=options["group"]))
        if missing := set(options["group"]) - {group.name for group in groups}:
            raise CommandError(f"no such group: {', '.join(sorted(missing))}")
        if settings.SIGNUP == "closed":
            raise CommandError("NURA_SIGNUP is closed: an invitation would not be taken")
        if options["mail"] and not (email and settings.MAIL_WORKS):
            raise CommandError("--mail needs --email and a mail server (EMAIL_HOST)")
        try:
            if email:
                validate_email(email)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        invitation, secret = create_invitation(
            by=None, email=email, days=days, max_uses=options["uses"], groups=groups
        )
        link = options["url"].rstrip("/") + build_path(secret)
        if options["mail"]:
            mail_invitation(invitation, link)
        self.stdout.write(link)

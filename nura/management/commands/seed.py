"""`manage.py seed`: the first administrator and a few documents, once."""

import os
import secrets
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.files import File
from django.core.management.base import BaseCommand
from django.db import transaction

from documents.services import upload_document
from nura.accounts import services
from nura.samples import FOLDER, SAMPLES

ADMIN = "admin"
PASSWORD_BYTES = 12


class Command(BaseCommand):
    """Fills an empty database; does nothing if there is any account."""

    help = "On an empty database: make the user admin and upload the sample documents."

    def handle(self, *_args: Any, **options: Any) -> None:
        """All or nothing: an interrupted attempt is repeated from the start."""
        with transaction.atomic():
            if User.objects.exists():
                self._print_unless_quiet("There are users already: nothing to do.", options)
                return
            admin = _make_admin()
            for sample in SAMPLES:
                with (FOLDER / sample.file).open("rb") as file:
                    upload_document(
                        owner=admin,
                        name=sample.name,
                        content=File(file, name=sample.name),
                        metadata=dict(sample.metadata),
                    )
        self._print_unless_quiet(
            f"The sign-in of {ADMIN} is kept in {get_credentials_file()}", options
        )

    def _print_unless_quiet(self, text: str, options: dict[str, Any]) -> None:
        if options["verbosity"]:
            self.stdout.write(text)


def get_credentials_file() -> Path:
    """File with the first administrator's user name and password."""
    return Path(settings.DATA_DIR) / "admin-credentials"


def _make_admin() -> User:
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    admin = services.create_or_update_user(name=ADMIN, password=password, staff=True)
    key = services.create_key(user=admin)
    _write_private(
        get_credentials_file(), f"username: {ADMIN}\npassword: {password}\ntoken: {key}\n"
    )
    return admin


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)

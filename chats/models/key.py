"""Scopes and last use of API keys; the keys themselves are knox's rows."""

from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils.translation import gettext_lazy as _
from knox.models import AuthToken

if TYPE_CHECKING:
    from collections.abc import Collection

KEY_NAME_CHARACTERS = 100


class KeyScope(models.TextChoices):
    """What a key may be used for. No scope includes another."""

    READ = "read", _("Read chats and documents, search")
    ASK = "ask", _("Ask questions, change chats")
    UPLOAD = "upload", _("Upload, change and delete documents")
    ADMIN = "admin", _("Manage keys, sessions and the account")


ALL_SCOPES = frozenset(KeyScope.values)


class KeyDetails(models.Model):
    """Name, scopes and last use of a key.

    A key without a row, made by an older version, has all scopes. Older versions delete keys
    without their row, which then belongs to nothing.
    """

    key = models.OneToOneField(
        AuthToken,
        models.CASCADE,
        primary_key=True,
        related_name="details",
        db_constraint=False,
    )
    name = models.CharField(max_length=KEY_NAME_CHARACTERS, blank=True, default="")
    scopes = ArrayField(models.CharField(max_length=10))
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.scopes)})"


def list_scopes(key: AuthToken) -> frozenset[str]:
    """The key's scopes."""
    details: KeyDetails | None = getattr(key, "details", None)
    return ALL_SCOPES if details is None else frozenset(details.scopes) & ALL_SCOPES


def make_key_id(key: AuthToken) -> UUID:
    """The public id of a key: the beginning of its digest, which does not reveal it."""
    return UUID(key.digest[:32])


def sort_scopes(scopes: "Collection[str]") -> list[str]:
    """The scopes in display order."""
    return [scope for scope in KeyScope.values if scope in scopes]

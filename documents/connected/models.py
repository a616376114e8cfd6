"""Tables of connected models: servers with their keys, and the role of each of their models.

They are in this app because both conversations and documents use models.
"""

import json
import re
import uuid
from collections.abc import Mapping
from urllib.parse import urlsplit

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from documents.secrets import can_open, open_secret, seal_secret
from rag.adapters.wire import is_forbidden_host

SLUG_CHARACTERS = 60
ENVIRONMENT = "installation"
"""The id of the main model that the environment names."""


def check_address(address: str) -> None:
    """Raise `ValidationError` unless it is a plain address of a server."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValidationError(_("Enter an address that begins with http:// or https://."))
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValidationError(
            _("Enter the address alone: the key goes into its own field, the rest into headers.")
        )
    if is_forbidden_host(parts.hostname):
        raise ValidationError(
            _("Nura never connects to this address: it is reserved for the machine itself.")
        )


class Connection(models.Model):
    """A server with OpenAI's API. Its key and headers are stored sealed and never shown again.

    `trial` is what the last test found: `{at, models: [{id, context_tokens}], lines}`.
    """

    name = models.CharField(_("name"), max_length=100, unique=True)
    base_url = models.CharField(
        _("address"),
        max_length=500,
        validators=[check_address],
        help_text=_("With the version, for example http://gpu.example:8000/v1"),
    )
    sealed_key = models.TextField(blank=True, default="", editable=False)
    sealed_headers = models.TextField(blank=True, default="", editable=False)
    trial = models.JSONField(default=dict, blank=True, editable=False)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        """By name."""

        verbose_name = _("model connection")
        verbose_name_plural = _("model connections")
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def set_key(self, key: str) -> None:
        """Replace the key; "" removes it."""
        self.sealed_key = seal_secret(key)

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Replace the headers."""
        self.sealed_headers = seal_secret(json.dumps(dict(headers))) if headers else ""

    def read_key(self) -> str:
        """The key. Raises `SecretUnreadable`."""
        return open_secret(self.sealed_key)

    def read_headers(self) -> tuple[tuple[str, str], ...]:
        """Names and values. Raises `SecretUnreadable`."""
        stored = open_secret(self.sealed_headers)
        return tuple(json.loads(stored).items()) if stored else ()

    @property
    def is_readable(self) -> bool:
        """Whether key and headers can be opened with the current secret keys."""
        return can_open(self.sealed_key) and can_open(self.sealed_headers)


class ModelRole(models.TextChoices):
    """What a model does. There may be several main models, but only one for each other role."""

    MAIN = "main", _("Writes answers")
    LIGHT = "light", _("Understands questions, summarises")
    VISION = "vision", _("Describes pictures")
    EMBEDDING = "embedding", _("Embeds texts for search")
    RERANKER = "reranker", _("Ranks passages")
    VERIFIER = "verifier", _("Checks sentences against sources")


class ConnectedModel(models.Model):
    """A model of a connection in its role.

    Main models: `slug` is their public id, `groups` may use them (none: everybody may), the default
    one answers if nothing was chosen. The row without a connection represents the environment's
    main model and only says who may use it and whether it is offered. Prices are for a million
    tokens, in the installation's currency.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.CharField(max_length=SLUG_CHARACTERS, unique=True, editable=False)
    connection = models.ForeignKey(
        Connection,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="models",
        verbose_name=_("connection"),
    )
    role = models.CharField(
        _("role"), max_length=10, choices=ModelRole.choices, default=ModelRole.MAIN
    )
    model = models.CharField(
        _("model"), max_length=200, blank=True, help_text=_("Name on the server")
    )
    name = models.CharField(
        _("shown as"),
        max_length=100,
        blank=True,
        help_text=_("Leave empty to use the name on the server"),
    )
    offered = models.BooleanField(_("offered"), default=True)
    is_default = models.BooleanField(_("default"), default=False)
    groups = models.ManyToManyField(
        Group,
        blank=True,
        related_name="+",
        verbose_name=_("groups"),
        help_text=_("Who may choose it. Leave empty for everyone"),
    )
    context_tokens = models.PositiveIntegerField(
        _("context length"),
        null=True,
        blank=True,
        help_text=_("In tokens. Leave empty to take what the server says"),
    )
    thinking = models.BooleanField(
        _("thinks first"),
        null=True,
        blank=True,
        help_text=_("If unknown, as set in the environment"),
    )
    languages = models.CharField(
        _("languages"),
        max_length=200,
        blank=True,
        default="",
        help_text=_(
            "Languages that an embedding model knows: ko,en or * for all. Leave empty to take "
            "what is known of it"
        ),
    )
    input_price = models.DecimalField(
        _("price of a million tokens read"), max_digits=12, decimal_places=4, null=True, blank=True
    )
    output_price = models.DecimalField(
        _("price of a million tokens written"),
        max_digits=12,
        decimal_places=4,
        null=True,
        blank=True,
    )
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        """One model a role, except the main ones."""

        verbose_name = _("model")
        verbose_name_plural = _("models")
        ordering = ("role", "created_at")
        constraints = (
            models.UniqueConstraint(
                fields=("role",),
                condition=~Q(role=ModelRole.MAIN),
                name="one_model_a_role",
                violation_error_message=_(
                    "There is a model with this role already. Change that one."
                ),
            ),
        )

    def __str__(self) -> str:
        return self.name or self.model or ENVIRONMENT


def make_slug(model: str) -> str:
    """An unused id for a model of this name: letters, digits, dots and dashes."""
    base = re.sub(r"[^a-z0-9._-]+", "-", model.rsplit("/", 1)[-1].lower()).strip("-.")
    base = base[: SLUG_CHARACTERS - 4] or "model"
    taken = set(
        ConnectedModel.objects.filter(slug__startswith=base).values_list("slug", flat=True)
    ) | {ENVIRONMENT}
    names = (base, *(f"{base}-{number}" for number in range(2, 1000)))
    return next(name for name in names if name not in taken)


class ModelsVersion(models.Model):
    """One row whose number grows with every change, so that processes notice it."""

    number = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return str(self.number)

"""Tool servers that administrators allow, used over the Model Context Protocol."""

import uuid
from typing import TYPE_CHECKING, Any, Self

from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from documents.connected.models import check_address
from documents.secrets import open_secret, seal_secret

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class ToolState(models.TextChoices):
    """The state of a tool call. One that asks waits for the user's confirmation."""

    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")
    ASKS = "asks", _("Waits for you")
    CONFIRMED = "confirmed", _("Confirmed")


class ToolServerQuerySet(models.QuerySet["ToolServer"]):
    """Filters as words that chain."""

    def allowed_to(self, user: "User") -> Self:
        """The servers that the user's chats may use."""
        groups = user.groups.values("pk")
        return self.filter(Q(groups=None) | Q(groups__in=groups), offered=True).distinct()


class ToolServer(models.Model):
    """A tool server. Its key is stored encrypted and never shown again.

    `tools` are those it last listed, each `{name, description, schema, reads, allowed}`: `reads` is
    the server's annotation, `allowed` the administrator's decision. A tool not declared read-only
    is treated as writing.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(_("name"), max_length=100, unique=True)
    address = models.CharField(
        _("address"),
        max_length=500,
        validators=[check_address],
        help_text=_("Of its endpoint for streamable HTTP, for example https://tools.example/mcp"),
    )
    sealed_key = models.TextField(blank=True, default="", editable=False)
    offered = models.BooleanField(_("offered"), default=True)
    groups = models.ManyToManyField(
        Group,
        blank=True,
        related_name="+",
        verbose_name=_("groups"),
        help_text=_("Who may choose it. Leave empty for everyone"),
    )
    tools = models.JSONField(default=list, blank=True, editable=False)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    objects = ToolServerQuerySet.as_manager()

    class Meta:
        """By name."""

        verbose_name = _("tool server")
        verbose_name_plural = _("tool servers")
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def set_key(self, key: str) -> None:
        """Store another key; "" for none."""
        self.sealed_key = seal_secret(key)

    def read_key(self) -> str:
        """The key. Raises `SecretUnreadable`."""
        return open_secret(self.sealed_key)

    @property
    def allowed_tools(self) -> list[dict[str, Any]]:
        """The tools that may be called."""
        return [tool for tool in self.tools if tool.get("allowed")]

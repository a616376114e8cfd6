"""What is known of a user across chats: slots, and whether he wants that."""

import uuid
from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from chats.models.message import Message
from rag.memory.profile import Effect, Slot, SlotStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class ProfileSlotQuerySet(models.QuerySet["ProfileSlot"]):
    """Filters as words that chain."""

    def owned_by(self, user: "User") -> Self:
        """What is known of this user; nobody else sees it."""
        return self.filter(owner_id=user.pk)


class ProfileSlot(models.Model):
    """One thing that is known of its owner, `rag.memory.profile.Slot` as a row.

    `message` is the user's message that told it; `sentence` stands in it. A slot that is PROPOSED
    waits for its owner's word; `replaces` is the one that it would change, or end (`effect`).
    """

    class Status(models.TextChoices):
        """As `rag.memory.profile.SlotStatus`."""

        ACTIVE = SlotStatus.ACTIVE.value, _("known")
        PROPOSED = SlotStatus.PROPOSED.value, _("to be confirmed")
        PAST = SlotStatus.PAST.value, _("no longer so")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        related_name="profile_slots",
        verbose_name=_("owner"),
    )
    kind = models.CharField(max_length=50)
    key = models.CharField(max_length=200)
    value = models.CharField(max_length=200)
    unit = models.CharField(max_length=50, blank=True, default="")
    noted_at = models.DateTimeField()
    message = models.ForeignKey(Message, models.SET_NULL, null=True, related_name="profile_slots")
    sentence = models.TextField(blank=True, default="")
    certainty = models.FloatField(default=1.0)
    status = models.CharField(max_length=8, choices=Status.choices, default=SlotStatus.ACTIVE)
    history = models.JSONField(default=list)
    replaces = models.ForeignKey(
        "self", models.CASCADE, null=True, related_name="proposals", editable=False
    )
    effect = models.CharField(max_length=3, default=Effect.SET.value)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ProfileSlotQuerySet.as_manager()

    class Meta:
        """Lists are by kind, in the order in which things became known."""

        verbose_name = _("memory")
        verbose_name_plural = _("memories")
        ordering = ("kind", "created_at", "id")
        indexes = (models.Index(fields=("owner", "status")),)

    def __str__(self) -> str:
        return str(self.id)  # what it says is its owner's

    def to_slot(self) -> Slot:
        """As the engine knows it."""
        return Slot(
            kind=self.kind,
            key=self.key,
            value=self.value,
            unit=self.unit,
            at=self.noted_at,
            source=str(self.message_id or ""),
            sentence=self.sentence,
            certainty=self.certainty,
            status=SlotStatus(self.status),
            history=tuple(self.history),
            id=str(self.pk),
            replaces=str(self.replaces_id or ""),
            effect=Effect(self.effect),
        )


class ProfileChoice(models.Model):
    """Whether things are remembered of a user; no row: they are.

    Its row is held while slots of its user change: turns of several chats end at the same time.
    """

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="profile_choice"
    )
    enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return f"{self.owner_id} {self.enabled}"

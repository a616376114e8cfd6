"""Memory: the turns of a conversation, and across chats the slots known about a user."""

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from pgvector.django import HalfVectorField

from chats.models.chat import Chat
from chats.models.message import Message
from jobs.lease import Job
from rag.conversation import SCHEMA_VERSION
from rag.memory.profile import Effect, Slot, SlotStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class TurnQuerySet(models.QuerySet["Turn"]):
    """Filters as words that chain."""

    def visible_to(self, user: "User") -> Self:
        """Turns of the user's chats that are not deleted."""
        return self.filter(chat__owner_id=user.pk, chat__deleted_at=None)

    def owned_by(self, user: "User") -> Self:
        """What this user may act on."""
        return self.visible_to(user)

    def matching(self, text: str) -> Self:
        """Turns whose question, answer or summary contains `text`."""
        in_texts = Q(user_text__icontains=text) | Q(assistant_text__icontains=text)
        return self.filter(in_texts | Q(summary__icontains=text))

    def without_search_columns(self) -> Self:
        """Defer the columns that only searches read."""
        return self.defer("terms", "vector")


class Turn(Job):
    """A question whose answer has ended, in whatever way. Written when the answer ends.

    `parent` is the turn before it in its branch, `number` counts from 1 there. `doc_refs` and
    `candidates` hold `rag.conversation.DocRef` of `schema_version`, `document_ids` the documents of
    `doc_refs` by slot. `remembered` is the memory after this turn, best first; `shown` the latest
    turn with documents up to this one, None if the memory was cleared since. `forgets`: nothing is
    inherited from earlier turns. `summary` to `embedding` and `running_*` (a summary of all turns
    up to `running_through`) are written later by a worker: that is this row's job, see
    `chats.runs.summaries`; the vector may be written with that of a later turn. `profile_read_at`:
    when statements about the user were extracted from it.
    """

    OPEN = Q(summarised_at=None)
    LEASE = timedelta(seconds=15)
    MAX_ATTEMPTS = 3

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    chat = models.ForeignKey(Chat, models.CASCADE, related_name="turns", verbose_name=_("chat"))
    message = models.OneToOneField(
        Message, models.CASCADE, related_name="turn", verbose_name=_("answer")
    )
    parent = models.ForeignKey(
        "self", models.CASCADE, null=True, related_name="children", verbose_name=_("turn before")
    )
    number = models.PositiveIntegerField(_("number"))
    ts = models.DateTimeField(_("asked at"))
    user_text = models.TextField(_("question"))
    assistant_text = models.TextField(_("answer"), blank=True)
    question_type = models.CharField(_("kind of question"), max_length=9, blank=True, default="")
    mode = models.CharField(max_length=9, choices=Message.Mode.choices, blank=True, default="")
    label = models.CharField(max_length=12, choices=Message.Label.choices, blank=True, default="")
    schema_version = models.PositiveSmallIntegerField(default=SCHEMA_VERSION)
    doc_refs = models.JSONField(default=list)
    document_ids = ArrayField(models.UUIDField(), default=list)
    candidates = models.JSONField(default=list)
    view = models.JSONField(null=True)
    forgets = models.BooleanField(default=False)
    remembered = models.JSONField(default=list)
    shown = models.ForeignKey("self", models.SET_NULL, null=True, related_name="+")
    summary = models.TextField(_("summary"), blank=True, default="")
    summary_model = models.CharField(max_length=255, blank=True, default="")
    summarised_at = models.DateTimeField(null=True)
    terms = models.JSONField(default=dict)
    vector = HalfVectorField(null=True)
    embedding = models.CharField(max_length=255, blank=True, default="")
    running_summary = models.TextField(blank=True, default="")
    running_through = models.PositiveIntegerField(null=True)
    running_model = models.CharField(max_length=255, blank=True, default="")
    profile_read_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TurnQuerySet.as_manager()

    class Meta:
        """Lists are by number; an index for turns without a summary."""

        verbose_name = _("turn")
        verbose_name_plural = _("turns")
        ordering = ("number", "ts", "id")
        indexes = (
            models.Index(fields=("chat", "number")),
            GinIndex(fields=("document_ids",), name="turn_documents"),
            models.Index(
                fields=("created_at",),
                condition=Q(summarised_at=None),
                name="turn_unsummarised",
            ),
        )

    def __str__(self) -> str:
        return f"{self.chat_id} {self.number}"  # what it says is its owner's


class ProfileSlotQuerySet(models.QuerySet["ProfileSlot"]):
    """Filters as words that chain."""

    def owned_by(self, user: "User") -> Self:
        """The user's slots; nobody else sees them."""
        return self.filter(owner_id=user.pk)


class ProfileSlot(models.Model):
    """One thing remembered about its owner, `rag.memory.profile.Slot` as a row.

    `message` is the user's message it comes from, `sentence` the sentence in it. A PROPOSED slot
    waits for its owner's confirmation; `replaces` is the slot that it would change or end
    (`effect`).
    """

    class Status(models.TextChoices):
        """As `rag.memory.profile.SlotStatus`."""

        ACTIVE = SlotStatus.ACTIVE.value, _("known")
        PROPOSED = SlotStatus.PROPOSED.value, _("to be confirmed")
        PAST = SlotStatus.PAST.value, _("no longer true")

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
        """Lists are by kind, then by when slots were created."""

        verbose_name = _("memory")
        verbose_name_plural = _("memories")
        ordering = ("kind", "created_at", "id")
        indexes = (models.Index(fields=("owner", "status")),)

    def __str__(self) -> str:
        return str(self.id)  # what it says is its owner's

    def to_slot(self) -> Slot:
        """The slot as the engine's type."""
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
    """Whether a user's memory is on; without a row it is.

    The row is locked while slots of its user change: turns of several chats may end at once.
    """

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="profile_choice"
    )
    enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return f"{self.owner_id} {self.enabled}"

"""The turn store: a question and its answer as a conversation remembers them."""

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Self

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
        """Turns whose question, answer or summary holds `text`."""
        said = Q(user_text__icontains=text) | Q(assistant_text__icontains=text)
        return self.filter(said | Q(summary__icontains=text))

    def unsummarised(self) -> Self:
        """Turns whose summary has not been written."""
        return self.filter(summarised_at=None)

    def told(self) -> Self:
        """Without what only searches read."""
        return self.defer("terms", "vector")


class Turn(Job):
    """A question whose answer has ended, however that was. Written with the answer's end.

    `parent` is the turn before it in its branch, `number` counts from 1 there. `doc_refs` and
    `candidates` hold `rag.conversation.DocRef` of `schema_version`, `document_ids` the documents of
    `doc_refs` by slot. `remembered` is the memory after this turn, best first; `shown` the latest
    turn with documents up to this one, None when the memory was cleared since. `forgets`: nothing
    is taken over from before. `summary` to `embedding` and `running_*` (the turns up to
    `running_through`, folded) are the summary, which a worker writes later: that is the job, see
    `chats.runs.summaries`. `profile_read_at`: what it tells of its user has been kept.
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
        """Lists are by number; the reaper looks for what has no summary."""

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

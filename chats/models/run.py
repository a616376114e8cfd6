"""Runs: who is answering a message, and since when."""

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from chats.models.message import Message
from jobs.lease import OwnedJob

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class RunQuerySet(models.QuerySet["Run"]):
    """Filters as words that chain."""

    def visible_to(self, user: "User") -> Self:
        """Runs of the user's chats that are not deleted."""
        return self.filter(owner_id=user.pk, message__chat__deleted_at=None)

    def owned_by(self, user: "User") -> Self:
        """What this user may stop."""
        return self.visible_to(user)


class Run(OwnedJob):
    """The work of answering one assistant message; its state is the message's `status`.

    `ended_at` is when the message got its end state. `client_id` is the sender's own id of the
    message: the same one twice is the same run. `sampling` is a `rag.conversation.Sampling` as far
    as the sender wished for something. `asked_with` is the digest of the key that asked,
    empty for a session: an answer ends with its key. `first_word_ms` is how long its reader waited
    for the first word, None where none came. `anew`: no answer that is there already will
    do. `library_ids` are the libraries that it may read, None without: it ends with the right to
    any of them.
    """

    OPEN = Q(ended_at=None)
    LEASE = timedelta(seconds=15)
    MAX_ATTEMPTS = 2

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("owner")
    )
    message = models.OneToOneField(
        Message, models.CASCADE, related_name="run", verbose_name=_("message")
    )
    client_id = models.CharField(
        max_length=100, blank=True, default="", verbose_name=_("client id")
    )
    asked_with = models.CharField(
        max_length=128, blank=True, default="", db_default="", editable=False
    )
    language = models.CharField(max_length=8, default="ko", verbose_name=_("language"))
    anew = models.BooleanField(default=False, db_default=False, editable=False)
    sampling = models.JSONField(default=dict, blank=True, verbose_name=_("wishes"))
    first_word_ms = models.PositiveIntegerField(null=True, blank=True, editable=False)
    library_ids = ArrayField(models.UUIDField(), null=True, editable=False)
    ended_at = models.DateTimeField(null=True, blank=True, verbose_name=_("ended at"))
    created_at = models.DateTimeField(auto_now_add=True, verbose_name=_("created at"))

    objects = RunQuerySet.as_manager()

    class Meta:
        """One run a client id; indexes of the queue."""

        verbose_name = _("run")
        verbose_name_plural = _("runs")
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "client_id"),
                condition=~Q(client_id=""),
                name="one_run_a_client_id",
            ),
        )
        indexes = (
            models.Index(
                fields=("owner", "created_at"), condition=Q(ended_at=None), name="run_in_turn"
            ),
            models.Index(fields=("owner", "started_at"), name="run_last_served"),
            models.Index(fields=("created_at",), name="run_made"),
            models.Index(
                fields=("ended_at",),
                condition=Q(library_ids__isnull=False),
                name="run_of_libraries",
            ),
        )

    def __str__(self) -> str:
        return str(self.id)

"""Runs: who is answering a message, and since when."""

import uuid
from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext_lazy as _

from chats.models.message import Message

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

    def open(self) -> Self:
        """Runs whose message has no end state yet.

        Asked without a join: Django updates what it joins by a list of keys, and who waited for a
        row would take it by that list, whatever its lease says by then.
        """
        streaming = Message.objects.filter(
            pk=OuterRef("message_id"), status=Message.Status.STREAMING
        )
        return self.filter(Exists(streaming))


class Run(models.Model):
    """The work of answering one assistant message; its state is the message's `status`.

    A worker holds it by `claim` until `lease_until` and renews that while it lives; an ended run
    keeps its last `lease_until`. `client_id` is the sender's own id of the message: the same one
    twice is the same run. `sampling` is a `rag.conversation.Sampling` as far as the sender wished
    for something.
    """

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
    language = models.CharField(max_length=8, default="ko", verbose_name=_("language"))
    claim = models.UUIDField(null=True, blank=True, verbose_name=_("claim"))
    lease_until = models.DateTimeField(null=True, blank=True, verbose_name=_("held until"))
    sampling = models.JSONField(default=dict, blank=True, verbose_name=_("wishes"))
    attempts = models.PositiveSmallIntegerField(default=0, verbose_name=_("attempts"))
    enqueued_at = models.DateTimeField(verbose_name=_("queued at"))
    created_at = models.DateTimeField(auto_now_add=True, verbose_name=_("created at"))

    objects = RunQuerySet.as_manager()

    class Meta:
        """One run a client id."""

        verbose_name = _("run")
        verbose_name_plural = _("runs")
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "client_id"),
                condition=~Q(client_id=""),
                name="one_run_a_client_id",
            ),
        )

    def __str__(self) -> str:
        return str(self.id)

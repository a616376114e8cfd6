"""What people show one another: to whom, and a chat as others read it."""

import uuid
from typing import TYPE_CHECKING, Any, Self

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from chats.models.chat import Chat
from chats.models.message import Message

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class Shareable(models.Model):
    """Something that its owner shows to people, groups, or everybody who is signed in."""

    for_everybody = models.BooleanField(_("everybody"), default=False)
    users = models.ManyToManyField(
        settings.AUTH_USER_MODEL, related_name="+", blank=True, verbose_name=_("people")
    )
    groups = models.ManyToManyField(Group, related_name="+", blank=True, verbose_name=_("groups"))

    class Meta:
        """Only for those that are shown."""

        abstract = True

    @property
    def is_shared(self) -> bool:
        """Whether anybody but its owner has it. Its people and groups should be at hand."""
        return self.for_everybody or bool(self.users.all()) or bool(self.groups.all())


def is_for(user: "User", model: type[models.Model]) -> Q:
    """Rows of a `Shareable` that this user is shown, by name, by a group, or as everybody is."""
    rows: models.QuerySet[Any] = model._default_manager.all()  # noqa: SLF001 - the documented one
    named = rows.filter(Q(users=user) | Q(groups__in=user.groups.all()))
    return Q(for_everybody=True) | Q(pk__in=named.values("pk"))


class ChatShareQuerySet(models.QuerySet["ChatShare"]):
    """Filters as words that chain."""

    def visible_to(self, user: "User") -> Self:
        """Those that this user may read now: shown to him, or his own."""
        return self.live().filter(Q(chat__owner_id=user.pk) | is_for(user, ChatShare))

    def shown_to(self, user: "User") -> Self:
        """Those of others that this user may read now."""
        return self.visible_to(user).exclude(chat__owner_id=user.pk)

    def owned_by(self, user: "User") -> Self:
        """The user's own, also those whose time is over."""
        return self.filter(chat__owner_id=user.pk, chat__deleted_at=None)

    def live(self) -> Self:
        """Neither over, nor of a chat that is gone, nor of somebody whose account is closed."""
        unexpired = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
        return self.filter(unexpired, chat__deleted_at=None, chat__owner__is_active=True)


class ChatShare(Shareable):
    """A chat that others may read, as it was when it was shared.

    They read the branch up to `last_message`; what is said later is not shown until its owner
    brings the share up to date. It is read from the messages themselves: what is deleted or erased
    of them is gone here, too.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    chat = models.OneToOneField(Chat, models.CASCADE, related_name="share", verbose_name=_("chat"))
    last_message = models.ForeignKey(
        Message, models.CASCADE, related_name="+", verbose_name=_("last message")
    )
    expires_at = models.DateTimeField(_("ends at"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    shown_at = models.DateTimeField(_("as of"), default=timezone.now)

    objects = ChatShareQuerySet.as_manager()

    class Meta:
        """Newest first."""

        verbose_name = _("shared chat")
        verbose_name_plural = _("shared chats")
        ordering = ("-created_at", "id")

    def __str__(self) -> str:
        return str(self.id)

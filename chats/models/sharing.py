"""Sharing among users: audiences, shared chats, assistants and prompts."""

import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from django.conf import settings
from django.contrib.auth.models import Group
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from chats.models.chat import Chat
from chats.models.message import Message
from documents.connected.models import SLUG_CHARACTERS
from rag.types import Intent

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class Shareable(models.Model):
    """Something its owner can share with people, groups, or everybody who is signed in."""

    for_everybody = models.BooleanField(_("everybody"), default=False)
    users = models.ManyToManyField(
        settings.AUTH_USER_MODEL, related_name="+", blank=True, verbose_name=_("people")
    )
    groups = models.ManyToManyField(Group, related_name="+", blank=True, verbose_name=_("groups"))

    class Meta:
        """Abstract."""

        abstract = True

    @property
    def is_shared(self) -> bool:
        """Whether it is shared with anybody. Its people and groups should be prefetched."""
        return self.for_everybody or bool(self.users.all()) or bool(self.groups.all())


def to_audience_filter(user: "User", model: type[models.Model]) -> Q:
    """Rows of a `Shareable` shared with this user by name, through a group, or with everybody."""
    rows: models.QuerySet[Any] = model._default_manager.all()  # noqa: SLF001 - the documented one
    shared = rows.filter(Q(users=user) | Q(groups__in=user.groups.all()))
    return Q(for_everybody=True) | Q(pk__in=shared.values("pk"))


class ChatShareQuerySet(models.QuerySet["ChatShare"]):
    """Filters as words that chain."""

    def visible_to(self, user: "User") -> Self:
        """Those that this user may read now: shared with the user, or the user's own."""
        return self.live().filter(Q(chat__owner_id=user.pk) | to_audience_filter(user, ChatShare))

    def shown_to(self, user: "User") -> Self:
        """Other people's that this user may read now."""
        return self.visible_to(user).exclude(chat__owner_id=user.pk)

    def owned_by(self, user: "User") -> Self:
        """The user's own, expired ones included."""
        return self.filter(chat__owner_id=user.pk, chat__deleted_at=None)

    def live(self) -> Self:
        """Those not expired, whose chat exists and whose owner is active."""
        unexpired = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
        return self.filter(unexpired, chat__deleted_at=None, chat__owner__is_active=True)


class ChatShare(Shareable):
    """A chat that others may read, as it was when it was shared.

    They read the branch up to `last_message`; later messages are not shown until the owner updates
    the share. The messages themselves are read, so what is deleted or erased is gone here, too.
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


MAX_PROMPT_CHARACTERS = 8_000
MAX_INSTRUCTIONS_CHARACTERS = 4_000
MAX_STARTERS = 6
MAX_STARTER_CHARACTERS = 200
NAME_CHARACTERS = 60
SYMBOL_CHARACTERS = 8
"""Characters that one emoji may consist of."""


Prepared = TypeVar("Prepared", bound=models.Model)


class PreparedQuerySet(models.QuerySet[Prepared]):
    """Filters as words that chain."""

    def visible_to(self, user: "User") -> Self:
        """The user's own, and those shared with the user."""
        shared = Q(owner__is_active=True) & to_audience_filter(user, self.model)
        return self.filter(Q(owner_id=user.pk) | shared)

    def owned_by(self, user: "User") -> Self:
        """What this user may change."""
        return self.filter(owner_id=user.pk)


class FolderShareQuerySet(PreparedQuerySet["FolderShare"]):
    """The same of shared folders."""


class FolderShare(Shareable):
    """A shared folder of prompts: the audience has all prompts in it, now and later."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("owner")
    )
    name = models.CharField(_("folder"), max_length=NAME_CHARACTERS)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    objects = FolderShareQuerySet.as_manager()

    class Meta:
        """A folder is shared once; prompts in none are shared by themselves."""

        verbose_name = _("shared folder")
        verbose_name_plural = _("shared folders")
        ordering = ("name", "id")
        constraints = (
            models.UniqueConstraint(fields=("owner", "name"), name="one_share_a_folder"),
            models.CheckConstraint(condition=~Q(name=""), name="shared_folder_has_a_name"),
        )

    def __str__(self) -> str:
        return str(self.id)


class PromptQuerySet(PreparedQuerySet["Prompt"]):
    """The same for prompts, whose whole folder may be shared."""

    def visible_to(self, user: "User") -> Self:
        """The user's own, and those shared with the user directly or by their folder."""
        folders = FolderShare.objects.filter(to_audience_filter(user, FolderShare))
        shared = to_audience_filter(user, Prompt) | Exists(folders.filter(**Prompt.IN_FOLDER))
        return self.filter(Q(owner_id=user.pk) | Q(owner__is_active=True) & shared)

    def with_folder_shares(self) -> Self:
        """Annotate `is_in_shared_folder`: whether the folder is shared with anybody."""
        is_shared = Q(for_everybody=True) | Q(users__isnull=False) | Q(groups__isnull=False)
        folders = FolderShare.objects.filter(is_shared, **Prompt.IN_FOLDER)
        return self.annotate(is_in_shared_folder=Exists(folders))


class Prompt(Shareable):
    """A text for the composer, with places to fill in: `{{name}}`.

    `folder` is a name given by its owner, "" for none; whoever a folder is shared with
    (`FolderShare`) has all prompts in it.
    """

    is_in_shared_folder: bool
    """Only of rows read `with_folder_shares`."""
    IN_FOLDER: ClassVar = {"owner_id": OuterRef("owner_id"), "name": OuterRef("folder")}
    """Finds the share of a prompt's folder."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="prompts", verbose_name=_("owner")
    )
    title = models.CharField(_("title"), max_length=NAME_CHARACTERS)
    folder = models.CharField(
        _("folder"), max_length=NAME_CHARACTERS, blank=True, default="", db_default=""
    )
    text = models.TextField(_("text"), max_length=MAX_PROMPT_CHARACTERS)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed at"), auto_now=True)

    objects = PromptQuerySet.as_manager()

    class Meta:
        """Lists go by folder, those in none first, and by title."""

        verbose_name = _("prompt")
        verbose_name_plural = _("prompts")
        ordering = ("folder", "title", "id")

    def __str__(self) -> str:
        return str(self.id)  # the title is its owner's


class AssistantQuerySet(PreparedQuerySet["Assistant"]):
    """The same of assistants."""


class Assistant(Shareable):
    """An assistant to ask: instructions, where to search, which model, how to answer.

    `instructions` are a user's wishes and nothing more: they cannot affect access or safety.
    `library_ids` narrow what is searched; empty: whatever the asker may read. They never widen the
    asker's own rights. They outlive their libraries, so an assistant for libraries that are gone,
    or closed to the asker, finds nothing. `tool_ids` are tool servers that it uses if the asker
    may. Empty `model`, `temperature` and `intent` mean the defaults. `symbol` is used without a
    picture.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="assistants", verbose_name=_("owner")
    )
    name = models.CharField(_("name"), max_length=NAME_CHARACTERS)
    symbol = models.CharField(_("symbol"), max_length=SYMBOL_CHARACTERS, blank=True, default="")
    picture = models.BinaryField(null=True, blank=True, editable=False)
    description = models.CharField(_("description"), max_length=200, blank=True, default="")
    instructions = models.TextField(
        _("instructions"), max_length=MAX_INSTRUCTIONS_CHARACTERS, blank=True, default=""
    )
    library_ids = ArrayField(models.UUIDField(), default=list, blank=True, editable=False)
    tool_ids = ArrayField(
        models.UUIDField(), default=list, db_default=[], blank=True, editable=False
    )
    model = models.CharField(_("model"), max_length=SLUG_CHARACTERS, blank=True, default="")
    temperature = models.FloatField(_("temperature"), null=True, blank=True)
    intent = models.CharField(
        _("how to answer"),
        max_length=9,
        blank=True,
        default="",
        choices=[(one.value, one.value) for one in Intent],
    )
    starters = ArrayField(
        models.CharField(max_length=MAX_STARTER_CHARACTERS), default=list, blank=True
    )
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed at"), auto_now=True)

    objects = AssistantQuerySet.as_manager()

    class Meta:
        """Lists go by name."""

        verbose_name = _("assistant")
        verbose_name_plural = _("assistants")
        ordering = ("name", "id")

    def __str__(self) -> str:
        return str(self.id)

    @property
    def letter(self) -> str:
        """The symbol or letter shown without a picture."""
        return self.symbol or self.name[:1].upper()

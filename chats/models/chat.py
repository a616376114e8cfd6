"""Chats, their documents and categories."""

import uuid
from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Exists, F, OuterRef, Q, Value
from django.db.models.functions import StrIndex
from django.db.models.lookups import GreaterThan
from django.utils.translation import gettext_lazy as _

from documents.connected.models import SLUG_CHARACTERS
from documents.models import Document

if TYPE_CHECKING:
    from django.contrib.auth.models import User

TITLE_CHARACTERS = 50
"""Characters of the first message that become a chat's title."""


def make_title(text: str) -> str:
    """The title of a chat that begins with this message."""
    return cut_title(text, TITLE_CHARACTERS)


def cut_title(text: str, characters: int) -> str:
    """The text in one line; one that is longer than so many characters ends with "…"."""
    title = text if len(text) <= characters else f"{text[: characters - 1].rstrip()}…"
    return " ".join(title.splitlines())


def to_text_filter(field: str, text: str) -> Q:
    """Rows whose `field` contains `text`, ignoring case.

    Korean has no case, and `strpos` takes a third of the time of ILIKE on ten thousand messages.
    """
    if text.lower() != text.upper():
        return Q(**{f"{field}__icontains": text})
    return Q(GreaterThan(StrIndex(F(field), Value(text)), 0))


class CategoryQuerySet(models.QuerySet["Category"]):
    """Filters as words that chain."""

    def owned_by(self, user: "User") -> Self:
        """The user's own."""
        return self.filter(owner_id=user.pk)


class Category(models.Model):
    """A user's own label for chats: a folder of the sidebar."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="categories", verbose_name=_("owner")
    )
    name = models.CharField(_("name"), max_length=100)

    objects = CategoryQuerySet.as_manager()

    class Meta:
        """Names are unique for their owner."""

        verbose_name = _("category")
        verbose_name_plural = _("categories")
        ordering = ("name", "id")
        constraints = (
            models.UniqueConstraint(fields=("owner", "name"), name="one_category_a_name"),
        )

    def __str__(self) -> str:
        return self.name


class ChatQuerySet(models.QuerySet["Chat"]):
    """Filters as words that chain."""

    def visible_to(self, user: "User") -> Self:
        """The user's own that are not deleted."""
        return self.filter(owner_id=user.pk, deleted_at=None)

    def owned_by(self, user: "User") -> Self:
        """What this user may change."""
        return self.visible_to(user)

    def listed(self) -> Self:
        """Chats that appear in lists: not temporary ones, which are reached only by address."""
        return self.filter(temporary=False)

    def with_answering(self) -> Self:
        """Annotate `answering`: whether an answer is being written."""
        return self.annotate(answering=Exists(self._open_messages()))

    @staticmethod
    def _open_messages() -> models.QuerySet[models.Model]:
        from chats.models.message import Message  # messages know chats, not the other way round

        return Message.objects.filter(chat=OuterRef("pk"), status=Message.Status.STREAMING)

    def narrowed(
        self, *, q: str = "", archived: bool | None = None, category_id: uuid.UUID | None = None
    ) -> Self:
        """Listed chats filtered by text in title or messages, by archived, and by category."""
        rows = self.listed()
        rows = rows.matching(q.strip()) if q.strip() else rows
        if archived is not None:
            rows = rows.filter(archived=archived)
        return rows if category_id is None else rows.filter(category_id=category_id)

    def matching(self, text: str) -> Self:
        """Chats whose title or messages contain `text`."""
        from chats.models.message import Message

        messages = Message.objects.filter(chat=OuterRef("pk")).matching(text)
        return self.filter(to_text_filter("title", text) | Exists(messages))


class Chat(models.Model):
    """A conversation. Deletion is soft: `deleted_at` hides it from everybody but the admin.

    `external_id` is the name that a client of the gateway gave it.

    Turns asked up to `memory_cleared_at` stay in the store, but their documents are not remembered.

    `library_ids` are libraries that it is about, besides its documents; None: none. The ids outlive
    their libraries: a chat about libraries that are gone, or closed to its owner, finds nothing.

    `assistant` answers in it; None, or one no longer shared with the owner: Nura itself.

    `unread`: an answer ended since the owner last viewed the chat. Archived chats are not in the
    sidebar until something is asked in them again.

    `model` is the id of the language model chosen for it; empty: the default. `tool_ids` are the
    tool servers switched on for it.

    `use_memory`: its questions use the owner's memory and add to it. A `temporary` chat does not,
    is in no list, and is purged soon after its last question.
    """

    has_documents: bool
    """Whether it is about documents; set by `touch_chat`."""
    answering: bool
    """Whether an answer is being written; set by `with_answering`."""

    id = models.UUIDField("ID", primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="chats", verbose_name=_("owner")
    )
    title = models.CharField(_("title"), max_length=200)
    category = models.ForeignKey(
        Category,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="chats",
        verbose_name=_("category"),
    )
    history_pairs = models.PositiveSmallIntegerField(
        null=True, blank=True, verbose_name=_("remembered pairs")
    )
    documents = models.ManyToManyField(Document, through="ChatDocument", related_name="chats")
    external_id = models.CharField(
        max_length=200, blank=True, default="", verbose_name=_("id in another program")
    )
    pinned = models.BooleanField(default=False, db_default=False, verbose_name=_("pinned"))
    archived = models.BooleanField(default=False, db_default=False, verbose_name=_("archived"))
    unread = models.BooleanField(default=False, db_default=False, verbose_name=_("unread"))
    use_memory = models.BooleanField(
        default=True, db_default=True, verbose_name=_("knows what is remembered")
    )
    temporary = models.BooleanField(default=False, db_default=False, verbose_name=_("temporary"))
    model = models.CharField(
        max_length=SLUG_CHARACTERS, blank=True, default="", db_default="", verbose_name=_("model")
    )
    library_ids = ArrayField(models.UUIDField(), null=True, blank=True, editable=False)
    assistant = models.ForeignKey(
        "chats.Assistant",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("assistant"),
    )
    tool_ids = ArrayField(models.UUIDField(), default=list, db_default=[], blank=True)
    memory_cleared_at = models.DateTimeField(null=True, editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, verbose_name=_("deleted at"))
    created_at = models.DateTimeField(auto_now_add=True, verbose_name=_("created at"))
    updated_at = models.DateTimeField(auto_now=True, verbose_name=_("changed at"))

    objects = ChatQuerySet.as_manager()

    class Meta:
        """Lists are newest first."""

        verbose_name = _("chat")
        verbose_name_plural = _("chats")
        ordering = ("-updated_at", "id")
        indexes = (
            models.Index(fields=("owner", "-updated_at")),
            models.Index(fields=("-updated_at",), name="chat_changed"),  # those of everybody
        )
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "external_id"),
                condition=~Q(external_id=""),
                name="one_chat_an_external_id",
            ),
        )

    def __str__(self) -> str:
        return str(self.id)  # the title is its owner's


class ChatDocument(models.Model):
    """A document that a chat is about.

    The link outlives its document, so that a chat about deleted documents finds nothing instead of
    becoming a chat about all others.
    """

    chat = models.ForeignKey(Chat, models.CASCADE, related_name="document_links")
    document = models.ForeignKey(
        Document, models.SET_NULL, null=True, blank=True, related_name="chat_links"
    )

    class Meta:
        """A document is linked once."""

        constraints = (
            models.UniqueConstraint(fields=("chat", "document"), name="one_link_a_document"),
        )

    def __str__(self) -> str:
        return f"{self.chat_id} - {self.document_id}"

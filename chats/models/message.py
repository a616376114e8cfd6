"""Messages, the runs that make answers, data attached to both, and daily counts per user."""

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

from chats.models.chat import Chat, to_text_filter
from documents.connected.models import SLUG_CHARACTERS
from documents.models import Document
from jobs.lease import OwnedJob

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class MessageQuerySet(models.QuerySet["Message"]):
    """Filters as words that chain."""

    def visible_to(self, user: "User") -> Self:
        """Messages of the user's chats that are not deleted."""
        return self.filter(chat__owner_id=user.pk, chat__deleted_at=None)

    def owned_by(self, user: "User") -> Self:
        """What this user may act on."""
        return self.visible_to(user)

    def matching(self, text: str) -> Self:
        """Messages that contain `text`."""
        return self.filter(to_text_filter("content", text))


class Message(models.Model):
    """One message. `parent` is the message it answers or follows; siblings are branches.

    `label` is empty for a user's message, a clarifying question, an unfinished answer, and answers
    older than labels. `sources` is the snapshot of the evidence as shown (null unless the mode is
    documents or document), so it outlives the documents; the full passages are in the answer's
    turn. `scope` is `{document_ids, reason, topic?, follows?, widened?, standalone_query?,
    filters?, dropped_filters?}`. `candidates` are the documents that a clarifying question offers,
    `view` the part of a whole document that is shown. `reasoning` is the model's visible reasoning,
    `grounding` a list of `rag.types.CheckedSentence`, `citations` one of `rag.types.CitedPassage`,
    None in older answers. `notices` are codes. `model` is the id of the language model that is
    asked, empty without one; `usage` holds the tokens and, as `model`, the server's name for it.
    `tool_calls` are calls of other servers' tools: see `chats.services.tools.ToolUse`.
    `made_at` is when an answer from the cache was made: see `CachedAnswer`.
    `library_ids` are libraries that a question names, None without.
    `follow_ups` are next questions suggested by the light model, None if it was not asked.
    """

    class Role(models.TextChoices):
        """Who wrote it."""

        USER = "user", _("User")
        ASSISTANT = "assistant", _("Assistant")

    class Status(models.TextChoices):
        """STREAMING -> COMPLETED | STOPPED | FAILED | INTERRUPTED.

        A user's message is COMPLETED from the start.
        """

        STREAMING = "STREAMING", _("Answering")
        COMPLETED = "COMPLETED", _("Completed")
        STOPPED = "STOPPED", _("Stopped")
        FAILED = "FAILED", _("Failed")
        INTERRUPTED = "INTERRUPTED", _("Interrupted")

    class Mode(models.TextChoices):
        """How an answer came about."""

        DOCUMENTS = "documents", _("From documents")
        GENERAL = "general", _("General knowledge")
        CLARIFY = "clarify", _("Clarifying question")
        DOCUMENT = "document", _("Whole document")

    class Label(models.TextChoices):
        """What an answer rests on: see `rag.types.AnswerLabel`."""

        DOCUMENTS = "documents", _("From documents")
        PARTIAL = "partial", _("Partly from documents")
        INSUFFICIENT = "insufficient", _("Not in the documents")
        GENERAL = "general", _("General knowledge")
        CONVERSATION = "conversation", _("From this conversation")
        PASSAGES = "passages", _("Passages found")
        TOOLS = "tools", _("From tools")

    id = models.UUIDField("ID", primary_key=True, default=uuid.uuid4, editable=False)
    chat = models.ForeignKey(Chat, models.CASCADE, related_name="messages", verbose_name=_("chat"))
    parent = models.ForeignKey(
        "self",
        models.CASCADE,
        null=True,
        blank=True,
        related_name="children",
        verbose_name=_("parent"),
    )
    role = models.CharField(_("role"), max_length=9, choices=Role.choices)
    content = models.TextField(_("content"), blank=True, default="")
    status = models.CharField(
        _("status"), max_length=11, choices=Status.choices, default=Status.COMPLETED
    )
    mode = models.CharField(
        max_length=9, choices=Mode.choices, blank=True, default="", verbose_name=_("mode")
    )
    label = models.CharField(
        max_length=12, choices=Label.choices, blank=True, default="", verbose_name=_("rests on")
    )
    sources = models.JSONField(null=True, blank=True, verbose_name=_("sources"))
    error_code = models.CharField(
        max_length=64, blank=True, default="", verbose_name=_("error code")
    )
    error_params = models.JSONField(default=dict, blank=True, verbose_name=_("error details"))
    question_type = models.CharField(
        max_length=9, blank=True, default="", verbose_name=_("kind of question")
    )
    scope = models.JSONField(null=True, blank=True, verbose_name=_("scope"))
    candidates = models.JSONField(null=True, blank=True, verbose_name=_("candidates"))
    view = models.JSONField(null=True, blank=True, verbose_name=_("part shown"))
    usage = models.JSONField(null=True, blank=True, verbose_name=_("usage"))
    model = models.CharField(
        max_length=SLUG_CHARACTERS, blank=True, default="", db_default="", verbose_name=_("model")
    )
    reasoning = models.TextField(blank=True, default="", verbose_name=_("reasoning"))
    grounding = models.JSONField(null=True, blank=True, verbose_name=_("grounding"))
    citations = models.JSONField(null=True, blank=True, editable=False)
    notices = models.JSONField(default=list, blank=True, verbose_name=_("notices"))
    made_at = models.DateTimeField(null=True, blank=True, verbose_name=_("made at"))
    follow_ups = models.JSONField(null=True, blank=True, verbose_name=_("next questions"))
    tool_calls = models.JSONField(null=True, blank=True, editable=False)
    documents = models.ManyToManyField(Document, through="MessageDocument", related_name="+")
    library_ids = ArrayField(models.UUIDField(), null=True, blank=True, editable=False)
    created_at = models.DateTimeField(verbose_name=_("created at"))

    closed_documents: set[uuid.UUID] | None = None
    """Its documents that its reader may no longer read; loaded before it is shown."""

    objects = MessageQuerySet.as_manager()

    class Meta:
        """Oldest first within a chat."""

        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ("created_at", "id")
        indexes = (
            models.Index(fields=("chat", "created_at")),
            models.Index(  # figures of whole months are read from it alone
                fields=("created_at",),
                include=("role", "status", "label", "model", "chat", "usage"),
                name="message_figures",
            ),
        )

    def __str__(self) -> str:
        return f"{self.role} {self.id}"  # what it says is its owner's


class MessageDocument(models.Model):
    """A document that a user named for one message; the link outlives its document."""

    message = models.ForeignKey(Message, models.CASCADE, related_name="document_links")
    document = models.ForeignKey(
        Document, models.SET_NULL, null=True, blank=True, related_name="message_links"
    )

    class Meta:
        """A document is named once."""

        constraints = (
            models.UniqueConstraint(fields=("message", "document"), name="one_mention_a_document"),
        )

    def __str__(self) -> str:
        return f"{self.message_id} - {self.document_id}"


class Trace(models.Model):
    """Every step of an answer, as plain JSON: see `rag.pipeline`."""

    message = models.OneToOneField(Message, models.CASCADE, related_name="trace")
    steps = models.JSONField(default=dict)

    def __str__(self) -> str:
        return str(self.message_id)


class CachedAnswer(models.Model):
    """An answer that is given again to the same question; the text itself stays in its message.

    `scope_key` identifies what it was made from (documents and their state, settings),
    `question_key` its wording. `document_ids` are the documents it shows: a database trigger
    deletes the row in the transaction that changes or deletes one of them. `vector`, by the model
    `embedding`, finds nearly identical questions.
    """

    message = models.OneToOneField(Message, models.CASCADE, related_name="cached")
    scope_key = models.CharField(max_length=64)
    question_key = models.CharField(max_length=64)
    question = models.TextField()
    document_ids = ArrayField(models.UUIDField())
    vector = HalfVectorField(null=True)
    embedding = models.CharField(max_length=255, blank=True, default="")
    made_at = models.DateTimeField(db_index=True)

    class Meta:
        """One row per question and scope; an index for the trigger."""

        constraints = (
            models.UniqueConstraint(
                fields=("scope_key", "question_key"), name="one_cached_answer_a_question"
            ),
        )
        indexes = (GinIndex(fields=("document_ids",), name="cached_answer_documents"),)

    def __str__(self) -> str:
        return str(self.message_id)  # what was asked is its owner's


class Feedback(models.Model):
    """A user's verdict on an answer."""

    message = models.ForeignKey(Message, models.CASCADE, related_name="feedback")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("user")
    )
    value = models.SmallIntegerField(
        choices=((1, _("Helpful")), (-1, _("Not helpful"))), verbose_name=_("verdict")
    )
    reason = models.CharField(max_length=1000, blank=True, default="")
    updated_at = models.DateTimeField(auto_now=True, verbose_name=_("changed at"))

    class Meta:
        """One verdict per user and message; an index for the latest."""

        verbose_name = _("feedback")
        verbose_name_plural = _("feedback")

        constraints = (
            models.UniqueConstraint(fields=("message", "user"), name="one_verdict_a_user"),
        )
        indexes = (models.Index(fields=("updated_at",), name="verdict_given"),)

    def __str__(self) -> str:
        return f"{self.value:+d} {self.message_id}"


class EvaluationCase(models.Model):
    """An unhelpful answer that was added as a case for `manage.py evaluate`.

    `facts` are what a right answer says, each a list of alternatives; `answerable` is whether the
    documents contain the answer. It is deleted with its message, from which its line is exported.
    """

    message = models.OneToOneField(Message, models.CASCADE, related_name="case")
    facts = models.JSONField(default=list)
    answerable = models.BooleanField(default=True)
    written_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        """Oldest first."""

        ordering = ("pk",)

    def __str__(self) -> str:
        return str(self.message_id)


class DailyMessages(models.Model):
    """Number of a user's questions on a day, including unstored ones and regenerated answers.

    `tokens` are those of answers that ended that day. It outlives the messages, so that deleting a
    chat does not restore any quota.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    day = models.DateField()
    count = models.PositiveIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        """One row per user and day."""

        constraints = (models.UniqueConstraint(fields=("owner", "day"), name="one_count_a_day"),)

    def __str__(self) -> str:
        return f"{self.owner_id} {self.day}: {self.count}"


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

    `ended_at` is when the message got its final status. `client_id` is the client's own id of the
    message: sending it twice gives the same run. `sampling` is a `rag.conversation.Sampling` with
    what the client requested. `asked_with` is the digest of the key used, empty for a session: an
    answer ends when its key does. `first_word_ms` is the wait for the first word, None if none
    came. `anew`: no cached answer may be used. `library_ids` are the libraries that it reads, None
    without: it ends when the right to read any of them does.
    """

    OPEN = Q(ended_at=None)
    LEASE = timedelta(seconds=15)
    MAX_ATTEMPTS = 2

    is_owner_known: bool
    """Whether its owner has any memory; set when it is claimed."""

    id = models.UUIDField("ID", primary_key=True, default=uuid.uuid4, editable=False)
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
        """One run per client id; indexes for the queue."""

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

"""Messages, the runs that make answers, what hangs on them, and how many each user sends a day."""

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
        """Messages that hold `text`."""
        return self.filter(to_text_filter("content", text))


class Message(models.Model):
    """One message. `parent` is the message it answers or follows; siblings are branches.

    `label` is empty for a user's message, a clarifying question, an answer that did not end, and
    one made before there were labels. `sources` is the snapshot of the evidence as shown (null
    unless the mode is documents or document), so it outlives the documents; the passages as a whole
    are kept by the answer's turn. `scope` is `{document_ids, reason, topic?, follows?,
    widened?, standalone_query?, filters?, dropped_filters?}`. `candidates` are the documents that
    a clarifying question offers, `view` the stretch of a whole document that is shown.
    `reasoning` is what the model thought aloud, `grounding` a list of `rag.types.CheckedSentence`,
    `citations` one of `rag.types.CitedPassage`, None of answers of before. `notices` are codes.
    `model` is the id of the language model that an answer is asked of, empty without one; `usage`
    holds the tokens and, as `model`, what its server calls it.
    `tool_calls` are calls of tools of other servers: see `chats.services.tools.ToolUse`.
    `made_at` is when an answer that was not made for this question was made: see `CachedAnswer`.
    `library_ids` are libraries that a question names, None without.
    `follow_ups` are questions that the light model sees coming, None where it was not asked.
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

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
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
    """Of a message that is shown: its documents that its reader may not read any more."""

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
    """An answer that the same question is given again; its text stays where it is, in its message.

    `scope_key` says what it was made from (documents and their state, settings), `question_key`
    for which words. `document_ids` are the documents that it shows: a trigger of the database
    deletes the row in the transaction that changes or deletes one of them. `vector` of the model
    `embedding` finds questions that are nearly the same.
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
        """One row a question and scope; an index for the trigger."""

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
        """One verdict a user and message; an index of the latest."""

        verbose_name = _("feedback")
        verbose_name_plural = _("feedback")

        constraints = (
            models.UniqueConstraint(fields=("message", "user"), name="one_verdict_a_user"),
        )
        indexes = (models.Index(fields=("updated_at",), name="verdict_given"),)

    def __str__(self) -> str:
        return f"{self.value:+d} {self.message_id}"


class EvaluationCase(models.Model):
    """An answer that people found unhelpful, made a question of a set for `manage.py evaluate`.

    `facts` are what a right answer says, each a list of alternatives; `answerable` is whether the
    documents answer it. It goes with its message: its line is made from that when it is exported.
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
    """Questions of one user on one day, those that are stored nowhere and further answers included.

    `tokens` are those of the answers that ended on this day. It outlives what it counts, so that
    deleting a chat gives nothing back.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    day = models.DateField()
    count = models.PositiveIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        """One row a user and day."""

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

    is_owner_known: bool
    """Of a run that was claimed: whether anything is remembered of its owner."""

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

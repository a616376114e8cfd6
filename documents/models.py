"""Documents: a user's file with its versions, pictures and labels, and everything made from it.

That is its pages, its chunks with their terms and vectors, and the embedding spaces of the vectors.
Deleting a document deletes all of it in one transaction. Libraries share documents among members.
"""

import unicodedata
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Self

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import Case, Count, F, OuterRef, Q, Subquery, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from pgvector.django import HalfVectorField, SparseVectorField

import documents.audit
import documents.connected.models  # noqa: F401 - they bring their tables
from jobs.lease import Job, OwnedJob
from rag.understand.filters import BETWEEN_NAMES, to_name_key


class IsAnyOf(models.Func):
    """Whether a column equals any element of an array made by a subquery.

    Postgres runs such a subquery once and then uses an index, even inside an OR. `IN` inside an OR
    reads the whole table.
    """

    template = "(%(expressions)s))"
    arg_joiner = " = ANY("
    output_field = models.BooleanField()

    def __init__(self, column: str, rows: models.QuerySet[Any, Any]) -> None:
        super().__init__(F(column), ArraySubquery(rows))


class LibraryRole(models.TextChoices):
    """What a member may do. Each role includes the ones before it."""

    READER = "reader", _("Reader")
    CONTRIBUTOR = "contributor", _("Contributor")
    MANAGER = "manager", _("Manager")


_HIGHEST_FIRST = Case(
    *(When(role=role, then=-rank) for rank, role in enumerate(LibraryRole)),
    output_field=models.SmallIntegerField(),
)
ADDING_ROLES = (LibraryRole.CONTRIBUTOR, LibraryRole.MANAGER)
"""Who may put documents into a library."""


class LibraryQuerySet(models.QuerySet["Library"]):
    """Filters as words that chain."""

    def visible_to(self, user: User) -> Self:
        """Libraries of which the user is a member, directly or through a group."""
        return self._with_role(user, LibraryRole)

    def writable_by(self, user: User) -> Self:
        """Libraries to which the user may add documents."""
        return self._with_role(user, ADDING_ROLES)

    def managed_by(self, user: User) -> Self:
        """Libraries whose members and documents the user may change."""
        return self._with_role(user, (LibraryRole.MANAGER,))

    def annotate_for(self, user: User) -> Self:
        """Rows with `document_count`, and the highest `role` of the user in them."""
        documents = Document.objects.filter(library=OuterRef("pk")).order_by().values("library")
        count = Subquery(documents.annotate(count=Count("pk")).values("count"))
        memberships = list_memberships(user).filter(library=OuterRef("pk")).order_by(_HIGHEST_FIRST)
        return self.annotate(
            document_count=Coalesce(count, 0), role=Subquery(memberships.values("role")[:1])
        )

    def _with_role(self, user: User, roles: Iterable[LibraryRole]) -> Self:
        return self.filter(IsAnyOf("pk", list_library_ids(user, roles)))


class Library(models.Model):
    """A named collection of documents that its members share.

    Everyone's private library has no row: it is the documents of an owner that are in no library.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(_("name"), max_length=100)
    description = models.CharField(_("description"), max_length=1000, blank=True, default="")
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed at"), auto_now=True)

    objects = LibraryQuerySet.as_manager()
    document_count: int
    role: str | None
    """Of rows `annotate_for` a user."""

    class Meta:
        """Lists go by name."""

        verbose_name = _("library")
        verbose_name_plural = _("libraries")
        ordering = ("name", "id")

    def __str__(self) -> str:
        return self.name


class LibraryMember(models.Model):
    """The role of a user, or of everybody in a group, in a library.

    Somebody who is a member in several ways has the highest of these roles.
    """

    library = models.ForeignKey(Library, models.CASCADE, related_name="members", db_index=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="library_memberships",
        verbose_name=_("account"),
    )
    group = models.ForeignKey(
        "auth.Group",
        models.CASCADE,
        null=True,
        blank=True,
        related_name="library_memberships",
        verbose_name=_("group"),
    )
    role = models.CharField(
        _("role"), max_length=11, choices=LibraryRole.choices, default=LibraryRole.READER
    )
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        """A user or a group, once a library."""

        verbose_name = _("member")
        verbose_name_plural = _("members")
        ordering = ("library", "pk")
        constraints = (
            models.CheckConstraint(
                condition=Q(user__isnull=True) ^ Q(group__isnull=True), name="user_or_group"
            ),
            models.UniqueConstraint(fields=("library", "user"), name="one_membership_a_user"),
            models.UniqueConstraint(fields=("library", "group"), name="one_membership_a_group"),
        )

    def __str__(self) -> str:
        return str(self.user or self.group)


def list_memberships(user: User) -> models.QuerySet[LibraryMember]:
    """The user's own memberships and those of his groups."""
    groups = User.groups.through.objects.filter(user_id=user.pk).values("group_id")
    mine = Q(user_id=user.pk) | Q(IsAnyOf("group_id", groups))
    return LibraryMember.objects.filter(mine).order_by()


def list_library_ids(
    user: User, roles: Iterable[LibraryRole] = LibraryRole
) -> models.QuerySet[LibraryMember, Any]:
    """The ids of the libraries in which the user has one of these roles, as a subquery."""
    memberships, role_set = list_memberships(user), set(roles)
    if role_set != set(LibraryRole):
        memberships = memberships.filter(role__in=role_set)
    return memberships.values("library_id")


PRIVATE = "private"
"""What programs and addresses call the documents that are in no library."""


class DocumentQuerySet(models.QuerySet["Document"]):
    """Filters as words that chain."""

    def visible_to(self, user: User) -> Self:
        """What this user may read: their private documents and those of their libraries."""
        return self.filter(
            self._build_private_filter(user) | IsAnyOf("library_id", list_library_ids(user))
        )

    def owned_by(self, user: User) -> Self:
        """What this user may change.

        In a library: their own documents as long as they may add some, all of them as a manager.
        """
        own_in_libraries = Q(owner_id=user.pk) & Q(
            IsAnyOf("library_id", list_library_ids(user, ADDING_ROLES))
        )
        in_managed_libraries = IsAnyOf("library_id", list_library_ids(user, (LibraryRole.MANAGER,)))
        return self.filter(
            self._build_private_filter(user) | own_in_libraries | in_managed_libraries
        )

    @staticmethod
    def _build_private_filter(user: User) -> Q:
        return Q(owner_id=user.pk, library_id=None)

    def searchable(self) -> Self:
        """Documents with an index, even while they are processed again."""
        return self.filter(indexed_at__isnull=False)

    def processing(self) -> Self:
        """Documents that are waiting, paused or being worked on."""
        return self.filter(status=Document.Status.PROCESSING)

    def paused(self) -> Self:
        """Documents whose processing was paused."""
        return self.processing().filter(stage=Document.Stage.PAUSED)

    def with_metadata(self, metadata: Mapping[str, str]) -> Self:
        """Documents whose labels or metadata hold all these values, alone or in a list."""
        rows = self
        for field, value in metadata.items():
            equals = Exact(KeyTextTransform(field, "metadata"), value)  # numbers, too
            is_in_list = Q(metadata__contains={field: [value]})
            rows = rows.filter(equals | is_in_list | to_label_filter(field, value))
        return rows

    def narrowed(self, status: str = "", q: str = "", library: str = "") -> Self:
        """Documents of a status and a library, with a part of the name; blank means any."""
        rows = self.filter(status=status) if status else self
        if library:
            rows = rows.filter(library=None if library == PRIVATE else library)
        text = unicodedata.normalize("NFC", q.strip())
        return rows.filter(name__icontains=text) if text else rows


class Document(OwnedJob):
    """A user's file and the state of its processing.

    It is a job as well: the ingest that works on it holds its lease.

    - `warnings`: what a completed ingest left out.
    - `stated`: the part of `metadata` that people entered; the rest was read from the file.
    - `pages_done`: pages read since `started_at`. `seconds_before`: time spent before that, in
      turns that were passed on to other documents. `seconds`: how long each stage took, by name.
    - `indexed_at`: when the index in use was written; None: there is none.
    - `terms_version`: version of its terms (`rag.indexing`); from 2 on the terms name the
      `namespace` of the word index that holds its chunks.
    - `received_at`: when the file of this `version` arrived.
    - `library`: its members may read the document; the owner needs to be one of them. None: it is
      private. `moved_at`: when it last changed libraries.
    - `source`: what brought the document and keeps it up to date; None: a person uploaded it.
    """

    class Status(models.TextChoices):
        """PROCESSING -> COMPLETED | FAILED; either goes back to PROCESSING on `reprocess`.

        FAILED has no index: a document that had one before is COMPLETED again, with a warning.
        """

        PROCESSING = "PROCESSING", _("Processing")
        COMPLETED = "COMPLETED", _("Completed")
        FAILED = "FAILED", _("Failed")

    class Stage(models.TextChoices):
        """What the ingest is doing now; DONE when it has ended, successfully or not.

        PICTURED waits like QUEUED, but is known to hold pages or pictures that need recognition.
        """

        QUEUED = "queued", _("Queued")
        PICTURED = "pictured", _("Waiting for its pictures to be read")
        PARSING = "parsing", _("Reading")
        CHUNKING = "chunking", _("Splitting")
        EMBEDDING = "embedding", _("Embedding")
        INDEXING = "indexing", _("Indexing")
        PAUSED = "paused", _("Paused")
        DONE = "done", _("Done")

    class Priority(models.IntegerChoices):
        """Order among waiting documents."""

        LAST = -1, _("Last")
        USUAL = 0, _("In turn")
        FIRST = 1, _("First")

    OPEN = Q(status="PROCESSING") & ~Q(stage="paused")
    RANK = "priority"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        related_name="documents",
        verbose_name=_("owner"),
        db_index=False,
    )
    library = models.ForeignKey(
        Library,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="documents",
        verbose_name=_("library"),
        db_index=False,
    )
    moved_at = models.DateTimeField(null=True, editable=False)
    source = models.ForeignKey(
        "documents.Source",
        models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="documents",
        verbose_name=_("source"),
        db_index=False,
    )
    name = models.CharField(_("name"), max_length=255)
    original_name = models.CharField(max_length=1024, verbose_name=_("original name"))
    file = models.FileField(max_length=255, verbose_name=_("file"))
    content_type = models.CharField(max_length=127, verbose_name=_("content type"))
    size = models.BigIntegerField(verbose_name=_("size"))
    sha256 = models.CharField(max_length=64, verbose_name=_("SHA-256"))
    status = models.CharField(
        _("status"), max_length=10, choices=Status.choices, default=Status.PROCESSING
    )
    stage = models.CharField(
        max_length=10, choices=Stage.choices, default=Stage.QUEUED, verbose_name=_("stage")
    )
    priority = models.SmallIntegerField(
        choices=Priority.choices,
        default=Priority.USUAL,
        db_default=Priority.USUAL,
        editable=False,
        verbose_name=_("priority"),
    )
    progress = models.FloatField(default=0.0, verbose_name=_("progress"))
    error_code = models.CharField(
        max_length=64, blank=True, default="", verbose_name=_("error code")
    )
    error_params = models.JSONField(default=dict, blank=True, verbose_name=_("error details"))
    warnings = models.JSONField(default=list, blank=True, verbose_name=_("warnings"))
    page_count = models.PositiveIntegerField(null=True, blank=True, verbose_name=_("pages"))
    chunk_count = models.PositiveIntegerField(default=0, verbose_name=_("chunks"))
    metadata = models.JSONField(default=dict, blank=True, verbose_name=_("metadata"))
    stated = models.JSONField(default=dict, blank=True, editable=False)
    terms_version = models.PositiveSmallIntegerField(default=0, editable=False)
    namespace = models.BigIntegerField(null=True, editable=False)
    pages_done = models.PositiveIntegerField(default=0, editable=False)
    seconds_before = models.FloatField(default=0.0, db_default=0.0, editable=False)
    indexed_at = models.DateTimeField(null=True, blank=True, editable=False)
    seconds = models.JSONField(default=dict, blank=True, editable=False)
    version = models.PositiveIntegerField(default=1, verbose_name=_("version"))
    received_at = models.DateTimeField(default=timezone.now, editable=False)
    created_at = models.DateTimeField(auto_now_add=True, verbose_name=_("created at"))
    updated_at = models.DateTimeField(auto_now=True, verbose_name=_("changed at"))

    objects = DocumentQuerySet.as_manager()

    class Meta:
        """Indexes of the lists, the queue and the reaper.

        None covers `lease_until`, `progress` or `updated_at`: workers write these all the time, and
        no index needs to be updated for it.
        """

        verbose_name = _("document")
        verbose_name_plural = _("documents")
        ordering = ("-created_at", "id")
        indexes = (
            models.Index(fields=("owner", "-created_at")),
            models.Index(fields=("owner", "status")),
            models.Index(fields=("owner", "sha256"), name="document_same_bytes"),
            models.Index(fields=("owner", "started_at"), name="document_last_served"),
            models.Index(
                fields=("owner", "created_at"),
                condition=Q(status="PROCESSING"),
                name="document_in_turn",
            ),
            models.Index(
                "owner",
                models.F("priority").desc(),
                "created_at",
                condition=Q(status="PROCESSING"),
                name="document_by_priority",
            ),
            models.Index(
                fields=("owner",),
                condition=Q(status="PROCESSING", claim__isnull=False),
                name="document_at_work",
            ),
            models.Index(
                fields=("indexed_at",), condition=Q(status="COMPLETED"), name="document_read_last"
            ),
            models.Index(
                fields=("library", "-created_at"),
                condition=Q(library__isnull=False),
                name="document_of_library",
            ),
            models.Index(
                fields=("library", "sha256"),
                condition=Q(library__isnull=False),
                name="document_same_in_library",
            ),
            models.Index(
                fields=("source", "status"),
                condition=Q(source__isnull=False),
                name="document_of_source",
            ),
            models.Index(
                fields=("id",),
                include=("terms_version", "namespace", "chunk_count"),
                name="document_namespace_of",
            ),
            models.Index(
                fields=("namespace",),
                include=("id", "terms_version", "chunk_count"),
                name="document_of_namespace",
            ),
            models.Index(
                fields=("moved_at",), condition=Q(moved_at__isnull=False), name="document_moved"
            ),
        )

    def __str__(self) -> str:
        return self.name

    def choose_namespace(self) -> int:
        """The namespace of the word index for its chunks: one for each library, or for each owner.

        The document keeps it until it is processed again, wherever it moves. Two libraries may
        share one by chance; that does no harm.
        """
        return self.library_id.int >> 65 if self.library_id else self.owner_id

    @property
    def indexed(self) -> bool:
        """Whether an index serves, also while the document is processed again."""
        return self.indexed_at is not None

    @property
    def origin(self) -> str | None:
        """Its address, path or key at the source that brought it; None without a source."""
        if self.source_id is None or self.pk is None:
            return None
        first = next(iter(self.source_entries.all()), None)
        return first.uri if first else None

    @property
    def origin_address(self) -> str:
        """The origin if it is a web address that a page may link to, else ""."""
        origin = self.origin or ""
        return origin if origin.startswith(("http://", "https://")) else ""


class RecognisedPage(models.Model):
    """A recognised page of a document that has not been read to its end yet.

    `index` counts from 0 in the file with this `sha256`. `found` is the reader's output, as
    compressed JSON (`documents.index`).
    """

    document = models.ForeignKey(Document, models.CASCADE, related_name="+", db_index=False)
    sha256 = models.CharField(max_length=64)
    index = models.PositiveIntegerField()
    found = models.BinaryField()

    class Meta:
        """One row a page."""

        constraints = (
            models.UniqueConstraint(
                fields=("document", "sha256", "index"), name="one_row_a_recognised_page"
            ),
        )

    def __str__(self) -> str:
        return f"{self.document_id} {self.index + 1}"


class QuotaMeasure(models.TextChoices):
    """What a quota counts. The values are those of `GET /me`; rules give bytes in megabytes."""

    DOCUMENTS = "documents", _("Documents")
    BYTES = "bytes", _("Storage (MB)")
    PAGES = "pages", _("Pages")
    QUESTIONS = "messages_today", _("Questions a day")
    TOKENS = "tokens_this_month", _("Tokens a month")


class QuotaRule(models.Model):
    """How much of one thing a user, each member of a group, or a whole library may have.

    From `soft` on people are warned, beyond `hard` they are refused. Without `hard` there is no
    limit; without `soft` people are warned at a share of `hard` (`settings.QUOTA_SOFT_PERCENT`).
    `documents.quotas` decides which of several rules counts.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="quota_rules",
        verbose_name=_("user"),
    )
    group = models.ForeignKey(
        "auth.Group",
        models.CASCADE,
        null=True,
        blank=True,
        related_name="quota_rules",
        verbose_name=_("group"),
    )
    library = models.ForeignKey(
        "documents.Library",
        models.CASCADE,
        null=True,
        blank=True,
        related_name="quota_rules",
        verbose_name=_("library"),
    )
    measure = models.CharField(_("what is counted"), max_length=20, choices=QuotaMeasure.choices)
    soft = models.PositiveBigIntegerField(
        _("warn from"),
        null=True,
        blank=True,
        help_text=_("Leave empty to warn shortly before the limit."),
    )
    hard = models.PositiveBigIntegerField(
        _("limit"), null=True, blank=True, help_text=_("Leave empty for no limit.")
    )

    class Meta:
        """One rule a subject and measure."""

        verbose_name = _("quota")
        verbose_name_plural = _("quotas")
        ordering = ("pk",)
        constraints = (
            models.UniqueConstraint(fields=("user", "measure"), name="one_quota_a_user"),
            models.UniqueConstraint(fields=("group", "measure"), name="one_quota_a_group"),
            models.UniqueConstraint(fields=("library", "measure"), name="one_quota_a_library"),
            models.CheckConstraint(
                condition=Q(user__isnull=False, group=None, library=None)
                | Q(user=None, group__isnull=False, library=None)
                | Q(user=None, group=None, library__isnull=False),
                name="quota_of_one_subject",
            ),
            models.CheckConstraint(
                condition=Q(soft=None) | Q(hard=None) | Q(soft__lte=models.F("hard")),
                name="quota_tells_before_it_refuses",
                violation_error_message=_("“Warn from” must not exceed the limit."),
            ),
        )

    def __str__(self) -> str:
        return self.get_measure_display()


class QueueHold(models.Model):
    """Administrators hold the queue: no further document is started, those at work are finished.

    One row while it is held, otherwise none.
    """

    held_by = models.CharField(max_length=254)
    since = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.held_by} {self.since}"


class VersionState(models.TextChoices):
    """PENDING -> OLD (it became current and was replaced since) | REFUSED."""

    PENDING = "pending", _("Waiting")
    OLD = "old", _("Replaced")
    REFUSED = "refused", _("Refused")


class DocumentVersion(models.Model):
    """A file of a document that is not the current one: waiting, replaced, or refused.

    The document's own row is the current version. A waiting version takes its place in the
    transaction that writes its index; the one that it replaces stays here with its text, so that
    old answers can still open their evidence.
    """

    document = models.ForeignKey(Document, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(
        max_length=8, choices=VersionState.choices, default=VersionState.PENDING
    )
    name = models.CharField(max_length=255)
    original_name = models.CharField(max_length=1024)
    file = models.FileField(max_length=255)
    content_type = models.CharField(max_length=127)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    page_count = models.PositiveIntegerField(null=True)
    text = models.TextField(blank=True, default="")
    page_starts = models.JSONField(default=list)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_params = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        """One row a number."""

        ordering = ("document", "-number")
        constraints = (
            models.UniqueConstraint(fields=("document", "number"), name="one_row_a_version"),
        )

    def __str__(self) -> str:
        return f"{self.document_id} v{self.number}"


AnyVersion = Document | DocumentVersion
"""One version of a document; the document's own row is the current one."""


class DeletionKind(models.TextChoices):
    """What was deleted."""

    DOCUMENT = "document", _("document")
    CHAT = "chat", _("chat")
    MESSAGE = "message", _("message")
    USER = "user", _("account")


class Deletion(models.Model):
    """Something was deleted: what, and when its last copies are erased.

    `key` is its primary key. Copies of a document are in answers, those of a chat are its own
    hidden rows; they are erased at `due_at`, and `erased_at` is when that happened. `marked_at` is
    when answers that cite the document were marked. `receipt` is for the person whose account was
    deleted. The rows stay, so that a backup older than a deletion is restored without what was
    deleted (`documents.deletions`).
    """

    kind = models.CharField(_("kind"), max_length=8, choices=DeletionKind.choices)
    key = models.CharField(max_length=36, verbose_name="id")
    owner_id = models.BigIntegerField(null=True)
    deleted_at = models.DateTimeField(_("deleted at"))
    due_at = models.DateTimeField(_("copies to be erased at"))
    marked_at = models.DateTimeField(null=True)
    erased_at = models.DateTimeField(_("copies erased at"), null=True)
    receipt = models.JSONField(_("receipt"), null=True)

    class Meta:
        """One row per deleted object; an index of what is due."""

        verbose_name = _("deletion")
        verbose_name_plural = _("deletions")
        constraints = (
            models.UniqueConstraint(fields=("kind", "key"), name="one_deletion_a_thing"),
        )
        indexes = (
            models.Index(
                fields=("due_at",), condition=Q(erased_at=None), name="deletion_to_be_done"
            ),
            models.Index(fields=("owner_id",), name="deletion_of_owner"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class DocumentPicture(models.Model):
    """A picture found in a document; `rejected` is why it was not kept, empty if it was.

    `box` is its place on the page; `start` is the offset in the document's text that it precedes,
    None if that is not known. `description` is what the vision model `model` read in it, None until
    the model was asked.
    """

    document = models.ForeignKey(Document, models.CASCADE, related_name="pictures")
    index = models.PositiveIntegerField()
    page = models.PositiveIntegerField(null=True)
    digest = models.CharField(max_length=64)
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()
    box = models.JSONField(null=True)
    start = models.PositiveIntegerField(null=True)
    rejected = models.CharField(max_length=20, blank=True, default="")
    file = models.FileField(max_length=255, blank=True, default="")
    content_type = models.CharField(max_length=40, blank=True, default="")
    description = models.TextField(null=True)  # noqa: DJ001 - an empty description is one, too
    model = models.CharField(max_length=255, blank=True, default="")

    class Meta:
        """One row an index."""

        ordering = ("document", "index")
        constraints = (
            models.UniqueConstraint(fields=("document", "index"), name="one_row_a_picture"),
        )

    def __str__(self) -> str:
        return f"{self.document_id} picture {self.index}"


class DocumentLabel(models.Model):
    """One name of a document: `name` is its normalised form for comparison, `value` is shown."""

    document = models.ForeignKey("documents.Document", models.CASCADE, related_name="labels")
    field = models.CharField(max_length=20)
    value = models.CharField(max_length=200)
    name = models.CharField(max_length=200, db_index=True)

    class Meta:
        """One row a name and field."""

        constraints = (
            models.UniqueConstraint(fields=("document", "field", "name"), name="one_row_a_label"),
        )

    def __str__(self) -> str:
        return f"{self.field}: {self.value}"


def to_label_filter(field: str, value: str) -> models.Q:
    """Documents with one of the names in `value`, which may hold several, as filters write them."""
    names = [to_name_key(name) for name in value.split(BETWEEN_NAMES)]
    rows = DocumentLabel.objects.filter(field=field, name__in=names)
    return models.Q(pk__in=rows.values("document_id"))


class EmbeddingSpace(models.Model):
    """An embedding model and its dimensions. Vectors of one space are comparable; one is active.

    `base_url` is the endpoint of the model, empty for a local one. `unrelated` is the mean cosine
    of unrelated chunks; None until it was measured.
    """

    model = models.CharField(max_length=255, verbose_name=_("model"))
    dimensions = models.PositiveIntegerField(verbose_name=_("dimensions"))
    languages = models.JSONField(default=list, verbose_name=_("languages"))
    base_url = models.CharField(max_length=500, blank=True, default="", editable=False)
    active = models.BooleanField(default=False, verbose_name=_("active"))
    retired_at = models.DateTimeField(null=True, editable=False, verbose_name=_("in use until"))
    unrelated = models.FloatField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True, verbose_name=_("created at"))

    class Meta:
        """One row a model and width; one active."""

        verbose_name = _("embedding space")
        verbose_name_plural = _("embedding spaces")
        constraints = (
            models.UniqueConstraint(fields=("model", "dimensions"), name="one_space_a_model"),
            models.UniqueConstraint(
                fields=("active",), condition=Q(active=True), name="one_active"
            ),
        )

    def __str__(self) -> str:
        return f"{self.model} ({self.dimensions})"


class ReindexState(models.TextChoices):
    """WAITING -> FILLING -> INDEXING -> COMPARING -> SWAPPED | REFUSED; FAILED, REPLACED."""

    WAITING = "waiting", _("Waiting")
    FILLING = "filling", _("Embedding")
    INDEXING = "indexing", _("Indexing")
    COMPARING = "comparing", _("Comparing")
    SWAPPED = "swapped", _("Done")
    REFUSED = "refused", _("Refused")
    FAILED = "failed", _("Failed")
    REPLACED = "replaced", _("Replaced by another")


class Reindexing(Job):
    """One change of the embedding model; at most one of them is open.

    The process at work holds its lease; see `documents.reindex`. `attempts` counts slices
    in a row that embed nothing because they fail or are killed. `done` of `total` chunks were
    processed. `background`: the workers do it, and resume it. `report` compares both spaces.
    """

    OPEN = Q(open=True)

    model = models.CharField(max_length=255, verbose_name=_("model"))
    base_url = models.CharField(max_length=500, blank=True, default="")
    languages = models.JSONField(default=list)
    space = models.ForeignKey(
        "documents.EmbeddingSpace", models.SET_NULL, null=True, related_name="reindexings"
    )
    background = models.BooleanField(default=False)
    open = models.BooleanField(default=True)
    state = models.CharField(
        max_length=10,
        choices=ReindexState.choices,
        default=ReindexState.WAITING,
        verbose_name=_("state"),
    )
    done = models.PositiveBigIntegerField(default=0)
    total = models.PositiveBigIntegerField(default=0)
    report = models.JSONField(default=dict)
    error = models.CharField(max_length=500, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        """One open change."""

        verbose_name = _("re-embedding")
        verbose_name_plural = _("re-embeddings")
        ordering = ("-pk",)
        constraints = (
            models.UniqueConstraint(
                fields=("open",), condition=Q(open=True), name="one_open_reindexing"
            ),
        )

    def __str__(self) -> str:
        return f"{self.model} ({self.state})"


LEXICAL_DIMENSIONS = 1_000_000_000
"""Width of the hashed term space of `ChunkTerms`; pgvector's largest."""


class DocumentPage(models.Model):
    """The text of one page; `start` is its offset in the whole text.

    Formats without pages have one, `number` 1. `margins` are running header and footer, which are
    not part of the text. `headings` are `{start, level, title}`, at offsets in the page's text;
    None for documents indexed before they were stored.
    """

    document = models.ForeignKey(Document, models.CASCADE, related_name="pages")
    number = models.PositiveIntegerField()
    start = models.PositiveIntegerField()
    text = models.TextField()
    margins = models.JSONField(default=list)
    headings = models.JSONField(null=True)

    class Meta:
        """One row a page."""

        ordering = ("document", "number")
        constraints = (
            models.UniqueConstraint(fields=("document", "number"), name="one_row_a_page"),
        )

    def __str__(self) -> str:
        return f"{self.document_id} p.{self.number}"


class Chunk(models.Model):
    """A piece of a document's text; `lexemes` finds it in large scopes, its `ChunkTerms` score it.

    `owner_id` is repeated here so that the table can be partitioned by owner.
    """

    document = models.ForeignKey(Document, models.CASCADE, related_name="chunks")
    owner_id = models.BigIntegerField()
    index = models.PositiveIntegerField()
    text = models.TextField()
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    page = models.PositiveIntegerField(null=True)
    page_end = models.PositiveIntegerField(null=True)
    section = models.TextField(blank=True, default="")
    boxes = models.JSONField(default=list)
    kind = models.CharField(max_length=12, default="text")
    header = models.TextField(blank=True, default="")
    term_count = models.PositiveIntegerField(default=0)
    lexemes = SearchVectorField()

    class Meta:
        """One row an index; the lexical index."""

        ordering = ("document", "index")
        constraints = (
            models.UniqueConstraint(fields=("document", "index"), name="one_row_a_chunk"),
        )
        # no pending list (`fastupdate`): after an upload every search would have to scan it
        indexes = (GinIndex(fields=("lexemes",), name="chunk_lexemes", fastupdate=False),)

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        """What outside programs call the chunk."""
        return f"{self.document_id}_{self.index}"


class ChunkTerms(models.Model):
    """What BM25 needs of a chunk, in a row of its own because searches read whole scopes of them.

    `length` is the sum of the term counts. `marks` holds 1 for a term that occurs exactly once, 2
    for one that occurs more often or is emphasised; `surplus` holds what the latter score beyond a
    single occurrence; see `documents.search.bm25`.
    """

    chunk = models.OneToOneField(Chunk, models.CASCADE, primary_key=True, related_name="+")
    document = models.ForeignKey(Document, models.CASCADE, related_name="+")
    length = models.PositiveIntegerField()
    marks = SparseVectorField(dimensions=LEXICAL_DIMENSIONS)
    surplus = SparseVectorField(dimensions=LEXICAL_DIMENSIONS, null=True)

    def __str__(self) -> str:
        return f"terms of {self.chunk_id}"


class ChunkEmbedding(models.Model):
    """A chunk's vector in one space.

    The HNSW index of a space is made with the space (`documents.spaces`).
    """

    chunk = models.ForeignKey(Chunk, models.CASCADE, related_name="embeddings")
    space = models.ForeignKey(EmbeddingSpace, models.CASCADE, related_name="embeddings")
    document = models.ForeignKey(Document, models.CASCADE, related_name="+")
    vector = HalfVectorField()

    class Meta:
        """One vector a chunk and space."""

        constraints = (
            models.UniqueConstraint(fields=("chunk", "space"), name="one_vector_a_space"),
        )

    def __str__(self) -> str:
        return f"{self.chunk_id} @ {self.space_id}"


class VectorCodes(models.Model):
    """The signs of a document's vectors in one space: the first stage of a search in thousands.

    For each chunk its 8-byte key and one bit for each dimension, padded to whole bytes. Triggers of
    the database keep them in step with the vectors (`0015_codes_follow_vectors`).
    """

    document_id = models.UUIDField()
    space_id = models.BigIntegerField()
    codes = models.BinaryField()

    class Meta:
        """One row a document and space."""

        constraints = (
            models.UniqueConstraint(
                fields=("document_id", "space_id"), include=("id",), name="codes_of_a_document"
            ),
        )

    def __str__(self) -> str:
        return f"{self.document_id} @ {self.space_id}"


class PostingSegment(models.Model):
    """Some chunks of a namespace whose terms are also stored term by term, in `Postings`.

    `keys` holds their keys in order, 8 bytes each, least significant first; a chunk's number in the
    segment is its place there. A segment never changes: it is replaced by another one. Chunks may
    be deleted meanwhile; the next night's segment is without them (`documents.segments`).
    """

    namespace = models.BigIntegerField()
    chunk_count = models.PositiveIntegerField()
    keys = models.BinaryField()

    class Meta:
        """Found by the namespace."""

        indexes = (models.Index(fields=("namespace",), name="segment_of_namespace"),)

    def __str__(self) -> str:
        return f"{self.chunk_count} chunks of {self.namespace:x}"


class Postings(models.Model):
    """Which chunks of a segment hold a term, and what the term scores in each.

    `place` is the term's (`ChunkTerms.marks`). `chunks` holds two bytes for each chunk, its number
    in the segment, and behind them all one byte each, the weight (`documents.search.segments`).
    """

    pk = models.CompositePrimaryKey("segment_id", "place")
    segment = models.ForeignKey(PostingSegment, models.CASCADE, related_name="+", db_index=False)
    place = models.PositiveIntegerField()
    chunks = models.BinaryField()

    def __str__(self) -> str:
        return f"{self.place} @ {self.segment_id}"


class UnsegmentedDocument(models.Model):
    """A document that is in no segment, or changed since; a trigger of the database writes it.

    One row a change. Where the document's namespace has no segments, there may be none.
    """

    document_id = models.UUIDField()

    def __str__(self) -> str:
        return str(self.document_id)

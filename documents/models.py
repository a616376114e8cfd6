"""Documents, their pages, chunks and vectors.

Deleting a document deletes all of them in one transaction.
"""

import unicodedata
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from pgvector.django import HalfVectorField, SparseVectorField

from documents.labels import DocumentLabel, bearing

if TYPE_CHECKING:
    from django.contrib.auth.models import User

__all__ = ["DocumentLabel", "Reindexing"]

LEXICAL_DIMENSIONS = 1_000_000_000
"""Width of the hashed term space of `ChunkTerms`; pgvector's largest."""


class DocumentQuerySet(models.QuerySet["Document"]):
    """Filters as words that chain."""

    def visible_to(self, user: "User") -> Self:
        """What this user may read."""
        return self.filter(owner_id=user.pk)

    def owned_by(self, user: "User") -> Self:
        """What this user may change."""
        return self.filter(owner_id=user.pk)

    def completed(self) -> Self:
        """What can be searched."""
        return self.filter(status=Document.Status.COMPLETED)

    def processing(self) -> Self:
        """What is waiting or at work."""
        return self.filter(status=Document.Status.PROCESSING)

    def described(self, metadata: Mapping[str, str]) -> Self:
        """Who bear all these names, or whose metadata holds these values."""
        rows = self
        for field, value in metadata.items():
            rows = rows.filter(Q(metadata__contains={field: value}) | bearing(field, value))
        return rows

    def narrowed(self, status: str = "", q: str = "") -> Self:
        """In one status, with a part of the name; blank narrows nothing."""
        rows = self.filter(status=status) if status else self
        text = unicodedata.normalize("NFC", q.strip())
        return rows.filter(name__icontains=text) if text else rows


class Document(models.Model):
    """A file of one user and where it stands.

    `lease_until` and `attempts` belong to the ingest that holds it: see `documents.claims`.
    `warnings` are codes of what a completed ingest left out.
    """

    class Status(models.TextChoices):
        """PROCESSING -> COMPLETED | FAILED; either goes back to PROCESSING on `reprocess`."""

        PROCESSING = "PROCESSING", _("Processing")
        COMPLETED = "COMPLETED", _("Completed")
        FAILED = "FAILED", _("Failed")

    class Stage(models.TextChoices):
        """What the ingest is doing now; DONE when it has ended, well or not."""

        QUEUED = "queued", _("Queued")
        PARSING = "parsing", _("Reading")
        CHUNKING = "chunking", _("Splitting")
        EMBEDDING = "embedding", _("Embedding")
        INDEXING = "indexing", _("Indexing")
        DONE = "done", _("Done")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="documents", verbose_name=_("owner")
    )
    name = models.CharField(_("name"), max_length=255)
    original_name = models.CharField(max_length=1024, verbose_name=_("original name"))
    file = models.FileField(max_length=255, verbose_name=_("file"))
    content_type = models.CharField(max_length=127, verbose_name=_("content type"))
    size = models.BigIntegerField(verbose_name=_("size"))
    sha256 = models.CharField(max_length=64, db_index=True, verbose_name=_("SHA-256"))
    status = models.CharField(
        _("status"), max_length=10, choices=Status.choices, default=Status.PROCESSING
    )
    stage = models.CharField(
        max_length=10, choices=Stage.choices, default=Stage.QUEUED, verbose_name=_("stage")
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
    version = models.PositiveIntegerField(default=1, verbose_name=_("version"))
    claim = models.UUIDField(null=True, blank=True, editable=False, verbose_name=_("claim"))
    lease_until = models.DateTimeField(
        null=True, blank=True, editable=False, verbose_name=_("held until")
    )
    attempts = models.PositiveSmallIntegerField(
        default=0, editable=False, verbose_name=_("attempts")
    )
    enqueued_at = models.DateTimeField(
        null=True, blank=True, editable=False, verbose_name=_("queued at")
    )
    created_at = models.DateTimeField(auto_now_add=True, verbose_name=_("created at"))
    updated_at = models.DateTimeField(auto_now=True, verbose_name=_("changed at"))

    objects = DocumentQuerySet.as_manager()

    class Meta:
        """Indexes of the lists and of the sweeper."""

        verbose_name = _("document")
        verbose_name_plural = _("documents")
        ordering = ("-created_at", "id")
        indexes = (
            models.Index(fields=("owner", "-created_at")),
            models.Index(fields=("owner", "status")),
            models.Index(
                fields=("lease_until",),
                condition=Q(status="PROCESSING"),
                name="document_processing_lease",
            ),
        )

    def __str__(self) -> str:
        return self.name


class DocumentPage(models.Model):
    """The text of one page; `start` is its offset in the whole text.

    Formats without pages have one, `number` 1.
    """

    document = models.ForeignKey(Document, models.CASCADE, related_name="pages")
    number = models.PositiveIntegerField()
    start = models.PositiveIntegerField()
    text = models.TextField()

    class Meta:
        """One row a page."""

        ordering = ("document", "number")
        constraints = (
            models.UniqueConstraint(fields=("document", "number"), name="one_row_a_page"),
        )

    def __str__(self) -> str:
        return f"{self.document_id} p.{self.number}"


class EmbeddingSpace(models.Model):
    """A model and its width: vectors of one space are comparable. Exactly one space is active.

    `base_url` is the endpoint of the model, empty for one in the workers. `unrelated` is the mean
    cosine of chunks that have nothing to do with each other; None until it was measured.
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


class Chunk(models.Model):
    """A stretch of a document; `lexemes` finds it in large scopes, its `ChunkTerms` score it.

    `owner_id` stands in the row so that the table can be partitioned by owner.
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
    term_count = models.PositiveIntegerField(default=0)
    lexemes = SearchVectorField()

    class Meta:
        """One row an index; the lexical index."""

        ordering = ("document", "index")
        constraints = (
            models.UniqueConstraint(fields=("document", "index"), name="one_row_a_chunk"),
        )
        # No list of pending entries: after an upload every search would walk through it.
        indexes = (GinIndex(fields=("lexemes",), name="chunk_lexemes", fastupdate=False),)

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        """What outside programs call the chunk."""
        return f"{self.document_id}_{self.index}"


class ChunkTerms(models.Model):
    """What BM25 reads of a chunk, in a row of its own, because searches read whole scopes of them.

    `length` is the sum of the term counts. `marks` holds 1 for a term that stands once and no more,
    2 for one that stands more often or is emphasised; `surplus` holds what the latter score beyond
    a term that stands once; see `documents.lexical`.
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


from documents.reindexing.models import Reindexing  # noqa: E402 - Django looks here

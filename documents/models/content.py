"""What an ingest makes of a document: pages, chunks, their terms and vectors."""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from pgvector.django import HalfVectorField, SparseVectorField

from documents.models.document import Document
from documents.models.spaces import EmbeddingSpace

LEXICAL_DIMENSIONS = 1_000_000_000
"""Width of the hashed term space of `ChunkTerms`; pgvector's largest."""


class DocumentPage(models.Model):
    """The text of one page; `start` is its offset in the whole text.

    Formats without pages have one, `number` 1. `margins` are running header and footer, which are
    no part of the text.
    """

    document = models.ForeignKey(Document, models.CASCADE, related_name="pages")
    number = models.PositiveIntegerField()
    start = models.PositiveIntegerField()
    text = models.TextField()
    margins = models.JSONField(default=list)

    class Meta:
        """One row a page."""

        ordering = ("document", "number")
        constraints = (
            models.UniqueConstraint(fields=("document", "number"), name="one_row_a_page"),
        )

    def __str__(self) -> str:
        return f"{self.document_id} p.{self.number}"


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
    a term that stands once; see `documents.search.bm25`.
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

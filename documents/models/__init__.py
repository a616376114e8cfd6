"""Documents, their pages, chunks and vectors.

Deleting a document deletes all of them in one transaction.
"""

from documents.labels import DocumentLabel
from documents.models.content import (
    LEXICAL_DIMENSIONS,
    Chunk,
    ChunkEmbedding,
    ChunkTerms,
    DocumentPage,
)
from documents.models.document import Document, DocumentQuerySet
from documents.models.spaces import EmbeddingSpace
from documents.models.versions import DocumentPicture, DocumentVersion
from documents.reindexing.models import Reindexing

__all__ = [
    "LEXICAL_DIMENSIONS",
    "Chunk",
    "ChunkEmbedding",
    "ChunkTerms",
    "Document",
    "DocumentLabel",
    "DocumentPage",
    "DocumentPicture",
    "DocumentQuerySet",
    "DocumentVersion",
    "EmbeddingSpace",
    "Reindexing",
]

"""Documents, their pages, chunks and vectors.

Deleting a document deletes all of them in one transaction.
"""

from documents.models.content import (
    LEXICAL_DIMENSIONS,
    Chunk,
    ChunkEmbedding,
    ChunkTerms,
    DocumentPage,
)
from documents.models.document import (
    Document,
    DocumentLabel,
    DocumentPicture,
    DocumentQuerySet,
    DocumentVersion,
)
from documents.models.spaces import EmbeddingSpace, Reindexing

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

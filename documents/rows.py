"""Replaces a document's pages, chunks and vectors, by COPY, in one transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.types.json import Jsonb

from documents import claims, labels, lexical, spaces
from documents.claims import Claim
from documents.errors import IngestLost
from documents.models import (
    Chunk,
    ChunkEmbedding,
    ChunkTerms,
    Document,
    DocumentPage,
    EmbeddingSpace,
)
from rag.pages import Box, Page
from rag.types import IndexedChunk

PAGES = "COPY documents_documentpage (document_id, number, start, text, margins) FROM STDIN"
CHUNKS = (
    'COPY documents_chunk (id, document_id, owner_id, index, text, start, "end", page, page_end, '
    "section, boxes, kind, header, term_count, lexemes) FROM STDIN"
)
TERMS = "COPY documents_chunkterms (chunk_id, document_id, length, marks, surplus) FROM STDIN"
EMBEDDINGS = "COPY documents_chunkembedding (chunk_id, space_id, document_id, vector) FROM STDIN"
NEW_KEYS = (
    "SELECT nextval(pg_get_serial_sequence('documents_chunk', 'id')) FROM generate_series(1, %s)"
)
COORDINATE_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Content:
    """What an ingest found; `starts` are the offsets of the pages in the whole text."""

    pages: Sequence[Page]
    starts: Sequence[int]
    chunks: Sequence[IndexedChunk]
    metadata: dict[str, str]
    warnings: Sequence[str]


def replace(claim: Claim, content: Content, space: EmbeddingSpace) -> None:
    """Put the new content in place of the old and complete the document, or change nothing.

    Raises `IngestLost`, and `SpaceChangedError` when `space` is not the active one.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        spaces.hold(space)
        document = claim.held().select_for_update().first()
        if document is None:
            raise IngestLost
        delete(document.pk)
        _copy(cursor, PAGES, _page_rows(document.pk, content))
        keys = _keys(cursor, len(content.chunks))
        _copy(cursor, CHUNKS, _chunk_rows(document, keys, content.chunks))
        _copy(cursor, TERMS, _term_rows(document.pk, keys, content.chunks))
        _copy(cursor, EMBEDDINGS, _vector_rows(document.pk, keys, content.chunks, space))
        metadata = content.metadata | document.metadata
        labels.rewrite(document.pk, document.name, metadata)
        claims.complete(
            claim,
            page_count=max((page.number or 0 for page in content.pages), default=0) or None,
            chunk_count=len(content.chunks),
            metadata=metadata,
            warnings=list(content.warnings),
        )


def delete(document_id: UUID) -> None:
    """Delete pages, chunks and vectors without reading them. The caller holds the row."""
    for rows in (
        ChunkEmbedding.objects.filter(document_id=document_id),
        ChunkTerms.objects.filter(document_id=document_id),
        Chunk.objects.filter(document_id=document_id),
        DocumentPage.objects.filter(document_id=document_id),
    ):
        rows._raw_delete(rows.db)  # noqa: SLF001 - `delete` would load every chunk with its text


def _copy(cursor: CursorWrapper, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _keys(cursor: CursorWrapper, count: int) -> list[int]:
    cursor.execute(NEW_KEYS, (count,))
    return [row[0] for row in cursor.fetchall()]


def _page_rows(document_id: UUID, content: Content) -> Iterable[tuple[Any, ...]]:
    for page, start in zip(content.pages, content.starts, strict=True):
        margins = [_storable(text) for text in page.margins]
        yield document_id, page.number or 1, start, _storable(page.text), Jsonb(margins)


def _chunk_rows(
    document: Document, keys: Sequence[int], chunks: Sequence[IndexedChunk]
) -> Iterable[tuple[Any, ...]]:
    for key, indexed in zip(keys, chunks, strict=True):
        chunk, terms = indexed.chunk, lexical.clean(indexed.terms)
        yield (
            key,
            document.pk,
            document.owner_id,
            chunk.index,
            _storable(chunk.text),
            chunk.start,
            chunk.end,
            chunk.page,
            chunk.page_end,
            _storable(chunk.section),
            Jsonb([_box(box) for box in chunk.boxes]),
            chunk.kind,
            _storable(chunk.header),
            sum(terms.values()),
            lexical.tsvector({**terms, **lexical.clean(indexed.emphasis)}),
        )


def _term_rows(
    document_id: UUID, keys: Sequence[int], chunks: Sequence[IndexedChunk]
) -> Iterable[tuple[Any, ...]]:
    for key, indexed in zip(keys, chunks, strict=True):
        terms, emphasis = lexical.clean(indexed.terms), lexical.clean(indexed.emphasis)
        marks, surplus = lexical.marks(terms, emphasis), lexical.surplus(terms, emphasis)
        yield key, document_id, sum(terms.values()), marks, surplus


def _vector_rows(
    document_id: UUID, keys: Sequence[int], chunks: Sequence[IndexedChunk], space: EmbeddingSpace
) -> Iterable[tuple[Any, ...]]:
    for key, indexed in zip(keys, chunks, strict=True):
        if indexed.vector is not None:
            yield key, space.pk, document_id, lexical.halfvec(indexed.vector)


def _storable(text: str) -> str:
    """Without NUL and half surrogate pairs; what replaces them keeps the offsets true."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _box(box: Box) -> dict[str, float]:
    return {name: round(value, COORDINATE_DIGITS) for name, value in asdict(box).items()}

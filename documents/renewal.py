"""Renews an index while it is in use: vectors of another model, terms of another version.

If the process is killed, committed work stays and the next run continues.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet, Sum
from django.db.models.functions import Now
from pgvector import HalfVector

from documents import spaces
from documents.metadata import rewrite_labels, to_title_lines
from documents.models import Chunk, ChunkEmbedding, Document, EmbeddingSpace, Reindexing
from documents.search import bm25
from rag import indexing
from rag.ports import Embedder
from rag.retrieve.candidates import MIN_KNOWN_SHARE
from rag.tokenize.text import estimate_dense_weight
from rag.types import TextChunk

MAX_CHUNKS_A_WINDOW = 1024
"""Chunks that are checked for vectors at once."""
MAX_CHUNKS_A_BATCH = 64
"""Chunks that are embedded and committed at once."""

CHUNK_FIELDS = ("index", "text", "start", "end", "page", "page_end", "section", "header")
DOCUMENT_FIELDS = ("document_id", "document__name", "document__metadata")


def get_fence_time() -> datetime:
    """The database's time at a moment when no ingest is writing its rows.

    Everything that ingests write later has a later `Document.updated_at`, however long they take.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (spaces.SPACES_LOCK,))
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchall()[0]
        return now  # type: ignore[no-any-return]


def fill_space(
    space: EmbeddingSpace,
    embedder: Embedder,
    on_batch: Callable[[int, int], None],
    *,
    since: datetime | None = None,
) -> None:
    """Embed every chunk without a vector in the space; with `since`, of documents changed since.

    `on_batch(checked, embedded)` is called after each commit; an exception of it stops the work.
    Raises `EmbedderFailed`.
    """
    for keys in _iterate_windows(_list_changed_chunks(since)):
        missing = _find_missing(space, keys)
        on_batch(len(keys) - len(missing), 0)
        for start in range(0, len(missing), MAX_CHUNKS_A_BATCH):
            batch = missing[start : start + MAX_CHUNKS_A_BATCH]
            on_batch(len(batch), _embed_chunks(batch, space, embedder))


def count_missing(space: EmbeddingSpace, languages: AbstractSet[str], since: datetime) -> int:
    """Number of chunks in these languages, of documents changed since, without a vector."""
    count = 0
    for keys in _iterate_windows(_list_changed_chunks(since)):
        texts = Chunk.objects.filter(pk__in=_find_missing(space, keys)).values_list(
            "text", flat=True
        )
        count += sum(estimate_dense_weight(text, languages) >= MIN_KNOWN_SHARE for text in texts)
    return count


def _list_changed_chunks(since: datetime | None) -> QuerySet[Chunk]:
    if since is None:
        return Chunk.objects.all()
    documents = Document.objects.filter(updated_at__gte=since).values_list("pk", flat=True)
    return Chunk.objects.filter(document_id__in=list(documents))


def _iterate_windows(chunks: QuerySet[Chunk]) -> Iterator[list[int]]:
    """The keys of the chunks in order, in batches."""
    last_key = 0
    while keys := list(
        chunks.filter(pk__gt=last_key)
        .order_by("pk")
        .values_list("pk", flat=True)[:MAX_CHUNKS_A_WINDOW]
    ):
        yield keys
        last_key = keys[-1]


def _find_missing(space: EmbeddingSpace, keys: Sequence[int]) -> list[int]:
    rows = ChunkEmbedding.objects.filter(space=space, chunk_id__in=keys)
    embedded = set(rows.values_list("chunk_id", flat=True))
    return [key for key in keys if key not in embedded]


def _embed_chunks(keys: Sequence[int], space: EmbeddingSpace, embedder: Embedder) -> int:
    """Embed these chunks and commit. Returns how many got a vector."""
    rows = (
        Chunk.objects.filter(pk__in=keys)
        .order_by("pk")
        .values("pk", *CHUNK_FIELDS, *DOCUMENT_FIELDS)
    )
    titled_chunks = [_to_titled_chunk(row) for row in rows]
    vectors = indexing.embed_chunks(titled_chunks, embedder)
    vectors_by_key = {
        row["pk"]: (row["document_id"], vector)
        for row, vector in zip(rows, vectors, strict=True)
        if vector is not None
    }
    if vectors_by_key:
        _store_vectors(vectors_by_key, space)
    return len(vectors_by_key)


def _to_titled_chunk(row: dict[str, Any]) -> tuple[str, TextChunk]:
    title = to_title_lines(row["document__name"], row["document__metadata"])
    return title, TextChunk(**{name: row[name] for name in CHUNK_FIELDS})


def _store_vectors(
    vectors: dict[int, tuple[object, tuple[float, ...]]], space: EmbeddingSpace
) -> None:
    """Insert the vectors of those chunks that still exist.

    Their documents are locked, so that nobody deletes a chunk meanwhile.
    """
    with transaction.atomic():
        documents = Document.objects.filter(
            pk__in={document for document, _vector in vectors.values()}
        )
        list(documents.order_by("pk").select_for_update(no_key=True).values_list("pk"))
        existing = Chunk.objects.filter(pk__in=vectors).values_list("pk", "document_id")
        ChunkEmbedding.objects.bulk_create(
            [
                ChunkEmbedding(
                    chunk_id=key,
                    document_id=document,
                    space=space,
                    vector=HalfVector(list(vectors[key][1])),
                )
                for key, document in existing
            ],
            ignore_conflicts=True,
        )


MAX_DELETED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class SwapBack:
    """A swap back. `missing` chunks, uploaded since, are only found by their words for now."""

    space: EmbeddingSpace
    missing: int


def swap_forward(space: EmbeddingSpace, languages: AbstractSet[str], *, since: datetime) -> bool:
    """Activate the space, for texts in these languages.

    False, and nothing is changed, if something written since has no vector.
    """
    with _lock_spaces():
        if count_missing(space, languages, since):
            return False
        EmbeddingSpace.objects.filter(pk=space.pk).update(languages=sorted(languages))
        _activate_space(space)
    return True


def swap_back() -> SwapBack | None:
    """Activate the previously active space; None if there is none."""
    with _lock_spaces():
        space = get_previous_space()
        if space is None or space.retired_at is None:
            return None
        retired_at = space.retired_at
        _activate_space(space)
    return SwapBack(space, count_missing(space, frozenset(space.languages), retired_at))


def get_previous_space() -> EmbeddingSpace | None:
    """The previously active space."""
    retired_spaces = EmbeddingSpace.objects.filter(active=False, retired_at__isnull=False)
    return retired_spaces.order_by("-retired_at").first()


def drop_inactive_spaces() -> list[EmbeddingSpace]:
    """Delete all spaces that are neither in use nor being filled. Returns them."""
    unused = EmbeddingSpace.objects.filter(active=False)
    dropped = list(unused.exclude(reindexings__in=Reindexing.objects.filter(open=True)))
    for space in dropped:
        spaces.drop_index(space)
        rows = ChunkEmbedding.objects.filter(space=space)
        while keys := list(rows.values_list("pk", flat=True)[:MAX_DELETED_AT_ONCE]):
            ChunkEmbedding.objects.filter(pk__in=keys).delete()
        EmbeddingSpace.objects.filter(pk=space.pk, active=False).delete()
    return dropped


def _activate_space(space: EmbeddingSpace) -> None:
    EmbeddingSpace.objects.filter(active=True).exclude(pk=space.pk).update(
        active=False, retired_at=Now()
    )
    EmbeddingSpace.objects.filter(pk=space.pk).update(active=True, retired_at=None)


@contextmanager
def _lock_spaces() -> Iterator[None]:
    """A transaction during which no ingest writes and nobody else swaps."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (spaces.SPACES_LOCK,))
        yield


MAX_RENEWED_CHUNKS = 256
"""Chunks that are read and committed at once: some tenths of a second."""

UPDATE_TERMS = """
    UPDATE documents_chunkterms AS kept
       SET length = made.length, marks = made.marks::sparsevec, surplus = made.surplus::sparsevec
      FROM unnest(%s::bigint[], %s::int[], %s::text[], %s::text[])
           AS made(key, length, marks, surplus)
     WHERE kept.chunk_id = made.key
       AND (kept.length, kept.marks, kept.surplus)
           IS DISTINCT FROM (made.length, made.marks::sparsevec, made.surplus::sparsevec)
"""
UPDATE_CHUNKS = """
    UPDATE documents_chunk AS kept
       SET term_count = made.length, lexemes = made.lexemes::tsvector
      FROM unnest(%s::bigint[], %s::int[], %s::text[]) AS made(key, length, lexemes)
     WHERE kept.id = made.key
       AND (kept.term_count, kept.lexemes)
           IS DISTINCT FROM (made.length, made.lexemes::tsvector)
"""
"""Unchanged rows are not written: most are, and each write would copy the row."""


def list_outdated_documents() -> QuerySet[Document]:
    """Indexed documents with terms of an earlier version."""
    return Document.objects.filter(
        indexed_at__isnull=False, terms_version__lt=indexing.TERMS_VERSION
    )


def renew_terms(on_batch: Callable[[int, int], None]) -> int:
    """Renew terms, emphasis and labels of all outdated documents. Returns their number.

    `on_batch(done, total)` counts chunks and is called after each commit; an exception of it stops
    the work. A document that is processed again meanwhile is skipped: it has new terms.
    """
    total = list_outdated_documents().aggregate(total=Sum("chunk_count"))["total"] or 0
    keys = list(list_outdated_documents().order_by("-indexed_at").values_list("pk", flat=True))
    done = 0
    for key in keys:
        last_key = 0
        while (batch := _renew_batch(key, last_key)) is not None:
            last_key, count = batch
            done += count
            on_batch(min(done, total), total)
    return len(keys)


def _renew_batch(document_id: UUID, last_key: int) -> tuple[int, int] | None:
    """Renew the next chunks after `last_key`: the new last key and their number; None: no more."""
    document = list_outdated_documents().filter(pk=document_id).first()
    if document is None:
        return None
    rows = Chunk.objects.filter(document_id=document_id, pk__gt=last_key).order_by("pk")
    batch = list(rows.values("pk", *CHUNK_FIELDS)[:MAX_RENEWED_CHUNKS])
    chunks = [TextChunk(**{name: row[name] for name in CHUNK_FIELDS}) for row in batch]
    title = to_title_lines(document.name, document.metadata)
    analysed = list(indexing.index_terms(chunks, title))
    with transaction.atomic():
        locked = (
            list_outdated_documents().filter(pk=document_id).select_for_update(no_key=True).first()
        )
        if locked is None:
            return None
        if not batch:
            if rows.exists():  # an ingest came in between
                return last_key, 0
            rewrite_labels(document_id, locked.name, locked.metadata)  # with its current name
            Document.objects.filter(pk=document_id).update(terms_version=indexing.TERMS_VERSION)
            return None
        if (
            locked.namespace is None
        ):  # the same one for all of its chunks, wherever it moves meanwhile
            locked.namespace = locked.choose_namespace()
            Document.objects.filter(pk=document_id).update(namespace=locked.namespace)
        lexical_rows = [bm25.to_lexical_row(item, locked.namespace) for item in analysed]
        _write_terms([row["pk"] for row in batch], lexical_rows)
    return batch[-1]["pk"], len(batch)


def _write_terms(keys: Sequence[int], rows: Sequence[bm25.LexicalRow]) -> None:
    """Update the rows that still exist."""
    lengths = [lexical.length for lexical in rows]
    with connection.cursor() as cursor:
        marks, surplus = [lexical.marks for lexical in rows], [lexical.surplus for lexical in rows]
        cursor.execute(UPDATE_TERMS, (list(keys), lengths, marks, surplus))
        cursor.execute(UPDATE_CHUNKS, (list(keys), lengths, [lexical.lexemes for lexical in rows]))

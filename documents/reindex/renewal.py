"""Brings an index over while it serves: vectors of another model, terms of another version.

What was committed stays when the process is killed; the next run goes on with what is left.
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
"""Chunks whose vectors are looked for at once."""
MAX_CHUNKS_A_BATCH = 64
"""Chunks that are embedded and committed at once."""

CHUNK_FIELDS = ("index", "text", "start", "end", "page", "page_end", "section", "header")
DOCUMENT_FIELDS = ("document_id", "document__name", "document__metadata")


def get_fence_time() -> datetime:
    """The database's time, at a moment when no ingest is writing its rows.

    What ingests write later has a later `Document.updated_at`, however long they worked before.
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

    `on_batch(looked_at, embedded)` is called after each commit; what it raises ends it.
    Raises `EmbedderFailed`.
    """
    for keys in _iterate_windows(_list_changed_chunks(since)):
        missing = _find_missing(space, keys)
        on_batch(len(keys) - len(missing), 0)
        for start in range(0, len(missing), MAX_CHUNKS_A_BATCH):
            batch = missing[start : start + MAX_CHUNKS_A_BATCH]
            on_batch(len(batch), _embed_chunks(batch, space, embedder))


def count_lacking(space: EmbeddingSpace, languages: AbstractSet[str], since: datetime) -> int:
    """How many chunks of documents changed since have no vector, though of these languages."""
    found = 0
    for keys in _iterate_windows(_list_changed_chunks(since)):
        texts = Chunk.objects.filter(pk__in=_find_missing(space, keys)).values_list(
            "text", flat=True
        )
        found += sum(estimate_dense_weight(text, languages) >= MIN_KNOWN_SHARE for text in texts)
    return found


def _list_changed_chunks(since: datetime | None) -> QuerySet[Chunk]:
    if since is None:
        return Chunk.objects.all()
    documents = Document.objects.filter(updated_at__gte=since).values_list("pk", flat=True)
    return Chunk.objects.filter(document_id__in=list(documents))


def _iterate_windows(chunks: QuerySet[Chunk]) -> Iterator[list[int]]:
    """The keys of the chunks, in order, some at a time."""
    last = 0
    while keys := list(
        chunks.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:MAX_CHUNKS_A_WINDOW]
    ):
        yield keys
        last = keys[-1]


def _find_missing(space: EmbeddingSpace, keys: Sequence[int]) -> list[int]:
    rows = ChunkEmbedding.objects.filter(space=space, chunk_id__in=keys)
    there = set(rows.values_list("chunk_id", flat=True))
    return [key for key in keys if key not in there]


def _embed_chunks(keys: Sequence[int], space: EmbeddingSpace, embedder: Embedder) -> int:
    """Embed these chunks and commit; how many got a vector."""
    rows = (
        Chunk.objects.filter(pk__in=keys)
        .order_by("pk")
        .values("pk", *CHUNK_FIELDS, *DOCUMENT_FIELDS)
    )
    titled = [_to_titled_chunk(row) for row in rows]
    vectors = indexing.embed_chunks(titled, embedder)
    made = {
        row["pk"]: (row["document_id"], vector)
        for row, vector in zip(rows, vectors, strict=True)
        if vector is not None
    }
    if made:
        _store_vectors(made, space)
    return len(made)


def _to_titled_chunk(row: dict[str, Any]) -> tuple[str, TextChunk]:
    title = to_title_lines(row["document__name"], row["document__metadata"])
    return title, TextChunk(**{name: row[name] for name in CHUNK_FIELDS})


def _store_vectors(
    made: dict[int, tuple[object, tuple[float, ...]]], space: EmbeddingSpace
) -> None:
    """Insert the vectors of those chunks that are still there.

    The rows of their documents are held, so that nobody deletes a chunk while its vector comes.
    """
    with transaction.atomic():
        documents = Document.objects.filter(
            pk__in={document for document, _vector in made.values()}
        )
        list(documents.order_by("pk").select_for_update(no_key=True).values_list("pk"))
        there = Chunk.objects.filter(pk__in=made).values_list("pk", "document_id")
        ChunkEmbedding.objects.bulk_create(
            [
                ChunkEmbedding(
                    chunk_id=key,
                    document_id=document,
                    space=space,
                    vector=HalfVector(list(made[key][1])),
                )
                for key, document in there
            ],
            ignore_conflicts=True,
        )


MAX_DELETED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class SwapBack:
    """A swap back. `lacking` chunks, uploaded since, are found by their words only as yet."""

    space: EmbeddingSpace
    lacking: int


def swap_forward(space: EmbeddingSpace, languages: AbstractSet[str], *, since: datetime) -> bool:
    """Make the space the active one, of texts in these languages.

    False, and nothing is changed, when something that was written since lacks its vector.
    """
    with _lock_spaces():
        if count_lacking(space, languages, since):
            return False
        EmbeddingSpace.objects.filter(pk=space.pk).update(languages=sorted(languages))
        _activate_space(space)
    return True


def swap_back() -> SwapBack | None:
    """Make the space that was active before the active one; None where there is none."""
    with _lock_spaces():
        space = get_previous_space()
        if space is None or space.retired_at is None:
            return None
        retired = space.retired_at
        _activate_space(space)
    return SwapBack(space, count_lacking(space, frozenset(space.languages), retired))


def get_previous_space() -> EmbeddingSpace | None:
    """The space that was active before."""
    retired = EmbeddingSpace.objects.filter(active=False, retired_at__isnull=False)
    return retired.order_by("-retired_at").first()


def drop_inactive_spaces() -> list[EmbeddingSpace]:
    """Delete the vectors of all spaces that are neither in use nor being filled; those spaces."""
    unused = EmbeddingSpace.objects.filter(active=False)
    gone = list(unused.exclude(reindexings__in=Reindexing.objects.filter(open=True)))
    for space in gone:
        spaces.drop_index(space)
        rows = ChunkEmbedding.objects.filter(space=space)
        while keys := list(rows.values_list("pk", flat=True)[:MAX_DELETED_AT_ONCE]):
            ChunkEmbedding.objects.filter(pk__in=keys).delete()
        EmbeddingSpace.objects.filter(pk=space.pk, active=False).delete()
    return gone


def _activate_space(space: EmbeddingSpace) -> None:
    EmbeddingSpace.objects.filter(active=True).exclude(pk=space.pk).update(
        active=False, retired_at=Now()
    )
    EmbeddingSpace.objects.filter(pk=space.pk).update(active=True, retired_at=None)


@contextmanager
def _lock_spaces() -> Iterator[None]:
    """A transaction beside which no ingest writes and nobody else swaps."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (spaces.SPACES_LOCK,))
        yield


MAX_RENEWED_CHUNKS = 256
"""Chunks that are read and committed at once: some tenths of a second."""

TERMS = """
    UPDATE documents_chunkterms AS kept
       SET length = made.length, marks = made.marks::sparsevec, surplus = made.surplus::sparsevec
      FROM unnest(%s::bigint[], %s::int[], %s::text[], %s::text[])
           AS made(key, length, marks, surplus)
     WHERE kept.chunk_id = made.key
       AND (kept.length, kept.marks, kept.surplus)
           IS DISTINCT FROM (made.length, made.marks::sparsevec, made.surplus::sparsevec)
"""
CHUNKS = """
    UPDATE documents_chunk AS kept
       SET term_count = made.length, lexemes = made.lexemes::tsvector
      FROM unnest(%s::bigint[], %s::int[], %s::text[]) AS made(key, length, lexemes)
     WHERE kept.id = made.key
       AND (kept.term_count, kept.lexemes)
           IS DISTINCT FROM (made.length, made.lexemes::tsvector)
"""
"""Rows that stay the same are not written: most do, and each would be copied."""


def list_outdated_documents() -> QuerySet[Document]:
    """The documents whose index was made by an earlier way of making terms."""
    return Document.objects.filter(
        indexed_at__isnull=False, terms_version__lt=indexing.TERMS_VERSION
    )


def renew_terms(on_batch: Callable[[int, int], None]) -> int:
    """Make terms, emphasis and labels of all outdated documents anew; how many there were.

    `on_batch(done, total)` counts chunks and is called after each commit; what it raises ends it.
    A document that is processed anew meanwhile is left alone: it has its terms from there.
    """
    total = list_outdated_documents().aggregate(total=Sum("chunk_count"))["total"] or 0
    keys = list(list_outdated_documents().order_by("-indexed_at").values_list("pk", flat=True))
    done = 0
    for key in keys:
        last = 0
        while (found := _renew_batch(key, last)) is not None:
            last, count = found
            done += count
            on_batch(min(done, total), total)
    return len(keys)


def _renew_batch(document_id: UUID, last: int) -> tuple[int, int] | None:
    """The chunks of a document behind the key `last`: the last key and how many; None: no more."""
    document = list_outdated_documents().filter(pk=document_id).first()
    if document is None:
        return None
    rows = Chunk.objects.filter(document_id=document_id, pk__gt=last).order_by("pk")
    found = list(rows.values("pk", *CHUNK_FIELDS)[:MAX_RENEWED_CHUNKS])
    chunks = [TextChunk(**{name: row[name] for name in CHUNK_FIELDS}) for row in found]
    title = to_title_lines(document.name, document.metadata)
    analysed = list(indexing.index_terms(chunks, title))
    with transaction.atomic():
        held = (
            list_outdated_documents().filter(pk=document_id).select_for_update(no_key=True).first()
        )
        if held is None:
            return None
        if not found:
            if rows.exists():  # of an ingest that came in between
                return last, 0
            rewrite_labels(document_id, held.name, held.metadata)  # as it is called by now
            Document.objects.filter(pk=document_id).update(terms_version=indexing.TERMS_VERSION)
            return None
        if (
            held.namespace is None
        ):  # the same one for all of its chunks, wherever it moves meanwhile
            held.namespace = held.choose_namespace()
            Document.objects.filter(pk=document_id).update(namespace=held.namespace)
        made = [bm25.to_lexical_row(one, held.namespace) for one in analysed]
        _write_terms([row["pk"] for row in found], made)
    return found[-1]["pk"], len(found)


def _write_terms(keys: Sequence[int], made: Sequence[bm25.LexicalRow]) -> None:
    """Only rows that are still there."""
    lengths = [row.length for row in made]
    with connection.cursor() as cursor:
        marks, surplus = [row.marks for row in made], [row.surplus for row in made]
        cursor.execute(TERMS, (list(keys), lengths, marks, surplus))
        cursor.execute(CHUNKS, (list(keys), lengths, [row.lexemes for row in made]))

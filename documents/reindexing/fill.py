"""Fills a space with the vectors that it lacks, in batches that stay when the process is killed."""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from django.db import connection, transaction
from django.db.models import QuerySet
from pgvector import HalfVector

from documents import spaces
from documents.metadata import to_title_lines
from documents.models import Chunk, ChunkEmbedding, Document, EmbeddingSpace
from rag import indexing
from rag.ports import Embedder
from rag.retrieve.candidates import LEAST_KNOWN
from rag.tokenize.language import dense_weight
from rag.types import Chunk as RagChunk

WINDOW = 1024
"""Chunks whose vectors are looked for at once."""
BATCH = 64
"""Chunks that are embedded and committed at once."""

READ = (
    *("index", "text", "start", "end", "page", "page_end", "section", "header"),
    *("document_id", "document__name", "document__metadata"),
)


def fence() -> datetime:
    """The database's time, at a moment when no ingest is writing its rows.

    What ingests write later has a later `Document.updated_at`, however long they worked before.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (spaces.SPACES_LOCK,))
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchall()[0]
        return now  # type: ignore[no-any-return]


def fill(
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
    for keys in _windows(_changed(since)):
        missing = _missing(space, keys)
        on_batch(len(keys) - len(missing), 0)
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            on_batch(len(batch), _embed(batch, space, embedder))


def lacking(space: EmbeddingSpace, languages: AbstractSet[str], since: datetime) -> int:
    """How many chunks of documents changed since have no vector, though of these languages."""
    found = 0
    for keys in _windows(_changed(since)):
        texts = Chunk.objects.filter(pk__in=_missing(space, keys)).values_list("text", flat=True)
        found += sum(dense_weight(text, languages) >= LEAST_KNOWN for text in texts)
    return found


def _changed(since: datetime | None) -> QuerySet[Chunk]:
    if since is None:
        return Chunk.objects.all()
    documents = Document.objects.filter(updated_at__gte=since).values_list("pk", flat=True)
    return Chunk.objects.filter(document_id__in=list(documents))


def _windows(chunks: QuerySet[Chunk]) -> Iterator[list[int]]:
    """The keys of the chunks, in order, some at a time."""
    last = 0
    while keys := list(
        chunks.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:WINDOW]
    ):
        yield keys
        last = keys[-1]


def _missing(space: EmbeddingSpace, keys: Sequence[int]) -> list[int]:
    rows = ChunkEmbedding.objects.filter(space=space, chunk_id__in=keys)
    there = set(rows.values_list("chunk_id", flat=True))
    return [key for key in keys if key not in there]


def _embed(keys: Sequence[int], space: EmbeddingSpace, embedder: Embedder) -> int:
    """Embed these chunks and commit; how many got a vector."""
    rows = Chunk.objects.filter(pk__in=keys).order_by("pk").values("pk", *READ)
    titled = [_titled(row) for row in rows]
    vectors = indexing.vectors(titled, embedder)
    made = {
        row["pk"]: (row["document_id"], vector)
        for row, vector in zip(rows, vectors, strict=True)
        if vector is not None
    }
    if made:
        _store(made, space)
    return len(made)


def _titled(row: dict[str, object]) -> tuple[str, RagChunk]:
    fields = {name: row[name] for name in READ if not name.startswith("document")}
    return to_title_lines(str(row["document__name"]), row["document__metadata"]), RagChunk(**fields)  # type: ignore[arg-type]


def _store(made: dict[int, tuple[object, tuple[float, ...]]], space: EmbeddingSpace) -> None:
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

"""Brings an index over to the present way of making terms, while it goes on to serve.

Vectors stay as they are. What was committed stays when the process is killed; the next run goes on
with the documents that are left.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet, Sum

from documents import metadata
from documents.models import Chunk, Document
from documents.search import bm25
from rag import indexing
from rag.types import TextChunk as RagChunk

MAX_CHUNKS_A_BATCH = 256
"""Chunks that are read and committed at once: some tenths of a second."""

READ = ("index", "text", "start", "end", "page", "page_end", "section", "header")
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
    found = list(rows.values("pk", *READ)[:MAX_CHUNKS_A_BATCH])
    chunks = [RagChunk(**{name: row[name] for name in READ}) for row in found]
    title = metadata.to_title_lines(document.name, document.metadata)
    made = [bm25.to_lexical_row(one) for one in indexing.index_terms(chunks, title)]
    with transaction.atomic():
        held = (
            list_outdated_documents().filter(pk=document_id).select_for_update(no_key=True).first()
        )
        if held is None:
            return None
        if not found:
            if rows.exists():  # of an ingest that came in between
                return last, 0
            metadata.rewrite_labels(document_id, held.name, held.metadata)  # as it is called by now
            Document.objects.filter(pk=document_id).update(terms_version=indexing.TERMS_VERSION)
            return None
        _write_terms([row["pk"] for row in found], made)
    return found[-1]["pk"], len(found)


def _write_terms(keys: Sequence[int], made: Sequence[bm25.LexicalRow]) -> None:
    """Only rows that are still there."""
    lengths = [row.length for row in made]
    with connection.cursor() as cursor:
        marks, surplus = [row.marks for row in made], [row.surplus for row in made]
        cursor.execute(TERMS, (list(keys), lengths, marks, surplus))
        cursor.execute(CHUNKS, (list(keys), lengths, [row.lexemes for row in made]))

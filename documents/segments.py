"""Writes the segments of large namespaces: what their words score, term by term.

A search within a library reads some rows of them, instead of a row for every chunk that holds a
word (`documents.search.segments`). Workers write them beside the uploads: a trigger notes documents
that changed (`UnsegmentedDocument`), and once these are enough, they become a segment. Segments are
joined with others of their size, so that they stay few. At night those that hold chunks that were
deleted are written anew.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

import numpy as np
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from numpy.typing import NDArray

from documents.models import Postings, PostingSegment, UnsegmentedDocument
from documents.search import bm25
from documents.search.segments import KEY, MAX_SEGMENT_CHUNKS, pack_postings, quantise_weights

SEGMENTS_LOCK = 7_305_114_462
"""Number of the advisory lock: one process writes segments at a time."""
MIN_NAMESPACE_CHUNKS = bm25.MAX_SCANNED_CHUNKS
"""Smaller ones are searched chunk by chunk."""
MIN_SEGMENT_CHUNKS = 250
"""So many become a segment; a search reads those in none one by one, in each of its namespaces."""
TURN_SECONDS = 2.0
"""After that long the rest waits for the next turn: uploads come first."""

LOCK = "SELECT pg_try_advisory_xact_lock(%s)"
FIND_DUE = """
    WITH noted AS (
        SELECT note.id, document.namespace, document.chunk_count,
               row_number() OVER (PARTITION BY note.document_id) = 1 AS is_first
          FROM documents_unsegmenteddocument note
          LEFT JOIN documents_document document
            ON document.id = note.document_id AND document.chunk_count > 0
    ), touched AS (
        SELECT namespace, sum(chunk_count) FILTER (WHERE is_first) AS chunks
          FROM noted WHERE namespace IS NOT NULL GROUP BY namespace
    ), counted AS (
        SELECT namespace, is_segmented,
               CASE WHEN is_segmented THEN chunks
                    ELSE (SELECT sum(chunk_count) FROM documents_document document
                           WHERE document.namespace = touched.namespace) END AS chunks
          FROM touched,
               LATERAL (SELECT EXISTS (SELECT FROM documents_postingsegment segment
                                        WHERE segment.namespace = touched.namespace)
                       ) AS known (is_segmented)
    ), forgotten AS (
        DELETE FROM documents_unsegmenteddocument
         USING noted LEFT JOIN counted USING (namespace)
         WHERE documents_unsegmenteddocument.id = noted.id
           AND (counted.namespace IS NULL OR NOT is_segmented AND counted.chunks < %(large)s)
    )
    SELECT namespace, is_segmented FROM counted
     WHERE chunks >= CASE WHEN is_segmented THEN %(fill)s ELSE %(large)s END
     LIMIT 1
"""
"""Only namespaces of noted documents are looked at. Notes of small ones, and of documents that are
gone, are deleted: all documents of a namespace are noted when its first segment is written."""
NOTE_ALL = """
    INSERT INTO documents_unsegmenteddocument (document_id)
    SELECT id FROM documents_document WHERE namespace = %s AND chunk_count > 0
"""
NOTED = """
    SELECT noted.id, document.id, document.chunk_count
      FROM documents_unsegmenteddocument noted
      JOIN documents_document document ON document.id = noted.document_id
     WHERE document.namespace = %s ORDER BY document.id
"""
TERMS = """
    SELECT chunk_id, length, sparsevec_send(marks), sparsevec_send(surplus)
      FROM documents_chunkterms
     WHERE chunk_id = ANY(%s) OR document_id = ANY(%s) ORDER BY chunk_id
"""
EXISTING = """
    SELECT terms.chunk_id
      FROM documents_chunkterms terms
      JOIN documents_document document ON document.id = terms.document_id
     WHERE terms.chunk_id = ANY(%s) AND document.namespace = %s ORDER BY terms.chunk_id
"""
CHANGED = """
    SELECT namespace
      FROM (SELECT namespace, sum(chunk_count) AS chunks FROM documents_postingsegment
             GROUP BY namespace) AS held
      LEFT JOIN (SELECT namespace, sum(chunk_count) AS chunks FROM documents_document document
                  WHERE NOT EXISTS (SELECT FROM documents_unsegmenteddocument noted
                                     WHERE noted.document_id = document.id)
                  GROUP BY namespace) AS there USING (namespace)
     WHERE held.chunks IS DISTINCT FROM there.chunks ORDER BY namespace
"""
"""Namespaces whose segments may hold chunks that are no longer there.

Segments hold every chunk of the documents that are not noted. Where they hold as many as these
documents have, they hold nothing else, and none twice.
"""
COPY = "COPY documents_postings (segment_id, place, chunks) FROM STDIN"
_SENT_HEADER = 12
"""Bytes of a sparsevec as it is sent before its places, which its values follow, 4 bytes each."""


def write_due_segments() -> int:
    """Write those that are due, one a transaction, until the turn ends; how many."""
    until, written = time.monotonic() + TURN_SECONDS, 0
    while time.monotonic() < until and _write_next_segment():
        written += 1
    return written


def find_stale_segments() -> int:
    """How many hold chunks that are no longer there, or that a newer one holds."""
    return sum(1 for _ in _iterate_remaining_keys())


def renew_stale_segments() -> int:
    """Write these anew, without those chunks, one a transaction; how many."""
    return sum(_renew_segment(*stale) for stale in list(_iterate_remaining_keys()))


def _renew_segment(segment: int, namespace: int, keys: NDArray[np.int64]) -> bool:
    """Write a segment anew with these chunks, unless it was joined or somebody else writes."""
    with transaction.atomic(), connection.cursor() as cursor:
        if not _claim_lock(cursor) or not PostingSegment.objects.filter(pk=segment).exists():
            return False
        _replace_segments(cursor, namespace, [segment], keys.tolist(), ())
        return True


def _write_next_segment() -> bool:
    """Write the segment that is due, if one is and nobody else writes."""
    with transaction.atomic(), connection.cursor() as cursor:
        if not _claim_lock(cursor):
            return False
        cursor.execute(FIND_DUE, {"fill": MIN_SEGMENT_CHUNKS, "large": MIN_NAMESPACE_CHUNKS})
        due = cursor.fetchone()
        if due is None:
            return False
        namespace, is_segmented = due
        if not is_segmented:
            cursor.execute(NOTE_ALL, [namespace])
        noted, documents = _take_documents(cursor, namespace)
        joined = _choose_joined(namespace, sum(documents.values()))
        packed_keys = PostingSegment.objects.filter(pk__in=joined).values_list("keys", flat=True)
        keys = np.frombuffer(b"".join(map(bytes, packed_keys)), KEY).tolist()
        _replace_segments(cursor, namespace, joined, keys, list(documents))
        UnsegmentedDocument.objects.filter(pk__in=noted).delete()
        return True


def _claim_lock(cursor: CursorWrapper) -> bool:
    cursor.execute(LOCK, [SEGMENTS_LOCK])
    return bool(cursor.fetchone()[0])


def _choose_joined(namespace: int, chunks: int) -> list[int]:
    """The segments that become one with that many new chunks: those no larger than it is by then.

    So the sizes of those that are not full yet double from one to the next.
    """
    joined = []
    segments = PostingSegment.objects.filter(namespace=namespace).order_by("chunk_count", "pk")
    for segment, count in segments.values_list("pk", "chunk_count"):
        if count > min(chunks, MAX_SEGMENT_CHUNKS - chunks):
            break
        joined.append(segment)
        chunks += count
    return joined


def _take_documents(cursor: CursorWrapper, namespace: int) -> tuple[list[int], dict[UUID, int]]:
    """The rows that note documents which fill a segment, and the chunks of each.

    What is read of a document afterwards is what these rows note, or newer and noted again.
    """
    cursor.execute(NOTED, [namespace])
    rows: list[int] = []
    documents: dict[UUID, int] = {}
    for row, document, chunks in cursor.fetchall():
        is_full = sum(documents.values()) + chunks > MAX_SEGMENT_CHUNKS
        if documents and document not in documents and is_full:
            break
        rows.append(row)
        documents[document] = chunks
    return rows, documents


def _iterate_remaining_keys() -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """The segments of which chunks are gone or moved: their namespace and the keys that remain."""
    with connection.cursor() as cursor:
        cursor.execute(CHANGED)
        namespaces = [namespace for (namespace,) in cursor.fetchall()]
    for namespace in namespaces:
        segments = PostingSegment.objects.filter(namespace=namespace).order_by("-pk")
        newer = np.empty(0, KEY)
        for segment in segments.values_list("pk", flat=True):
            rows = PostingSegment.objects.filter(pk=segment)
            keys = np.frombuffer(bytes(rows.values_list("keys", flat=True).first() or b""), KEY)
            remaining = np.setdiff1d(
                _find_existing_keys(keys, namespace), newer, assume_unique=True
            )
            newer = np.concatenate([newer, remaining])
            if len(remaining) < len(keys):
                yield segment, namespace, remaining


def _find_existing_keys(keys: NDArray[np.int64], namespace: int) -> NDArray[np.int64]:
    with connection.cursor() as cursor:
        cursor.execute(EXISTING, [keys.tolist(), namespace])
        return np.array([key for (key,) in cursor.fetchall()], KEY)


def _replace_segments(
    cursor: CursorWrapper,
    namespace: int,
    segments: Sequence[int],
    keys: Sequence[int],
    documents: Sequence[UUID],
) -> None:
    """Write the chunks of these keys and documents in place of these segments."""
    Postings.objects.filter(segment_id__in=segments)._raw_delete(connection.alias)  # noqa: SLF001
    PostingSegment.objects.filter(pk__in=segments).delete()
    cursor.execute(TERMS, [list(keys), list(documents)])
    found = cursor.fetchall()
    for at in range(0, len(found), MAX_SEGMENT_CHUNKS):
        rows = found[at : at + MAX_SEGMENT_CHUNKS]
        segment = PostingSegment.objects.create(
            namespace=namespace,
            chunk_count=len(rows),
            keys=np.array([key for key, *_ in rows], KEY).tobytes(),
        )
        with cursor.db.wrap_database_errors, cursor.copy(COPY) as copy:
            for line in _to_copy_lines(segment.pk, rows):
                copy.write(line)


def _to_copy_lines(
    segment: int, rows: Sequence[tuple[int, int, bytes, bytes | None]]
) -> Iterable[bytes]:
    """The postings of the chunks in the form of COPY, by place."""
    chunks, places, weights = _weigh_terms(rows)
    order = np.argsort(places, kind="stable")
    chunks, places = chunks[order], places[order]
    rounded = quantise_weights(weights[order])
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    for place, start, end in zip(
        places[starts].tolist(), starts.tolist(), [*starts[1:].tolist(), len(places)], strict=True
    ):
        packed = pack_postings(chunks[start:end], rounded[start:end]).hex()
        yield f"{segment}\t{place}\t\\\\x{packed}\n".encode()


def _weigh_terms(
    rows: Sequence[tuple[int, int, bytes, bytes | None]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Of all terms of all chunks: the chunk's number, the term's place and its weight."""
    chunks, places, _ = _parse_vectors([marks for _, _, marks, _ in rows])
    once = bm25.compute_term_weights(np.array([length for _, length, *_ in rows]))[0]
    weights = once[chunks]
    more = _parse_vectors([surplus for *_, surplus in rows])
    at = np.searchsorted(_combine_numbers(chunks, places), _combine_numbers(more[0], more[1]))
    weights[at] += more[2]
    return chunks, places, weights


def _combine_numbers(chunks: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    return (chunks << 32) + places


def _parse_vectors(
    sent: Sequence[bytes | None],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Each one's number, the places (from 1) and the values of sparse vectors, one by one."""
    bodies = [bytes(one[_SENT_HEADER:]) if one else b"" for one in sent]
    counts = np.array([len(body) // 8 for body in bodies], np.int64)
    numbers = np.repeat(np.arange(len(sent)), counts)
    places = np.frombuffer(b"".join(body[: len(body) // 2] for body in bodies), ">i4")
    values = np.frombuffer(b"".join(body[len(body) // 2 :] for body in bodies), ">f4")
    return numbers, places.astype(np.int64) + 1, values.astype(np.float64)

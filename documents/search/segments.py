"""Terms in a large scope, by the postings of its namespaces' segments (`documents.segments`).

The postings say of every chunk of a segment what each term scores in it, rounded to a byte. That
orders all chunks; the first ones are then scored from their marks, exactly. Documents that are in
no segment yet are few, and all of their chunks are scored.
"""
# ruff: noqa: S608 - every part of every statement is a constant

import threading
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from documents.search import database
from documents.search.database import SearchTransaction
from rag.indexing import K1

MAX_SEGMENT_CHUNKS = 20_000
"""A chunk's number in its segment takes two bytes. Whoever writes one holds all of its postings."""
NUMBER, WEIGHT, KEY = np.dtype("<u2"), np.dtype("u1"), np.dtype("<i8")
"""Types of the numbers and weights in `Postings.chunks`, and of the keys in a `PostingSegment`."""
MAX_UNSEGMENTED_CHUNKS, MAX_UNSEGMENTED_SHARE = 4_000, 0.5
"""With more that are in no segment, the lexical index is faster."""
MIN_SHARE = 0.9
"""A scope has at least that share of the chunks in its namespaces: most that is found is in it."""
MAX_CACHED_SEGMENTS = 256
"""Of a process: 160 KB each."""

NOTED_UNSEGMENTED = """
    SELECT id, chunk_count FROM documents_document
     WHERE id = ANY(ARRAY(SELECT document_id FROM documents_unsegmenteddocument))
       AND chunk_count > 0
"""
UNSEGMENTED = f"""
    SELECT array_send(array_agg(id)), coalesce(sum(chunk_count), 0)::int8
      FROM ({NOTED_UNSEGMENTED} AND namespace = ANY(%(namespaces)s)
             UNION
            SELECT id, chunk_count FROM documents_document
             WHERE namespace = ANY(ARRAY(
                       SELECT unnest(%(namespaces)s::int8[])
                       EXCEPT SELECT namespace FROM documents_postingsegment))
               AND chunk_count > 0) AS unsegmented
"""
UNSEGMENTED_ANYWHERE = f"""
    WITH borders AS (
        SELECT lag(namespace) OVER (ORDER BY namespace) AS low, namespace AS high
          FROM (SELECT namespace FROM documents_postingsegment
                 UNION VALUES (-9223372036854775808), (9223372036854775807)) AS known)
    SELECT array_send(array_agg(id)), coalesce(sum(chunk_count), 0)::int8
      FROM ({NOTED_UNSEGMENTED}
             UNION
            SELECT other.id, other.chunk_count
              FROM borders, LATERAL (
                       SELECT id, chunk_count FROM documents_document
                        WHERE namespace > borders.low AND namespace < borders.high
                          AND chunk_count > 0 LIMIT %(enough)s) AS other) AS unsegmented
"""
"""Namespaces without segments lie between those that have some: none of the others' is read.

`enough` documents, of a chunk or more each, are too many.
"""
POSTINGS = """
    SELECT segment_id, place, chunks FROM documents_postings
     WHERE segment_id IN (SELECT id FROM documents_postingsegment {within})
       AND place = ANY(%(places)s)
"""
IN_NAMESPACES = "WHERE namespace = ANY(%(namespaces)s)"
KEYS = "SELECT id, keys FROM documents_postingsegment WHERE id = ANY(%(segments)s)"

Floats = NDArray[np.float64]


class Segments:
    """The postings of a question's terms in all segments of a scope, by place (`bm25.hash_term`).

    `unsegmented` are the documents of the scope that are in no segment, or in one as they were.
    `postings` are, by segment, places with what `Postings.chunks` holds.
    """

    def __init__(
        self, unsegmented: list[UUID], postings: Mapping[int, list[tuple[int, bytes]]]
    ) -> None:
        self.unsegmented = unsegmented
        self._postings = postings
        self._counts: dict[int, int] = {}
        for rows in postings.values():
            for place, chunks in rows:
                self._counts[place] = self._counts.get(place, 0) + _count_postings(chunks)

    def count_chunks(self, place: int) -> int:
        """How many chunks hold the term of this place."""
        return self._counts.get(place, 0)

    def find_candidate_keys(
        self, search: SearchTransaction, weights: Mapping[int, float], limit: int
    ) -> NDArray[np.int64] | None:
        """The keys of the `limit` chunks that score best, in no order; `weights` by place.

        None where a segment was replaced meanwhile.
        """
        best, scores = np.empty((2, 0), np.int64), np.empty(0)  # segments and numbers
        for segment, rows in self._postings.items():
            total = _score_chunks(rows, weights)
            # far fewer than the segment's once there are enough
            numbers = np.flatnonzero(total > (scores.min() if len(scores) == limit else 0))
            best = np.hstack([best, [np.full(len(numbers), segment), numbers]])
            scores = np.concatenate([scores, total[numbers]])
            kept = find_top_indexes(scores, limit)
            best, scores = best[:, kept], scores[kept]
        segments = np.unique(best[0]).tolist()
        keys = _read_keys(search, segments)
        if len(keys) < len(segments):
            return None
        found = [keys[segment][best[1, best[0] == segment]] for segment in segments]
        return np.concatenate([np.empty(0, np.int64), *found])


def read_segments(search: SearchTransaction, places: list[int]) -> Segments | None:
    """The postings of these places; None where too little of the scope is in segments."""
    if search.facts.whole:
        return _read_segments(search, places, None)
    namespaces = search.find_namespaces()
    if not namespaces.keys or search.facts.chunks < MIN_SHARE * namespaces.chunks:
        return None
    return _read_segments(search, places, list(namespaces.keys))


def _read_segments(
    search: SearchTransaction, places: list[int], namespaces: list[int] | None
) -> Segments | None:
    """In these namespaces; None: in all."""
    if namespaces is None:
        rows = search.fetch_rows(UNSEGMENTED_ANYWHERE, enough=MAX_UNSEGMENTED_CHUNKS + 1)
    else:
        rows = search.fetch_rows(UNSEGMENTED, namespaces=namespaces)
    ((sent, chunks),) = rows
    if chunks > min(MAX_UNSEGMENTED_CHUNKS, MAX_UNSEGMENTED_SHARE * search.facts.chunks):
        return None
    unsegmented = [UUID(bytes=raw) for raw in database.parse_numbers(sent, "V16").tolist()]
    postings: dict[int, list[tuple[int, bytes]]] = {}
    statement = POSTINGS.format(within="" if namespaces is None else IN_NAMESPACES)
    rows = search.fetch_rows(statement, namespaces=namespaces, places=places)
    for segment, place, chunk_bytes in rows:
        postings.setdefault(segment, []).append((place, chunk_bytes))
    return Segments([document for document in unsegmented if document in search.scope], postings)


def pack_postings(numbers: NDArray[np.int64], weights: NDArray[np.uint8]) -> bytes:
    """As `Postings.chunks` holds them."""
    return numbers.astype(NUMBER).tobytes() + weights.tobytes()


def quantise_weights(weights: Floats) -> NDArray[np.uint8]:
    """Weights of terms (`rag.indexing.compute_term_weight`) as bytes, none of them 0."""
    return np.clip(np.rint(weights * (255 / (K1 + 1))), 1, 255).astype(np.uint8)


def _count_postings(chunks: bytes) -> int:
    return len(chunks) // (NUMBER.itemsize + WEIGHT.itemsize)


def _score_chunks(rows: list[tuple[int, bytes]], weights: Mapping[int, float]) -> Floats:
    """The scores of a segment's chunks, by number, up to the last one that holds a term."""
    numbers = [np.frombuffer(chunks, NUMBER, _count_postings(chunks)) for _, chunks in rows]
    scores = [
        np.frombuffer(chunks, WEIGHT, offset=len(chunks) - _count_postings(chunks)) * weights[place]
        for place, chunks in rows
    ]
    return np.bincount(np.concatenate(numbers), np.concatenate(scores)).astype(float)


def find_top_indexes(values: Floats, limit: int) -> NDArray[Any]:
    """The indexes of the `limit` largest values, in no order."""
    if len(values) <= limit:
        return np.arange(len(values))
    return np.argpartition(-values, limit)[:limit]


_cached_keys: dict[int, NDArray[np.int64]] = {}
_lock = threading.Lock()


def _read_keys(search: SearchTransaction, segments: Sequence[int]) -> dict[int, NDArray[np.int64]]:
    """The keys of these segments' chunks; a process caches them, as a segment never changes."""
    known = {segment: _cached_keys[segment] for segment in segments if segment in _cached_keys}
    if missing := [segment for segment in segments if segment not in known]:
        for segment, keys in search.fetch_rows(KEYS, segments=missing):
            known[segment] = np.frombuffer(keys, KEY)
        with _lock:
            if len(_cached_keys) + len(missing) > MAX_CACHED_SEGMENTS:
                _cached_keys.clear()
            _cached_keys.update(known)
    return known

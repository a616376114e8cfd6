"""Search in Postgres: the engine's `PassageStore` over a fixed set of documents.

All vectors of a small scope are compared with the question's. In larger ones their signs (binary
codes) are compared first, where those tell enough; else the space's HNSW index is searched.
"""
# ruff: noqa: S608 - every part of every statement is a constant

import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from documents import metadata
from documents.models import EmbeddingSpace
from documents.search import bm25, database
from documents.search.codes import read_codes
from documents.search.database import ScopeFacts, SearchedSpace, SearchScope, SearchTransaction
from jobs.connections import run_and_release
from rag.ports import PassageStore
from rag.types import Excerpt, Hit, NamedDocument, Passage


def to_halfvec(vector: Sequence[float]) -> str:
    """The text form of a dense vector."""
    return "[" + ",".join(f"{value:.7g}" for value in vector) + "]"


MAX_SCANNED_CHUNKS = 25_000
"""Scopes of at most that many chunks are compared one by one, larger ones by signs or the graph.

Up to there the comparison takes no longer than the graph's walk and misses nothing; and the graph
is left with scopes where it need not skip most of what it sees.
"""

MAX_CODE_BYTES = 11_200_000
"""Larger scopes whose sign codes take no more than that (200,000 chunks of 384 dimensions, 82,000
of 1024) are searched by these, which misses less than the graph, and takes as long: a search goes
through all codes, and the first one of a process reads them, too."""
MAX_CODES_SHARE = 0.5
"""Of all chunks, for a search by codes: a graph of which most is in the scope misses next to
nothing (.998 of the nearest ten found among 100,000)."""
MAX_UNRELATED = 0.3
"""In spaces where vectors of unrelated texts are more alike than that (cosine), signs tell too
little."""
HAMMING_CANDIDATES = 4_000
"""Chunks with the fewest differing signs; these are ranked anew by the cosine of their signs with
the question's vector."""
COSINE_CANDIDATES = 700
"""The best of these, whose vectors are compared (docs/notes/retrieval-measurements.md)."""

GRAPH_SETTINGS = """
    SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
           set_config('hnsw.ef_search', %(ef_search)s, true)
"""

EF_SEARCH = "1000"
"""Recall@10 among half of 100,000 chunks: .988 with 400, .992 with 1,000 (docs/notes)."""
MAX_CHUNKS_OF_ONE_WALK = 300_000
"""In larger graphs a walk of `EF_SEARCH`, pgvector's maximum, ends before some of the nearest: the
scan goes on from where it ended, for as many again (recall@10 among a million: .983, then .993)."""

NEAREST = f"""
    SELECT {database.PASSAGE_COLUMNS}, 1 - near.distance
      FROM {database.PASSAGE_TABLES}
      JOIN (SELECT chunk_id, vector <=> %(vector)s::halfvec AS distance
              FROM documents_chunkembedding
             WHERE {{candidates}} AND space_id = %(space)s
             ORDER BY distance, chunk_id LIMIT %(limit)s) near
        ON near.chunk_id = chunk.id ORDER BY near.distance, chunk.id
"""
NEAREST_IN_DOCUMENTS = NEAREST.format(candidates="document_id = ANY(%(documents)s::uuid[])")
NEAREST_BY_KEY = NEAREST.format(candidates="chunk_id = ANY(%(keys)s::int8[])")

NEAREST_IN_GRAPH = f"""
    WITH met AS MATERIALIZED (
        SELECT chunk_id,
               vector::halfvec({{dimensions}}) <=> %(vector)s::halfvec({{dimensions}}) AS distance
          FROM documents_chunkembedding
         WHERE {{within}} space_id = {{space}}
         ORDER BY vector::halfvec({{dimensions}}) <=> %(vector)s::halfvec({{dimensions}})
         LIMIT %(passed)s + %(limit)s),
    near AS MATERIALIZED (SELECT * FROM met ORDER BY distance + 0, chunk_id LIMIT %(limit)s)
    SELECT {database.PASSAGE_COLUMNS}, 1 - near.distance
      FROM {database.PASSAGE_TABLES} JOIN near ON near.chunk_id = chunk.id
     ORDER BY near.distance, chunk.id
"""

"""The sum with 0 has the rows sorted: Postgres takes them for sorted, which after a second walk
they are not, and would stop when enough were read."""

VECTORS = """
    SELECT chunk_id, document_id, halfvec_send(vector) FROM documents_chunkembedding
     WHERE chunk_id = ANY(%(keys)s) AND space_id = %(space)s
"""

KEY_BYTES = 8
"""Of the chunk's key that stands before each code."""

_VECTOR_HEADER = 4
"""Bytes before the values of a sent vector: its dimensions and a reserve."""


def find_nearest_chunks(
    search: SearchTransaction, space: SearchedSpace, vector: Sequence[float], limit: int
) -> list[Hit]:
    """The nearest `limit` chunks; see `rag.ports.PassageStore.find_similar`."""
    if search.facts.chunks <= MAX_SCANNED_CHUNKS:
        return find_by_scan(search, space, vector, limit)
    if can_search_by_signs(search, space):
        return _find_by_signs(search, space, vector, limit)
    search.apply_setting(GRAPH_SETTINGS, ef_search=EF_SEARCH)
    hits = search.find_in_scope(
        lambda searched, most: _find_by_graph(searched, space, vector, most), limit
    )
    if len(hits) == limit:
        return hits
    return find_by_scan(search, space, vector, limit)  # the graph's walk ended short


def can_search_by_signs(search: SearchTransaction, space: SearchedSpace) -> bool:
    """Whether signs tell enough in the space, and the scope's codes are few enough to be read."""
    chunks, code_bytes = search.facts.chunks, KEY_BYTES + math.ceil(space.dimensions / 8)
    is_spread = space.unrelated is not None and space.unrelated <= MAX_UNRELATED
    is_small = chunks <= MAX_CODES_SHARE * search.facts.everywhere
    return is_spread and is_small and chunks * code_bytes <= MAX_CODE_BYTES


def find_by_scan(
    search: SearchTransaction, space: SearchedSpace, vector: Sequence[float], limit: int
) -> list[Hit]:
    """The nearest `limit` chunks exactly: every vector of the scope is compared."""
    asked = {"vector": to_halfvec(vector), "space": space.pk, "limit": limit}
    return [_to_hit(row) for row in search.fetch_rows(NEAREST_IN_DOCUMENTS, **asked)]


def _find_by_signs(
    search: SearchTransaction, space: SearchedSpace, vector: Sequence[float], limit: int
) -> list[Hit]:
    """Candidates by Hamming distance, of these by the cosine of their signs, then by their vectors.

    Vectors on the same side of as many planes point the same way (Charikar 2002). The second
    ranking prefers those whose signs agree where the question's vector is large.
    """
    query = np.asarray(vector, np.float32)
    query_code = np.packbits(query > 0)
    sent = read_codes(search, space.pk)
    if not sent:
        return []
    rows = np.frombuffer(sent, np.uint8).reshape(-1, KEY_BYTES + len(query_code))
    word = f"u{math.gcd(len(query_code), 8)}"  # as many bytes at a time as fit without a rest
    pairs = zip(rows[:, KEY_BYTES:].view(word).T, query_code.view(word), strict=True)
    hamming = sum(np.bitwise_count(codes ^ code).astype(np.uint16) for codes, code in pairs)
    rows = rows[_mask_smallest(hamming, max(HAMMING_CANDIDATES, limit))]
    positive = np.unpackbits(rows[:, KEY_BYTES:], axis=1, count=len(query))
    # orders as the cosine does; not by `@`, whose threads take longer to start than this
    distance = np.round(-np.einsum("ij,j->i", positive.astype(np.float32), query), 5)
    rows = rows[_mask_smallest(distance, max(COSINE_CANDIDATES, limit))]
    keys = database.to_number_array(rows[:, :KEY_BYTES].copy().view(">i8")[:, 0])
    asked = {"vector": to_halfvec(vector), "space": space.pk, "limit": limit}
    hits = [_to_hit(row) for row in search.fetch_rows(NEAREST_BY_KEY, keys=keys, **asked)]
    return [hit for hit in hits if hit.passage.document_id in search.scope]


def _mask_smallest(values: NDArray[Any], limit: int) -> NDArray[np.bool_]:
    """True at the `limit` smallest values, and at those that equal the last of them."""
    last = min(limit, len(values)) - 1
    mask: NDArray[np.bool_] = values <= np.partition(values, last)[last]
    return mask


def _find_by_graph(
    search: SearchTransaction, space: SearchedSpace, vector: Sequence[float], limit: int
) -> list[Hit]:
    statement = to_graph_statement(space, "" if search.facts.whole else database.WITHIN)
    asked = {"vector": to_halfvec(vector), "limit": limit, "passed": _count_passed(search.facts)}
    return [_to_hit(row) for row in search.fetch_rows(statement, **asked)]


def _count_passed(facts: ScopeFacts) -> int:
    """How many chunks of the scope the scan meets before it goes on for the nearest of the rest.

    Its second walk gives the best first, so that no more of it than the limit is needed.
    """
    if facts.everywhere <= MAX_CHUNKS_OF_ONE_WALK:
        return 0
    return int(EF_SEARCH) * facts.chunks // facts.everywhere


def to_graph_statement(space: SearchedSpace, within: str = database.WITHIN) -> str:
    """The statement that the HNSW index of this space answers: its condition is the index's."""
    names = {"dimensions": int(space.dimensions), "space": int(space.pk)}
    return NEAREST_IN_GRAPH.format(within=within, **names)


def fetch_vectors(
    search: SearchTransaction, space: SearchedSpace, keys: Sequence[int]
) -> dict[int, bytes]:
    """The vectors of those of the chunks that are in scope, by key, as `halfvec_send` gave them."""
    rows = search.fetch_rows(VECTORS, keys=list(keys), space=space.pk)
    return {key: sent for key, document, sent in rows if document in search.scope}


def parse_vector(sent: bytes) -> Sequence[float]:
    """The values of a vector as `halfvec_send` gave it."""
    return array("f", np.frombuffer(sent, ">f2", offset=_VECTOR_HEADER).astype("f4").tobytes())


def _to_hit(row: tuple[Any, ...]) -> Hit:
    similarity = float(row[database.PASSAGE_WIDTH])
    return Hit(database.to_passage(row), similarity, {"similarity": similarity})


CHUNKS_AT_PLACES = f"""
    SELECT {database.PASSAGE_COLUMNS} FROM {database.PASSAGE_TABLES}
      JOIN unnest(%(wanted)s::uuid[], %(indexes)s::int[]) AS place(document_id, index)
        ON place.document_id = chunk.document_id AND place.index = chunk.index
     WHERE chunk.document_id IN (SELECT unnest(%(documents)s::uuid[]))
"""

ALL_CHUNKS = f"""
    SELECT {database.PASSAGE_COLUMNS} FROM {database.PASSAGE_TABLES}
     WHERE chunk.document_id = ANY(%(documents)s::uuid[])
     ORDER BY array_position(%(documents)s::uuid[], chunk.document_id), chunk.index
     LIMIT %(limit)s + 1
"""

OPENING_CHUNKS = f"""
    SELECT {database.PASSAGE_COLUMNS} FROM {database.PASSAGE_TABLES}
     WHERE chunk.document_id = ANY(%(documents)s::uuid[]) AND chunk.index < %(limit)s
     ORDER BY chunk.index, array_position(%(documents)s::uuid[], chunk.document_id) LIMIT %(limit)s
"""


# The offsets of chunks count the same joint (`rag.chunking`).
EXCERPT = """
    SELECT substring(whole FROM %(first)s FOR %(length)s), length(whole)
      FROM (SELECT string_agg(text, E'\n\n' ORDER BY number) AS whole
              FROM documents_documentpage WHERE document_id = %(document)s) joined
"""


def read_excerpt(
    search: SearchTransaction, document_id: UUID, start: int, length: int
) -> Excerpt | None:
    """At most `length` characters from `start`; None where the document has no text (any more)."""
    rows = search.fetch_rows(EXCERPT, document=document_id, first=start + 1, length=length)
    text, total = rows[0]
    return None if total is None else Excerpt(text, start, total)


MAX_QUERY_TERMS = 512
T = TypeVar("T")


class ScopedStore:
    """Implements `rag.ports.PassageStore` over documents that passed `visible_to(user)`.

    Nothing widens it. `space` is the embedding space; None: the active one. One store serves one
    question, and keeps what it read of its scope.
    """

    def __init__(
        self, document_ids: Collection[UUID], *, space: EmbeddingSpace | None = None
    ) -> None:
        searched = SearchedSpace(space.pk, space.dimensions, space.unrelated) if space else None
        self._scope = SearchScope(document_ids, searched)
        self._space = space

    def find_by_terms(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """Best chunks by BM25; a term weighs its IDF in the scope times its weight."""
        cleaned = dict(islice(bm25.clean_terms(terms).items(), MAX_QUERY_TERMS))
        if not self._scope.documents or not cleaned or limit < 1:
            return []
        return database.run_search(
            self._scope, lambda search: bm25.find_best_chunks(search, cleaned, limit)
        )

    def find_similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """Nearest chunks by cosine; none where the space has other dimensions than the vector."""
        if not self._scope.documents or limit < 1:
            return []

        def find(search: SearchTransaction) -> list[Hit]:
            space = search.facts.space
            if space is None or space.dimensions != len(vector):
                return []
            return find_nearest_chunks(search, space, vector, limit)

        return database.run_search(self._scope, find)

    def read_openings(self, limit: int) -> list[Passage]:
        """The first chunks of the documents, in the order they were named in, turn by turn."""
        first = SearchScope(self._scope.documents[: max(limit, 0)])
        if not first.documents:
            return []
        rows = database.run_search(
            first, lambda search: search.fetch_rows(OPENING_CHUNKS, limit=limit)
        )
        return [database.to_passage(row) for row in rows]

    def read_all(self, limit: int) -> list[Passage] | None:
        """All chunks in reading order, documents as they were named; None: more than `limit`."""
        if not self._scope.documents:
            return []

        def read(search: SearchTransaction) -> list[tuple[Any, ...]] | None:
            return (
                None if search.facts.chunks > limit else search.fetch_rows(ALL_CHUNKS, limit=limit)
            )

        facts = self._scope.facts
        is_long = facts is not None and facts.chunks > limit
        rows = None if is_long else database.run_search(self._scope, read)
        if rows is None or len(rows) > limit:  # chunks may be more than was estimated
            return None
        return [database.to_passage(row) for row in rows]

    def read_places(self, places: Collection[tuple[UUID, int]]) -> list[Passage]:
        """The chunks at these places; those out of scope are left out."""
        if not self._scope.documents or not places:
            return []
        wanted = list(places)
        rows = database.run_search(
            self._scope,
            lambda search: search.fetch_rows(
                CHUNKS_AT_PLACES,
                wanted=[str(document) for document, _ in wanted],
                indexes=[index for _, index in wanted],
            ),
        )
        return [database.to_passage(row) for row in rows]

    def within(self, document_ids: Collection[UUID]) -> "ScopedStore":
        """The same store, limited to the given documents; never wider than before."""
        wanted = SearchScope(document_ids)
        kept = [pk for pk in self._scope if pk in wanted]
        if len(kept) == len(self._scope.documents):
            return self  # which knows already how much there is
        return ScopedStore(kept, space=self._space)

    def find_named(self, names: Sequence[str]) -> list[NamedDocument]:
        """Documents in scope that carry one of these names; see `documents.metadata`."""
        return (
            metadata.find_named_documents(self._scope, names)
            if names and self._scope.documents
            else []
        )

    def read_vectors(self, keys: Sequence[int]) -> dict[int, Sequence[float]]:
        """The stored vectors of these chunks in the space that is searched."""
        known = self._scope.vectors
        missing = [key for key in keys if key not in known]

        def fetch(search: SearchTransaction) -> dict[int, bytes]:
            space = search.facts.space
            return fetch_vectors(search, space, missing) if space else {}

        if self._scope.documents and missing:
            known |= database.run_search(self._scope, fetch)
        found = ((key, known.get(key)) for key in keys)
        return {key: parse_vector(sent) for key, sent in found if sent is not None}

    def read(self, document_id: UUID, start: int, length: int) -> Excerpt | None:
        """A stretch of a document's text, as its chunks' offsets count it."""
        if document_id not in self._scope:
            return None
        first, most = max(start, 0), max(length, 0)
        return database.run_search(
            self._scope, lambda search: read_excerpt(search, document_id, first, most)
        )

    def run_concurrently(self, work: Callable[[], T]) -> Callable[[], T]:
        """On another connection, while some are free."""
        return database.run_concurrently(work)


class ReleasingStore:
    """A store that gives its connection back after every search.

    Threads of the loop hold none while tokens arrive.
    """

    def __init__(self, store: PassageStore) -> None:
        self._store = store

    def find_similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """As `PassageStore.find_similar`."""
        return run_and_release(self._store.find_similar, vector, limit)

    def within(self, document_ids: Collection[UUID]) -> "ReleasingStore":
        """As `PassageStore.within`."""
        return ReleasingStore(self._store.within(document_ids))

    def find_named(self, names: Sequence[str]) -> list[NamedDocument]:
        """As `PassageStore.find_named`."""
        return run_and_release(self._store.find_named, names)

    def read_vectors(self, keys: Sequence[int]) -> dict[int, Sequence[float]]:
        """As `PassageStore.read_vectors`."""
        return run_and_release(self._store.read_vectors, keys)

    def find_by_terms(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """As `PassageStore.find_by_terms`."""
        return run_and_release(self._store.find_by_terms, terms, limit)

    def read_openings(self, limit: int) -> list[Passage]:
        """As `PassageStore.read_openings`."""
        return run_and_release(self._store.read_openings, limit)

    def read_all(self, limit: int) -> list[Passage] | None:
        """As `PassageStore.read_all`."""
        return run_and_release(self._store.read_all, limit)

    def read_places(self, places: Collection[tuple[UUID, int]]) -> list[Passage]:
        """As `PassageStore.read_places`."""
        return run_and_release(self._store.read_places, places)

    def read(self, document_id: UUID, start: int, length: int) -> Excerpt | None:
        """As `PassageStore.read`."""
        return run_and_release(self._store.read, document_id, start, length)

    def run_concurrently(self, work: Callable[[], T]) -> Callable[[], T]:
        """As `PassageStore.run_concurrently`."""
        return self._store.run_concurrently(work)

"""Search in Postgres: the engine's `PassageStore` over a fixed set of documents."""
# ruff: noqa: S608 - every part of every statement is a constant of this file

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any
from uuid import UUID

from django.db import Error, connection, transaction
from django.db.backends.utils import CursorWrapper
from pgvector import HalfVector

from documents import labels, lexical, spaces
from documents.models import EmbeddingSpace
from rag.errors import RetrievalFailed
from rag.retrieval.bm25 import K1, coverage_weight, idf
from rag.types import Box, Hit, Named, Passage

STATEMENT_TIMEOUT = "10s"
EXACT_CHUNKS = 50_000
"""Scopes of at most that many chunks are compared one by one, larger ones through HNSW."""

SCANNED_CHUNKS = 2_000
"""Scopes of at most that many chunks are scored one by one, larger ones by rare terms first."""

RARE_SHARE = 0.3
"""Rare terms of a question are those that together stand in at most that share of the scope."""

MOST_QUERY_TERMS = 512

LOCAL_SETTINGS = """
    SELECT set_config('statement_timeout', %s, true),
           set_config('jit', 'off', true),  -- compiling costs more than these queries
           set_config('enable_seqscan', 'off', true)  -- such plans forget what lexemes cost
"""
GRAPH_SETTINGS = """
    SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
           set_config('hnsw.ef_search', '400', true)
"""
PASSAGE = (
    "chunk.id, chunk.document_id, document.name, chunk.index, chunk.text, "
    "chunk.page, chunk.page_end, chunk.section, chunk.boxes"
)
JOINED = "documents_chunk chunk JOIN documents_document document ON document.id = chunk.document_id"

SCOPE_SIZE = "SELECT coalesce(sum(chunk_count), 0) FROM documents_document WHERE id = ANY(%s)"
FREQUENCIES = """
    SELECT (SELECT count(*) FROM documents_chunk
             WHERE document_id = ANY(%s) AND lexemes @@ term.quoted::tsquery)
      FROM unnest(%s::text[]) WITH ORDINALITY AS term(quoted, place) ORDER BY term.place
"""
SCORED = "SELECT id, -(weights <#> %(query)s::sparsevec) AS score FROM documents_chunk"
SCAN = f"{SCORED} WHERE document_id = ANY(%(documents)s) OFFSET 0"  # 0: score each row once
FOUND = f"{SCORED} WHERE document_id = ANY(%(documents)s) AND lexemes @@ %(any)s::tsquery"
BM25 = f"""
    WITH best AS MATERIALIZED (
        SELECT id, score FROM (%(scored)s) scored
         WHERE score > 0 ORDER BY score DESC, id LIMIT %%(limit)s)
    SELECT {PASSAGE}, best.score,
           ARRAY(SELECT term.place
                   FROM unnest(%%(terms)s::text[]) WITH ORDINALITY AS term(quoted, place)
                  WHERE chunk.lexemes @@ term.quoted::tsquery)
      FROM {JOINED} JOIN best ON best.id = chunk.id ORDER BY best.score DESC, chunk.id
"""
EXACT = f"""
    WITH near AS MATERIALIZED (
        SELECT chunk_id, vector <=> %(vector)s::halfvec AS distance FROM documents_chunkembedding
         WHERE document_id = ANY(%(documents)s) AND space_id = %(space)s)
    SELECT {PASSAGE}, 1 - near.distance
      FROM {JOINED} JOIN (SELECT * FROM near ORDER BY distance, chunk_id LIMIT %(limit)s) near
        ON near.chunk_id = chunk.id ORDER BY near.distance, chunk.id
"""
APPROXIMATE = f"""
    WITH near AS MATERIALIZED (
        SELECT chunk_id,
               vector::halfvec(%(dimensions)s) <=> %(vector)s::halfvec(%(dimensions)s) AS distance
          FROM documents_chunkembedding
         WHERE document_id = ANY(%(documents)s) AND space_id = %(space)s
         ORDER BY vector::halfvec(%(dimensions)s) <=> %(vector)s::halfvec(%(dimensions)s)
         LIMIT %(limit)s)
    SELECT {PASSAGE}, 1 - near.distance
      FROM {JOINED} JOIN near ON near.chunk_id = chunk.id ORDER BY near.distance, chunk.id
"""
CHUNKS = f"SELECT {PASSAGE} FROM {JOINED} WHERE chunk.id = ANY(%s) AND chunk.document_id = ANY(%s)"
VECTORS = """
    SELECT chunk_id, vector::text FROM documents_chunkembedding
     WHERE chunk_id = ANY(%s) AND document_id = ANY(%s) AND space_id = %s
"""
OPENING = f"""
    SELECT {PASSAGE} FROM {JOINED} WHERE chunk.document_id = ANY(%s) AND chunk.index < %s
     ORDER BY chunk.index, array_position(%s::uuid[], chunk.document_id) LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class _QueryTerm:
    """A term of the question with its parts of the score and of the coverage."""

    text: str
    frequency: int
    score: float
    coverage: float


class ScopedStore:
    """Implements `rag.ports.PassageStore` over documents that passed `visible_to(user)`.

    Nothing widens it. `space` is the embedding space; None: the one of the configured embedder.
    """

    def __init__(
        self, document_ids: Collection[UUID], *, space: EmbeddingSpace | None = None
    ) -> None:
        self._documents = list(dict.fromkeys(document_ids))
        self._space = space

    def bm25(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """Best chunks by BM25; a term weighs its IDF in the scope times its weight."""
        counts = dict(islice(lexical.clean(terms).items(), MOST_QUERY_TERMS))
        if not self._documents or not counts or limit < 1:
            return []
        with _search() as cursor:
            size = self._size(cursor)
            weighed = self._weigh(cursor, counts, size)
            rows = self._best(cursor, weighed, size, limit)
            return [_lexical_hit(row, weighed) for row in rows]

    def similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """Nearest chunks by cosine; none where the space has another width than the vector."""
        if not self._documents or limit < 1:
            return []
        with _search() as cursor:
            space = self._space or spaces.configured()
            if space.dimensions != len(vector):
                return []
            parameters = {
                "vector": lexical.halfvec(vector),
                "documents": self._documents,
                "space": space.pk,
                "dimensions": space.dimensions,
                "limit": limit,
            }
            return [_similar_hit(row) for row in self._nearest(cursor, parameters)]

    def chunks(self, keys: Sequence[int]) -> list[Passage]:
        """The chunks with these keys, in the order given; keys out of scope are left out."""
        if not self._documents or not keys:
            return []
        with _search() as cursor:
            cursor.execute(CHUNKS, (list(keys), self._documents))
            found = {row[0]: _passage(row) for row in cursor.fetchall()}
        return [found[key] for key in keys if key in found]

    def opening(self, limit: int) -> list[Passage]:
        """The first chunks of the documents, in the order they were named in, turn by turn."""
        documents = self._documents[: max(limit, 0)]
        if not documents:
            return []
        with _search() as cursor:
            cursor.execute(OPENING, (documents, limit, documents, limit))
            return [_passage(row) for row in cursor.fetchall()]

    def within(self, document_ids: Collection[UUID]) -> "ScopedStore":
        """The same store over those of its documents that are named; never over others."""
        wanted = set(document_ids)
        return ScopedStore([pk for pk in self._documents if pk in wanted], space=self._space)

    def named(self, names: Sequence[str]) -> list[Named]:
        """Documents in scope that carry one of these names; see `documents.labels`."""
        return labels.named(self._documents, names) if self._documents and names else []

    def vectors(self, keys: Sequence[int]) -> dict[int, list[float]]:
        """The stored vectors of these chunks in the space that is searched."""
        if not self._documents or not keys:
            return {}
        with _search() as cursor:
            space = self._space or spaces.configured()
            cursor.execute(VECTORS, (list(keys), self._documents, space.pk))
            return {key: HalfVector.from_text(text).to_list() for key, text in cursor.fetchall()}

    def _weigh(
        self, cursor: CursorWrapper, counts: Mapping[str, float], size: int
    ) -> list[_QueryTerm]:
        cursor.execute(FREQUENCIES, (self._documents, [lexical.quoted(term) for term in counts]))
        frequencies = [min(row[0], size) for row in cursor.fetchall()]
        return [
            _QueryTerm(term, held, count * idf(held, size), coverage_weight(held, size))
            for (term, count), held in zip(counts.items(), frequencies, strict=True)
        ]

    def _best(
        self, cursor: CursorWrapper, terms: Sequence[_QueryTerm], size: int, limit: int
    ) -> list[tuple[Any, ...]]:
        """The rows with the highest scores, exactly, from as few as possible (MaxScore).

        A row without any rare term scores at most what the common ones can give: once `limit` rows
        that hold a rare one score more, nothing else has to be read.
        """
        if size > SCANNED_CHUNKS:
            rare = _rare(terms, size * RARE_SHARE)
            rows = self._scored(cursor, FOUND, terms, rare, limit)
            common = sum(term.score for term in terms if term not in rare)
            if not common or (len(rows) == limit and rows[-1][9] > common * (K1 + 1)):
                return rows
        return self._scored(cursor, SCAN, terms, terms, limit)

    def _scored(
        self,
        cursor: CursorWrapper,
        scored: str,
        terms: Sequence[_QueryTerm],
        candidates: Collection[_QueryTerm],
        limit: int,
    ) -> list[tuple[Any, ...]]:
        cursor.execute(
            BM25 % {"scored": scored},
            {
                "query": lexical.sparsevec((term.text, term.score) for term in terms),
                "documents": self._documents,
                "any": lexical.any_of(term.text for term in candidates),
                "terms": [lexical.quoted(term.text) for term in terms],
                "limit": limit,
            },
        )
        return list(cursor.fetchall())

    def _nearest(self, cursor: CursorWrapper, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        size = self._size(cursor)
        if size > EXACT_CHUNKS:
            cursor.execute(GRAPH_SETTINGS)
            cursor.execute(APPROXIMATE, parameters)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            if len(rows) == parameters["limit"]:
                return rows
        cursor.execute(EXACT, parameters)  # also where a narrow scope left the graph's walk short
        return list(cursor.fetchall())

    def _size(self, cursor: CursorWrapper) -> int:
        cursor.execute(SCOPE_SIZE, (self._documents,))
        (size,) = cursor.fetchone() or (0,)
        return int(size)


@contextmanager
def _search() -> Iterator[CursorWrapper]:
    """A cursor in a short transaction with a time limit. Raises `RetrievalFailed`."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(LOCAL_SETTINGS, (STATEMENT_TIMEOUT,))
            yield cursor
    except Error as error:
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        raise RetrievalFailed(str(error)) from error


def _passage(row: tuple[Any, ...]) -> Passage:
    key, document_id, name, index, text, page, page_end, section, boxes = row[:9]
    return Passage(
        key=key,
        document_id=document_id,
        document_name=name,
        index=index,
        text=text,
        page=page,
        page_end=page_end,
        section=section,
        boxes=tuple(Box(**box) for box in json.loads(boxes)),
    )


def _rare(terms: Sequence[_QueryTerm], most: float) -> set[_QueryTerm]:
    """The rarest terms, as many as together stand in at most `most` chunks."""
    ordered = sorted(terms, key=lambda term: term.frequency)
    totals = accumulate(term.frequency for term in ordered)
    return {term for term, total in zip(ordered, totals, strict=True) if total <= most}


def _lexical_hit(row: tuple[Any, ...], terms: Sequence[_QueryTerm]) -> Hit:
    score, places = float(row[9]), row[10]
    held = sum(terms[place - 1].coverage for place in places)
    coverage = held / sum(term.coverage for term in terms)
    return Hit(_passage(row), score, {"bm25": score, "coverage": coverage})


def _similar_hit(row: tuple[Any, ...]) -> Hit:
    similarity = float(row[9])
    return Hit(_passage(row), similarity, {"similarity": similarity})

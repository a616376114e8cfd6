"""What others would take for the same job, on the same tokens and vectors."""

import logging
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from benchmarks.scale.corpus import Corpus, Question
from benchmarks.scale.stock import Stored
from rag import tokenize

DEPTH = 30
BEST = 4
K = 60
AT_ONCE = 5_000


class Flat:
    """rank_bm25 and FAISS flat, joined by reciprocal ranks; both look at the scope alone.

    rank_bm25 scores every chunk it is given, so it is given those of the scope; FAISS gets their
    rows. Its document frequencies are those of the whole library, which costs it nothing.
    """

    name = "rank_bm25 + FAISS flat"

    def __init__(self, library: Stored) -> None:
        logging.getLogger("faiss").setLevel(logging.WARNING)
        import faiss
        from rank_bm25 import BM25Okapi

        faiss.omp_set_num_threads(2)
        self._faiss = faiss
        tokens = [_repeated(chunk.terms) for chunk in library.chunks]
        self._bm25 = BM25Okapi(tokens)
        vectors = np.stack([chunk.vector for chunk in library.chunks])
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(vectors)
        self._rows: dict[UUID, list[int]] = {}
        for row, document in enumerate(library.documents):
            self._rows.setdefault(document, []).append(row)
        self._size = len(tokens)

    def search(self, question: Question, scope: Collection[UUID]) -> list[int]:
        """The rows of the best chunks."""
        rows = np.array([row for document in scope for row in self._rows[document]])
        terms = list(tokenize.weigh_query_terms(question.text))
        if len(rows) == self._size:
            scores = self._bm25.get_scores(terms)
        else:
            scores = np.array(self._bm25.get_batch_scores(terms, rows.tolist()))
        lexical = rows[np.argsort(-scores)[:DEPTH]] if len(rows) < self._size else _top(scores)
        selector = self._faiss.IDSelectorBatch(rows)
        parameters = self._faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
        if len(rows) == self._size:
            parameters = None
        query = np.array([question.vector], dtype=np.float32)
        _, near = self._index.search(query, DEPTH, params=parameters)
        return _fused([lexical.tolist(), [row for row in near[0].tolist() if row >= 0]])


class Sparse:
    """bm25s and FAISS flat, joined by reciprocal ranks: both read the whole library.

    bm25s adds up the scores that it keeps for each term and chunk, of all chunks; what lies outside
    the scope falls out after. FAISS compares the vectors of the scope.
    """

    name = "bm25s + FAISS flat"

    def __init__(self, texts: Corpus, documents: Sequence[UUID], size: int) -> None:
        import bm25s
        import faiss

        faiss.omp_set_num_threads(2)
        self._faiss = faiss
        self._index = faiss.IndexFlatIP(texts.vectors.shape[1])
        self._rows: dict[UUID, np.ndarray] = {}
        self._places: dict[str, int] = {}
        held: list[list[int]] = []
        for document, chunks in zip(documents, texts.documents(size), strict=True):
            self._rows[document] = np.arange(len(held), len(held) + len(chunks))
            self._index.add(np.stack([chunk.vector for chunk in chunks]))
            held += [
                [self._places.setdefault(term, len(self._places)) for term in _repeated(one.terms)]
                for one in chunks
            ]
        self._bm25 = bm25s.BM25()
        self._bm25.index((held, self._places), create_empty_token=False, show_progress=False)
        self._size = size

    def search(self, question: Question, scope: Collection[UUID]) -> list[int]:
        """The rows of the best chunks."""
        terms = tokenize.weigh_query_terms(question.text)
        places = [self._places[term] for term in terms if term in self._places]
        scores = self._bm25.get_scores_from_ids(places)
        query = np.array([question.vector], dtype=np.float32)
        if len(scope) == len(self._rows):
            lexical = _top(scores)
            _, near = self._index.search(query, DEPTH)
        else:
            rows = np.concatenate([self._rows[document] for document in scope])
            lexical = rows[_top(scores[rows])]
            selector = self._faiss.IDSelectorBatch(rows)
            chosen = self._faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
            _, near = self._index.search(query, DEPTH, params=chosen)
        return _fused([lexical.tolist(), [row for row in near[0].tolist() if row >= 0]])


WORDS = """
    SELECT id FROM documents_chunk WHERE {within} lexemes @@ %(asked)s::tsquery
     ORDER BY ts_rank(lexemes, %(asked)s::tsquery) DESC LIMIT %(depth)s
"""
NEAR = """
    SELECT chunk_id FROM documents_chunkembedding WHERE {within} space_id = {space}
     ORDER BY vector::halfvec({dimensions}) <=> %(vector)s::halfvec({dimensions}) LIMIT %(depth)s
"""
WITHIN = "document_id = ANY(%(documents)s) AND"


class Textbook:
    """What the manuals of Postgres and pgvector show, on the product's own tables and indexes.

    `ts_rank` over all chunks that hold one of the terms, which knows no frequencies of terms, and
    the order of the vectors' index with its usual settings, scanned on until enough are in scope.
    """

    name = "plain tsvector + pgvector"

    def __init__(self, documents: Sequence[UUID]) -> None:
        from documents import spaces

        space = spaces.get_active_space()
        assert space is not None
        self._names = {"space": space.pk, "dimensions": space.dimensions}
        self._all = len(documents)

    def search(self, question: Question, scope: Collection[UUID]) -> list[int]:
        """The keys of the best chunks."""
        from django.db import connection

        from documents.search import bm25, store

        terms = bm25.clean_terms(tokenize.weigh_query_terms(question.text))
        names = {"within": "" if len(scope) == self._all else WITHIN, **self._names}
        asked: dict[str, Any] = {
            "asked": " | ".join(bm25.quote_lexeme(term) for term in terms),
            "vector": store.to_halfvec(question.vector),
            "documents": list(scope),
            "depth": DEPTH,
        }
        found = []
        with connection.cursor() as cursor:
            cursor.execute("SET hnsw.iterative_scan = relaxed_order")
            for statement in (WORDS, NEAR):
                cursor.execute(statement.format(**names), asked)
                found.append([key for (key,) in cursor.fetchall()])
        return _fused(found)


class Chroma:
    """The embedded client with a filter on the document; cosine alone, as it has no BM25."""

    name = "Chroma with a filter"

    def __init__(self, library: Stored) -> None:
        import chromadb

        self._folder = tempfile.TemporaryDirectory(prefix="nura-chroma-")
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        self._client = chromadb.PersistentClient(str(Path(self._folder.name)), settings)
        self._chunks = self._client.create_collection(
            "chunks", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        for start in range(0, len(library.keys), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            self._chunks.add(
                ids=[str(key) for key in library.keys[part]],
                embeddings=np.stack([chunk.vector for chunk in library.chunks[part]]),
                documents=[chunk.text for chunk in library.chunks[part]],
                metadatas=[{"document": str(one)} for one in library.documents[part]],
            )
        self._all = len(set(library.documents))

    def search(self, question: Question, scope: Collection[UUID]) -> list[int]:
        """The keys of the best chunks."""
        wanted = {"document": {"$in": [str(document) for document in scope]}}
        found = self._chunks.query(
            query_embeddings=[list(question.vector)],
            n_results=DEPTH,
            where=wanted if len(scope) < self._all else None,
            include=["documents", "metadatas", "distances"],
        )
        return [int(key) for key in found["ids"][0][:BEST]]


def _repeated(terms: dict[str, int]) -> list[str]:
    return [term for term, count in terms.items() for _ in range(count)]


def _top(scores: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> "np.ndarray":
    if len(scores) <= DEPTH:
        return np.argsort(-scores)
    best = np.argpartition(-scores, DEPTH)[:DEPTH]
    return best[np.argsort(-scores[best])]


def _fused(rankings: Sequence[Sequence[int]]) -> list[int]:
    totals: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking, 1):
            totals[row] = totals.get(row, 0.0) + 1 / (K + rank)
    return sorted(totals, key=lambda row: -totals[row])[:BEST]

"""A passage store in memory: exact, for tests and small sets."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

import numpy as np

from rag import indexing
from rag.types import Excerpt, Hit, IndexedChunk, NamedDocument, Passage
from rag.understand.filters import FIELDS, list_names

T = TypeVar("T")


class MemoryStore:
    """Holds indexed chunks of named documents and searches them without any approximation."""

    def __init__(self) -> None:
        self._documents: dict[UUID, tuple[str, Sequence[IndexedChunk], Mapping[str, str]]] = {}
        self._passages: list[Passage] = []
        self._lengths: list[int] = []
        self._postings: dict[str, dict[int, tuple[int, float]]] = defaultdict(dict)
        self._vectors: dict[int, tuple[float, ...]] = {}
        self._matrix: tuple[np.ndarray, np.ndarray] | None = None

    def add(
        self,
        document_id: UUID,
        name: str,
        chunks: Sequence[IndexedChunk],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Add a document's chunks; `metadata` holds the names that it can be called by."""
        self._documents[document_id] = (name, chunks, metadata or {})
        for item in chunks:
            key = len(self._passages)
            self._passages.append(_passage(key, document_id, name, item))
            self._lengths.append(sum(item.terms.values()))
            for term in {**item.terms, **item.emphasis}:
                frequency = (item.terms.get(term, 0), item.emphasis.get(term, 0.0))
                self._postings[term][key] = frequency
            if item.vector is not None:
                self._vectors[key] = item.vector
        self._matrix = None

    def run_concurrently(self, work: Callable[[], T]) -> Callable[[], T]:
        """When it is asked for."""
        return work

    def find_similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """Nearest chunks by cosine."""
        keys, matrix = self._dense()
        if not len(keys):
            return []
        cosines = matrix @ np.asarray(vector, dtype=np.float32)
        best = np.argsort(-cosines, kind="stable")[:limit]
        return [
            Hit(self._passages[keys[i]], float(cosines[i]), {"similarity": float(cosines[i])})
            for i in best
        ]

    def find_by_terms(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """Best chunks by BM25 with exact statistics.

        A term counts as often as the question holds it.
        """
        total = len(self._passages)
        average = sum(self._lengths) / total if total else 0.0
        scores: dict[int, float] = defaultdict(float)
        covered: dict[int, float] = defaultdict(float)
        weight_of_all = most = 0.0
        for term, wanted in terms.items():
            postings = self._postings.get(term, {})
            share = indexing.compute_coverage_weight(len(postings), total) if wanted >= 1 else 0.0
            weight_of_all += share
            most += wanted * indexing.compute_idf(len(postings), total) * (indexing.K1 + 1)
            for key, (count, emphasis) in postings.items():
                weight = indexing.compute_term_weight(count, self._lengths[key], average, emphasis)
                scores[key] += wanted * indexing.compute_idf(len(postings), total) * weight
                covered[key] += share
        return [
            Hit(
                self._passages[key],
                score,
                {
                    "bm25": score,
                    "share": score / most,
                    "coverage": covered[key] / (weight_of_all or 1.0),
                },
            )
            for key, score in sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit]
        ]

    def within(self, document_ids: Collection[UUID]) -> "MemoryStore":
        """A store of those documents alone; keys are its own."""
        narrowed = MemoryStore()
        for document_id, (name, chunks, metadata) in self._documents.items():
            if document_id in document_ids:
                narrowed.add(document_id, name, chunks, metadata)
        return narrowed

    def find_named(self, names: Sequence[str]) -> list[NamedDocument]:
        """Documents that carry one of these normalised names."""
        wanted = set(names)
        return [
            NamedDocument(field, shown, name, document_id)
            for document_id, (_, _, metadata) in self._documents.items()
            for field in FIELDS
            for name, shown in list_names(field, metadata.get(field, "")).items()
            if name in wanted
        ]

    def read_vectors(self, keys: Sequence[int]) -> dict[int, Sequence[float]]:
        """The vectors of these chunks."""
        return {key: self._vectors[key] for key in keys if key in self._vectors}

    def read_all(self, limit: int) -> list[Passage] | None:
        """All chunks in reading order."""
        if len(self._passages) > limit:
            return None
        order = list(self._documents)
        return sorted(self._passages, key=lambda p: (order.index(p.document_id), p.index))

    def read_places(self, places: Collection[tuple[UUID, int]]) -> list[Passage]:
        """The chunks at these places."""
        wanted = set(places)
        return [one for one in self._passages if (one.document_id, one.index) in wanted]

    def read(self, document_id: UUID, start: int, length: int) -> Excerpt | None:
        """A stretch of the text that the chunks cover; gaps between them are left out."""
        if document_id not in self._documents:
            return None
        whole = ""
        for item in self._documents[document_id][1]:
            seen = max(0, len(whole) - item.chunk.start)
            whole += item.chunk.text[seen:] if item.chunk.end > len(whole) else ""
        return Excerpt(whole[start : start + length], start, len(whole))

    def read_openings(self, limit: int) -> list[Passage]:
        """The first chunks of every document, turn by turn."""
        order = list(dict.fromkeys(passage.document_id for passage in self._passages))
        found = sorted(self._passages, key=lambda p: (p.index, order.index(p.document_id)))
        return found[:limit]

    def _dense(self) -> tuple[np.ndarray, np.ndarray]:
        if self._matrix is None:
            keys = np.array(list(self._vectors), dtype=np.int64)
            matrix = np.array(list(self._vectors.values()), dtype=np.float32)
            self._matrix = (keys, matrix)
        return self._matrix


def _passage(key: int, document_id: UUID, name: str, item: IndexedChunk) -> Passage:
    chunk = item.chunk
    return Passage(
        key=key,
        document_id=document_id,
        document_name=name,
        index=chunk.index,
        text=chunk.text,
        page=chunk.page,
        page_end=chunk.page_end,
        section=chunk.section,
        boxes=chunk.boxes,
        kind=chunk.kind,
        header=chunk.header,
        start=chunk.start,
        end=chunk.end,
    )

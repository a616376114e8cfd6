"""Search in Postgres: the engine's `PassageStore` over a fixed set of documents."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from uuid import UUID

from documents import labels, lexical
from documents.models import EmbeddingSpace
from documents.searching import bm25, database, dense, passages, texts
from documents.searching.scope import Scope, Space
from rag.types import Excerpt, Hit, Named, Passage

MOST_QUERY_TERMS = 512


class ScopedStore:
    """Implements `rag.ports.PassageStore` over documents that passed `visible_to(user)`.

    Nothing widens it. `space` is the embedding space; None: the active one. One store serves one
    question: what it found out about its scope it keeps.
    """

    def __init__(
        self, document_ids: Collection[UUID], *, space: EmbeddingSpace | None = None
    ) -> None:
        self._scope = Scope(document_ids)
        self._space = space

    def bm25(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """Best chunks by BM25; a term weighs its IDF in the scope times its weight."""
        clean = dict(islice(lexical.clean(terms).items(), MOST_QUERY_TERMS))
        if not self._scope.documents or not clean or limit < 1:
            return []
        with database.search(self._scope) as search:
            return bm25.best(search, clean, limit)

    def similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """Nearest chunks by cosine; none where the space has another width than the vector."""
        if not self._scope.documents or limit < 1:
            return []
        with database.search(self._scope) as search:
            space = self._searched(search)
            if space is None or space.dimensions != len(vector):
                return []
            return dense.nearest(search, space, vector, limit)

    def opening(self, limit: int) -> list[Passage]:
        """The first chunks of the documents, in the order they were named in, turn by turn."""
        first = Scope(self._scope.documents[: max(limit, 0)])
        if not first.documents:
            return []
        with database.search(first) as search:
            rows = search.rows(passages.OPENING, limit=limit)
        return [passages.passage(row) for row in rows]

    def read_all(self, limit: int) -> list[Passage] | None:
        """All chunks in reading order, documents as they were named; None: more than `limit`."""
        if not self._scope.documents:
            return []
        with database.search(self._scope) as search:
            if search.facts.chunks > limit:
                return None
            rows = search.rows(passages.ALL)
        return [passages.passage(row) for row in rows]

    def at(self, places: Collection[tuple[UUID, int]]) -> list[Passage]:
        """The chunks at these places; those out of scope are left out."""
        if not self._scope.documents or not places:
            return []
        wanted = list(places)
        with database.search(self._scope) as search:
            rows = search.rows(
                passages.BY_PLACE,
                wanted=[str(document) for document, _ in wanted],
                indexes=[index for _, index in wanted],
            )
        return [passages.passage(row) for row in rows]

    def within(self, document_ids: Collection[UUID]) -> "ScopedStore":
        """The same store over those of its documents that are named; never over others."""
        wanted = set(document_ids)
        kept = [pk for pk in self._scope.documents if pk in wanted]
        return ScopedStore(kept, space=self._space)

    def named(self, names: Sequence[str]) -> list[Named]:
        """Documents in scope that carry one of these names; see `documents.labels`."""
        return labels.named(self._scope.documents, names) if names and self._scope.documents else []

    def vectors(self, keys: Sequence[int]) -> dict[int, Sequence[float]]:
        """The stored vectors of these chunks in the space that is searched."""
        if not self._scope.documents or not keys:
            return {}
        with database.search(self._scope) as search:
            space = self._searched(search)
            return dense.vectors(search, space, keys) if space else {}

    def read(self, document_id: UUID, start: int, length: int) -> Excerpt | None:
        """A stretch of a document's text, as its chunks' offsets count it."""
        if document_id not in self._scope.documents:
            return None
        with database.search(self._scope) as search:
            return texts.stretch(search, document_id, max(start, 0), max(length, 0))

    def _searched(self, search: database.Search) -> Space | None:
        fixed = self._space
        return Space(fixed.pk, fixed.dimensions) if fixed else search.facts.space

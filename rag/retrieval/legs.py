"""The two legs of one question, each searched once and only when a strategy asks."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rag import tokenize
from rag.language import dense_weight
from rag.ports import Embedder, PassageStore
from rag.retrieval import bm25, similarity
from rag.types import Hit, Plan, ScopeReason

DEPTH = 30
"""Candidates that each leg brings to fusion."""
INSIDE = 0.3
"""What terms of the conversation keep of their weight within the documents that it is about.

All of their passages are about what was said before; the question must tell them apart.
"""

JUDGES = 10
"""Lexical candidates whose vectors tell whether the embedder knows what the documents say."""
T = TypeVar("T")


@dataclass(eq=False)
class Legs:
    """Lazy lexical and dense candidates of a plan.

    `weight` is how far the embedder knows the question's language, 0..1; `unrelated` the cosine
    that it gives to texts that have nothing to do with each other.
    """

    made: Plan
    store: PassageStore
    embedder: Embedder
    unrelated: float = 0.0
    depth: int = DEPTH
    timings_ms: dict[str, float] = field(default_factory=dict)
    _vectors: dict[int, Sequence[float] | None] = field(default_factory=dict)

    @functools.cached_property
    def weight(self) -> float:
        """How far the dense leg counts."""
        return dense_weight(self.made.standalone_query, self.embedder.languages)

    @functools.cached_property
    def terms(self) -> Mapping[str, float]:
        """The question's lexical terms, and those of the conversation with what they weigh."""
        query = self.made.standalone_query
        said = self._timed("tokenize", lambda: tokenize.query_terms(query))
        inside = self.made.scope.reason in (ScopeReason.FOLLOWUP, ScopeReason.SLOT)
        share = INSIDE if inside else 1.0
        told = self.made.context.items()
        return {**said, **{term: w if w >= 1 else w * share for term, w in told}}

    @functools.cached_property
    def lexical(self) -> Sequence[Hit]:
        """Best passages by BM25."""
        terms = self.terms
        return self._timed("bm25", lambda: bm25.search(self.store, terms, self.depth))

    @functools.cached_property
    def dense(self) -> Sequence[Hit]:
        """Nearest passages by cosine.

        None, and nothing is embedded, where the embedder does not know the language.
        """
        if not self.weight:
            return ()
        vector = self.vector
        return self._timed(
            "similar",
            lambda: similarity.search(self.store, vector, self.depth, unrelated=self.unrelated),
        )

    @functools.cached_property
    def vector(self) -> Sequence[float]:
        """The question's own vector, drawn towards what was said before."""
        return self._timed("embed", self._embedded)

    def vectors(self, hits: Sequence[Hit]) -> Mapping[int, Sequence[float]]:
        """The vectors of passages by key, of those that have one; read once."""
        missing = [hit.passage.key for hit in hits if hit.passage.key not in self._vectors]
        if missing:
            found = self._timed("vectors", lambda: self.store.vectors(missing))
            self._vectors.update({key: found.get(key) for key in missing})
        return {key: vector for key, vector in self._vectors.items() if vector is not None}

    @functools.cached_property
    def fusion_weight(self) -> float:
        """How far the dense leg counts beside the lexical one.

        The question's share, times the share of the best lexical passages that have a vector, being
        in a language that the embedder knows: an English question to Korean documents must not be
        led to the few English passages.
        """
        best = [hit.passage.key for hit in self.lexical[:JUDGES]]
        if not self.dense or not best:
            return self.weight if self.dense else 0.0
        vectors = self.vectors(self.lexical)
        return self.weight * sum(key in vectors for key in best) / len(best)

    def _embedded(self) -> Sequence[float]:
        import numpy as np  # here: processes that only import the engine stay small

        made = self.made
        vector = self.embedder.embed_query(made.own_words or made.standalone_query)
        known = dense_weight(made.background, self.embedder.languages) if made.background else 0.0
        pull = made.background_weight * known
        if not pull:
            return vector
        mixed = np.asarray(vector) + pull * np.asarray(self.embedder.embed_query(made.background))
        unit: list[float] = (mixed / (np.linalg.norm(mixed) or 1.0)).tolist()
        return unit

    def _timed(self, name: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return work()
        finally:
            self.timings_ms[name] = round((time.perf_counter() - started) * 1000, 2)

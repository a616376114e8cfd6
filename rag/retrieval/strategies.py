"""The retrieval strategies behind one protocol, by name."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rag.retrieval import mmr, rrf
from rag.retrieval.legs import Legs
from rag.types import Hit, StrategyName

MMR_SHARE = 0.2
"""Weight of the mmr ranks beside the similarity ranks.

Together they weigh as the dense leg should.
"""


class Strategy(Protocol):
    """Orders candidates for a question.

    Returns at least `limit` hits where the legs hold them, best first.
    """

    def __call__(self, legs: Legs, limit: int, *, bm25_weight: float) -> Sequence[Hit]:
        """The candidates, best first."""
        ...


def by_similarity(legs: Legs, limit: int, *, bm25_weight: float) -> Sequence[Hit]:
    """Cosine order.

    The lexical order where the embedder does not know the question's language or finds nothing.
    """
    del limit, bm25_weight
    return legs.dense or legs.lexical


def by_mmr(legs: Legs, limit: int, *, bm25_weight: float) -> Sequence[Hit]:
    """The similarity candidates, those too like an earlier one put back."""
    return mmr.select(by_similarity(legs, limit, bm25_weight=bm25_weight), limit)


def by_bm25(legs: Legs, limit: int, *, bm25_weight: float) -> Sequence[Hit]:
    """Lexical order."""
    del limit, bm25_weight
    return legs.lexical


def by_rrf(legs: Legs, limit: int, *, bm25_weight: float) -> Sequence[Hit]:
    """Ranks of similarity, mmr and BM25 fused; the dense ones as far as the language is known."""
    weight = legs.fusion_weight
    if not weight:
        return legs.lexical
    chosen = mmr.select(legs.dense, limit)
    first = {hit.passage.key for hit in chosen}
    diverse = [*chosen, *(hit for hit in legs.dense if hit.passage.key not in first)]
    return rrf.fuse(
        {
            "bm25": (legs.lexical, bm25_weight),
            "similarity": (legs.dense, weight * (1 - MMR_SHARE)),
            "mmr": (diverse, weight * MMR_SHARE),
        }
    )


STRATEGIES: Mapping[StrategyName, Strategy] = {
    StrategyName.SIMILARITY: by_similarity,
    StrategyName.MMR: by_mmr,
    StrategyName.BM25: by_bm25,
    StrategyName.RRF: by_rrf,
}

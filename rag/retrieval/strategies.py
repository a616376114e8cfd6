"""The retrieval strategies behind one protocol, by name."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rag.config import RagConfig
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

    def __call__(self, legs: Legs, limit: int, config: RagConfig) -> Sequence[Hit]:
        """The candidates, best first."""
        ...


def by_similarity(legs: Legs, limit: int, config: RagConfig) -> Sequence[Hit]:
    """Cosine order.

    The lexical order where the embedder does not know the question's language or finds nothing.
    """
    del limit, config
    return legs.dense or legs.lexical


def by_mmr(legs: Legs, limit: int, config: RagConfig) -> Sequence[Hit]:
    """The similarity candidates, those too like an earlier one put back."""
    hits = by_similarity(legs, limit, config)
    vectors = legs.vectors(hits) if legs.dense else {}
    return mmr.select(hits, limit, balance=config.mmr_lambda, vectors=vectors)


def by_bm25(legs: Legs, limit: int, config: RagConfig) -> Sequence[Hit]:
    """Lexical order."""
    del limit, config
    return legs.lexical


def by_rrf(legs: Legs, limit: int, config: RagConfig) -> Sequence[Hit]:
    """Ranks of similarity, mmr and BM25 fused; the dense ones as far as the language is known."""
    weight = legs.fusion_weight
    if not weight:
        return legs.lexical
    chosen = mmr.select(
        legs.dense, limit, balance=config.mmr_lambda, vectors=legs.vectors(legs.dense)
    )
    first = {hit.passage.key for hit in chosen}
    diverse = [*chosen, *(hit for hit in legs.dense if hit.passage.key not in first)]
    return rrf.fuse(
        {
            "bm25": (legs.lexical, config.bm25_weight),
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

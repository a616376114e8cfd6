"""Rescoring without a model: how much of the question a passage holds, and how close it is.

Both are figures between 0 and 1 that mean the same for every question, so that they add up, where
ranks only tell an order: on English sets this finds more than fused ranks (docs/retrieval.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rag.retrieval.legs import Legs
from rag.retrieval.similarity import close
from rag.types import Hit

CLOSENESS = 1.0
"""What closeness weighs beside the lexical share where the embedder knows all languages in play."""


def order(legs: Legs, hits: Sequence[Hit], *, bm25_weight: float) -> list[Hit]:
    """The hits by share and closeness; as they came where the embedder has no say."""
    weight = legs.fusion_weight * CLOSENESS
    if not weight or not hits:
        return list(hits)
    known = [_with_closeness(legs, hit, legs.vectors(hits)) for hit in hits]
    floor = min(
        (hit.scores["closeness"] for hit in known if "closeness" in hit.scores), default=0.0
    )
    scored = [
        replace(
            hit,
            score=bm25_weight * hit.scores.get("share", 0.0)
            + weight * hit.scores.get("closeness", floor),
        )
        for hit in known
    ]
    return sorted(scored, key=lambda hit: -round(hit.score, 9))


def _with_closeness(legs: Legs, hit: Hit, vectors: Mapping[int, Sequence[float]]) -> Hit:
    import numpy as np  # here: processes that only import the engine stay small

    vector = vectors.get(hit.passage.key)
    if "closeness" in hit.scores or vector is None:
        return hit
    return close(hit, float(np.dot(legs.vector, vector)), legs.unrelated)

"""The last ordering: rescoring, and a model's closer reading where one is configured."""

import logging
from collections.abc import Sequence

from rag.errors import EngineUnavailable
from rag.ports import Reranker
from rag.retrieval import rescore
from rag.retrieval.legs import Legs
from rag.types import Hit, Plan, StrategyName

log = logging.getLogger(__name__)

POOL = 5
"""Passages that a model reads for each one that is wanted."""


def order(
    made: Plan, legs: Legs, hits: Sequence[Hit], reranker: Reranker | None, *, bm25_weight: float
) -> Sequence[Hit]:
    """Fused candidates by what they hold, then the first of them by the model.

    A model that fails leaves the order as it is: the passages are no worse for it.
    """
    if made.strategy is StrategyName.RRF:
        hits = rescore.order(legs, hits, bm25_weight=bm25_weight)
    if reranker is None or not hits:
        return hits
    pool = hits[: made.top_k * POOL]
    try:
        return reranker.rerank(made.standalone_query, pool, len(pool))
    except EngineUnavailable as error:
        log.warning("passages are not reranked: %s", error, exc_info=error)
        return hits

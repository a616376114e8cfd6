"""The last ordering: rescoring, and a model's closer reading where one is configured."""

import logging
import time
from collections.abc import Sequence

from rag.config import RagConfig
from rag.errors import EngineUnavailable
from rag.ports import Reranker
from rag.retrieval import rescore
from rag.retrieval.legs import Legs
from rag.retrieval.strategies import STRATEGIES
from rag.types import Hit, Plan, StrategyName

log = logging.getLogger(__name__)

POOL = 5
"""Passages that a model reads for each one that is wanted."""


def order(made: Plan, legs: Legs, config: RagConfig, reranker: Reranker | None) -> Sequence[Hit]:
    """The strategy's candidates by what they hold, then the first of them by the model.

    What fusion would have to rank is rescored instead; the order of a single leg is wanted as it
    is. A model that fails leaves the order: the passages are no worse for it.
    """
    hits: Sequence[Hit]
    if made.strategy is StrategyName.RRF:
        hits = rescore.order(legs, bm25_weight=config.bm25_weight)
    else:
        hits = STRATEGIES[made.strategy](legs, made.top_k, config)
    if reranker is None or not hits:
        return hits
    pool = hits[: made.top_k * POOL]
    started = time.perf_counter()
    try:
        return reranker.rerank(made.completed or made.standalone_query, pool, len(pool))
    except EngineUnavailable as error:
        log.warning("passages are not reranked: %s", error, exc_info=error)
        return hits
    finally:
        legs.timings_ms["rerank"] = round((time.perf_counter() - started) * 1000, 2)

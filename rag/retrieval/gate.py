"""The gate: do the documents hold something on the question?

A logistic function of two pieces of evidence, fitted on question sets as told in docs/retrieval.md: how much of the
question's weight the best passage holds, and how near the nearest passage is where the embedder knows the language.
"""

import math
from collections.abc import Sequence

from rag.types import Hit

COVERAGE_MIDDLE = 0.45
COVERAGE_SLOPE = 12.0
COSINE_MIDDLE = 0.45
COSINE_SLOPE = 12.0


def relevance(hit: Hit, weight: float) -> float:
    """Calibrated relevance of one hit, 0..1; `weight` is how far the embedder knows the question's language."""
    return _evidence(hit.scores.get("coverage", 0.0), hit.scores.get("similarity", 0.0), weight)


def score(hits: Sequence[Hit], weight: float) -> float:
    """The gate's score over all candidates, 0..1."""
    coverage = max((hit.scores.get("coverage", 0.0) for hit in hits), default=0.0)
    cosine = max((hit.scores.get("similarity", 0.0) for hit in hits), default=0.0)
    return _evidence(coverage, cosine, weight) if hits else 0.0


def _evidence(coverage: float, cosine: float, weight: float) -> float:
    lexical = COVERAGE_SLOPE * (coverage - COVERAGE_MIDDLE)
    dense = COSINE_SLOPE * (cosine - COSINE_MIDDLE)
    return 1 / (1 + math.exp(-((1 - weight / 2) * lexical + weight / 2 * dense)))

"""Maximal marginal relevance.

Relevance against likeness to what is chosen already (Carbonell and Goldstein 1998).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rag.types import Hit

_WORD = re.compile(r"\w+")
Likeness = Callable[[int, int], float]


def select(
    hits: Sequence[Hit],
    limit: int,
    *,
    balance: float,
    vectors: Mapping[int, Sequence[float]],
) -> list[Hit]:
    """The best `limit` hits by `balance` * relevance - (1 - balance) * likeness to any chosen one.

    Relevance is the score scaled to its best. Likeness is the cosine of the unit `vectors` (by
    key) where every hit has one, else of word counts: a repeated passage repeats its words in any
    language.
    """
    like = _by_vectors(hits, vectors) or _by_words(hits)
    best = max((hit.score for hit in hits), default=0.0)
    relevance = [hit.score / best if best > 0 else 0.0 for hit in hits]
    nearest = [0.0] * len(hits)
    left = list(range(len(hits)))
    chosen: list[Hit] = []
    while left and len(chosen) < limit:
        place = max(left, key=lambda i: (balance * relevance[i] - (1 - balance) * nearest[i], -i))
        left.remove(place)
        chosen.append(hits[place])
        for other in left:
            nearest[other] = max(nearest[other], like(place, other))
    return chosen


def _by_vectors(hits: Sequence[Hit], vectors: Mapping[int, Sequence[float]]) -> Likeness | None:
    if not hits or any(hit.passage.key not in vectors for hit in hits):
        return None
    import numpy as np  # here: processes that only import the engine stay small

    rows = np.asarray([vectors[hit.passage.key] for hit in hits], dtype=np.float32)
    cosines = rows @ rows.T
    return lambda one, other: float(cosines[one, other])


def _by_words(hits: Sequence[Hit]) -> Likeness:
    counts = [Counter(_WORD.findall(hit.passage.text.lower())) for hit in hits]
    return lambda one, other: _cosine(counts[one], counts[other])


def _cosine(one: Counter[str], other: Counter[str]) -> float:
    product = sum(count * other[word] for word, count in one.items())
    if not product:
        return 0.0
    squares = sum(c * c for c in one.values()) * sum(c * c for c in other.values())
    return product / math.sqrt(squares)

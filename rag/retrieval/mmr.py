"""Maximal marginal relevance.

Relevance against likeness to what is chosen already (Carbonell and Goldstein 1998).
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

from rag.types import Hit

LAMBDA = 0.7
_WORD = re.compile(r"\w+")


def select(hits: Sequence[Hit], limit: int, *, balance: float = LAMBDA) -> list[Hit]:
    """The best `limit` hits by `balance` * relevance - (1 - balance) * likeness to any chosen one.

    Relevance is the score scaled to its best; likeness is the cosine of word counts, because
    vectors stay in the store and a repeated passage repeats its words in any language.
    """
    best = max((hit.score for hit in hits), default=0.0)
    left = [(hit, hit.score / best if best > 0 else 0.0, _words(hit)) for hit in hits]
    likeness = [0.0] * len(left)
    chosen: list[Hit] = []
    while left and len(chosen) < limit:
        gains = [
            balance * relevance - (1 - balance) * like
            for (_, relevance, _), like in zip(left, likeness, strict=True)
        ]
        index = gains.index(max(gains))
        hit, _, words = left.pop(index)
        likeness.pop(index)
        chosen.append(hit)
        likeness = [
            max(like, _cosine(words, other))
            for (_, _, other), like in zip(left, likeness, strict=True)
        ]
    return chosen


def _words(hit: Hit) -> Counter[str]:
    return Counter(_WORD.findall(hit.passage.text.lower()))


def _cosine(one: Counter[str], other: Counter[str]) -> float:
    product = sum(count * other[word] for word, count in one.items())
    if not product:
        return 0.0
    squares = sum(c * c for c in one.values()) * sum(c * c for c in other.values())
    return product / math.sqrt(squares)

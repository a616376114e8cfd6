"""BM25 in figures: the formulas that every store follows, and the lexical leg."""

import math
from collections.abc import Mapping

from rag.ports import PassageStore
from rag.types import Hit

K1 = 1.2
B = 0.75
BACKGROUND = 1000
"""Chunks of ordinary prose that `coverage_weight` imagines beside the scope; see there."""


def idf(df: int, total: int) -> float:
    """Weight of a term held by `df` of `total` chunks (Robertson and Spärck Jones)."""
    return math.log(1 + (total - df + 0.5) / (df + 0.5))


def term_weight(tf: int, length: int, average_length: float) -> float:
    """Saturated weight of a term that stands `tf` times in a chunk of `length` terms."""
    norm = 1 - B + B * length / average_length if average_length else 1.0
    return tf * (K1 + 1) / (tf + K1 * norm)


def coverage_weight(df: int, total: int) -> float:
    """What a term of the question weighs in `coverage`.

    Its IDF as if `BACKGROUND` more chunks stood beside the scope.

    In a scope of three chunks the plain IDF of a term that all hold is near nothing beside one that
    none holds, and a question that the scope answers would look uncovered. With the background,
    terms weigh alike in small scopes.
    """
    return math.log(1 + (total + BACKGROUND - df) / (df + 1))


def search(store: PassageStore, terms: Mapping[str, int], limit: int) -> list[Hit]:
    """The lexical leg."""
    return store.bm25(terms, limit) if terms else []

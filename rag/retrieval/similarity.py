"""The dense leg: nearest passages by cosine, as far as the embedder knows their language."""

from collections.abc import Sequence
from dataclasses import replace

from rag.ports import PassageStore
from rag.types import Hit

KNOWN = 0.3
"""Passages that the embedder knows less than this are noise to it and get no vector."""


def search(
    store: PassageStore, vector: Sequence[float], limit: int, *, unrelated: float
) -> list[Hit]:
    """The nearest passages, with their `closeness`."""
    return [close(hit, hit.score, unrelated) for hit in store.similar(vector, limit)]


def close(hit: Hit, cosine: float, unrelated: float) -> Hit:
    """The hit with its cosine, and how much of the way from unrelated (0) to equal (1) that is.

    Models differ in what texts have for a cosine that have nothing to do with each other.
    """
    closeness = max(0.0, (cosine - unrelated) / (1.0 - unrelated))
    return replace(hit, scores={**hit.scores, "similarity": cosine, "closeness": closeness})

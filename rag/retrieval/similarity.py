"""The dense leg: nearest passages by cosine, as far as the embedder knows their language."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from rag.language import dense_weight
from rag.ports import PassageStore
from rag.types import Hit

KNOWN = 0.3
"""Passages that the embedder knows less than this are noise to it and leave the leg."""


def search(
    store: PassageStore, vector: Sequence[float], languages: AbstractSet[str], limit: int
) -> list[Hit]:
    """The nearest passages whose language the embedder knows."""
    return [
        hit
        for hit in store.similar(vector, limit)
        if dense_weight(hit.passage.text, languages) >= KNOWN
    ]

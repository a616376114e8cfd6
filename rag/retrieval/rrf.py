"""Reciprocal rank fusion with weights (Cormack, Clarke and Büttcher 2009)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rag.types import Hit

K = 2
"""Far below the usual 60.

Two legs of 30 are no crowd, and a first place should count (docs/retrieval.md).
"""


def fuse(legs: Mapping[str, tuple[Sequence[Hit], float]]) -> list[Hit]:
    """Fuse named legs, each with its weight: score = sum of weight / (K + rank).

    Equal scores keep leg order.

    A hit carries the scores of every leg that saw it and its rank there (`rank_NAME`).
    """
    found: dict[int, Hit] = {}
    totals: dict[int, float] = {}
    for name, (hits, weight) in legs.items():
        if weight <= 0:
            continue
        for rank, hit in enumerate(hits, 1):
            key = hit.passage.key
            known = found.get(key, hit)
            found[key] = replace(hit, scores={**known.scores, **hit.scores, f"rank_{name}": rank})
            totals[key] = totals.get(key, 0.0) + weight / (K + rank)
    # rounded: legs that add up to the same weight must tie, whatever the last bit says
    ordered = sorted(found, key=lambda key: -round(totals[key], 9))
    return [
        replace(found[key], score=totals[key], scores={**found[key].scores, "rrf": totals[key]})
        for key in ordered
    ]

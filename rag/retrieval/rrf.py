"""Reciprocal rank fusion with weights (Cormack, Clarke and Büttcher 2009)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rag.types import Hit

K = 60


def fuse(legs: Mapping[str, tuple[Sequence[Hit], float]]) -> list[Hit]:
    """Fuse named legs, each with its weight: score = sum of weight / (60 + rank). Equal scores keep leg order.

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
    ordered = sorted(found, key=lambda key: -totals[key])
    return [
        replace(found[key], score=totals[key], scores={**found[key].scores, "rrf": totals[key]})
        for key in ordered
    ]

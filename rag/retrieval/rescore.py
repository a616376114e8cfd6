"""Rescoring without a model: how much of the question a passage holds, and how close it is.

All parts are figures between 0 and 1 that mean the same for every question, so that they add up,
where fused ranks only tell an order (docs/retrieval.md, "Rescoring").
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rag.retrieval.legs import Legs
from rag.retrieval.proximity import best_sentences
from rag.retrieval.similarity import close
from rag.types import Hit

SENTENCE = 0.4
"""What the best sentence's share weighs beside the passage's own, where closeness has no say."""
CLOSENESS = 1.5
"""What closeness weighs where the embedder knows all languages in play."""
DEPTH = 12
"""Passages whose sentences are looked at; those behind them keep their places."""


def order(legs: Legs, *, bm25_weight: float) -> list[Hit]:
    """The candidates of both legs by share, and by closeness as far as the embedder has a say.

    By sentences, too, as far as it has none.
    """
    say = legs.fusion_weight
    hits = _candidates(legs) if say else legs.lexical
    known = _with_closeness(legs, hits) if say else list(hits)
    floor = min(
        (hit.scores["closeness"] for hit in known if "closeness" in hit.scores), default=0.0
    )
    scored = _ordered(
        replace(
            hit,
            score=bm25_weight * hit.scores.get("share", 0.0)
            + say * CLOSENESS * hit.scores.get("closeness", floor),
        )
        for hit in known
    )
    return scored if say == 1 else _by_sentences(legs, scored, bm25_weight * SENTENCE * (1 - say))


def _candidates(legs: Legs) -> list[Hit]:
    """What either leg found, once, with the scores of both."""
    found: dict[int, Hit] = {}
    for hit in (*legs.lexical, *legs.dense):
        known = found.get(hit.passage.key, hit)
        found[hit.passage.key] = replace(hit, scores={**known.scores, **hit.scores})
    return list(found.values())


def _by_sentences(legs: Legs, scored: Sequence[Hit], weight: float) -> list[Hit]:
    """The first hits once more, by what their best sentences hold."""
    shares = best_sentences(legs.terms, scored, DEPTH)
    looked_at = [
        replace(hit, score=hit.score + weight * share, scores={**hit.scores, "sentence": share})
        for hit, share in zip(scored, shares, strict=False)
    ]
    return [*_ordered(looked_at), *scored[len(looked_at) :]]


def _ordered(hits: Iterable[Hit]) -> list[Hit]:
    # rounded: equal figures must tie, whatever the last bit says
    return sorted(hits, key=lambda hit: -round(hit.score, 9))


def _with_closeness(legs: Legs, hits: Sequence[Hit]) -> list[Hit]:
    """The hits with the closeness of those that only the lexical leg found."""
    import numpy as np  # here: processes that only import the engine stay small

    missing = [hit for hit in hits if "closeness" not in hit.scores]
    stored = legs.vectors(missing)
    keys = [hit.passage.key for hit in missing]
    vectors = {key: stored[key] for key in keys if key in stored}
    if not vectors:
        return list(hits)
    rows = np.asarray(list(vectors.values()), dtype=np.float32)
    cosines = rows @ np.asarray(legs.vector, dtype=np.float32)
    found = dict(zip(vectors, cosines.tolist(), strict=True))
    return [
        close(hit, found[hit.passage.key], legs.unrelated) if hit.passage.key in found else hit
        for hit in hits
    ]

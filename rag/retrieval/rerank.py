"""The last ordering.

A reranker where one is configured, and several documents where the plan wants them.
"""

from collections.abc import Sequence

from rag.ports import Reranker
from rag.types import Hit

POOL = 5
"""Passages read by the reranker for each one that is wanted."""


def choose(
    query: str, hits: Sequence[Hit], limit: int, *, reranker: Reranker | None, several: bool
) -> list[Hit]:
    """The `limit` hits that are shown, best first.

    With `several`, each document's best before any second one.
    """
    ordered = list(hits)
    if reranker is not None and ordered:
        pool = ordered[: limit * POOL]
        ordered = reranker.rerank(query, pool, len(pool))
    if several:
        ordered = _spread(ordered, limit)
    return ordered[:limit]


def _spread(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """Give half the places to the first hits of further documents; the best ones keep the rest."""
    firsts = list({hit.passage.document_id: hit for hit in reversed(hits)}.values())[::-1]
    firsts.sort(key=hits.index)
    wanted = {id(hit) for hit in firsts[: max(2, limit // 2)]}
    rest = [hit for hit in hits if id(hit) not in wanted]
    kept = wanted | {id(hit) for hit in rest[: limit - len(wanted)]}
    return [hit for hit in hits if id(hit) in kept]

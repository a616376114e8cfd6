"""The last choice: several documents where the plan wants them."""

from collections.abc import Sequence

from rag.types import Hit

POOL = 5
"""Passages that a reranking model reads for each one that is wanted."""


def choose(hits: Sequence[Hit], limit: int, *, several: bool) -> list[Hit]:
    """The `limit` hits that are shown, best first.

    With `several`, each document's best before any second one.
    """
    return _spread(hits, limit) if several else list(hits[:limit])


def _spread(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """Give half the places to the first hits of further documents; the best ones keep the rest."""
    firsts = list({hit.passage.document_id: hit for hit in reversed(hits)}.values())[::-1]
    firsts.sort(key=hits.index)
    wanted = {id(hit) for hit in firsts[: max(2, limit // 2)]}
    rest = [hit for hit in hits if id(hit) not in wanted]
    kept = wanted | {id(hit) for hit in rest[: limit - len(wanted)]}
    return [hit for hit in hits if id(hit) in kept][:limit]

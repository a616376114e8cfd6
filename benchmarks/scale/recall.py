"""What the product's dense leg finds of the nearest ten, by the share of the library in scope."""

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from benchmarks.scale.corpus import Question

SHARES = (0.001, 0.01, 0.1, 0.5, 1.0)
QUESTIONS = 60
NEAREST = 10
DEPTH = 60
"""As many as a leg brings; the nearest ten are looked for among them."""


def measure(questions: Sequence[Question], documents: Sequence[UUID]) -> list[dict[str, object]]:
    """Recall@10 of the way that is chosen for each scope, against the exact comparison."""
    return [_share(share, questions[:QUESTIONS], documents) for share in SHARES]


def _share(
    share: float, questions: Sequence[Question], documents: Sequence[UUID]
) -> dict[str, object]:
    from documents.search import database, store
    from documents.search.database import SearchScope

    chance = random.Random(str(share))
    held = 0
    ways = set()
    for question in questions:
        scope = SearchScope(chance.sample(list(documents), max(1, round(share * len(documents)))))
        with database.open_search(scope) as search:
            assert search.facts.space is not None
            found = store.find_nearest_chunks(search, search.facts.space, question.vector, DEPTH)
            right = store.find_by_scan(search, search.facts.space, question.vector, NEAREST)
            ways.add(_name_way(search))
        near = {hit.passage.key for hit in found[:NEAREST]}
        held += len(near & {hit.passage.key for hit in right})
    recall = round(held / NEAREST / len(questions), 4)
    return {"share": share, "way": " or ".join(sorted(ways)), "recall_at_10": recall}


def _name_way(search: Any) -> str:
    from documents.search import store

    if search.facts.chunks <= store.MAX_SCANNED_CHUNKS:
        return "exact"
    return "signs" if store.can_search_by_signs(search, search.facts.space) else "graph"

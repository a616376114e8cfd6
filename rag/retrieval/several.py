"""Several documents for a question that asks about several."""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from rag import tokenize
from rag.ports import PassageStore
from rag.types import Hit, Retrieval
from rag.words import phrases

MOST_DOCUMENTS = 8
"""In larger scopes nobody expects each document to be heard."""


def with_all(
    hits: Sequence[Hit], store: PassageStore, terms: Mapping[str, float], documents: Sequence[UUID]
) -> list[Hit]:
    """The hits, and behind them the best passage of each document that has none among them.

    A document that holds no word of the question adds nothing.
    """
    if len(documents) > MOST_DOCUMENTS:
        return list(hits)
    heard = {hit.passage.document_id for hit in hits}
    missing = [document for document in documents if document not in heard]
    return [*hits, *(hit for one in missing for hit in store.within([one]).bm25(terms, 1))]


@functools.cache
def comparing() -> frozenset[str]:
    """The terms that only say that something is compared."""
    return frozenset(term for phrase in phrases("compare") for term in tokenize.terms(phrase))


def opened(found: Retrieval, store: PassageStore) -> Retrieval:
    """The same with the first passages of each document as its hits: they say what it is for."""
    passages = store.opening(found.plan.top_k)
    hits = tuple(Hit(passage, 1.0, {"opening": 1.0, "relevance": 1.0}) for passage in passages)
    return replace(found, hits=hits, gate=replace(found.gate, score=1.0 if hits else 0.0))


def spread(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """The `limit` hits that are shown, best first.

    The documents fill half the places by turns; the best of what is left get the rest.
    """
    turns: Counter[UUID] = Counter()
    by_turns = []
    for place, hit in enumerate(hits):
        by_turns.append((turns[hit.passage.document_id], place))
        turns[hit.passage.document_id] += 1
    wanted = {place for _, place in sorted(by_turns)[: max(2, limit // 2)]}
    rest = [place for place in range(len(hits)) if place not in wanted]
    kept = wanted | set(rest[: max(0, limit - len(wanted))])
    return [hits[place] for place in sorted(kept)][:limit]

"""Several documents for a question that asks about several."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from rag.ports import PassageStore
from rag.types import Hit

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


def spread(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """The `limit` hits that are shown, best first.

    Half the places go to the first hits of further documents; the best ones keep the rest.
    """
    firsts = list({hit.passage.document_id: hit for hit in reversed(hits)}.values())[::-1]
    firsts.sort(key=hits.index)
    wanted = {id(hit) for hit in firsts[: max(2, limit // 2)]}
    rest = [hit for hit in hits if id(hit) not in wanted]
    kept = wanted | {id(hit) for hit in rest[: limit - len(wanted)]}
    return [hit for hit in hits if id(hit) in kept][:limit]

"""From hits to what is shown: slots, sources, and the evidence that an answerer gets."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

from rag.generation.brief import Evidence
from rag.types import Hit, Source

PREVIEW = 200
WORTH = 0.2
"""A passage below that share of the best one's relevance is found, but not shown or read."""


def worth_showing(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """The hits without those that only fill up the number asked for; `hits` are best first."""
    best = max((hit.scores.get("relevance", 0.0) for hit in hits), default=0.0)
    return tuple(hit for hit in hits if hit.scores.get("relevance", 0.0) >= WORTH * best)


def slots(hits: Sequence[Hit]) -> dict[UUID, int]:
    """One number per document, from 1, in the order shown."""
    order = dict.fromkeys(hit.passage.document_id for hit in hits)
    return {document_id: slot for slot, document_id in enumerate(order, 1)}


def sources(hits: Sequence[Hit], *, dense: bool) -> tuple[Source, ...]:
    """The hits as sources.

    `dense`: the embedder knows the question's language, so the cosine is what is shown.
    """
    numbers = slots(hits)
    return tuple(
        Source(
            slot=numbers[hit.passage.document_id],
            document_id=hit.passage.document_id,
            document_name=hit.passage.document_name,
            chunk_id=hit.passage.chunk_id,
            page=hit.passage.page,
            similarity=round(shown_similarity(hit, dense=dense), 4),
            content_preview=hit.passage.text[:PREVIEW],
            section=hit.passage.section,
            cited=False,
            boxes=hit.passage.boxes,
            version=hit.passage.version,
        )
        for hit in hits
    )


def shown_similarity(hit: Hit, *, dense: bool) -> float:
    """The cosine where it means something, else the calibrated relevance; 0..1."""
    value = hit.scores.get("similarity") if dense else None
    if value is None:
        value = hit.scores.get("relevance", 0.0)
    return min(1.0, max(0.0, value))


def mark_cited(found: Sequence[Source], cited: Collection[int]) -> tuple[Source, ...]:
    """The sources with `cited` set for the slots that the answer names."""
    return tuple(replace(source, cited=source.slot in cited) for source in found)


def evidence(hits: Sequence[Hit]) -> tuple[Evidence, ...]:
    """The passages in the order shown."""
    numbers = slots(hits)
    return tuple(
        Evidence(
            slot=numbers[hit.passage.document_id],
            document_id=hit.passage.document_id,
            document_name=hit.passage.document_name,
            page=hit.passage.page,
            section=hit.passage.section,
            text=hit.passage.content,
            relevance=hit.scores.get("relevance", 0.0),
            index=hit.passage.index,
        )
        for hit in hits
    )

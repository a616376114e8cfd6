"""Passages and evidence for tests that need no store."""

from uuid import UUID, uuid4

from rag.types import Evidence, Kind, Passage


def make_evidence(
    text: str,
    *,
    slot: int = 1,
    number: int | None = None,
    name: str = "규정.md",
    document_id: UUID | None = None,
    page: int | None = None,
    section: str = "",
    relevance: float = 1.0,
    index: int = 0,
    kind: Kind = Kind.TEXT,
    weak: bool = False,
    start: int = 0,
) -> Evidence:
    """A passage as it stands in a prompt; `number` is the slot unless it is given."""
    passage = Passage(
        key=index,
        document_id=document_id or uuid4(),
        document_name=name,
        index=index,
        text=text,
        page=page,
        page_end=page,
        section=section,
        start=start,
        end=start + len(text),
        kind=kind,
    )
    return Evidence(number or slot, slot, passage, text, start, relevance, weak)

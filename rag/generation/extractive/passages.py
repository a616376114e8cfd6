"""The evidence as it is read: in the order of the documents, neighbours joined, in blocks."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rag.generation.brief import Evidence
from rag.generation.extractive import reading
from rag.generation.extractive.reading import Block
from rag.neutral import neutralise

LEAST_SHARED = 8
"""Characters at the end of one passage and the beginning of the next that show them as one text."""
_EXTENSION = re.compile(r"\.(?:pdf|docx|hwpx?|md|txt)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a document, from one piece of evidence or from several that overlap."""

    slot: int
    name: str
    section: str
    relevance: float
    page: int | None
    blocks: tuple[Block, ...]

    @property
    def title(self) -> str:
        """The document's name without the ending of its file."""
        return _EXTENSION.sub("", self.name)


def read(evidence: Sequence[Evidence]) -> list[Passage]:
    """The passages by document and place, whatever the order of the evidence."""
    ordered = sorted(evidence, key=lambda item: (item.slot, item.index, item.page or 0, item.text))
    return [_passage(item) for item in _joined(ordered)]


def _passage(item: Evidence) -> Passage:
    blocks = tuple(reading.read(neutralise(item.text)))
    return Passage(item.slot, item.document_name, item.section, item.relevance, item.page, blocks)


def _joined(ordered: Sequence[Evidence]) -> Iterator[Evidence]:
    held: Evidence | None = None
    for item in ordered:
        joined = held and _together(held, item)
        if held and not joined:
            yield held
        held = joined or item
    if held:
        yield held


def _together(left: Evidence, right: Evidence) -> Evidence | None:
    """Both as one, where the end of one is the beginning of the other."""
    if (left.slot, left.page) != (right.slot, right.page):
        return None
    if right.text in left.text:
        return replace(left, relevance=max(left.relevance, right.relevance))
    shared = _shared(left.text, right.text)
    if shared < LEAST_SHARED:
        return None
    text = left.text + right.text[shared:]
    relevance = max(left.relevance, right.relevance)
    section = left.section if left.section == right.section else ""
    return replace(left, text=text, index=right.index, relevance=relevance, section=section)


def _shared(left: str, right: str) -> int:
    """Characters that the end of one text and the beginning of the other have in common."""
    for size in range(min(len(left), len(right)), 0, -1):
        if left.endswith(right[:size]):
            return size
    return 0

"""Evidence for benchmarks that need no store, and answers held against it."""

import re
from collections.abc import Sequence
from uuid import UUID

from rag.types import Checked, Citation, Evidence, Passage
from rag.verify import Grounds, verify_answer

_MARKER = re.compile(r"\[(\d{1,4})\]")


def as_evidence(
    slot: int, text: str, *, document_id: UUID, name: str, section: str = ""
) -> Evidence:
    """A text as the passage of a document, as an answer's model would see it."""
    passage = Passage(
        key=slot,
        document_id=document_id,
        document_name=name,
        index=0,
        text=text,
        page=None,
        page_end=None,
        section=section,
        end=len(text),
    )
    return Evidence(slot, slot, passage, text, 0, relevance=1.0)


def check(answer: str, evidence: Sequence[Evidence]) -> tuple[Checked, ...]:
    """The sentences of an answer that cites by the numbers of its passages."""
    citations = [Citation(found.start(), int(found[1])) for found in _MARKER.finditer(answer)]
    return verify_answer(answer, citations, evidence, grounds=Grounds()).checks

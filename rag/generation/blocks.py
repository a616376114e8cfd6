"""What a question brings along in its message: blocks between marks, each under its heading.

All that a user or a document wrote stands between the marks, without power.
"""

import re
from collections.abc import Iterator, Sequence

from rag import prompts
from rag.conversation import DocRef, Turn
from rag.generation.brief import Brief, Evidence
from rag.neutral import neutralise

SAMPLE_FENCE = "=== 0123456789ab ==="
"""As long as the marks of a prompt; for counting."""
LONGEST_TITLE = 200
_MARKER = re.compile(r"\[(\d{1,9})\]")


def of(brief: Brief, fence: str) -> Iterator[str]:
    """The blocks of a brief in their order."""
    language = brief.language
    if brief.previous:
        yield previous(brief.previous, language, fence)
    if brief.summary:
        yield summary(brief.summary, language, fence)
    if brief.recalled:
        yield recalled(brief.recalled, language, fence)
    if brief.findings:
        yield findings(brief.findings, language, fence)
    if brief.evidence:
        yield excerpts(brief.evidence, language, fence)


def previous(turn: Turn, language: str, fence: str) -> str:
    """The turn before, whole, and the documents that its answer showed."""
    said = prompts.fill("block_previous", language, fence=fence, turn=_said(turn, language))
    if not turn.doc_refs:
        return said
    listed = "\n".join(_listed(ref) for ref in turn.doc_refs)
    return f"{said}\n\n{prompts.fill('block_documents', language, fence=fence, documents=listed)}"


def summary(text: str, language: str, fence: str) -> str:
    """What the older turns said."""
    return prompts.fill("block_summary", language, fence=fence, summary=_plain(text))


def recalled(turns: Sequence[Turn], language: str, fence: str) -> str:
    """Older turns that bear on the question."""
    told = "\n\n".join(one_recalled(turn, language) for turn in turns)
    return prompts.fill("block_recalled", language, fence=fence, turns=told)


def one_recalled(turn: Turn, language: str) -> str:
    """One of them, with its number."""
    return f"#{turn.number}\n{_said(turn, language)}"


def findings(notes: Sequence[str], language: str, fence: str) -> str:
    """What an exploration noted."""
    told = "\n".join(one_finding(note) for note in notes)
    return prompts.fill("block_findings", language, fence=fence, findings=told)


def one_finding(note: str) -> str:
    """One note."""
    return f"- {_plain(note)}"


def excerpts(evidence: Sequence[Evidence], language: str, fence: str) -> str:
    """The passages, each under its number and place."""
    told = "\n\n".join(one_excerpt(item) for item in evidence)
    return prompts.fill("block_excerpts", language, fence=fence, excerpts=told)


def one_excerpt(item: Evidence) -> str:
    """One passage."""
    page = f", p. {item.page}" if item.page else ""
    section = f", {item.section}" if item.section else ""
    label = f"[{item.slot}] {neutralise(item.document_name + page + section)}"
    return f"{label}\n{neutralise(item.text)}"


def _said(turn: Turn, language: str) -> str:
    question, answer = _plain(turn.user_text), _plain(turn.assistant_text)
    return prompts.fill("block_turn", language, question=question, answer=answer)


def _listed(ref: DocRef) -> str:
    title = _plain(ref.title or ref.source).replace("\n", " ")[:LONGEST_TITLE]
    return f"#{ref.slot} {title} (id {ref.document_id})"


def _plain(text: str) -> str:
    """Without power, and with no number that could be taken for one of this answer's sources."""
    return _MARKER.sub(r"(\1)", neutralise(text))

"""The question back where a reference to documents is not clear, with what can be chosen."""

from rag import prompts
from rag.generation.plain import title
from rag.query.references import Reference, Unclear

MOST = 20
"""Candidates that are listed; more would not be read."""


def question(reference: Reference, language: str) -> str:
    """What to ask back, in "ko" or "en", with numbered candidates. Raises `ValueError`."""
    if reference.unclear is None:
        raise ValueError("the reference is clear")
    listed = [f"{ref.slot}. {title(ref.title or ref.source)}" for ref in reference.documents[:MOST]]
    if len(reference.documents) > MOST:
        listed.append(f"\n… +{len(reference.documents) - MOST}")
    return prompts.fill(_name(reference), language, candidates="\n".join(listed))


def _name(reference: Reference) -> str:
    if reference.unclear is Unclear.NOTHING and reference.documents:
        return "clarify_forgotten"
    return f"clarify_{reference.unclear}"

"""Answers without a search or a model: a question back, a whole document, a new start."""

from dataclasses import dataclass

from rag import prompts
from rag.conversation import DocRef, View
from rag.generation import clarify, whole
from rag.ports import PassageStore
from rag.query.references import Reference
from rag.query.understand import Understood
from rag.question import Question
from rag.types import Mode, Passage, QuestionType, Source

PREVIEW = 200


@dataclass(frozen=True, slots=True)
class FixedAnswer:
    """A whole answer. `candidates` stand in a question back, `view` tells what was shown."""

    text: str
    mode: Mode
    sources: tuple[Source, ...] = ()
    passages: tuple[Passage, ...] = ()
    candidates: tuple[DocRef, ...] = ()
    view: View | None = None


def answer(
    question: Question, understood: Understood, store: PassageStore, language: str
) -> FixedAnswer | None:
    """The fixed answer that a question asks for; None where it must be searched."""
    reference = understood.reference
    if reference is None:
        if understood.verdict.question_type is QuestionType.RESET:
            return FixedAnswer(prompts.text("reset", language), Mode.GENERAL)
        return None
    if reference.unclear:
        text = clarify.question(reference, language)
        return FixedAnswer(text, Mode.CLARIFY, candidates=reference.documents)
    return _document(question, reference, store, language) if reference.whole else None


def _document(
    question: Question, reference: Reference, store: PassageStore, language: str
) -> FixedAnswer:
    readable = question.conversation.readable
    shown = whole.show(
        reference.documents[0],
        readable,
        reference.part,
        store,
        language,
        present=reference.present,
        others=reference.documents[1:],
    )
    name = shown.ref.source or shown.ref.title
    # kept as shown, so that it can be shown again when the document is gone
    passage = Passage(-1, shown.ref.document_id, name, 0, shown.text, None, None, "")
    source = Source(
        slot=1,
        document_id=passage.document_id,
        document_name=name,
        chunk_id=passage.chunk_id,
        page=None,
        similarity=1.0,
        content_preview=shown.text[:PREVIEW],
        section="",
        cited=True,
        boxes=(),
        version=shown.ref.version,
    )
    return FixedAnswer(shown.text, Mode.DOCUMENT, (source,), (passage,), view=shown.view)

"""From a message in a conversation to a question: what kind, of which documents, in which words."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from rag import tokenize
from rag.config import RagConfig
from rag.conversation import DocRef
from rag.llms.light import Light
from rag.ports import Embedder, HistoryStore, PassageStore
from rag.query import classify_light, references, rewrite, rewrite_light
from rag.query.classify import Verdict, classify
from rag.query.references import Reference
from rag.query.rewrite import Standalone
from rag.question import Question
from rag.types import QuestionType, Scope, ScopeReason, Topic


@dataclass(frozen=True, slots=True)
class Understood:
    """A question as the engine takes it. `scope` is narrowed to what it refers to by place."""

    verdict: Verdict
    standalone: Standalone
    scope: Scope
    reference: Reference | None = None


async def understand(
    question: Question,
    history: HistoryStore,
    config: RagConfig,
    embedder: Embedder,
    light: Light | None,
) -> Understood:
    """What rules, and the light model where there is one, make of a question."""
    ruled = await asyncio.to_thread(by_rules, question, history, config, embedder)
    return ruled if light is None or _settled(ruled) else await _by_model(question, ruled, light)


async def _by_model(question: Question, ruled: Understood, light: Light) -> Understood:
    conversation = question.conversation
    text = ruled.verdict.rest
    verdict = await classify_light.by_model(text, conversation, light, ruled.verdict)
    standalone = _completed(verdict, question, ruled.reference)
    if verdict.follows and not _is_complete(text, ruled.reference):
        standalone = await rewrite_light.by_model(text, conversation, light, standalone)
    return replace(ruled, verdict=verdict, standalone=standalone)


def _settled(ruled: Understood) -> bool:
    """Whether there is nothing that a model could know better."""
    if ruled.reference is not None and (ruled.reference.unclear or ruled.reference.whole):
        return True
    return ruled.verdict.question_type in {QuestionType.RESET, QuestionType.SMALLTALK}


def by_rules(
    question: Question, history: HistoryStore, config: RagConfig, embedder: Embedder
) -> Understood:
    """What rules make of it. Reads the store only for references to the whole session."""
    reference = _reference(question, history.documents)
    text = reference.rest if reference else question.text
    if question.topic in (Topic.WIDER, Topic.NEW):
        reference = None  # the user leaves the documents that the question names by their place
    verdict = classify(
        text, question.conversation, config.memory, embedder=embedder, topic=question.topic
    )
    return Understood(
        verdict=verdict,
        standalone=_completed(verdict, question, reference),
        scope=_narrowed(question.scope, reference),
        reference=reference,
    )


def _completed(verdict: Verdict, question: Question, reference: Reference | None) -> Standalone:
    """The question as it is searched, with what it lacks by rules."""
    said = verdict.rest or question.text
    if _is_complete(said, reference):
        return Standalone(said)
    return rewrite.standalone(said, question.conversation, verdict)


def _is_complete(said: str, reference: Reference | None) -> bool:
    """True for a question that names its document by place and its subject, too."""
    if reference is None:
        return False
    return bool(reference.unclear or reference.whole or tokenize.subject_terms(said))


def searched(store: PassageStore, question: Question, scope: Scope) -> PassageStore:
    """The store over the scope alone: documents of earlier turns may lie outside of it."""
    same = scope.document_ids == question.scope.document_ids
    known = question.conversation.readable.keys() <= set(scope.document_ids)
    return store if same and known else store.within(scope.document_ids)


def told(question: Question, understood: Understood) -> dict[str, object]:
    """What was made of the question, as plain JSON for the trace."""
    verdict, reference = understood.verdict, understood.reference
    standalone = understood.standalone
    found: dict[str, object] = {
        "question_type": verdict.question_type.value,
        "question": {
            "type": verdict.question_type.value,
            "follows": verdict.follows,
            "certainty": round(verdict.certainty, 3),
            "by": verdict.by,
            "signals": {name: round(value, 3) for name, value in verdict.signals.items()},
            "topic": question.topic.value,
            "failed": verdict.failed,
        },
        "standalone": {
            "text": standalone.text,
            "by": standalone.by,
            "failed": standalone.failed,
        },
        "scope": scope_told(question, understood, understood.scope, widened=False),
    }
    if reference is not None:
        found["reference"] = {
            "documents": [
                {"slot": ref.slot, "document_id": str(ref.document_id), "title": ref.title}
                for ref in reference.documents
            ],
            "whole": reference.whole,
            "part": reference.part,
            "unclear": reference.unclear.value if reference.unclear else None,
            "whole_session": reference.whole_session,
        }
    return found


def scope_told(
    question: Question, understood: Understood, scope: Scope, *, widened: bool
) -> dict[str, object]:
    """The documents that were searched in the end and why, as plain JSON."""
    fixed = understood.reference and (understood.reference.unclear or understood.reference.whole)
    standalone = "" if fixed else understood.standalone.text
    return {
        "reason": scope.reason.value,
        "document_ids": [str(key) for key in scope.document_ids],
        "widened": widened,
        "follows": understood.verdict.follows,
        "forgets": understood.verdict.forgets,
        "topic": question.topic.value,
        "standalone_query": standalone if standalone != question.text else "",
    }


def _reference(question: Question, session: Callable[[], tuple[DocRef, ...]]) -> Reference | None:
    scope = question.scope
    only = scope.reason is ScopeReason.CHAT and len(scope.document_ids) == 1
    named = scope.document_ids if only or scope.reason is ScopeReason.EXPLICIT else ()
    return references.resolve(question.text, question.conversation, session, named)


def _narrowed(scope: Scope, reference: Reference | None) -> Scope:
    """The documents referred to by place outrank all others, and never widen."""
    if reference is None or reference.unclear:
        return scope
    ids = tuple(dict.fromkeys(ref.document_id for ref in reference.documents))
    return replace(scope, document_ids=ids, reason=ScopeReason.SLOT)

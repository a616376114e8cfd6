"""From a message in a conversation to a question: what kind, of which documents, in which words."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from rag.config import RagConfig
from rag.conversation import DocRef
from rag.ports import Embedder, HistoryStore, PassageStore
from rag.query import references, rewrite
from rag.query.classify import Verdict, classify
from rag.query.references import Reference
from rag.query.rewrite import Standalone
from rag.question import Question
from rag.types import Scope, ScopeReason


@dataclass(frozen=True, slots=True)
class Understood:
    """A question as the engine takes it. `scope` is narrowed to what it refers to by place."""

    verdict: Verdict
    standalone: Standalone
    scope: Scope
    reference: Reference | None = None


def by_rules(
    question: Question, history: HistoryStore, config: RagConfig, embedder: Embedder
) -> Understood:
    """What rules make of it. Reads the store only for references to the whole session."""
    reference = _reference(question, history.documents)
    text = reference.rest if reference else question.text
    verdict = classify(
        text, question.conversation, config.memory, embedder=embedder, topic=question.topic
    )
    return Understood(
        verdict=verdict,
        standalone=rewrite.standalone(text, question.conversation, verdict),
        scope=_narrowed(question.scope, reference),
        reference=reference,
    )


def searched(store: PassageStore, question: Question, scope: Scope) -> PassageStore:
    """The store over the scope alone: documents of earlier turns may lie outside of it."""
    same = scope.document_ids == question.scope.document_ids
    known = question.conversation.readable.keys() <= set(scope.document_ids)
    return store if same and known else store.within(scope.document_ids)


def _reference(question: Question, session: Callable[[], tuple[DocRef, ...]]) -> Reference | None:
    if not question.conversation.total:
        return None
    return references.resolve(question.text, question.conversation, session)


def _narrowed(scope: Scope, reference: Reference | None) -> Scope:
    """The documents referred to by place outrank all others, and never widen."""
    if reference is None or reference.unclear:
        return scope
    ids = tuple(dict.fromkeys(ref.document_id for ref in reference.documents))
    return replace(scope, document_ids=ids, reason=ScopeReason.SLOT)

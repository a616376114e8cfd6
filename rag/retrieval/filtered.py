"""A search within the documents that a question names, and beyond them if they hold nothing."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rag import tokenize
from rag.ports import PassageStore
from rag.query import filters
from rag.query.about import is_about_documents
from rag.query.filters import Filter
from rag.retrieval import several
from rag.types import Plan, QuestionType, Retrieval, Scope, ScopeReason

SURE = 0.8
"""From that score of the gate on, nobody looks outside."""
OWN_NAME, ISSUER = 0.6, 0.2
"""How much more the gate must give to the rest of the question outside of a filter."""

Search = Callable[[Plan, PassageStore], Retrieval]


def search(made: Plan, store: PassageStore, ask: Search) -> Retrieval:
    """Ask within the filter that the question holds; of all without one, or with nothing there.

    The plan that comes back tells the whole scope and question, and the filters in force.
    """
    if made.question_type is QuestionType.SMALLTALK or not made.scope.document_ids:
        return ask(made, store)
    found = filters.find(made.standalone_query, store)
    if found is None:
        return ask(made, store)
    return _Filtered(made, store, ask, found).search()


@dataclass(slots=True)
class _Filtered:
    """One question that names documents, asked with and without their names, inside and outside.

    Within a document all passages bear its name: it would only drown the rest of the question.
    """

    made: Plan
    store: PassageStore
    ask: Search
    found: Filter
    timings_ms: Counter[str] = field(default_factory=Counter)

    def search(self) -> Retrieval:
        """Inside, unless the rest of the question is found outside and not, or far less, inside."""
        question, rest = self.made.standalone_query, self._rest()
        inside = self._inside(rest)
        if self._only_names():
            return self._kept(several.opened(inside, self._named()))
        if inside.gate.score >= SURE:
            return self._kept(inside)
        beyond = self._asked(rest, self.made, self.store)
        if _answers(beyond) and beyond.gate.score > inside.gate.score + self._margin(inside):
            return self._dropped(self._asked(question, self.made, self.store))
        if _answers(inside):
            return self._kept(inside)
        whole = self._inside(question)
        if _answers(whole):
            return self._kept(whole)
        outside = self._asked(question, self.made, self.store)
        dropped = _answers(outside) or not inside.hits
        return self._dropped(outside) if dropped else self._kept(inside)

    def _margin(self, inside: Retrieval) -> float:
        """How much better outside must be: a document named by its own name is rarely not meant."""
        if not inside.hits:
            return 0.0
        if self.found.certain:
            return OWN_NAME
        return ISSUER if _answers(inside) else 0.0

    def _rest(self) -> str:
        """What is asked of the documents named; the whole question where that is nothing."""
        rest, scope = self.found.rest, self._scope()
        asks = tokenize.subject_terms(rest) or is_about_documents(rest, scope)
        return rest if asks else self.made.standalone_query

    def _scope(self) -> Scope:
        """The documents named, as if the user had chosen them."""
        named = (pk for pk in self.made.scope.document_ids if pk in self.found.document_ids)
        return Scope(tuple(named), ScopeReason.EXPLICIT)

    def _only_names(self) -> bool:
        """Whether documents are to be compared, and nothing is said of in what."""
        compared = self.made.question_type is QuestionType.COMPARE and self.found.several
        return compared and not tokenize.subject_terms(self.found.rest) - several.comparing()

    def _inside(self, query: str) -> Retrieval:
        return self._asked(query, self._plan(), self._named())

    def _plan(self) -> Plan:
        scope = self._scope()
        each = self.found.several or (self.made.needs_multi_doc and len(scope.document_ids) > 1)
        return replace(self.made, scope=scope, needs_multi_doc=each)

    def _named(self) -> PassageStore:
        return self.store.within(self.found.document_ids)

    def _asked(self, query: str, plan: Plan, store: PassageStore) -> Retrieval:
        answer = self.ask(replace(plan, standalone_query=query), store)
        self.timings_ms.update(answer.timings_ms)
        return answer

    def _kept(self, inside: Retrieval) -> Retrieval:
        each = inside.plan.needs_multi_doc
        plan = replace(self.made, filters=self.found.values, needs_multi_doc=each)
        return replace(inside, plan=plan, timings_ms=self._timings())

    def _dropped(self, outside: Retrieval) -> Retrieval:
        return replace(
            outside, timings_ms=self._timings(), dropped_filters=self.found.values, plan=self.made
        )

    def _timings(self) -> dict[str, float]:
        return {step: round(spent, 2) for step, spent in self.timings_ms.items()}


def _answers(found: Retrieval) -> bool:
    return found.gate.relevant and bool(found.hits)

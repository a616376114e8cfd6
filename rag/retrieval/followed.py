"""A follow-up's search: within the remembered documents, unless outside is clearly better.

What a question says by itself, without what was carried over from the conversation, is held against
both: words that nobody remembers, but that some other document holds, turn to another matter.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from rag import tokenize
from rag.conversation import Memory
from rag.ports import PassageStore
from rag.query import background, filters, siblings
from rag.query.classify import Verdict
from rag.types import Plan, QuestionType, Retrieval, Scope, ScopeReason, Topic

SURE = 0.97
"""From that score of the gate on, nobody looks outside: among few documents it is easily high."""
FAINT = 0.15
"""The score of the gate below which nothing is found outside."""
TIMES = 30
"""How many times the odds of inside those of outside must be, where its own words are asked."""
CERTAIN = 0.98
"""From that certainty of a follow-up on, what it says by itself is not looked at."""
TELLING = 2
"""Terms from which on a question says something by itself."""
OPEN = 0.75
"""Up to that certainty a question that seems to stand alone may still be a follow-up."""
DEPTH = 30
"""Passages of all documents, of which none is of a remembered one where outside is stronger."""

Search = Callable[[Plan, PassageStore], Retrieval]


def search(
    made: Plan, store: PassageStore, memory: Memory, verdict: Verdict, ask: Search
) -> Retrieval:
    """Ask within the remembered documents of the plan's scope, or of all of it.

    The plan that comes back tells the scope that was searched (reason FOLLOWUP within the
    remembered ones); `widened` says that a follow-up was answered from outside.
    """
    scope = made.scope
    allowed = set(scope.document_ids)
    remembered = tuple(key for key in memory.document_ids if key in allowed)
    if not remembered or scope.reason in (ScopeReason.EXPLICIT, ScopeReason.SLOT):
        return ask(made, store)
    if not verdict.follows and _undecided(verdict):
        return _told_by_evidence(_Followed(made, store, remembered, verdict, ask))
    if not verdict.follows or verdict.topic is Topic.WIDER:
        return ask(made, store)
    titles = tuple(item.title for item in memory.documents if item.document_id in allowed)
    if family := siblings.named(verdict.rest, titles, store):
        remembered = tuple(key for key in family if key in allowed) or remembered
    return _Followed(made, store, remembered, verdict, ask).search()


def _undecided(verdict: Verdict) -> bool:
    """Whether its words leave open if the question is bound to the conversation."""
    return verdict.by == "rules" and verdict.topic is Topic.AUTO and verdict.certainty <= OPEN


def _told_by_evidence(question: "_Followed") -> Retrieval:
    """What all documents hold; a follow-up after all where a remembered one holds it best."""
    whole = question.whole()
    if not whole.hits or question.leads(whole):
        return whole
    made = question.made
    single = made.question_type is QuestionType.SINGLE
    kind = QuestionType.FOLLOWUP if single else made.question_type
    return question.within(replace(made, question_type=kind, follows=True))


@dataclass(slots=True)
class _Followed:
    """One follow-up with the documents that are remembered, and the time that its searches took."""

    made: Plan
    store: PassageStore
    remembered: tuple[UUID, ...]
    verdict: Verdict
    ask: Search
    timings_ms: Counter[str] = field(default_factory=Counter)

    def search(self) -> Retrieval:
        """Inside, unless what is asked is named or found outside, and not, or far less, inside."""
        if self.verdict.topic is Topic.SAME or self.verdict.by == "simple":
            return self._kept(self._inside(self.made))
        if self._names_others():
            return self._widened(self._asked(self.made, self.store))
        if (other := self._elsewhere()) is not None:
            return self._widened(other)
        inside = self._inside(self.made)
        if self._settles(inside) or not self._beyond(self._probe(self.made)):
            return self._kept(inside)
        return self._widened(self._asked(self.made, self.store))

    def whole(self) -> Retrieval:
        """What all documents hold."""
        return self._kept(self._asked(self.made, self.store))

    def within(self, made: Plan) -> Retrieval:
        """What the remembered documents hold on this plan."""
        return self._kept(self._inside(made))

    def _settles(self, inside: Retrieval) -> bool:
        """True when nobody need look outside."""
        sure = inside.gate.threshold if self.verdict.certainty >= CERTAIN else SURE
        return bool(inside.hits) and inside.gate.score >= sure

    def _elsewhere(self) -> Retrieval | None:
        """What is found outside by the question's own words, where they say nothing inside."""
        own = self.verdict.rest
        tells = len(tokenize.subject_terms(own)) >= TELLING and background.naming(own)
        if self.verdict.certainty >= CERTAIN or not tells:
            return None
        alone = replace(
            self.made, standalone_query=own, context={}, background_weight=0.0, follows=False
        )
        found = self._inside(alone)
        if found.gate.relevant:
            return None
        whole = self._asked(alone, self.store)
        likelier = _odds(whole.gate.score) >= TIMES * _odds(found.gate.score)
        better = likelier and whole.gate.score >= FAINT and self.leads(whole)
        return replace(whole, plan=replace(whole.plan, follows=True)) if better else None

    def _probe(self, made: Plan) -> Retrieval:
        """A deep look into all documents."""
        return self._asked(replace(made, top_k=DEPTH, needs_multi_doc=False), self.store)

    def _inside(self, made: Plan) -> Retrieval:
        scope = Scope(self.remembered, ScopeReason.FOLLOWUP)
        several = made.needs_multi_doc and len(self.remembered) > 1
        plan = replace(made, scope=scope, needs_multi_doc=several)
        return self._asked(plan, self.store.within(self.remembered))

    def _asked(self, made: Plan, store: PassageStore) -> Retrieval:
        found = self.ask(made, store)
        self.timings_ms.update(found.timings_ms)
        return found

    def _names_others(self) -> bool:
        """True when the question names a document that is not remembered."""
        found = filters.find(self.verdict.rest, self.store)
        if found is None or not found.certain:
            return False
        return not found.document_ids <= set(self.remembered)

    def _beyond(self, probe: Retrieval) -> bool:
        """True when something is found, and nothing of it in a remembered document."""
        known = set(self.remembered)
        return bool(probe.hits) and all(hit.passage.document_id not in known for hit in probe.hits)

    def leads(self, whole: Retrieval) -> bool:
        """True when the best of all is in none of the remembered documents."""
        return bool(whole.hits) and whole.hits[0].passage.document_id not in self.remembered

    def _kept(self, found: Retrieval) -> Retrieval:
        return replace(found, timings_ms=self._timings())

    def _widened(self, found: Retrieval) -> Retrieval:
        return replace(found, timings_ms=self._timings(), widened=True)

    def _timings(self) -> dict[str, float]:
        return {step: round(spent, 2) for step, spent in self.timings_ms.items()}


def _odds(score: float) -> float:
    return score / max(1 - score, 1e-9)

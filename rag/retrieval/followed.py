"""A follow-up's search: within the remembered documents, unless outside is clearly better."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from rag.conversation import Memory
from rag.ports import PassageStore
from rag.query import filters
from rag.query.classify import Verdict
from rag.types import Plan, Retrieval, Scope, ScopeReason, Topic

SURE = 0.8
"""From that score of the gate on, nobody looks outside."""
CERTAIN = 0.9
"""From that certainty of a follow-up on, its words say little without the conversation."""
FIRM, MIDDLING = 0.4, 0.0
"""How much more the gate must give outside."""

Search = Callable[[Plan, PassageStore], Retrieval]


def search(
    made: Plan, store: PassageStore, memory: Memory, verdict: Verdict, ask: Search
) -> Retrieval:
    """Ask within the remembered documents of the plan's scope, or of all of it.

    The plan that comes back tells the scope that was searched (reason FOLLOWUP within the
    remembered ones); `widened` says that a follow-up was answered from outside.
    """
    scope = made.scope
    inside = tuple(key for key in memory.document_ids if key in set(scope.document_ids))
    bound = verdict.follows and verdict.topic is not Topic.WIDER
    if not bound or not inside or scope.reason in (ScopeReason.EXPLICIT, ScopeReason.SLOT):
        return ask(made, store)
    return _Followed(made, store, inside, verdict, ask).search()


@dataclass(frozen=True, slots=True)
class _Followed:
    """One follow-up with the documents that are remembered."""

    made: Plan
    store: PassageStore
    remembered: tuple[UUID, ...]
    verdict: Verdict
    ask: Search

    def search(self) -> Retrieval:
        """Inside, unless what is asked is named or found outside, and not, or far less, inside."""
        if self.verdict.topic is Topic.SAME:
            return self._inside()
        if self._names_others():
            return replace(self.ask(self.made, self.store), widened=True)
        inside = self._inside()
        if inside.gate.score >= SURE and self.verdict.certainty >= CERTAIN:
            return inside
        whole = self.ask(self.made, self.store)
        firm = self.verdict.certainty >= CERTAIN
        margin = FIRM if firm and inside.gate.relevant else MIDDLING
        if not self._beyond(whole) or whole.gate.score <= inside.gate.score + margin:
            return _timed(inside, whole)
        return _timed(replace(whole, widened=True), inside)

    def _inside(self) -> Retrieval:
        scope = Scope(self.remembered, ScopeReason.FOLLOWUP)
        several = self.made.needs_multi_doc and len(self.remembered) > 1
        plan = replace(self.made, scope=scope, needs_multi_doc=several)
        return self.ask(plan, self.store.within(self.remembered))

    def _names_others(self) -> bool:
        """True when the question names a document that is not remembered."""
        found = filters.find(self.verdict.rest, self.store)
        return (
            found is not None and found.certain and not found.document_ids <= set(self.remembered)
        )

    def _beyond(self, whole: Retrieval) -> bool:
        """True when the best of all is in none of the remembered documents."""
        best = whole.hits[0].passage.document_id if whole.hits else None
        return whole.gate.relevant and best is not None and best not in self.remembered


def _timed(shown: Retrieval, other: Retrieval) -> Retrieval:
    """The retrieval with the time that the other one took, too."""
    steps = {*shown.timings_ms, *other.timings_ms}
    spent = {s: shown.timings_ms.get(s, 0.0) + other.timings_ms.get(s, 0.0) for s in steps}
    return replace(shown, timings_ms={step: round(value, 2) for step, value in spent.items()})

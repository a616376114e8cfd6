"""Where a question is searched: its scope, the documents that it names, those it follows up on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import UUID

from rag import tokenize
from rag.ports import PassageStore
from rag.types import Gate, Hit, Plan, QuestionType, Retrieval, Scope, ScopeReason, Topic
from rag.understand import filters, followup
from rag.understand.analysis import QuestionAnalysis
from rag.understand.filters import NameFilter
from rag.understand.kinds import is_whole_question, load_comparing_terms, read_message

MAX_SEPARATE_DOCUMENTS = 8
"""With more documents in scope, nobody expects passages from each of them."""
SURE_NAMED_SCORE = 0.8
"""Gate score from which only the named documents are searched."""
OWN_NAME_MARGIN, ISSUER_MARGIN = 0.6, 0.2
"""How much higher the gate must score the rest of the question outside of a filter."""
SURE_FOLLOWED_SCORE = 0.97
"""Gate score from which only the remembered documents are searched; with few, scores are high."""
FAINT_SCORE = 0.15
"""Gate score below which what is found outside does not count."""
MIN_ODDS_RATIO = 30
"""How many times the odds of inside those of outside must be, where its own words are asked."""
CERTAIN_FOLLOWUP = 0.98
"""From that certainty of a follow-up on, what it says by itself is not looked at."""
MIN_TELLING_TERMS = 2
"""Terms from which on a question says something by itself."""
MAX_OPEN_CERTAINTY = 0.75
"""Up to that certainty a question that seems to stand alone may still be a follow-up."""
PROBE_DEPTH = 30
"""Passages of all documents, of which none is of a remembered one where outside is stronger."""


class Search(Protocol):
    """Asks the documents of a plan's scope."""

    def __call__(self, plan: Plan, store: PassageStore, *, reranked: bool = True) -> Retrieval:
        """What a plan finds; not `reranked` where only the gate counts, or what is among the hits.

        A reranker takes most of a search's time, and the gate does not look at its order.
        """
        ...


def select_scope(
    explicit: Sequence[UUID] | None,
    chat: Sequence[UUID],
    everything: Sequence[UUID],
    *,
    chat_named: bool = False,
) -> Scope:
    """The scope by priority. Sequences hold ids that the user may read and that are ready.

    `explicit` is None when the question named none. A list that was named and turns out empty (all
    deleted, failed or not ready) finds nothing and never widens; `chat_named` says that the chat
    has documents even if none is left.
    """
    ids, reason = everything, ScopeReason.ALL
    if explicit is not None:
        ids, reason = explicit, ScopeReason.EXPLICIT
    elif chat or chat_named:
        ids, reason = chat, ScopeReason.CHAT
    return Scope(tuple(dict.fromkeys(ids)), reason)


def read_document_openings(plan: Plan, store: PassageStore, threshold: float) -> Retrieval:
    """A question on whole documents: the first passages of each answer it, in their own order."""
    passages = store.read_openings(plan.top_k)
    hits = tuple(Hit(passage, 1.0, {"opening": 1.0, "relevance": 1.0}) for passage in passages)
    return Retrieval(plan, hits, Gate(1.0 if hits else 0.0, threshold), whole=True)


@dataclass(frozen=True, slots=True)
class _ScopedSearch:
    """One question that can be asked inside of some documents, and of all of its scope."""

    whole_plan: Plan
    narrow_plan: Plan
    whole_store: PassageStore
    narrow_store: PassageStore
    search: Search
    reranked: bool = True

    def search_inside(self, *, reranked: bool = True, **changes: Any) -> Retrieval:
        """What those documents hold, with these changes of the plan."""
        reranked = reranked and self.reranked
        return self.search(
            replace(self.narrow_plan, **changes), self.narrow_store, reranked=reranked
        )

    def search_everywhere(self, *, reranked: bool = True, **changes: Any) -> Retrieval:
        """What all of them hold."""
        reranked = reranked and self.reranked
        return self.search(replace(self.whole_plan, **changes), self.whole_store, reranked=reranked)


def search_named_documents(
    plan: Plan, store: PassageStore, search: Search, *, reranked: bool = True
) -> Retrieval:
    """Search within the documents that the question names; all without a name, or nothing there.

    Within a document all passages bear its name: it would only drown the rest of the question. So
    the rest is asked inside, unless it is found outside and not, or far less, inside. The plan that
    comes back tells the whole scope and question, and the filters in force.
    """
    if plan.question_type is QuestionType.SMALLTALK or not plan.scope.document_ids:
        return search(plan, store, reranked=reranked)
    name_filter = filters.find_filter(plan.standalone_query, store)
    if name_filter is None:
        return search(plan, store, reranked=reranked)
    ids = tuple(pk for pk in plan.scope.document_ids if pk in name_filter.document_ids)
    scope = Scope(ids, ScopeReason.EXPLICIT)  # as if the user had chosen them
    needs_each = name_filter.several or (plan.needs_multi_doc and len(ids) > 1)
    narrow_plan = replace(plan, scope=scope, needs_multi_doc=needs_each)
    scoped = _ScopedSearch(
        plan, narrow_plan, store, store.within(name_filter.document_ids), search, reranked
    )
    has_subject = tokenize.find_subject_terms(name_filter.rest) or is_whole_question(
        name_filter.rest, scope
    )
    rest = name_filter.rest if has_subject else plan.standalone_query
    retrieval, is_filtered = scoped.search_inside(standalone_query=rest), True
    if _is_bare_comparison(plan, name_filter):
        retrieval = read_document_openings(
            narrow_plan, scoped.narrow_store, retrieval.gate.threshold
        )
    else:
        retrieval, is_filtered = _choose_retrieval(scoped, name_filter, rest, retrieval)
    if not is_filtered:
        return replace(retrieval, plan=plan, dropped_filters=name_filter.values)
    needs_each = retrieval.plan.needs_multi_doc
    plan = replace(plan, filters=name_filter.values, needs_multi_doc=needs_each)
    return replace(retrieval, plan=plan, named_documents=ids)


def _choose_retrieval(
    scoped: _ScopedSearch, name_filter: NameFilter, rest: str, inside: Retrieval
) -> tuple[Retrieval, bool]:
    """What the documents named hold, or what all of them do; and whether it is the former."""
    if inside.gate.score >= SURE_NAMED_SCORE:
        return inside, True
    margin = 0.0
    if inside.hits:  # a document named by its own name is rarely not meant
        margin = (
            OWN_NAME_MARGIN
            if name_filter.certain
            else ISSUER_MARGIN
            if _is_relevant(inside)
            else 0.0
        )
    elsewhere = scoped.search_everywhere(standalone_query=rest, reranked=False)
    if _is_relevant(elsewhere) and elsewhere.gate.score > inside.gate.score + margin:
        return scoped.search_everywhere(), False
    if _is_relevant(inside):
        return inside, True
    if _is_relevant(by_question := scoped.search_inside()):
        return by_question, True
    outside = scoped.search_everywhere()
    is_dropped = _is_relevant(outside) or not inside.hits
    return (outside, False) if is_dropped else (inside, True)


def _is_bare_comparison(plan: Plan, name_filter: NameFilter) -> bool:
    """Whether documents are to be compared, and nothing is said of in what."""
    is_comparison = plan.question_type is QuestionType.COMPARE and name_filter.several
    return (
        is_comparison and not tokenize.find_subject_terms(name_filter.rest) - load_comparing_terms()
    )


def _is_relevant(retrieval: Retrieval) -> bool:
    return retrieval.gate.relevant and bool(retrieval.hits)


def search_remembered_documents(
    plan: Plan, store: PassageStore, analysis: QuestionAnalysis, search: Search
) -> Retrieval:
    """Search within the remembered documents of the plan's scope, or all of it.

    The plan that comes back tells the scope that was searched (reason FOLLOWUP within the
    remembered ones); `widened` says that a follow-up was answered from outside.
    """
    scope, memory = plan.scope, analysis.memory
    allowed_ids = set(scope.document_ids if memory.document_ids else ())
    remembered_ids = tuple(key for key in memory.document_ids if key in allowed_ids)
    if not remembered_ids or scope.reason in (ScopeReason.EXPLICIT, ScopeReason.SLOT):
        return search(plan, store)
    if analysis.follows and analysis.topic not in (Topic.WIDER, Topic.ALL):
        titles = tuple(item.title for item in memory.documents if item.document_id in allowed_ids)
        if family := filters.find_siblings(analysis.text, titles, store):
            remembered_ids = tuple(key for key in family if key in allowed_ids) or remembered_ids
        return _search_followup(_scope_to_remembered(plan, store, remembered_ids, search), analysis)
    everywhere = search(plan, store)
    is_undecided = analysis.by == "rules" and analysis.certainty <= MAX_OPEN_CERTAINTY
    is_decided = analysis.follows or not is_undecided or analysis.topic is not Topic.AUTO
    if is_decided or not everywhere.hits or _is_best_outside(everywhere, remembered_ids):
        return everywhere
    # a follow-up after all: a remembered document holds it best
    is_single = plan.question_type is QuestionType.SINGLE
    kind = QuestionType.FOLLOWUP if is_single else plan.question_type
    plan = replace(plan, question_type=kind, follows=True)
    return _scope_to_remembered(plan, store, remembered_ids, search).search_inside()


def _search_followup(scoped: _ScopedSearch, analysis: QuestionAnalysis) -> Retrieval:
    """Inside, unless what is asked is named or found outside, and not, or far less, inside."""
    if analysis.topic is Topic.SAME or analysis.by == "simple":
        return scoped.search_inside()
    remembered_ids = scoped.narrow_plan.scope.document_ids
    if _is_naming_others(analysis.text, scoped.whole_store, remembered_ids):
        return replace(scoped.search_everywhere(), widened=True)
    if (outside := _find_elsewhere(scoped, analysis)) is not None:
        return replace(outside, widened=True)
    inside = scoped.search_inside()
    sure_score = (
        inside.gate.threshold if analysis.certainty >= CERTAIN_FOLLOWUP else SURE_FOLLOWED_SCORE
    )
    if inside.hits and inside.gate.score >= sure_score:
        return inside
    outside = None if _is_relevant(inside) else _find_by_own_words(scoped, analysis)
    if outside is None:
        probe = scoped.search_everywhere(top_k=PROBE_DEPTH, needs_multi_doc=False, reranked=False)
        if not probe.hits or {hit.passage.document_id for hit in probe.hits} & set(remembered_ids):
            return inside
        outside = scoped.search_everywhere()
    return replace(outside, widened=True)


def _scope_to_remembered(
    plan: Plan, store: PassageStore, remembered_ids: tuple[UUID, ...], search: Search
) -> _ScopedSearch:
    is_multi = plan.needs_multi_doc and len(remembered_ids) > 1
    scope = Scope(remembered_ids, ScopeReason.FOLLOWUP)
    narrow_plan = replace(plan, scope=scope, needs_multi_doc=is_multi)
    return _ScopedSearch(plan, narrow_plan, store, store.within(remembered_ids), search)


def _find_elsewhere(scoped: _ScopedSearch, analysis: QuestionAnalysis) -> Retrieval | None:
    """What is found outside by the question's own words, where they say nothing inside."""
    text = analysis.text
    terms = tokenize.find_subject_terms(text)
    is_telling = len(terms) >= MIN_TELLING_TERMS and followup.find_naming_nouns(text)
    if analysis.certainty >= CERTAIN_FOLLOWUP or not is_telling:
        return None
    changes = _ask_alone(text)
    inside = scoped.search_inside(**changes, reranked=False)
    if inside.gate.relevant:
        return None
    outside = scoped.search_everywhere(**changes)
    is_likelier = _to_odds(outside.gate.score) >= MIN_ODDS_RATIO * _to_odds(inside.gate.score)
    remembered_ids = scoped.narrow_plan.scope.document_ids
    is_better = (
        is_likelier
        and outside.gate.score >= FAINT_SCORE
        and _is_best_outside(outside, remembered_ids)
    )
    return replace(outside, plan=replace(outside.plan, follows=True)) if is_better else None


def _find_by_own_words(scoped: _ScopedSearch, analysis: QuestionAnalysis) -> Retrieval | None:
    """What is found outside by a word that no passage inside holds: even a single one tells then.

    In a small library some remembered passage is always among the best, whatever is asked. A mere
    fragment ("밤에는?") and a sentence that points back ("who designed it") tell nothing.
    """
    text, message = analysis.text, read_message(analysis.text)
    is_telling = followup.is_sentence(message) and not followup.is_pointing_back(message)
    if not is_telling or not followup.find_naming_nouns(text):
        return None
    changes = _ask_alone(text)
    inside = scoped.search_inside(**changes, reranked=False)
    if any(hit.scores.get("coverage") for hit in inside.hits):
        return None
    outside = scoped.search_everywhere(**changes)
    is_better = _is_relevant(outside) and _is_best_outside(
        outside, scoped.narrow_plan.scope.document_ids
    )
    return replace(outside, plan=replace(outside.plan, follows=True)) if is_better else None


def _ask_alone(text: str) -> dict[str, Any]:
    """The changes of a plan that ask a text without the conversation."""
    return {"standalone_query": text, "context": {}, "background_weight": 0.0, "follows": False}


def _is_naming_others(text: str, store: PassageStore, remembered_ids: Sequence[UUID]) -> bool:
    """True when the question names a document that is not remembered."""
    name_filter = filters.find_filter(text, store)
    return (
        name_filter is not None
        and name_filter.certain
        and not name_filter.document_ids <= set(remembered_ids)
    )


def _is_best_outside(retrieval: Retrieval, remembered_ids: Sequence[UUID]) -> bool:
    """True when the best of all is in none of the remembered documents."""
    return bool(retrieval.hits) and retrieval.hits[0].passage.document_id not in remembered_ids


def _to_odds(score: float) -> float:
    return score / max(1 - score, 1e-9)

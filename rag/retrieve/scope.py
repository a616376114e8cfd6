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
from rag.understand.filters import Filter
from rag.understand.kinds import is_whole_question, load_comparing_terms, read_message

MAX_HEARD_DOCUMENTS = 8
"""In scopes of more documents nobody expects each of them to be heard."""
SURE_NAMED_SCORE = 0.8
"""From that score of the gate on, nobody looks outside of the documents named."""
OWN_NAME_MARGIN, ISSUER_MARGIN = 0.6, 0.2
"""How much more the gate must give to the rest of the question outside of a filter."""
SURE_FOLLOWED_SCORE = 0.97
"""From that score of the gate on, nobody looks outside: among few documents it is easily high."""
FAINT_SCORE = 0.15
"""The score of the gate below which nothing is found outside."""
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

    def __call__(self, made: Plan, store: PassageStore, *, reranked: bool = True) -> Retrieval:
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


def read_document_openings(made: Plan, store: PassageStore, threshold: float) -> Retrieval:
    """A question on whole documents: the first passages of each answer it, in their own order."""
    passages = store.read_openings(made.top_k)
    hits = tuple(Hit(passage, 1.0, {"opening": 1.0, "relevance": 1.0}) for passage in passages)
    return Retrieval(made, hits, Gate(1.0 if hits else 0.0, threshold), whole=True)


@dataclass(frozen=True, slots=True)
class _ScopedSearch:
    """One question that can be asked inside of some documents, and of all of its scope."""

    whole: Plan
    narrow: Plan
    store: PassageStore
    within: PassageStore
    search: Search
    reranked: bool = True

    def search_inside(self, *, reranked: bool = True, **changes: Any) -> Retrieval:
        """What those documents hold, with these changes of the plan."""
        reranked = reranked and self.reranked
        return self.search(replace(self.narrow, **changes), self.within, reranked=reranked)

    def search_everywhere(self, *, reranked: bool = True, **changes: Any) -> Retrieval:
        """What all of them hold."""
        reranked = reranked and self.reranked
        return self.search(replace(self.whole, **changes), self.store, reranked=reranked)


def search_named_documents(
    made: Plan, store: PassageStore, search: Search, *, reranked: bool = True
) -> Retrieval:
    """Search within the documents that the question names; all without a name, or nothing there.

    Within a document all passages bear its name: it would only drown the rest of the question. So
    the rest is asked inside, unless it is found outside and not, or far less, inside. The plan that
    comes back tells the whole scope and question, and the filters in force.
    """
    if made.question_type is QuestionType.SMALLTALK or not made.scope.document_ids:
        return search(made, store, reranked=reranked)
    found = filters.find_filter(made.standalone_query, store)
    if found is None:
        return search(made, store, reranked=reranked)
    ids = tuple(pk for pk in made.scope.document_ids if pk in found.document_ids)
    scope = Scope(ids, ScopeReason.EXPLICIT)  # as if the user had chosen them
    each = found.several or (made.needs_multi_doc and len(ids) > 1)
    narrow = replace(made, scope=scope, needs_multi_doc=each)
    scoped = _ScopedSearch(made, narrow, store, store.within(found.document_ids), search, reranked)
    asks = tokenize.find_subject_terms(found.rest) or is_whole_question(found.rest, scope)
    rest = found.rest if asks else made.standalone_query
    answer, filtered = scoped.search_inside(standalone_query=rest), True
    if _is_bare_comparison(made, found):
        answer = read_document_openings(narrow, scoped.within, answer.gate.threshold)
    else:
        answer, filtered = _choose_retrieval(scoped, found, rest, answer)
    if not filtered:
        return replace(answer, plan=made, dropped_filters=found.values)
    each = answer.plan.needs_multi_doc
    plan = replace(made, filters=found.values, needs_multi_doc=each)
    return replace(answer, plan=plan, named=ids)


def _choose_retrieval(
    scoped: _ScopedSearch, found: Filter, rest: str, inside: Retrieval
) -> tuple[Retrieval, bool]:
    """What the documents named hold, or what all of them do; and whether it is the former."""
    if inside.gate.score >= SURE_NAMED_SCORE:
        return inside, True
    margin = 0.0
    if inside.hits:  # a document named by its own name is rarely not meant
        margin = (
            OWN_NAME_MARGIN if found.certain else ISSUER_MARGIN if _is_relevant(inside) else 0.0
        )
    beyond = scoped.search_everywhere(standalone_query=rest, reranked=False)
    if _is_relevant(beyond) and beyond.gate.score > inside.gate.score + margin:
        return scoped.search_everywhere(), False
    if _is_relevant(inside):
        return inside, True
    if _is_relevant(whole := scoped.search_inside()):
        return whole, True
    outside = scoped.search_everywhere()
    dropped = _is_relevant(outside) or not inside.hits
    return (outside, False) if dropped else (inside, True)


def _is_bare_comparison(made: Plan, found: Filter) -> bool:
    """Whether documents are to be compared, and nothing is said of in what."""
    compared = made.question_type is QuestionType.COMPARE and found.several
    return compared and not tokenize.find_subject_terms(found.rest) - load_comparing_terms()


def _is_relevant(found: Retrieval) -> bool:
    return found.gate.relevant and bool(found.hits)


def search_remembered_documents(
    made: Plan, store: PassageStore, analysis: QuestionAnalysis, search: Search
) -> Retrieval:
    """Search within the remembered documents of the plan's scope, or all of it.

    The plan that comes back tells the scope that was searched (reason FOLLOWUP within the
    remembered ones); `widened` says that a follow-up was answered from outside.
    """
    scope, memory = made.scope, analysis.memory
    allowed = set(scope.document_ids if memory.document_ids else ())
    remembered = tuple(key for key in memory.document_ids if key in allowed)
    if not remembered or scope.reason in (ScopeReason.EXPLICIT, ScopeReason.SLOT):
        return search(made, store)
    if analysis.follows and analysis.topic not in (Topic.WIDER, Topic.ALL):
        titles = tuple(item.title for item in memory.documents if item.document_id in allowed)
        if family := filters.find_siblings(analysis.text, titles, store):
            remembered = tuple(key for key in family if key in allowed) or remembered
        return _search_followup(_scope_to_remembered(made, store, remembered, search), analysis)
    whole = search(made, store)
    undecided = analysis.by == "rules" and analysis.certainty <= MAX_OPEN_CERTAINTY
    told = analysis.follows or not undecided or analysis.topic is not Topic.AUTO
    if told or not whole.hits or _is_best_outside(whole, remembered):
        return whole
    # a follow-up after all: a remembered document holds it best
    single = made.question_type is QuestionType.SINGLE
    kind = QuestionType.FOLLOWUP if single else made.question_type
    made = replace(made, question_type=kind, follows=True)
    return _scope_to_remembered(made, store, remembered, search).search_inside()


def _search_followup(scoped: _ScopedSearch, analysis: QuestionAnalysis) -> Retrieval:
    """Inside, unless what is asked is named or found outside, and not, or far less, inside."""
    if analysis.topic is Topic.SAME or analysis.by == "simple":
        return scoped.search_inside()
    remembered = scoped.narrow.scope.document_ids
    if _is_naming_others(analysis.text, scoped.store, remembered):
        return replace(scoped.search_everywhere(), widened=True)
    if (other := _find_elsewhere(scoped, analysis)) is not None:
        return replace(other, widened=True)
    inside = scoped.search_inside()
    sure = inside.gate.threshold if analysis.certainty >= CERTAIN_FOLLOWUP else SURE_FOLLOWED_SCORE
    if inside.hits and inside.gate.score >= sure:
        return inside
    other = None if _is_relevant(inside) else _find_by_own_words(scoped, analysis)
    if other is None:
        probe = scoped.search_everywhere(top_k=PROBE_DEPTH, needs_multi_doc=False, reranked=False)
        if not probe.hits or {hit.passage.document_id for hit in probe.hits} & set(remembered):
            return inside
        other = scoped.search_everywhere()
    return replace(other, widened=True)


def _scope_to_remembered(
    made: Plan, store: PassageStore, remembered: tuple[UUID, ...], search: Search
) -> _ScopedSearch:
    several = made.needs_multi_doc and len(remembered) > 1
    scope = Scope(remembered, ScopeReason.FOLLOWUP)
    narrow = replace(made, scope=scope, needs_multi_doc=several)
    return _ScopedSearch(made, narrow, store, store.within(remembered), search)


def _find_elsewhere(scoped: _ScopedSearch, analysis: QuestionAnalysis) -> Retrieval | None:
    """What is found outside by the question's own words, where they say nothing inside."""
    own = analysis.text
    terms = tokenize.find_subject_terms(own)
    tells = len(terms) >= MIN_TELLING_TERMS and followup.find_naming_nouns(own)
    if analysis.certainty >= CERTAIN_FOLLOWUP or not tells:
        return None
    alone = _ask_alone(own)
    inside = scoped.search_inside(**alone, reranked=False)
    if inside.gate.relevant:
        return None
    whole = scoped.search_everywhere(**alone)
    likelier = _to_odds(whole.gate.score) >= MIN_ODDS_RATIO * _to_odds(inside.gate.score)
    remembered = scoped.narrow.scope.document_ids
    better = likelier and whole.gate.score >= FAINT_SCORE and _is_best_outside(whole, remembered)
    return replace(whole, plan=replace(whole.plan, follows=True)) if better else None


def _find_by_own_words(scoped: _ScopedSearch, analysis: QuestionAnalysis) -> Retrieval | None:
    """What is found outside by a word that no passage inside holds: even a single one tells then.

    In a small library some remembered passage is always among the best, whatever is asked. A mere
    fragment ("밤에는?") and a sentence that points back ("who designed it") tell nothing.
    """
    own, said = analysis.text, read_message(analysis.text)
    tells = followup.is_sentence(said) and not followup.is_pointing_back(said)
    if not tells or not followup.find_naming_nouns(own):
        return None
    alone = _ask_alone(own)
    inside = scoped.search_inside(**alone, reranked=False)
    if any(hit.scores.get("coverage") for hit in inside.hits):
        return None
    whole = scoped.search_everywhere(**alone)
    answers = _is_relevant(whole) and _is_best_outside(whole, scoped.narrow.scope.document_ids)
    return replace(whole, plan=replace(whole.plan, follows=True)) if answers else None


def _ask_alone(text: str) -> dict[str, Any]:
    """The changes of a plan that ask a text without the conversation."""
    return {"standalone_query": text, "context": {}, "background_weight": 0.0, "follows": False}


def _is_naming_others(text: str, store: PassageStore, remembered: Sequence[UUID]) -> bool:
    """True when the question names a document that is not remembered."""
    found = filters.find_filter(text, store)
    return found is not None and found.certain and not found.document_ids <= set(remembered)


def _is_best_outside(whole: Retrieval, remembered: Sequence[UUID]) -> bool:
    """True when the best of all is in none of the remembered documents."""
    return bool(whole.hits) and whole.hits[0].passage.document_id not in remembered


def _to_odds(score: float) -> float:
    return score / max(1 - score, 1e-9)

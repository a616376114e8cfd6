"""One search: its plan, the documents searched, candidates, their order, the relevance gate.

The gate decides whether the documents have anything on the question. It uses two logistic functions
fitted on question sets (docs/notes/retrieval-measurements.md). The lexical one looks at the share
of the highest possible score and at how many terms a single passage contains; the dense one at
coverage and closeness, weighted by how well the embedder knows the language. Both take into account
whether the message has the form of a look-up.
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from rag.config import RagConfig
from rag.ports import Embedder, PassageStore, Reranker
from rag.retrieve import scope
from rag.retrieve.candidates import (
    MAX_LEG_CANDIDATES,
    MIN_KNOWN_SHARE,
    Candidates,
    Lookups,
    QuestionEmbedder,
    order_candidates,
    rerank_candidates,
)
from rag.tokenize.text import estimate_dense_weight
from rag.types import Gate, Hit, Plan, QuestionType, Retrieval, Scope, ScopeReason, StrategyName
from rag.understand import kinds
from rag.understand.analysis import QuestionAnalysis
from rag.understand.kinds import INTENT_TEMPLATES, is_whole_question

LEXICAL_BIAS = 0.6
SHARE_WEIGHT = 6.4
MATCHED_TERMS_WEIGHT = 3.35
MAX_MATCHED_TERMS = 12
"""Number of matching terms above which more add nothing."""
SHARE_FLOOR = 0.02
"""Added to the share before its logarithm: shares well below this count as none."""

DENSE_BIAS = -6.1
COVERAGE_WEIGHT = 6.0
CLOSENESS_WEIGHT = 10.8

STATEMENT_LOGIT = -2.5
SPEAKERS_LOGIT = -0.6

CHOSEN_LOGIT = 0.6
"""Added if the user chose the documents: the question is likely about them."""
REFERENCED_LOGIT = 3.0
"""Added if the question refers to a document of an earlier answer."""
FEWNESS_LOGIT = 1.5
"""Added if there are few documents, so that a chance match is rare; fades with their number."""
FEW_DOCUMENTS = 3


@dataclass(frozen=True, slots=True)
class Prior:
    """What the gate knows about a question before it sees any passage.

    `terms` is the number of its lexical terms. `fewness` is 1 if there are few documents and falls
    towards 0 as their number grows. `context_share` is the share (0..1) of a follow-up that comes
    from the conversation, which the remembered documents contain anyway. `context_weight` is the
    weight of the conversation's terms relative to the question's own (1: equal).
    """

    terms: int
    is_lookup: bool
    is_about_speakers: bool
    dense_weight: float
    is_chosen: bool
    fewness: float
    is_referenced: bool = False
    context_share: float = 0.0
    context_weight: float = 0.0

    @classmethod
    def from_text(
        cls,
        text: str,
        *,
        terms: int,
        dense_weight: float,
        scope: Scope,
        context_weight: float = 0.0,
    ) -> "Prior":
        """Determines the form of the message; the other fields as described above."""
        is_followup = scope.reason is ScopeReason.FOLLOWUP
        return cls(
            terms=terms,
            is_lookup=kinds.is_lookup(text),
            is_about_speakers=kinds.is_about_speakers(text),
            dense_weight=dense_weight,
            is_chosen=scope.reason is not ScopeReason.ALL,
            fewness=1 / max(1.0, len(scope.document_ids) / FEW_DOCUMENTS),
            is_referenced=scope.reason is ScopeReason.SLOT,
            context_share=context_weight / (1 + context_weight) if is_followup else 0.0,
            context_weight=context_weight,
        )

    @property
    def logit(self) -> float:
        """The contribution of the message's form and the choice of documents."""
        form_logit = (
            0.0 if self.is_lookup else STATEMENT_LOGIT
        ) + SPEAKERS_LOGIT * self.is_about_speakers
        choice_logit = (
            REFERENCED_LOGIT if self.is_referenced else CHOSEN_LOGIT if self.is_chosen else 0.0
        )
        return form_logit + max(choice_logit, FEWNESS_LOGIT * self.fewness)


@dataclass(frozen=True, slots=True)
class Signals:
    """The highest share, coverage and closeness among some hits, 0..1; not always of one hit."""

    share: float
    coverage: float
    closeness: float

    @classmethod
    def from_hits(cls, hits: Iterable[Hit]) -> "Signals":
        """The signals of these hits."""
        scores = [hit.scores for hit in hits]
        closenesses = (
            hit_scores.get("closeness", hit_scores.get("similarity", 0.0)) for hit_scores in scores
        )
        return cls(
            share=max((hit_scores.get("share", 0.0) for hit_scores in scores), default=0.0),
            coverage=max((hit_scores.get("coverage", 0.0) for hit_scores in scores), default=0.0),
            closeness=max(closenesses, default=0.0),
        )


def score_relevance(prior: Prior, hit: Hit) -> float:
    """Calibrated relevance of one hit, 0..1."""
    return estimate_probability(prior, Signals.from_hits([hit]))


def score_gate(prior: Prior, hits: Sequence[Hit]) -> float:
    """The gate's score over all candidates, 0..1."""
    return estimate_probability(prior, Signals.from_hits(hits))


def estimate_probability(prior: Prior, signals: Signals) -> float:
    """The probability that documents with these signals have something on the question.

    Stronger signals never lower it; none at all is 0.
    """
    if not signals.share and not signals.coverage and signals.closeness <= 0:
        return 0.0
    weight, lexical = prior.dense_weight, _compute_lexical_logit(prior, signals)
    closeness = CLOSENESS_WEIGHT * max(0.0, signals.closeness)
    dense = DENSE_BIAS + COVERAGE_WEIGHT * signals.coverage + closeness
    logit = (1 - weight) * lexical + weight * max(lexical, dense)
    return 1 / (1 + math.exp(-(logit + prior.logit)))


def _compute_lexical_logit(prior: Prior, signals: Signals) -> float:
    # With few passages, IDF says little, and terms that none contains would dominate the share.
    # Missing terms of the conversation must not count against the question itself.
    undiluted = min(1.0, signals.share * (1 + prior.context_weight))
    share = prior.fewness * signals.coverage + (1 - prior.fewness) * undiluted
    share = prior.context_share + (1 - prior.context_share) * share
    coverage = prior.context_share + (1 - prior.context_share) * signals.coverage
    matched_terms = min(coverage * prior.terms, MAX_MATCHED_TERMS)
    return (
        LEXICAL_BIAS
        + SHARE_WEIGHT * math.log(SHARE_FLOOR + share)
        + MATCHED_TERMS_WEIGHT * math.log1p(matched_terms)
    )


MIN_OWN_PASSAGES = 2
"""Passages found by the question's own words that come before any found by other words."""
_TOP_K_FACTORS = {QuestionType.MULTI: 1.5, QuestionType.COMPARE: 2.0}


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search. `top_k` None: the configured value, adapted to the question."""

    strategy: StrategyName = StrategyName.AUTO
    top_k: int | None = None
    rerank: bool = True
    filters: Mapping[str, str] | None = None


DEFAULT_OPTIONS = SearchOptions()


def make_plan(
    analysis: QuestionAnalysis, options: SearchOptions, *, usual_k: int, depth: int = 0
) -> Plan:
    """The plan of a question.

    The strategy is fusion unless the caller names another one: it was never worse than one leg.
    Questions about several documents, or whose intent needs more, get more passages than usual,
    unless `top_k` is given.
    """
    kind = analysis.question_type
    template = INTENT_TEMPLATES[analysis.intent]
    factor = max(_TOP_K_FACTORS.get(kind, 1.0), template.passages)
    top_k = round(usual_k * factor) if options.top_k is None else options.top_k
    is_multi = kind in _TOP_K_FACTORS or template.is_multi_document
    strategy = StrategyName.RRF if options.strategy is StrategyName.AUTO else options.strategy
    # If documents are remembered, search by the question's own words: names carried over from the
    # conversation would confine the search to those documents.
    own_words = analysis.own_words if analysis.memory.documents else ""
    return Plan(
        question_type=kind,
        strategy=strategy,
        top_k=top_k,
        needs_multi_doc=is_multi and len(analysis.scope.document_ids) > 1,
        standalone_query=own_words or analysis.standalone,
        completed=analysis.standalone,
        scope=analysis.scope,
        depth=depth,
        filters=dict(options.filters or {}),
        follows=analysis.follows,
        context=analysis.context,
        search_terms=analysis.search_terms,
        own_words=analysis.own_words,
        background=analysis.background,
        background_weight=analysis.background_weight,
    )


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches with one configuration. Thread-safe."""

    config: RagConfig
    embedder: Embedder
    reranker: Reranker | None = None

    def knows_language(self, query: str) -> bool:
        """True when the embedder knows the language well enough for its cosine to be shown."""
        return estimate_dense_weight(query, self.embedder.languages) >= MIN_KNOWN_SHARE

    def search(
        self,
        analysis: QuestionAnalysis,
        store: PassageStore,
        options: SearchOptions = DEFAULT_OPTIONS,
        *,
        depth: int = 0,
    ) -> Retrieval:
        """Search the store; an empty scope finds nothing.

        Returns at most `plan.top_k` hits, or `depth` if that is more. If the embedder fails, the
        search uses words only and sets `error_code`. Raises `EngineUnavailable` and whatever the
        store raises.
        """
        started = time.perf_counter()
        plan = make_plan(analysis, options, usual_k=self.config.top_k, depth=depth)
        question_search = _QuestionSearch(self, QuestionEmbedder(self.embedder), options)
        retrieval = scope.search_remembered_documents(
            plan, store, analysis, question_search.search_named_documents
        )
        raw_timings = question_search.timings_ms | {"total": (time.perf_counter() - started) * 1000}
        timings = {step: round(milliseconds, 2) for step, milliseconds in raw_timings.items()}
        return replace(
            retrieval, timings_ms=timings, error_code=question_search.embedder.error_code
        )


@dataclass(frozen=True, slots=True)
class _QuestionSearch:
    """All searches for one question; `timings_ms` adds up their times."""

    searcher: Searcher
    embedder: QuestionEmbedder
    options: SearchOptions
    timings_ms: dict[str, float] = field(default_factory=dict)
    _retrievals: list[tuple[Plan, bool, Retrieval]] = field(default_factory=list)
    _lookups: Lookups = field(default_factory=dict)

    def search_named_documents(
        self, plan: Plan, store: PassageStore, *, reranked: bool = True
    ) -> Retrieval:
        """Searches the documents that the question names, unless the caller set filters."""
        if self.options.filters is not None:
            return self.search_once(plan, store, reranked=reranked)
        return scope.search_named_documents(plan, store, self.search_once, reranked=reranked)

    def search_once(self, plan: Plan, store: PassageStore, *, reranked: bool = True) -> Retrieval:
        """Searches the whole store, which holds the documents of the plan's scope.

        A plan that comes up again is not searched again.
        """
        reranked = reranked and self.options.rerank and self.searcher.reranker is not None
        for searched_plan, was_reranked, retrieval in self._retrievals:
            if replace(searched_plan, follows=plan.follows) == plan and was_reranked >= reranked:
                return replace(retrieval, plan=plan)
        retrieval = self._search_anew(plan, store, reranked=reranked)
        self._retrievals.append((plan, reranked, retrieval))
        return retrieval

    def _search_anew(self, plan: Plan, store: PassageStore, *, reranked: bool) -> Retrieval:
        config = self.searcher.config
        if not plan.scope.document_ids:
            return Retrieval(plan, (), Gate(0.0, config.gate_threshold))
        if is_whole_question(plan.standalone_query, plan.scope):
            return scope.read_document_openings(plan, store, config.gate_threshold)
        limit = max(plan.top_k, plan.depth)
        unrelated = config.embedding_unrelated or 0.0
        candidates = Candidates(
            plan,
            store,
            self.embedder,
            unrelated,
            max(MAX_LEG_CANDIDATES, limit),
            self._lookups,
            self.timings_ms,
        )
        if self.options.rerank:
            hits = rerank_candidates(
                candidates, config, self.searcher.reranker if reranked else None
            )
        else:
            hits = order_candidates(candidates, config)
        if plan.needs_multi_doc:
            hits = add_missing_documents(
                hits, store, candidates.query_terms, plan.scope.document_ids
            )
            hits = spread_documents(hits, limit)
        # no more than `limit`: each of them takes a place, or has one already
        hits = _insert_reworded(hits, candidates.find_reworded(limit))[:limit]
        prior = Prior.from_text(
            plan.standalone_query,
            terms=sum(weight >= 1 for weight in candidates.query_terms.values()),
            dense_weight=candidates.language_weight,
            scope=plan.scope,
            context_weight=plan.background_weight,
        )
        is_smalltalk = plan.question_type is QuestionType.SMALLTALK
        score = (
            0.0
            if is_smalltalk
            else score_gate(prior, [*candidates.lexical_hits, *candidates.dense_hits])
        )
        scored = (
            replace(hit, scores={**hit.scores, "relevance": score_relevance(prior, hit)})
            for hit in hits
        )
        return Retrieval(plan, tuple(scored), Gate(score, config.gate_threshold))


def add_missing_documents(
    hits: Sequence[Hit], store: PassageStore, terms: Mapping[str, float], documents: Sequence[UUID]
) -> list[Hit]:
    """The hits, followed by the best passage of each document that has none among them.

    A document without any word of the question adds nothing.
    """
    if len(documents) > scope.MAX_SEPARATE_DOCUMENTS:
        return list(hits)
    covered = {hit.passage.document_id for hit in hits}
    missing = [document for document in documents if document not in covered]
    return [
        *hits,
        *(hit for document in missing for hit in store.within([document]).find_by_terms(terms, 1)),
    ]


def spread_documents(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """Selects `limit` hits, best first.

    Half the places are filled from the documents in turn, the rest with the best remaining hits.
    """
    turns: Counter[UUID] = Counter()
    by_turns = []
    for place, hit in enumerate(hits):
        by_turns.append((turns[hit.passage.document_id], place))
        turns[hit.passage.document_id] += 1
    chosen = {place for _, place in sorted(by_turns)[: max(2, limit // 2)]}
    rest = [place for place in range(len(hits)) if place not in chosen]
    places = chosen | set(rest[: max(0, limit - len(chosen))])
    return [hits[place] for place in sorted(places)][:limit]


def _insert_reworded(hits: Sequence[Hit], reworded: Sequence[Hit]) -> Sequence[Hit]:
    """The hits, with hits found by other words interleaved after the first ones.

    The question's own words decide what comes first, as other words for them are a guess.
    """
    if not reworded:
        return hits
    hits_by_key = {hit.passage.key: hit for hit in hits}
    ordered = {hit.passage.key: hit for hit in hits[:MIN_OWN_PASSAGES]}
    for own, other in itertools.zip_longest(hits[MIN_OWN_PASSAGES:], reworded):
        for hit in (other, own):
            if hit is not None:
                ordered.setdefault(hit.passage.key, hits_by_key.get(hit.passage.key, hit))
    return list(ordered.values())

"""One search: its plan, where it is asked, candidates, their order, the relevance gate.

The gate tells whether the documents hold something on the question: two logistic functions, fitted
on question sets (docs/notes/retrieval-measurements.md). The lexical one reads how much of its
highest score the question reaches and how many of its terms one passage holds; the dense one reads
coverage and closeness, and may speak for the documents as far as the embedder knows the question's
language. For both counts whether the message has the form of a look-up.
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
HELD_TERMS_WEIGHT = 3.35
MAX_HELD_TERMS = 12
"""Number of matching terms above which more add nothing."""
FAINTEST_SHARE = 0.02
"""Shares well below this count as none."""

DENSE_BIAS = -6.1
COVERAGE_WEIGHT = 6.0
CLOSENESS_WEIGHT = 10.8

STATEMENT_LOGIT = -2.5
SPEAKERS_LOGIT = -0.6

CHOSEN_LOGIT = 0.6
"""Added if the user chose the documents: the question is likely about them."""
POINTED_LOGIT = 3.0
"""Added if the question refers to a document of an earlier answer."""
FEW_LOGIT = 1.5
"""Added if there are few documents, so that a chance match is rare; fades with their number."""
FEW_DOCUMENTS = 3


@dataclass(frozen=True, slots=True)
class Prior:
    """What the gate knows of a question before it sees any passage.

    `terms` is how many lexical terms it has, `few` 1 where there are few documents, falling to 0
    with their number. `told` is the share (0..1) of a follow-up that the conversation tells: the
    remembered documents hold that. `lacking` is what the terms of the conversation weigh in `share`
    beside the question's own (1: as much).
    """

    terms: int
    seeks: bool
    is_about_speakers: bool
    dense_weight: float
    chosen: bool
    few: float
    pointed: bool = False
    told: float = 0.0
    lacking: float = 0.0

    @classmethod
    def from_text(
        cls, text: str, *, terms: int, dense_weight: float, scope: Scope, lacking: float = 0.0
    ) -> "Prior":
        """Read the form of the message; see above for the rest."""
        inside = scope.reason is ScopeReason.FOLLOWUP
        return cls(
            terms=terms,
            seeks=kinds.is_lookup(text),
            is_about_speakers=kinds.is_about_speakers(text),
            dense_weight=dense_weight,
            chosen=scope.reason is not ScopeReason.ALL,
            few=1 / max(1.0, len(scope.document_ids) / FEW_DOCUMENTS),
            pointed=scope.reason is ScopeReason.SLOT,
            told=lacking / (1 + lacking) if inside else 0.0,
            lacking=lacking,
        )

    @property
    def logit(self) -> float:
        """What the form of the message and the choice of documents say."""
        form = (0.0 if self.seeks else STATEMENT_LOGIT) + SPEAKERS_LOGIT * self.is_about_speakers
        likely = POINTED_LOGIT if self.pointed else CHOSEN_LOGIT if self.chosen else 0.0
        return form + max(likely, FEW_LOGIT * self.few)


@dataclass(frozen=True, slots=True)
class Signals:
    """The best share, coverage and closeness of some hits, wherever they are; each 0..1."""

    share: float
    coverage: float
    closeness: float

    @classmethod
    def from_hits(cls, hits: Iterable[Hit]) -> "Signals":
        """What these hits say."""
        scores = [hit.scores for hit in hits]
        near = (found.get("closeness", found.get("similarity", 0.0)) for found in scores)
        return cls(
            share=max((found.get("share", 0.0) for found in scores), default=0.0),
            coverage=max((found.get("coverage", 0.0) for found in scores), default=0.0),
            closeness=max(near, default=0.0),
        )


def score_relevance(prior: Prior, hit: Hit) -> float:
    """Calibrated relevance of one hit, 0..1."""
    return estimate_probability(prior, Signals.from_hits([hit]))


def score_gate(prior: Prior, hits: Sequence[Hit]) -> float:
    """The gate's score over all candidates, 0..1."""
    return estimate_probability(prior, Signals.from_hits(hits))


def estimate_probability(prior: Prior, signals: Signals) -> float:
    """The probability that documents with these signals hold something on the question.

    Stronger signals never lower it; none at all is 0.
    """
    if not signals.share and not signals.coverage and signals.closeness <= 0:
        return 0.0
    weight, lexical = prior.dense_weight, _compute_lexical_logit(prior, signals)
    close = CLOSENESS_WEIGHT * max(0.0, signals.closeness)
    dense = DENSE_BIAS + COVERAGE_WEIGHT * signals.coverage + close
    logit = (1 - weight) * lexical + weight * max(lexical, dense)
    return 1 / (1 + math.exp(-(logit + prior.logit)))


def _compute_lexical_logit(prior: Prior, signals: Signals) -> float:
    # With few passages IDF says little, and terms that none of them holds take most of the share.
    # What no passage holds of the conversation says nothing against the question itself.
    undiluted = min(1.0, signals.share * (1 + prior.lacking))
    share = prior.few * signals.coverage + (1 - prior.few) * undiluted
    share = prior.told + (1 - prior.told) * share
    coverage = prior.told + (1 - prior.told) * signals.coverage
    held = min(coverage * prior.terms, MAX_HELD_TERMS)
    return (
        LEXICAL_BIAS
        + SHARE_WEIGHT * math.log(FAINTEST_SHARE + share)
        + HELD_TERMS_WEIGHT * math.log1p(held)
    )


MIN_OWN_PASSAGES = 2
"""So many passages that the question's own words find come before any that other words found."""
_WIDER = {QuestionType.MULTI: 1.5, QuestionType.COMPARE: 2.0}


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What a caller may ask of a search. `top_k` None: as configured and as the question needs."""

    strategy: StrategyName = StrategyName.AUTO
    top_k: int | None = None
    rerank: bool = True
    filters: Mapping[str, str] | None = None


DEFAULT_OPTIONS = SearchOptions()


def make_plan(
    analysis: QuestionAnalysis, options: SearchOptions, *, usual_k: int, depth: int = 0
) -> Plan:
    """The plan of a question.

    Fusion for every kind unless a strategy is named, because it was never worse than one leg.
    Questions over several documents, and those whose intent needs more, get more passages than
    usual, unless `top_k` is named.
    """
    kind = analysis.question_type
    template = INTENT_TEMPLATES[analysis.intent]
    wider = max(_WIDER.get(kind, 1.0), template.passages)
    wanted = round(usual_k * wider) if options.top_k is None else options.top_k
    is_multi = kind in _WIDER or template.is_multi_document
    strategy = StrategyName.RRF if options.strategy is StrategyName.AUTO else options.strategy
    # with documents to remember, a question in its own words: names carried over from the
    # conversation would keep a search beyond those documents inside of them
    own = analysis.own_words if analysis.memory.documents else ""
    return Plan(
        question_type=kind,
        strategy=strategy,
        top_k=wanted,
        needs_multi_doc=is_multi and len(analysis.scope.document_ids) > 1,
        standalone_query=own or analysis.standalone,
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

        At most `plan.top_k` hits, or `depth` where that is more.

        Where the embedder fails the words alone are searched, and `failed` tells its code. Raises
        `EngineUnavailable`, or what the store raises.
        """
        started = time.perf_counter()
        made = make_plan(analysis, options, usual_k=self.config.top_k, depth=depth)
        question_search = _QuestionSearch(self, QuestionEmbedder(self.embedder), options)
        found = scope.search_remembered_documents(
            made, store, analysis, question_search.search_named_documents
        )
        spent = question_search.timings_ms | {"total": (time.perf_counter() - started) * 1000}
        timings = {step: round(milliseconds, 2) for step, milliseconds in spent.items()}
        return replace(found, timings_ms=timings, failed=question_search.embedder.failed)


@dataclass(frozen=True, slots=True)
class _QuestionSearch:
    """The searches for one question, as many as its scope needs; the times are those of all."""

    searcher: Searcher
    embedder: QuestionEmbedder
    options: SearchOptions
    timings_ms: dict[str, float] = field(default_factory=dict)
    _found: list[tuple[Plan, bool, Retrieval]] = field(default_factory=list)
    _lookups: Lookups = field(default_factory=dict)

    def search_named_documents(
        self, made: Plan, store: PassageStore, *, reranked: bool = True
    ) -> Retrieval:
        """What a plan finds; within the documents that it names unless the caller set filters."""
        if self.options.filters is not None:
            return self.search_once(made, store, reranked=reranked)
        return scope.search_named_documents(made, store, self.search_once, reranked=reranked)

    def search_once(self, made: Plan, store: PassageStore, *, reranked: bool = True) -> Retrieval:
        """What a plan finds in all of the store, which holds the documents of the plan's scope.

        The same plan may come up more than once; it is searched once.
        """
        reranked = reranked and self.options.rerank and self.searcher.reranker is not None
        for plan, was_reranked, retrieval in self._found:
            if replace(plan, follows=made.follows) == made and was_reranked >= reranked:
                return replace(retrieval, plan=made)
        retrieval = self._search_anew(made, store, reranked=reranked)
        self._found.append((made, reranked, retrieval))
        return retrieval

    def _search_anew(self, made: Plan, store: PassageStore, *, reranked: bool) -> Retrieval:
        config = self.searcher.config
        if not made.scope.document_ids:
            return Retrieval(made, (), Gate(0.0, config.gate_threshold))
        if is_whole_question(made.standalone_query, made.scope):
            return scope.read_document_openings(made, store, config.gate_threshold)
        wanted = max(made.top_k, made.depth)
        unrelated = config.embedding_unrelated or 0.0
        candidates = Candidates(
            made,
            store,
            self.embedder,
            unrelated,
            max(MAX_LEG_CANDIDATES, wanted),
            self._lookups,
            self.timings_ms,
        )
        if self.options.rerank:
            hits = rerank_candidates(
                candidates, config, self.searcher.reranker if reranked else None
            )
        else:
            hits = order_candidates(candidates, config)
        if made.needs_multi_doc:
            hits = add_missing_documents(
                hits, store, candidates.query_terms, made.scope.document_ids
            )
            hits = spread_documents(hits, wanted)
        # no more than are wanted: each of them takes a place, or has one already
        hits = _insert_reworded(hits, candidates.find_reworded(wanted))[:wanted]
        prior = Prior.from_text(
            made.standalone_query,
            terms=sum(weight >= 1 for weight in candidates.query_terms.values()),
            dense_weight=candidates.language_weight,
            scope=made.scope,
            lacking=made.background_weight,
        )
        talk = made.question_type is QuestionType.SMALLTALK
        score = (
            0.0 if talk else score_gate(prior, [*candidates.lexical_hits, *candidates.dense_hits])
        )
        judged = (
            replace(hit, scores={**hit.scores, "relevance": score_relevance(prior, hit)})
            for hit in hits
        )
        return Retrieval(made, tuple(judged), Gate(score, config.gate_threshold))


def add_missing_documents(
    hits: Sequence[Hit], store: PassageStore, terms: Mapping[str, float], documents: Sequence[UUID]
) -> list[Hit]:
    """The hits, and behind them the best passage of each document that has none among them.

    A document that holds no word of the question adds nothing.
    """
    if len(documents) > scope.MAX_HEARD_DOCUMENTS:
        return list(hits)
    heard = {hit.passage.document_id for hit in hits}
    missing = [document for document in documents if document not in heard]
    return [*hits, *(hit for one in missing for hit in store.within([one]).find_by_terms(terms, 1))]


def spread_documents(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """The `limit` hits that are shown, best first.

    The documents fill half the places by turns; the best of what is left get the rest.
    """
    turns: Counter[UUID] = Counter()
    by_turns = []
    for place, hit in enumerate(hits):
        by_turns.append((turns[hit.passage.document_id], place))
        turns[hit.passage.document_id] += 1
    wanted = {place for _, place in sorted(by_turns)[: max(2, limit // 2)]}
    rest = [place for place in range(len(hits)) if place not in wanted]
    kept = wanted | set(rest[: max(0, limit - len(wanted))])
    return [hits[place] for place in sorted(kept)][:limit]


def _insert_reworded(hits: Sequence[Hit], reworded: Sequence[Hit]) -> Sequence[Hit]:
    """The hits, and behind the first ones by turns those that only other words found as good.

    The question's own words decide what comes first: other words for them are a guess.
    """
    if not reworded:
        return hits
    known = {hit.passage.key: hit for hit in hits}
    ordered = {hit.passage.key: hit for hit in hits[:MIN_OWN_PASSAGES]}
    for own, other in itertools.zip_longest(hits[MIN_OWN_PASSAGES:], reworded):
        for hit in (other, own):
            if hit is not None:
                ordered.setdefault(hit.passage.key, known.get(hit.passage.key, hit))
    return list(ordered.values())

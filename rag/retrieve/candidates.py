"""Candidates for a question and their order: lexical and dense search, strategies, reranking.

Each leg is searched once, and the gate looks at both. Fused candidates are rescored by figures
between 0 and 1 that mean the same for every question and can be added up, unlike ranks
(docs/notes/retrieval-measurements.md).
"""

import functools
import math
import re
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar, overload
from uuid import UUID

import structlog

from rag import tokenize
from rag.config import RagConfig
from rag.errors import EmbedderFailed, EngineUnavailable
from rag.ports import Embedder, PassageStore, Reranker
from rag.tokenize.text import estimate_dense_weight, to_prompt_text
from rag.types import Hit, Kind, Plan, ScopeReason, StrategyName

logger = structlog.get_logger()

MIN_KNOWN_SHARE = 0.3
"""Passages in a language that the embedder knows less than this get no vector."""
MAX_LEG_CANDIDATES = 30
"""Candidates of each leg for fusion."""
INSIDE_SHARE = 0.3
"""Factor for terms of the conversation when searching the documents that it is about.

All their passages are about what was said before, so the question must tell them apart.
"""
MAX_JUDGES = 10
"""Lexical candidates whose vectors show whether the embedder knows the documents' language."""
RANK_CONSTANT = 2
"""Far below the usual 60: with two legs of 30, a first place should count.

Measured in docs/notes/retrieval-measurements.md.
"""
MMR_SHARE = 0.2
"""Share of the dense leg's weight that goes to the MMR ranks."""
SENTENCE_WEIGHT = 0.4
"""Weight of the best sentence relative to the whole passage, if closeness does not count."""
CLOSENESS_WEIGHT = 1.5
"""Weight of closeness if the embedder knows all languages involved."""
MAX_SENTENCE_PASSAGES = 12
"""Passages whose sentences are scored; the others keep their places."""
POOL_FACTOR = 5
"""Passages that the reranker reads per passage wanted."""
MAX_CACHED_PASSAGES = 4096
"""Size of the caches of normalised passages; a few megabytes."""
_END = re.compile(r"[.!?。]\s|\n")
T = TypeVar("T")
Lookups = dict[Hashable, list[tuple[Sequence[UUID], Sequence[Hit]]]]
"""Earlier results by query, each with the documents that were searched."""


class Lazy(Generic[T]):
    """A property computed once, on first access.

    Before Python 3.12, `functools.cached_property` holds a lock that all instances share, so that
    every question of a process would wait for the searches of others.
    """

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """The name under which the instance stores the value, which then hides the property."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        """The value, computed on first access."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._work(instance)
        return value


@dataclass(slots=True)
class QuestionEmbedder:
    """Embeds the texts of one question, each only once, however often it is searched.

    After a failure, the embedder is not called again, so that nobody waits twice; `error_code` is
    the code of the failure.
    """

    embedder: Embedder
    error_code: str = ""
    _vectors: dict[str, Sequence[float]] = field(default_factory=dict)

    def estimate_language_knowledge(self, text: str) -> float:
        """How well the embedder knows the text's language, 0..1."""
        return estimate_dense_weight(text, self.embedder.languages)

    def embed(self, text: str) -> Sequence[float]:
        """The vector of a text; empty after a failure."""
        if text not in self._vectors and not self.error_code:
            try:
                self._vectors[text] = self.embedder.embed_query(text)
            except EmbedderFailed as error:
                logger.warning("question_not_embedded", code=error.code, exc_info=error)
                self.error_code = error.code
        return () if self.error_code else self._vectors[text]


@dataclass(eq=False)
class Candidates:
    """Lexical and dense candidates of a plan, found on demand; no dense ones if embedding fails.

    `unrelated` is the embedder's cosine of texts that have nothing to do with each other. All
    searches for one question share `lookups` (earlier results) and `timings_ms` (totals by step).
    """

    plan: Plan
    store: PassageStore
    embedder: QuestionEmbedder
    unrelated: float = 0.0
    depth: int = MAX_LEG_CANDIDATES
    lookups: Lookups = field(default_factory=dict)
    timings_ms: dict[str, float] = field(default_factory=dict)
    _vectors: dict[int, Sequence[float] | None] = field(default_factory=dict)

    @Lazy
    def language_weight(self) -> float:
        """How well the embedder knows the question's language, 0..1; 0 without a vector."""
        knowledge = self.embedder.estimate_language_knowledge(self.plan.standalone_query)
        return knowledge if knowledge and self.query_vector else 0.0

    @Lazy
    def query_terms(self) -> Mapping[str, float]:
        """Weights of the question's lexical terms and those of the conversation."""
        own_terms = self.time_step(
            "tokenize", lambda: tokenize.weigh_query_terms(self.plan.standalone_query)
        )
        is_narrowed = self.plan.scope.reason in (ScopeReason.FOLLOWUP, ScopeReason.SLOT)
        share = INSIDE_SHARE if is_narrowed else 1.0
        context = self.plan.context.items()
        return {**own_terms, **{term: w if w >= 1 else w * share for term, w in context}}

    @Lazy
    def lexical_hits(self) -> Sequence[Hit]:
        """Best passages by BM25; the dense search, which is needed next, runs at the same time."""
        knowledge = self.embedder.estimate_language_knowledge(self.plan.standalone_query)
        wait_for_dense = self.store.run_concurrently(lambda: self.dense_hits) if knowledge else None
        hits = self._find_by_terms("bm25", self.query_terms, self.depth)
        if wait_for_dense is not None:
            wait_for_dense()
        return hits

    def find_reworded(self, limit: int) -> Sequence[Hit]:
        """Best passages by BM25 if other words for what is asked count as well."""
        search_terms = self.plan.search_terms
        terms = {**search_terms, **self.query_terms}
        return self._find_by_terms("reworded", terms, limit) if search_terms else ()

    def _find_by_terms(self, step: str, terms: Mapping[str, float], limit: int) -> Sequence[Hit]:
        if not terms:
            return ()
        key = frozenset(terms.items()), limit
        return self.look_up(step, key, lambda: self.store.find_by_terms(terms, limit))

    @Lazy
    def dense_hits(self) -> Sequence[Hit]:
        """Nearest passages by cosine; none if the embedder does not know the language or fails."""
        if not self.language_weight:
            return ()
        vector = tuple(self.query_vector)
        hits = self.look_up("similar", vector, lambda: self.store.find_similar(vector, self.depth))
        return [add_closeness(hit, hit.score, self.unrelated) for hit in hits]

    def look_up(self, step: str, key: Hashable, work: Callable[[], Sequence[Hit]]) -> Sequence[Hit]:
        """The result of `work`; a query is not repeated for the same documents."""
        ids = self.plan.scope.document_ids  # not hashed: there may be tens of thousands
        results = self.lookups.setdefault((key, len(ids), ids[:1], self.depth), [])
        for documents, earlier in results:
            if documents == ids:
                return earlier
        hits = self.time_step(step, work)
        results.append((ids, hits))
        return hits

    @Lazy
    def query_vector(self) -> Sequence[float]:
        """The question's vector, shifted towards what was said before; empty after a failure."""
        return self.time_step("embed", self._embed_query)

    def read_vectors(self, hits: Sequence[Hit]) -> Mapping[int, Sequence[float]]:
        """The vectors of the passages that have one, by key; each is read once."""
        missing = [hit.passage.key for hit in hits if hit.passage.key not in self._vectors]
        if missing:
            vectors = self.time_step("vectors", lambda: self.store.read_vectors(missing))
            self._vectors.update({key: vectors.get(key) for key in missing})
        return {key: vector for key, vector in self._vectors.items() if vector is not None}

    @Lazy
    def fusion_weight(self) -> float:
        """Weight of the dense leg relative to the lexical one.

        It is the language weight times the share of the best lexical passages that have a vector,
        i.e. are in a language that the embedder knows: an English question about Korean documents
        must not be drawn to the few English passages.
        """
        best_keys = [hit.passage.key for hit in self.lexical_hits[:MAX_JUDGES]]
        if not self.dense_hits or not best_keys:
            return self.language_weight if self.dense_hits else 0.0
        vectors = self.read_vectors(self.lexical_hits)
        return self.language_weight * sum(key in vectors for key in best_keys) / len(best_keys)

    def _embed_query(self) -> Sequence[float]:
        import numpy as np  # here: processes that only import the engine stay small

        plan = self.plan
        vector = self.embedder.embed(plan.own_words or plan.standalone_query)
        knowledge = (
            self.embedder.estimate_language_knowledge(plan.background) if plan.background else 0.0
        )
        pull = plan.background_weight * knowledge
        if not pull or not vector:
            return vector
        background = self.embedder.embed(plan.background)
        if not background:
            return ()
        mixed = np.asarray(vector) + pull * np.asarray(background)
        unit: list[float] = (mixed / (np.linalg.norm(mixed) or 1.0)).tolist()
        return unit

    def time_step(self, step: str, work: Callable[[], T]) -> T:
        """The result of `work`, whose time is added to the step."""
        started = time.perf_counter()
        try:
            return work()
        finally:
            milliseconds = (time.perf_counter() - started) * 1000
            self.timings_ms[step] = self.timings_ms.get(step, 0.0) + milliseconds


def add_closeness(hit: Hit, cosine: float, unrelated: float) -> Hit:
    """The hit with its cosine and its closeness, from unrelated (0) to identical (1).

    Models differ in the cosine of unrelated texts.
    """
    closeness = max(0.0, (cosine - unrelated) / (1.0 - unrelated))
    return replace(hit, scores={**hit.scores, "similarity": cosine, "closeness": closeness})


def order_candidates(candidates: Candidates, config: RagConfig) -> Sequence[Hit]:
    """The candidates as the plan's strategy orders them, best first.

    `similarity`: by cosine, or by BM25 if the embedder does not know the language or finds nothing.
    `mmr`: the same, with near duplicates moved back. `rrf`: fused ranks of similarity, MMR and
    BM25, the dense ones weighted by how well the language is known.
    """
    strategy = candidates.plan.strategy
    if strategy is StrategyName.BM25 or (
        strategy is StrategyName.RRF and not candidates.fusion_weight
    ):
        return candidates.lexical_hits
    nearest = candidates.dense_hits or candidates.lexical_hits
    if strategy is StrategyName.SIMILARITY:
        return nearest
    vectors = candidates.read_vectors(nearest) if candidates.dense_hits else {}
    diverse = diversify_hits(nearest, balance=config.mmr_lambda, vectors=vectors)
    if strategy is StrategyName.MMR:
        return diverse
    weight = candidates.fusion_weight
    return fuse_ranks(
        {
            "bm25": (candidates.lexical_hits, config.bm25_weight),
            "similarity": (candidates.dense_hits, weight * (1 - MMR_SHARE)),
            "mmr": (diverse, weight * MMR_SHARE),
        }
    )


def diversify_hits(
    hits: Sequence[Hit], *, balance: float, vectors: Mapping[int, Sequence[float]]
) -> Sequence[Hit]:
    """The hits by `balance` * relevance - (1 - balance) * similarity to any earlier one.

    Relevance is the score relative to the best, similarity the cosine of the unit `vectors` (by
    key). The order is kept if a vector is missing: similarity by words only made it worse
    (docs/notes/retrieval-measurements.md).
    """
    if not hits or any(hit.passage.key not in vectors for hit in hits):
        return hits
    import numpy as np  # here: processes that only import the engine stay small

    rows = np.asarray([vectors[hit.passage.key] for hit in hits], dtype=np.float32)
    cosines = rows @ rows.T
    best = max(hit.score for hit in hits)
    relevance = [hit.score / best if best > 0 else 0.0 for hit in hits]
    nearest = [0.0] * len(hits)
    remaining = list(range(len(hits)))
    ordered: list[Hit] = []
    while remaining:
        place = max(
            remaining, key=lambda i: (balance * relevance[i] - (1 - balance) * nearest[i], -i)
        )
        remaining.remove(place)
        ordered.append(hits[place])
        for other in remaining:
            nearest[other] = max(nearest[other], float(cosines[place, other]))
    return ordered


def fuse_ranks(legs: Mapping[str, tuple[Sequence[Hit], float]]) -> list[Hit]:
    """Fuses ranked lists with weights: score = sum of weight / (RANK_CONSTANT + rank).

    Equal scores keep their order. A hit gets the scores of all lists that contain it and its rank
    in each (`rank_NAME`).
    """
    fused: dict[int, Hit] = {}
    totals: dict[int, float] = defaultdict(float)
    for name, (hits, weight) in legs.items():
        for rank, hit in enumerate(hits if weight > 0 else (), 1):
            key = hit.passage.key
            earlier = fused.get(key, hit)
            fused[key] = replace(hit, scores={**earlier.scores, **hit.scores, f"rank_{name}": rank})
            totals[key] += weight / (RANK_CONSTANT + rank)
    return _sort_by_score(
        replace(hit, score=totals[key], scores={**hit.scores, "rrf": totals[key]})
        for key, hit in fused.items()
    )


def rerank_candidates(
    candidates: Candidates, config: RagConfig, reranker: Reranker | None
) -> Sequence[Hit]:
    """Rescores fused candidates, then reranks the first ones with the model.

    Single strategies are not rescored. If the model fails, the order stays.
    """
    plan = candidates.plan
    hits: Sequence[Hit]
    if plan.strategy is StrategyName.RRF:
        hits = rescore_candidates(candidates, bm25_weight=config.bm25_weight)
    else:
        hits = order_candidates(candidates, config)
    if reranker is None or not hits:
        return hits
    query, pool = plan.completed or plan.standalone_query, hits[: plan.top_k * POOL_FACTOR]
    try:
        key = query, tuple(hit.passage.key for hit in pool)
        return candidates.look_up("rerank", key, lambda: reranker.rerank(query, pool, len(pool)))
    except EngineUnavailable as error:
        logger.warning("passages_not_reranked", code=error.code, exc_info=error)
        return hits


def rescore_candidates(candidates: Candidates, *, bm25_weight: float) -> list[Hit]:
    """Scores the candidates of both legs by share and, as far as the dense leg counts, closeness.

    As far as it does not, the best sentences of the first ones count as well.
    """
    dense_weight = candidates.fusion_weight
    hits = _merge_hits(candidates) if dense_weight else candidates.lexical_hits
    floor = min((hit.scores["closeness"] for hit in hits if "closeness" in hit.scores), default=0.0)

    def score(hit: Hit) -> float:
        closeness = dense_weight * CLOSENESS_WEIGHT * hit.scores.get("closeness", floor)
        return bm25_weight * hit.scores.get("share", 0.0) + closeness

    scored = _sort_by_score(replace(hit, score=score(hit)) for hit in hits)
    if dense_weight == 1:
        return scored
    weight = bm25_weight * SENTENCE_WEIGHT * (1 - dense_weight)
    shares = score_sentences(candidates.query_terms, scored, MAX_SENTENCE_PASSAGES)
    rescored = (
        replace(hit, score=hit.score + weight * share, scores={**hit.scores, "sentence": share})
        for hit, share in zip(scored, shares, strict=False)
    )
    return [*_sort_by_score(rescored), *scored[len(shares) :]]


def score_sentences(terms: Mapping[str, float], hits: Sequence[Hit], depth: int) -> list[float]:
    """For each of the first `depth` hits, the share (0..1) of `terms` in its best sentence.

    Only terms that some hit contains count, weighted as in the question and by their rarity among
    the hits. Terms in the document's name, section or table header count for every sentence.
    """
    texts = [_normalise_passage(hit.passage.text, hit.passage.kind) for hit in hits]
    heads = [_read_hit_head(hit) for hit in hits]
    terms_by_hit = [
        [term for term in terms if term in text or term in head]
        for text, head in zip(texts, heads, strict=True)
    ]
    # as if as many passages again contained none, so that terms of all hits still count
    total = 2 * len(terms_by_hit)
    weights = {
        term: terms[term] * math.log(1 + (total - count + 0.5) / (count + 0.5))
        for term, count in Counter(term for found in terms_by_hit for term in found).items()
    }
    max_score = sum(weights.values()) or 1.0
    best = zip(texts[:depth], heads, terms_by_hit, strict=False)
    return [
        _score_best_sentence(text, head, found, weights) / max_score for text, head, found in best
    ]


@functools.lru_cache(maxsize=MAX_CACHED_PASSAGES)
def _normalise_passage(text: str, kind: Kind) -> str:
    """A passage's sentences, each on one line."""
    return tokenize.normalise(to_prompt_text(text, kind)).lower()


def _read_hit_head(hit: Hit) -> str:
    passage = hit.passage
    return _normalise_head(f"{passage.document_name}\n{passage.section}\n{passage.header}")


@functools.lru_cache(maxsize=MAX_CACHED_PASSAGES)
def _normalise_head(head: str) -> str:
    return tokenize.normalise(head).lower()


def _score_best_sentence(
    text: str, head: str, terms: Sequence[str], weights: Mapping[str, float]
) -> float:
    ends = [match.end() for match in _END.finditer(text)]
    sums = [0.0] * (len(ends) + 1)
    head_score = 0.0
    for term in terms:
        if term in head:
            head_score += weights[term]
            continue
        position = text.find(term)
        while position >= 0:
            sentence = bisect_right(ends, position)
            sums[sentence] += weights[term]
            position = text.find(term, ends[sentence]) if sentence < len(ends) else -1
    return head_score + max(sums)


def _merge_hits(candidates: Candidates) -> list[Hit]:
    """The hits of both legs, merged; those with a vector get a closeness."""
    import numpy as np  # here: processes that only import the engine stay small

    merged: dict[int, Hit] = {}
    for hit in (*candidates.lexical_hits, *candidates.dense_hits):
        earlier = merged.get(hit.passage.key, hit)
        merged[hit.passage.key] = replace(hit, scores={**earlier.scores, **hit.scores})
    missing = [hit for hit in merged.values() if "closeness" not in hit.scores]
    stored = candidates.read_vectors(missing)
    question = np.asarray(candidates.query_vector, dtype=np.float32)
    for hit in missing:
        key = hit.passage.key
        if key in stored:
            cosine = float(np.asarray(stored[key], dtype=np.float32) @ question)
            merged[key] = add_closeness(hit, cosine, candidates.unrelated)
    return list(merged.values())


def _sort_by_score(hits: Iterable[Hit]) -> list[Hit]:
    # rounded, so that equal figures tie despite rounding errors
    return sorted(hits, key=lambda hit: -round(hit.score, 9))

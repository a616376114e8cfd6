"""Candidates for a question, and their order: two legs, strategies over them, a closer reading.

Each leg is searched once; the gate looks at both. What fusion would have to rank is rescored
instead, by figures between 0 and 1 that mean the same for every question, so that they add up,
where ranks only tell an order (docs/notes/retrieval-measurements.md).
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
"""Passages that the embedder knows less than this are noise to it and get no vector."""
MAX_LEG_CANDIDATES = 30
"""Candidates that each leg brings to fusion."""
INSIDE_SHARE = 0.3
"""What terms of the conversation keep of their weight within the documents that it is about.

All of their passages are about what was said before; the question must tell them apart.
"""
MAX_JUDGES = 10
"""Lexical candidates whose vectors tell whether the embedder knows what the documents say."""
RANK_CONSTANT = 2
"""Far below the usual 60.

Two legs of 30 are no crowd, and a first place should count (docs/notes/retrieval-measurements.md).
"""
MMR_SHARE = 0.2
"""Weight of the mmr ranks beside the similarity ranks.

Together they weigh as the dense leg should.
"""
SENTENCE_WEIGHT = 0.4
"""What the best sentence's share weighs beside the passage's own, where closeness has no say."""
CLOSENESS_WEIGHT = 1.5
"""What closeness weighs where the embedder knows all languages in play."""
MAX_SENTENCE_PASSAGES = 12
"""Passages whose sentences are looked at; those behind them keep their places."""
POOL_FACTOR = 5
"""Passages that a model reads for each one that is wanted."""
MAX_REMEMBERED_PASSAGES = 4096
"""Passages that are not put into shape again for the next question; a few megabytes."""
_END = re.compile(r"[.!?。]\s|\n")
T = TypeVar("T")
Lookups = dict[Hashable, list[tuple[Sequence[UUID], Sequence[Hit]]]]
"""What was found already, by what was asked, each with the documents that it was asked of."""


class Lazy(Generic[T]):
    """A property that is worked out once, when it is asked for.

    `functools.cached_property` holds a lock until Python 3.12 that all instances share: every
    question of a process would wait for another one's search.
    """

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Under this name the instance keeps what was worked out, and the property rests."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        """What the work gives."""
        if instance is None:
            return self
        found = instance.__dict__[self._name] = self._work(instance)
        return found


@dataclass(slots=True)
class QuestionEmbedder:
    """Embeds the texts of one question, however often it is searched: each of them once.

    After a failure the embedder is left alone, so that nobody waits for it twice; `failed` is the
    failure's code.
    """

    embedder: Embedder
    failed: str = ""
    _known: dict[str, Sequence[float]] = field(default_factory=dict)

    def estimate_language_knowledge(self, text: str) -> float:
        """How far the embedder knows the text's language, 0..1."""
        return estimate_dense_weight(text, self.embedder.languages)

    def embed(self, text: str) -> Sequence[float]:
        """The vector of a text; empty after a failure."""
        if text not in self._known and not self.failed:
            try:
                self._known[text] = self.embedder.embed_query(text)
            except EmbedderFailed as error:
                logger.warning("question_not_embedded", code=error.code, exc_info=error)
                self.failed = error.code
        return () if self.failed else self._known[text]


@dataclass(eq=False)
class Candidates:
    """Lazy lexical and dense candidates of a plan; the lexical ones alone where embedding fails.

    `unrelated` is the cosine that the embedder gives to texts that have nothing to do with each
    other. Searches for one question share `lookups`, what was asked already, and
    `timings_ms`, the sum of each step's time.
    """

    made: Plan
    store: PassageStore
    embedder: QuestionEmbedder
    unrelated: float = 0.0
    depth: int = MAX_LEG_CANDIDATES
    lookups: Lookups = field(default_factory=dict)
    timings_ms: dict[str, float] = field(default_factory=dict)
    _vectors: dict[int, Sequence[float] | None] = field(default_factory=dict)

    @Lazy
    def language_weight(self) -> float:
        """How far the embedder knows the question's language, 0..1."""
        known = self.embedder.estimate_language_knowledge(self.made.standalone_query)
        return known if known and self.query_vector else 0.0

    @Lazy
    def query_terms(self) -> Mapping[str, float]:
        """The question's lexical terms, and those of the conversation with what they weigh."""
        said = self.time_step(
            "tokenize", lambda: tokenize.weigh_query_terms(self.made.standalone_query)
        )
        inside = self.made.scope.reason in (ScopeReason.FOLLOWUP, ScopeReason.SLOT)
        share = INSIDE_SHARE if inside else 1.0
        told = self.made.context.items()
        return {**said, **{term: w if w >= 1 else w * share for term, w in told}}

    @Lazy
    def lexical_hits(self) -> Sequence[Hit]:
        """Best passages by BM25; the dense leg, which is asked for next, is searched meanwhile."""
        known = self.embedder.estimate_language_knowledge(self.made.standalone_query)
        wait = self.store.run_concurrently(lambda: self.dense_hits) if known else None
        found = self._find_by_terms("bm25", self.query_terms, self.depth)
        if wait is not None:
            wait()
        return found

    def find_reworded(self, limit: int) -> Sequence[Hit]:
        """Best passages by BM25 where other words for what is asked count, too."""
        other = self.made.search_terms
        terms = {**other, **self.query_terms}
        return self._find_by_terms("reworded", terms, limit) if other else ()

    def _find_by_terms(self, step: str, terms: Mapping[str, float], limit: int) -> Sequence[Hit]:
        if not terms:
            return ()
        asked = frozenset(terms.items()), limit
        return self.look_up(step, asked, lambda: self.store.find_by_terms(terms, limit))

    @Lazy
    def dense_hits(self) -> Sequence[Hit]:
        """Nearest passages by cosine.

        None, and nothing is embedded, where the embedder does not know the language; none either
        where it fails.
        """
        if not self.language_weight:
            return ()
        asked = tuple(self.query_vector)
        found = self.look_up("similar", asked, lambda: self.store.find_similar(asked, self.depth))
        return [add_closeness(hit, hit.score, self.unrelated) for hit in found]

    def look_up(
        self, step: str, asked: Hashable, work: Callable[[], Sequence[Hit]]
    ) -> Sequence[Hit]:
        """What store or reranker give; asked once for the same thing within the same documents."""
        ids = self.made.scope.document_ids  # not hashed: there may be tens of thousands
        known = self.lookups.setdefault((asked, len(ids), ids[:1], self.depth), [])
        for documents, found in known:
            if documents == ids:
                return found
        hits = self.time_step(step, work)
        known.append((ids, hits))
        return hits

    @Lazy
    def query_vector(self) -> Sequence[float]:
        """The question's own vector, drawn towards what was said before; empty after a failure."""
        return self.time_step("embed", self._embed_query)

    def read_vectors(self, hits: Sequence[Hit]) -> Mapping[int, Sequence[float]]:
        """The vectors of passages by key, of those that have one; read once."""
        missing = [hit.passage.key for hit in hits if hit.passage.key not in self._vectors]
        if missing:
            found = self.time_step("vectors", lambda: self.store.read_vectors(missing))
            self._vectors.update({key: found.get(key) for key in missing})
        return {key: vector for key, vector in self._vectors.items() if vector is not None}

    @Lazy
    def fusion_weight(self) -> float:
        """How far the dense leg counts beside the lexical one.

        The question's share, times the share of the best lexical passages that have a vector, being
        in a language that the embedder knows: an English question to Korean documents must not be
        led to the few English passages.
        """
        best = [hit.passage.key for hit in self.lexical_hits[:MAX_JUDGES]]
        if not self.dense_hits or not best:
            return self.language_weight if self.dense_hits else 0.0
        vectors = self.read_vectors(self.lexical_hits)
        return self.language_weight * sum(key in vectors for key in best) / len(best)

    def _embed_query(self) -> Sequence[float]:
        import numpy as np  # here: processes that only import the engine stay small

        made = self.made
        vector = self.embedder.embed(made.own_words or made.standalone_query)
        known = (
            self.embedder.estimate_language_knowledge(made.background) if made.background else 0.0
        )
        pull = made.background_weight * known
        if not pull or not vector:
            return vector
        behind = self.embedder.embed(made.background)
        if not behind:
            return ()
        mixed = np.asarray(vector) + pull * np.asarray(behind)
        unit: list[float] = (mixed / (np.linalg.norm(mixed) or 1.0)).tolist()
        return unit

    def time_step(self, step: str, work: Callable[[], T]) -> T:
        """What the work gives; its time is added to the step's."""
        started = time.perf_counter()
        try:
            return work()
        finally:
            spent = (time.perf_counter() - started) * 1000
            self.timings_ms[step] = self.timings_ms.get(step, 0.0) + spent


def add_closeness(hit: Hit, cosine: float, unrelated: float) -> Hit:
    """The hit with its cosine, and how much of the way from unrelated (0) to equal (1) that is.

    Models differ in what texts have for a cosine that have nothing to do with each other.
    """
    closeness = max(0.0, (cosine - unrelated) / (1.0 - unrelated))
    return replace(hit, scores={**hit.scores, "similarity": cosine, "closeness": closeness})


def order_candidates(candidates: Candidates, config: RagConfig) -> Sequence[Hit]:
    """The candidates as the plan's strategy orders them, best first.

    `similarity`: by cosine; by BM25 where the embedder does not know the question's language or
    finds nothing. `mmr`: the same, those too like an earlier one put back. `rrf`: ranks of
    similarity, mmr and BM25 fused, the dense ones as far as the language is known.
    """
    strategy = candidates.made.strategy
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
    """The hits by `balance` * relevance - (1 - balance) * likeness to any that stands before.

    Relevance is the score scaled to its best, likeness the cosine of the unit `vectors` (by key).
    The order stays where a hit has none: likeness by words only cost
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
    left = list(range(len(hits)))
    chosen: list[Hit] = []
    while left:
        place = max(left, key=lambda i: (balance * relevance[i] - (1 - balance) * nearest[i], -i))
        left.remove(place)
        chosen.append(hits[place])
        for other in left:
            nearest[other] = max(nearest[other], float(cosines[place, other]))
    return chosen


def fuse_ranks(legs: Mapping[str, tuple[Sequence[Hit], float]]) -> list[Hit]:
    """Fuse named legs, each with its weight: score = sum of weight / (RANK_CONSTANT + rank).

    Equal scores keep leg order. A hit carries the scores of every leg that saw it and its rank
    there (`rank_NAME`).
    """
    found: dict[int, Hit] = {}
    totals: dict[int, float] = defaultdict(float)
    for name, (hits, weight) in legs.items():
        for rank, hit in enumerate(hits if weight > 0 else (), 1):
            key = hit.passage.key
            known = found.get(key, hit)
            found[key] = replace(hit, scores={**known.scores, **hit.scores, f"rank_{name}": rank})
            totals[key] += weight / (RANK_CONSTANT + rank)
    return _sort_by_score(
        replace(hit, score=totals[key], scores={**hit.scores, "rrf": totals[key]})
        for key, hit in found.items()
    )


def rerank_candidates(
    candidates: Candidates, config: RagConfig, reranker: Reranker | None
) -> Sequence[Hit]:
    """The candidates of fusion by what they hold, then the first of them by the model.

    The order of a single leg is wanted as it is. A model that fails leaves the order: the passages
    are no worse for it.
    """
    made = candidates.made
    hits: Sequence[Hit]
    if made.strategy is StrategyName.RRF:
        hits = rescore_candidates(candidates, bm25_weight=config.bm25_weight)
    else:
        hits = order_candidates(candidates, config)
    if reranker is None or not hits:
        return hits
    query, pool = made.completed or made.standalone_query, hits[: made.top_k * POOL_FACTOR]
    try:
        asked = query, tuple(hit.passage.key for hit in pool)
        return candidates.look_up("rerank", asked, lambda: reranker.rerank(query, pool, len(pool)))
    except EngineUnavailable as error:
        logger.warning("passages_not_reranked", code=error.code, exc_info=error)
        return hits


def rescore_candidates(candidates: Candidates, *, bm25_weight: float) -> list[Hit]:
    """The candidates of both legs by share, and by closeness as far as the embedder has a say.

    By the best sentences of the first ones, too, as far as it has none.
    """
    say = candidates.fusion_weight
    known = _merge_hits(candidates) if say else candidates.lexical_hits
    floor = min(
        (hit.scores["closeness"] for hit in known if "closeness" in hit.scores), default=0.0
    )

    def score(hit: Hit) -> float:
        close = say * CLOSENESS_WEIGHT * hit.scores.get("closeness", floor)
        return bm25_weight * hit.scores.get("share", 0.0) + close

    scored = _sort_by_score(replace(hit, score=score(hit)) for hit in known)
    if say == 1:
        return scored
    weight = bm25_weight * SENTENCE_WEIGHT * (1 - say)
    shares = score_sentences(candidates.query_terms, scored, MAX_SENTENCE_PASSAGES)
    looked_at = (
        replace(hit, score=hit.score + weight * share, scores={**hit.scores, "sentence": share})
        for hit, share in zip(scored, shares, strict=False)
    )
    return [*_sort_by_score(looked_at), *scored[len(shares) :]]


def score_sentences(terms: Mapping[str, float], hits: Sequence[Hit], depth: int) -> list[float]:
    """For each of the first `depth` hits: the share (0..1) of `terms` that its best sentence holds.

    Of those terms that any hit holds; each weighs as in the question and by its rarity among the
    hits. Terms of the document's name, the section and the table's header count for every sentence.
    """
    texts = [_normalise_passage(hit.passage.text, hit.passage.kind) for hit in hits]
    heads = [_read_hit_head(hit) for hit in hits]
    held = [
        [term for term in terms if term in text or term in head]
        for text, head in zip(texts, heads, strict=True)
    ]
    # as if as many passages again held none of them: what all of these hold still counts
    total = 2 * len(held)
    weights = {
        term: terms[term] * math.log(1 + (total - count + 0.5) / (count + 0.5))
        for term, count in Counter(term for found in held for term in found).items()
    }
    most = sum(weights.values()) or 1.0
    best = zip(texts[:depth], heads, held, strict=False)
    return [_score_best_sentence(text, head, found, weights) / most for text, head, found in best]


@functools.lru_cache(maxsize=MAX_REMEMBERED_PASSAGES)
def _normalise_passage(text: str, kind: Kind) -> str:
    """A passage's sentences, each on one line."""
    return tokenize.normalise(to_prompt_text(text, kind)).lower()


def _read_hit_head(hit: Hit) -> str:
    passage = hit.passage
    return _normalise_head(f"{passage.document_name}\n{passage.section}\n{passage.header}")


@functools.lru_cache(maxsize=MAX_REMEMBERED_PASSAGES)
def _normalise_head(head: str) -> str:
    return tokenize.normalise(head).lower()


def _score_best_sentence(
    text: str, head: str, found: Sequence[str], weights: Mapping[str, float]
) -> float:
    ends = [match.end() for match in _END.finditer(text)]
    sums = [0.0] * (len(ends) + 1)
    above = 0.0
    for term in found:
        if term in head:
            above += weights[term]
            continue
        at = text.find(term)
        while at >= 0:
            sentence = bisect_right(ends, at)
            sums[sentence] += weights[term]
            at = text.find(term, ends[sentence]) if sentence < len(ends) else -1
    return above + max(sums)


def _merge_hits(candidates: Candidates) -> list[Hit]:
    """What either leg found, once, with the scores of both; all with a vector have a closeness."""
    import numpy as np  # here: processes that only import the engine stay small

    found: dict[int, Hit] = {}
    for hit in (*candidates.lexical_hits, *candidates.dense_hits):
        known = found.get(hit.passage.key, hit)
        found[hit.passage.key] = replace(hit, scores={**known.scores, **hit.scores})
    missing = [hit for hit in found.values() if "closeness" not in hit.scores]
    stored = candidates.read_vectors(missing)
    question = np.asarray(candidates.query_vector, dtype=np.float32)
    for hit in missing:
        key = hit.passage.key
        if key in stored:
            cosine = float(np.asarray(stored[key], dtype=np.float32) @ question)
            found[key] = add_closeness(hit, cosine, candidates.unrelated)
    return list(found.values())


def _sort_by_score(hits: Iterable[Hit]) -> list[Hit]:
    # rounded: equal figures must tie, whatever the last bit says
    return sorted(hits, key=lambda hit: -round(hit.score, 9))

"""One search: plan, legs, strategy, choice, gate."""

import time
from dataclasses import dataclass, replace
from functools import partial

from rag.config import RagConfig
from rag.language import dense_weight
from rag.ports import Embedder, PassageStore, Reranker
from rag.query.about import is_about_documents
from rag.retrieval import filtered, followed, gate, plan, rerank, several
from rag.retrieval.legs import Legs
from rag.retrieval.similarity import KNOWN
from rag.retrieval.strategies import STRATEGIES
from rag.types import Gate, Hit, Plan, QuestionType, Retrieval, Scope

NO_WISHES = plan.Wishes()


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches with one configuration. Thread-safe."""

    config: RagConfig
    embedder: Embedder
    reranker: Reranker | None = None

    def knows(self, query: str) -> bool:
        """True when the embedder knows the language well enough for its cosine to be shown."""
        return dense_weight(query, self.embedder.languages) >= KNOWN

    def search(
        self, asked: plan.Asked, scope: Scope, store: PassageStore, wishes: plan.Wishes = NO_WISHES
    ) -> Retrieval:
        """Search the store; an empty scope finds nothing.

        Raises `EmbedderFailed`, `EngineUnavailable`, or what the store raises.
        """
        started = time.perf_counter()
        made = plan.make(asked, scope, wishes, usual_k=self.config.top_k)
        ask: followed.Search = partial(self._found, reranked=wishes.rerank)
        if wishes.filters is None:
            ask = partial(filtered.search, ask=ask)
        found = followed.search(made, store, asked.memory, asked.verdict, ask)
        total = round((time.perf_counter() - started) * 1000, 2)
        return replace(found, timings_ms={**found.timings_ms, "total": total})

    def _found(self, made: Plan, store: PassageStore, *, reranked: bool) -> Retrieval:
        if not made.scope.document_ids:
            return Retrieval(made, (), Gate(0.0, self.config.gate_threshold))
        if is_about_documents(made.standalone_query, made.scope):
            return self._opening(made, store)
        return self._ranked(made, store, reranked=reranked)

    def _opening(self, made: Plan, store: PassageStore) -> Retrieval:
        """A question on whole documents: their first passages answer it, in their own order."""
        passages = store.opening(made.top_k)
        hits = tuple(Hit(passage, 1.0, {"opening": 1.0, "relevance": 1.0}) for passage in passages)
        return Retrieval(made, hits, Gate(1.0 if hits else 0.0, self.config.gate_threshold))

    def _ranked(self, made: Plan, store: PassageStore, *, reranked: bool) -> Retrieval:
        unrelated = self.config.embedding_unrelated or 0.0
        legs = Legs(made, store, self.embedder, unrelated=unrelated)
        if reranked:
            hits = rerank.order(made, legs, self.config, self.reranker)
        else:
            hits = STRATEGIES[made.strategy](legs, made.top_k, self.config)
        if made.needs_multi_doc:
            hits = several.with_all(hits, store, legs.terms, made.scope.document_ids)
            hits = several.spread(hits, made.top_k)
        asked = _asked(made, legs)
        talk = made.question_type is QuestionType.SMALLTALK
        score = 0.0 if talk else gate.score(asked, [*legs.lexical, *legs.dense])
        return Retrieval(
            plan=made,
            hits=tuple(_with_relevance(asked, hit) for hit in hits[: made.top_k]),
            gate=Gate(score, self.config.gate_threshold),
            timings_ms=legs.timings_ms,
        )


def _asked(made: Plan, legs: Legs) -> gate.Question:
    return gate.Question.read(
        made.standalone_query,
        terms=sum(weight >= 1 for weight in legs.terms.values()),
        dense_weight=legs.weight,
        scope=made.scope,
        lacking=made.background_weight,
    )


def _with_relevance(asked: gate.Question, hit: Hit) -> Hit:
    return replace(hit, scores={**hit.scores, "relevance": gate.relevance(asked, hit)})

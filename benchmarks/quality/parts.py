"""What is measured: each set alone, all Korean ones together, other chunks, other embedders."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import report
from benchmarks.quality import particles, product
from benchmarks.quality.product import Indexed, Library, Way
from benchmarks.quality.stand_in import CorpusEmbedder
from rag.factory import Engine
from rag.types import StrategyName
from tests.quality import baselines, measures, sets
from tests.quality.baselines import Bm25, Dense, Rankings
from tests.quality.measures import Mean
from tests.quality.sets import Asked, QuestionSet

SAMPLE = report.choose_size(1200, quick=40)
FOR_WAYS = report.choose_size(400, quick=20)
"""Questions on which the strategies are compared; the first of the sample."""

USUAL = Way("auto")
UNFILTERED = Way("auto, no filter", filters={})
WAYS = (
    UNFILTERED,
    *(Way(name.value, name, {}) for name in StrategyName if name is not StrategyName.AUTO),
    Way("rrf, no rerank", StrategyName.RRF, {}, rerank=False),
)


@dataclass(frozen=True, slots=True)
class Result:
    """nDCG@5 and R@5 of every question asked, in order."""

    ndcg: list[float]
    recall: list[float]

    @classmethod
    def of(cls, rankings: Rankings, asked: Sequence[Asked]) -> "Result":
        pairs = list(zip(rankings, asked, strict=True))
        return cls(
            [measures.ndcg(found, one.relevant) for found, one in pairs],
            [measures.recall(found, one.relevant) for found, one in pairs],
        )

    def figures(self) -> dict[str, Any]:
        """Means with their intervals."""
        return {
            "questions": len(self.ndcg),
            "ndcg5": measures.mean(self.ndcg).rounded(),
            "r5": measures.mean(self.recall).rounded(),
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """A set, its questions asked, where it is in the database, and how each system did."""

    made: QuestionSet
    asked: list[Asked]
    indexed: Indexed
    results: dict[str, Result]


def sample(made: QuestionSet, *, everything: bool) -> list[Asked]:
    """All questions, or as many as are asked by default, always the same ones."""
    questions = list(made.questions)
    if everything or len(questions) <= SAMPLE:
        return questions
    return random.Random(made.name).sample(questions, SAMPLE)


def alone(library: Library, made: QuestionSet, indexed: Indexed, asked: list[Asked]) -> Measured:
    """The set as the whole of a user's documents, in every way, beside the plain systems."""
    results = _plain(library, made, asked)
    results[USUAL.name] = _searched(library, indexed, asked, USUAL)
    few = asked[:FOR_WAYS]
    for way in WAYS:
        questions = asked if way is UNFILTERED else few
        results[way.name] = _searched(library, indexed, questions, way)
    return Measured(made, asked, indexed, results)


def together(library: Library, korean: Sequence[Measured]) -> dict[str, dict[str, Any]]:
    """Each Korean set's questions, asked of all Korean sets: what that costs them."""
    among = [document for one in korean for document in one.indexed.documents]
    found: dict[str, dict[str, Any]] = {}
    for one in korean:
        for way in (USUAL, UNFILTERED):
            mixed = _searched(library, one.indexed, one.asked, way, among=among)
            loss = _difference(one.results[way.name], mixed)
            known = found.setdefault(one.made.name, {})
            known[way.name] = {**mixed.figures(), "loss": loss.rounded()}
    return found


def own_chunks(library: Library, measured: Measured) -> dict[str, Any]:
    """Whole documents in the product's own chunks: the unit of a hit is what it holds most of."""
    indexed = library.add(measured.made, whole=True)
    asked = measured.asked[:FOR_WAYS]
    result = _searched(library, indexed, asked, USUAL, top_k=product.FOUND_CHUNKS)
    return {**result.figures(), "chunks": len(indexed.units)}


def knowing_korean(library: Library, korean: Sequence[Measured]) -> dict[str, dict[str, Any]]:
    """Both legs and their fusion with an embedder that declares all languages."""
    from documents import renewal, spaces

    units = [unit for one in korean for unit in one.made.units]
    embedder = CorpusEmbedder([f"{unit.title}\n{unit.text}" for unit in units])
    space = spaces.ensure_space(embedder, base_url="")
    renewal.fill_space(space, embedder, lambda _looked_at, _embedded: None)
    config = replace(library.engine.config, embedding_unrelated=spaces.measure_unrelated(space))
    knowing = Library(Engine(config, embedder=embedder), space)
    legs = (
        Way("bm25", StrategyName.BM25, {}),
        Way("similarity", StrategyName.SIMILARITY, {}),
        UNFILTERED,
    )
    found: dict[str, dict[str, Any]] = {}
    for one in korean:
        asked = one.asked[:FOR_WAYS]
        results = {way.name: _searched(knowing, one.indexed, asked, way) for way in legs}
        both = results[UNFILTERED.name]
        better = max((results["bm25"], results["similarity"]), key=lambda leg: sum(leg.ndcg))
        found[one.made.name] = {name: result.figures() for name, result in results.items()}
        found[one.made.name]["gain over the better leg"] = _difference(both, better).rounded()
    return found


def with_particles(library: Library, texts: Sequence[str]) -> dict[str, Any]:
    """How many pairs are found both ways, and which are not."""
    made = particles.pairs(texts)
    missed: set[int] = set()
    second: set[int] = set()
    for half in particles.libraries(made):
        indexed = library.add(half)
        questions = [asked.text for asked in half.questions]
        for at, found in enumerate(library.rank(questions, indexed, UNFILTERED)):
            if at not in found:
                missed.add(at)
            elif found[0] != at:
                second.add(at)
    return {
        "pairs": len(made),
        "found": len(made) - len(missed),
        "first": len(made) - len(missed | second),
        "missed": [f"{made[at].noun} / {made[at].carried}" for at in sorted(missed)],
        "not first": [f"{made[at].noun} / {made[at].carried}" for at in sorted(second)],
    }


def _plain(library: Library, made: QuestionSet, asked: Sequence[Asked]) -> dict[str, Result]:
    texts = [f"{unit.title} {unit.text}".strip() for unit in made.units]
    questions = [one.text for one in asked]
    plain = Bm25(texts, baselines.whitespace).rank(questions, measures.DEPTH)
    pieces = Bm25(texts, baselines.bigrams).rank(questions, baselines.DEPTH)
    dense = Dense(texts, library.engine.embedder).rank(questions, baselines.DEPTH)
    ranked: Mapping[str, Rankings] = {
        "whitespace BM25": plain,
        "bigram BM25": pieces,
        "dense alone": dense,
        "plain RRF": baselines.fused(pieces, dense),
    }
    return {name: Result.of(rankings, asked) for name, rankings in ranked.items()}


def _searched(  # noqa: PLR0913 - one search, by name
    library: Library,
    indexed: Indexed,
    asked: Sequence[Asked],
    way: Way,
    *,
    among: Sequence[Any] = (),
    top_k: int = product.FOUND,
) -> Result:
    questions = [one.text for one in asked]
    return Result.of(library.rank(questions, indexed, way, among=among, top_k=top_k), asked)


def _difference(more: Result, less: Result) -> Mean:
    """Of nDCG@5, question by question."""
    return measures.mean([one - other for one, other in zip(more.ndcg, less.ndcg, strict=True)])


def load(names: Sequence[str]) -> list[QuestionSet]:
    """The sets of these names."""
    return [sets.load(name) for name in names]

"""Search over the turns of a conversation: BM25 over their terms, and vectors where there are any.

CPU work without waiting: call it in a thread.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from rag import tokenize
from rag.conversation import TurnLine
from rag.errors import EmbedderFailed
from rag.language import dense_weight
from rag.ports import Embedder
from rag.retrieval import bm25
from rag.retrieval.similarity import KNOWN

LONGEST_QUERY = 2000
TERMS = 2000
"""Occurrences of terms that are counted of one turn; an answer may be endless."""
COSINE = 1.5
"""What the cosine weighs beside BM25."""


@dataclass(frozen=True, slots=True)
class Found:
    """A turn that a query found.

    `score` orders them: `lexical`, the BM25 score, and `cosine`, each as a share of the best one's,
    summed with their weights. `coverage` (0..1) is the share of the query's weight whose terms the
    turn holds.
    """

    line: TurnLine
    score: float
    lexical: float
    cosine: float
    coverage: float


class TurnIndex:
    """Turns made ready for several queries. Terms that are not stored yet are made of the lines."""

    def __init__(
        self, lines: Sequence[TurnLine], terms: Sequence[Mapping[str, int]] | None = None
    ) -> None:
        self.lines = tuple(lines)
        self.terms = _terms(self.lines) if terms is None else list(terms)
        self.frequencies = Counter(term for terms in self.terms for term in terms)
        self._bm25 = _bm25(self.terms, self.frequencies) if any(self.terms) else None

    def of(self, lines: Sequence[TurnLine]) -> "TurnIndex":
        """An index of some of its turns, in that order; nothing is analysed again."""
        known = dict(zip((line.number for line in self.lines), self.terms, strict=True))
        return TurnIndex(lines, [known[line.number] for line in lines])

    def lexical(self, terms: Mapping[str, float]) -> NDArray[np.float64]:
        """The BM25 score of every turn for weighted terms."""
        scores = np.zeros(len(self.lines))
        if self._bm25 is not None:
            for term in terms.keys() & self.frequencies.keys():
                scores += terms[term] * self._bm25.get_scores([term])
        return scores

    def coverage(self, terms: Mapping[str, float]) -> NDArray[np.float64]:
        """The share of the query's weight that every turn holds; rare terms weigh more."""
        total = len(self.lines)
        weights = {
            term: weight * bm25.coverage_weight(self.frequencies[term], total)
            for term, weight in terms.items()
            if weight >= 1
        }
        whole = sum(weights.values()) or 1.0
        held = (sum(weights[term] for term in weights.keys() & own) for own in self.terms)
        return np.fromiter((part / whole for part in held), float, total)

    def cosines(self, vectors: Sequence[Sequence[float]]) -> NDArray[np.float64]:
        """The cosines of vectors (rows) with every turn (columns), 0..1.

        0 for turns without a vector, or with one of another width.
        """
        cosines = np.zeros((len(vectors), len(self.lines)))
        if vectors:
            width = len(vectors[0])
            known = [
                (place, line.vector)
                for place, line in enumerate(self.lines)
                if line.vector is not None and len(line.vector) == width
            ]
            if known:
                columns = [place for place, _ in known]
                own = np.asarray([vector for _, vector in known])
                cosines[:, columns] = np.clip(np.asarray(vectors) @ own.T, 0.0, 1.0)
        return cosines


def search_turns(
    query: str, lines: Sequence[TurnLine], *, embedder: Embedder | None = None, limit: int = 10
) -> list[Found]:
    """The turns that bear on a query, best first; none that share nothing with it."""
    if not lines or not query.strip():
        return []
    return ranked(query, TurnIndex(lines), embedder)[:limit]


def ranked(query: str, index: TurnIndex, embedder: Embedder | None) -> list[Found]:
    """All turns that share something with a query, best first, later ones before equal ones."""
    terms = tokenize.query_terms(query[:LONGEST_QUERY])
    lexical = index.lexical(terms)
    vector = embedded(query, embedder)
    cosine = index.cosines([vector])[0] if vector else np.zeros(len(index.lines))
    score = shares(lexical) + COSINE * shares(cosine)
    coverage = index.coverage(terms)
    order = sorted(
        (place for place in range(len(index.lines)) if score[place] > 0),
        key=lambda place: (-score[place], -index.lines[place].number),
    )
    return [
        Found(index.lines[at], *(float(part[at]) for part in (score, lexical, cosine, coverage)))
        for at in order
    ]


def embedded(query: str, embedder: Embedder | None) -> Sequence[float]:
    """The vector of a query; empty where no embedder knows its language, or it fails."""
    if embedder is None or dense_weight(query, embedder.languages) < KNOWN:
        return ()
    try:
        return embedder.embed_query(query[:LONGEST_QUERY])
    except EmbedderFailed:
        return ()


def shares(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores as shares of the best one."""
    best = scores.max(initial=0.0)
    return scores / best if best > 0 else scores


def _terms(lines: Sequence[TurnLine]) -> list[Mapping[str, int]]:
    """The terms of every line; all that are missing are made in one batch."""
    missing = [line for line in lines if not line.terms]
    made = iter(list(tokenize.terms_of_all([f"{one.question}\n{one.summary}" for one in missing])))
    return [line.terms or next(made) for line in lines]


def _bm25(terms: Sequence[Mapping[str, int]], frequencies: Mapping[str, int]) -> BM25Okapi:
    """`rank_bm25` with our constants and IDF: its own is below 0 for a term of most turns."""
    corpus = [[*Counter(own).elements()][:TERMS] for own in terms]
    made = BM25Okapi(corpus, k1=bm25.K1, b=bm25.B)
    made.idf = {term: bm25.idf(df, len(terms)) for term, df in frequencies.items()}
    return made

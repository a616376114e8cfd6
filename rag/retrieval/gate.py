"""The gate tells whether the documents hold something on the question.

Two logistic functions, fitted on question sets as told in docs/retrieval.md, mixed by how far the
embedder knows the question's language. The lexical one reads how much of the question the best
passage holds, how many of its terms, and whether the message has the form of a look-up; the dense
one reads coverage and cosine together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rag.query import asking
from rag.types import Hit, Scope, ScopeReason

LEXICAL_BIAS = -5.7
COVERAGE = 3.4
HELD_TERMS = 4.3
SEEKS = 1.8
FEW_AND_TALK = -1.25
TALKS_OF_SELF = -0.35
ENOUGH_TERMS = 8
"""From so many held terms on, more say nothing new."""

DENSE_BIAS = -5.0
DENSE_COVERAGE = 4.5
COSINE = 7.3

CHOSEN = 0.6
"""Added where the user chose the documents: the question is likely about them."""
FEW = 1.8
"""Added where there are so few documents that a chance match is rare; fades with their number."""
FEW_DOCUMENTS = 3


@dataclass(frozen=True, slots=True)
class Question:
    """What the gate knows of a question before it sees any passage."""

    terms: int
    seeks: bool
    talks_of_self: bool
    dense_weight: float
    prior: float

    @classmethod
    def read(cls, text: str, *, terms: int, dense_weight: float, scope: Scope) -> "Question":
        """Read the form of the message; `terms` is how many lexical terms it has."""
        chosen = CHOSEN if scope.reason is not ScopeReason.ALL else 0.0
        return cls(
            terms=terms,
            seeks=asking.seeks(text),
            talks_of_self=asking.talks_of_self(text),
            dense_weight=dense_weight,
            prior=max(chosen, FEW / max(1.0, len(scope.document_ids) / FEW_DOCUMENTS)),
        )


def relevance(question: Question, hit: Hit) -> float:
    """Calibrated relevance of one hit, 0..1."""
    return _probability(
        question, hit.scores.get("coverage", 0.0), hit.scores.get("similarity", 0.0)
    )


def score(question: Question, hits: Sequence[Hit]) -> float:
    """The gate's score over all candidates, 0..1.

    The best coverage and the best cosine, wherever they are.
    """
    if not hits:
        return 0.0
    coverage = max(hit.scores.get("coverage", 0.0) for hit in hits)
    cosine = max(hit.scores.get("similarity", 0.0) for hit in hits)
    return _probability(question, coverage, cosine)


def _probability(question: Question, coverage: float, cosine: float) -> float:
    weight = question.dense_weight
    logit = (1 - weight) * _lexical(question, coverage) + weight * _dense(coverage, cosine)
    held = coverage > 0 or cosine > 0
    return 1 / (1 + math.exp(-(logit + question.prior))) if held else 0.0


def _lexical(question: Question, coverage: float) -> float:
    held = min(coverage * question.terms, ENOUGH_TERMS) / ENOUGH_TERMS
    return (
        LEXICAL_BIAS
        + COVERAGE * coverage
        + HELD_TERMS * held
        + (SEEKS if question.seeks else FEW_AND_TALK * (1 - held))
        + TALKS_OF_SELF * question.talks_of_self
    )


def _dense(coverage: float, cosine: float) -> float:
    return DENSE_BIAS + DENSE_COVERAGE * coverage + COSINE * max(0.0, cosine)

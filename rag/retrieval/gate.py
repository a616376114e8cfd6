"""The gate tells whether the documents hold something on the question.

Two logistic functions, fitted on question sets as told in docs/retrieval.md. The lexical one reads
how much of its highest score the question reaches and how many of its terms one passage holds; the
dense one reads coverage and closeness, and may speak for the documents as far as the embedder knows
the question's language. Whether the message has the form of a look-up counts for both.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rag.query import asking
from rag.types import Hit, Scope, ScopeReason

LEXICAL_BIAS = 0.6
SHARE = 6.4
HELD_TERMS = 3.35
ENOUGH_TERMS = 12
"""From so many held terms on, more say nothing new."""
FAINTEST = 0.02
"""Shares well below that are as good as none."""

DENSE_BIAS = -6.1
COVERAGE = 6.0
CLOSENESS = 10.8

STATEMENT = -2.5
TALKS_OF_SELF = -0.6

CHOSEN = 0.6
"""Added where the user chose the documents: the question is likely about them."""
POINTED = 3.0
"""Added where the question points at a document of an earlier answer: it is about that one."""
FEW = 1.5
"""Added where there are so few documents that a chance match is rare; fades with their number."""
FEW_DOCUMENTS = 3


@dataclass(frozen=True, slots=True)
class Question:
    """What the gate knows of a question before it sees any passage.

    `few` is 1 where there are few documents and falls to 0 with their number. `told` is the share
    (0..1) of a follow-up that the conversation tells: the remembered documents hold that.
    `lacking` is what the terms of the conversation weigh in `share` beside the question's own.
    """

    terms: int
    seeks: bool
    talks_of_self: bool
    dense_weight: float
    chosen: bool
    few: float
    pointed: bool = False
    told: float = 0.0
    lacking: float = 0.0

    @classmethod
    def read(
        cls, text: str, *, terms: int, dense_weight: float, scope: Scope, lacking: float = 0.0
    ) -> "Question":
        """Read the form of the message; `terms` is how many lexical terms it has.

        `lacking` is what the conversation weighs beside it (1: as much as its own words).
        """
        inside = scope.reason is ScopeReason.FOLLOWUP
        return cls(
            terms=terms,
            seeks=asking.seeks(text),
            talks_of_self=asking.talks_of_self(text),
            dense_weight=dense_weight,
            chosen=scope.reason is not ScopeReason.ALL,
            few=1 / max(1.0, len(scope.document_ids) / FEW_DOCUMENTS),
            pointed=scope.reason is ScopeReason.SLOT,
            told=lacking / (1 + lacking) if inside else 0.0,
            lacking=lacking,
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """The best share, coverage and closeness of some hits, wherever they are; each 0..1."""

    share: float
    coverage: float
    closeness: float

    @classmethod
    def of(cls, hits: Iterable[Hit]) -> "Evidence":
        """What these hits say."""
        scores = [hit.scores for hit in hits]
        return cls(
            share=max((found.get("share", 0.0) for found in scores), default=0.0),
            coverage=max((found.get("coverage", 0.0) for found in scores), default=0.0),
            closeness=max((_closeness(found) for found in scores), default=0.0),
        )


def relevance(question: Question, hit: Hit) -> float:
    """Calibrated relevance of one hit, 0..1."""
    return probability(question, Evidence.of([hit]))


def score(question: Question, hits: Sequence[Hit]) -> float:
    """The gate's score over all candidates, 0..1."""
    return probability(question, Evidence.of(hits))


def probability(question: Question, evidence: Evidence) -> float:
    """The probability that documents with this evidence hold something on the question.

    More evidence never lowers it; none at all is 0.
    """
    if not evidence.share and not evidence.coverage and evidence.closeness <= 0:
        return 0.0
    weight = question.dense_weight
    lexical = _lexical(question, evidence)
    logit = (1 - weight) * lexical + weight * max(lexical, _dense(evidence))
    return 1 / (1 + math.exp(-(logit + _form(question) + _prior(question))))


def _lexical(question: Question, evidence: Evidence) -> float:
    # With few passages IDF says little, and terms that none of them holds take most of the share.
    # What no passage holds of the conversation says nothing against the question itself.
    undiluted = min(1.0, evidence.share * (1 + question.lacking))
    share = question.few * evidence.coverage + (1 - question.few) * undiluted
    share = question.told + (1 - question.told) * share
    coverage = question.told + (1 - question.told) * evidence.coverage
    held = min(coverage * question.terms, ENOUGH_TERMS)
    return LEXICAL_BIAS + SHARE * math.log(FAINTEST + share) + HELD_TERMS * math.log1p(held)


def _dense(evidence: Evidence) -> float:
    return DENSE_BIAS + COVERAGE * evidence.coverage + CLOSENESS * max(0.0, evidence.closeness)


def _form(question: Question) -> float:
    statement = 0.0 if question.seeks else STATEMENT
    return statement + TALKS_OF_SELF * question.talks_of_self


def _prior(question: Question) -> float:
    told = POINTED if question.pointed else CHOSEN if question.chosen else 0.0
    return max(told, FEW * question.few)


def _closeness(scores: Mapping[str, float]) -> float:
    return scores.get("closeness", scores.get("similarity", 0.0))

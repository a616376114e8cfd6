"""The gate tells whether the documents hold something on the question.

Two logistic functions, fitted on question sets (docs/notes/retrieval-measurements.md). The lexical
one reads how much of its highest score the question reaches and how many of its terms one passage
holds; the dense one reads coverage and closeness, and may speak for the documents as far as the
embedder knows the question's language. For both counts whether the message has the form of a
look-up.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag.types import Hit, Scope, ScopeReason
from rag.understand import kinds

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
    weight, lexical = prior.dense_weight, _lexical(prior, signals)
    close = CLOSENESS_WEIGHT * max(0.0, signals.closeness)
    dense = DENSE_BIAS + COVERAGE_WEIGHT * signals.coverage + close
    logit = (1 - weight) * lexical + weight * max(lexical, dense)
    return 1 / (1 + math.exp(-(logit + prior.logit)))


def _lexical(prior: Prior, signals: Signals) -> float:
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

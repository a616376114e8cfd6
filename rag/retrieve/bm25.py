"""The BM25 formulas that every store follows."""

import math

K1 = 1.2
B = 0.75
REFERENCE_LENGTH = 250.0
"""`avgdl` of stored weights, in terms: measured 100 (English) to 550 (manuals with code).

One constant for all: the true mean changes with every upload and scope, stored figures must not.
"""
LEAST_EMPHASIS = 1.0
BACKGROUND = 1000
"""Chunks of ordinary prose that `coverage_weight` imagines beside the scope; see there."""


def compute_idf(df: float, total: float) -> float:
    """Weight of a term held by `df` of `total` chunks (Robertson and Spärck Jones)."""
    return math.log(1 + (total - df + 0.5) / (df + 0.5))


def compute_term_weight(
    tf: int, length: int, average_length: float, emphasis: float = 0.0
) -> float:
    """Saturated weight of a term that stands `tf` times in a chunk of `length` terms.

    `emphasis` (0, or `LEAST_EMPHASIS` and more) is what its title, section and first words add
    before saturation, whatever the chunk's length: BM25F (Robertson, Zaragoza and Taylor 2004).
    """
    norm = 1 - B + B * length / average_length if average_length else 1.0
    frequency = tf / norm + emphasis
    return frequency * (K1 + 1) / (frequency + K1)


def compute_coverage_weight(df: float, total: float) -> float:
    """What a term of the question weighs in `coverage`.

    Its IDF as if `BACKGROUND` more chunks stood beside the scope.

    In a scope of three chunks the plain IDF of a term that all hold is near nothing beside one that
    none holds, and a question that the scope answers would look uncovered. With the background,
    terms weigh alike in small scopes.
    """
    return math.log(1 + (total + BACKGROUND - df) / (df + 1))

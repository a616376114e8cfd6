"""nDCG@5 and R@5 with binary relevance, and how sure their means are."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

DEPTH = 5
RESAMPLES = 2000
SEED = 20260
LIKELY = 0.95


def ndcg(found: Sequence[int], relevant: Collection[int], depth: int = DEPTH) -> float:
    """Gain of the first `depth` over that of the ideal order: 1/log2(rank + 1) a relevant one."""
    best = sum(_discount(rank) for rank in range(1, min(len(relevant), depth) + 1))
    gain = sum(_discount(rank) for rank, one in enumerate(found[:depth], 1) if one in relevant)
    return gain / best if best else 0.0


def recall(found: Sequence[int], relevant: Collection[int], depth: int = DEPTH) -> float:
    """The share of the relevant ones that stand among the first `depth`."""
    return len(set(found[:depth]) & set(relevant)) / len(relevant) if relevant else 0.0


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over questions, and where it lies in 95 % of samples of as many questions."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}-{self.high:.3f})"

    def rounded(self) -> dict[str, float]:
        """For the file of figures."""
        return {
            "mean": round(self.value, 4),
            "low": round(self.low, 4),
            "high": round(self.high, 4),
        }


def mean(values: Sequence[float]) -> Mean:
    """The mean with its bootstrap interval: questions drawn again with replacement, fixed seed."""
    figures = np.asarray(values, dtype=np.float64)
    chance = np.random.default_rng(SEED)
    drawn = [chance.choice(figures, len(figures)).mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [(1 - LIKELY) / 2, (1 + LIKELY) / 2])
    return Mean(float(figures.mean()), float(low), float(high))


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)

"""Which units of the passages answer: the best, each with news, from each document if need be."""

from collections.abc import Mapping, Sequence

from rag.generation.extractive.passages import Passage
from rag.generation.extractive.scoring import Scored, Scores, Unit

MOST = 4
ENOUGH = 0.65
"""A unit is quoted when it scores at least this share of the best one."""
PART = 0.2
"""Share of the question's weight that is a part of its own, as 예산 in "발주기관과 예산"."""
SAME = 0.8
"""Share of terms from which on two units say the same."""


def best(scores: Scores, most: int = MOST, enough: float = ENOUGH) -> list[Unit]:
    """The best units, best first; then those that answer a part that none of these does."""
    ranked, weights = scores.ranked, scores.weights
    kept: list[Scored] = []
    for one in ranked:
        if len(kept) < most and one.score >= ranked[0].score * enough and _is_new(one, kept):
            kept.append(one)
    answered = frozenset[str]().union(*(one.answers for one in kept))
    known = frozenset[str]().union(*(one.answers for one in ranked))
    least = PART * sum(weights[term] for term in sorted(known))
    for one in ranked:
        gain = sum(weights[term] for term in sorted(one.answers - answered))
        if len(kept) < most and gain >= least and _is_new(one, kept):
            kept.append(one)
            answered |= one.answers
    return [one.unit for one in kept]


def of_each(
    scores: Scores, passages: Sequence[Passage], most: int, least: float
) -> dict[int, list[Unit]]:
    """The best units of each document, by slot.

    A document whose best one scores less than `least` of the best of all has none.
    """
    found: dict[int, list[Unit]] = {}
    for slot in sorted({passage.slot for passage in passages}):
        own = tuple(one for one in scores.ranked if passages[one.unit.passage].slot == slot)
        if own and own[0].score >= least * scores.ranked[0].score:
            found[slot] = best(Scores(own, _held(own, scores.weights)), most)
    return found


def leading(units: Sequence[Unit], passages: Sequence[Passage], most: int) -> list[Unit]:
    """The first units of each document, in turn."""
    turns: dict[int, int] = {}
    ranked = []
    for unit in units:
        slot = passages[unit.passage].slot
        turns[slot] = turns.get(slot, 0) + 1
        ranked.append((turns[slot], unit.order, unit))
    return [unit for _turn, _order, unit in sorted(ranked, key=lambda one: one[:2])[:most]]


def _held(own: Sequence[Scored], weights: Mapping[str, float]) -> dict[str, float]:
    """The weights of the terms that a document holds at all."""
    known = frozenset[str]().union(*(one.answers for one in own))
    return {term: weight for term, weight in weights.items() if term in known}


def _is_new(one: Scored, kept: Sequence[Scored]) -> bool:
    return all(_overlap(one.terms, other.terms) < SAME for other in kept)


def _overlap(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / max(1, min(len(left), len(right)))

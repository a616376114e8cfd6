"""A claim beside the evidence: how much of it stands there, and in which units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag.grounding.claims import Claim
from rag.grounding.index import Index, Passage, Term, Unit, coverage, scores

NEAREST = 3
"""Units that a claim is compared with word by word."""
NEARLY = 0.85
"""Share of the best unit's score from which on others count as near."""
PART, MOST_OF_REST = 0.1, 0.5
"""Where the best unit lacks this share of a claim, the one that holds most of that counts, too."""


@dataclass(frozen=True, slots=True)
class Held:
    """`whole`, `near`, `elsewhere` and `alike` are shares 0..1 of the weight of its words.

    What its passages hold anywhere, what a unit of them holds with its neighbours, the same of
    passages that it does not cite, and what a unit holds alone. `nearest` are units, best first;
    `rest` is the one, if any, that holds most of what the best lacks.
    """

    claim: Claim
    passages: tuple[Passage, ...]
    within: int
    terms: tuple[Term, ...]
    whole: float
    near: float
    elsewhere: float
    alike: float
    nearest: tuple[Unit, ...]
    rest: tuple[Unit, ...]

    @property
    def foreign(self) -> bool:
        """Written in another language than its passages: words cannot be compared, figures can."""
        return all(passage.language != self.claim.language for passage in self.passages)

    @property
    def names(self) -> list[str]:
        """Its names that its passages could hold as they are written."""
        if not self.foreign:
            return list(self.claim.names)
        return [name for name in self.claim.names if name.isascii() and self.claim.language == "ko"]


def hold(claim: Claim, index: Index) -> Held:
    """The claim beside the passages of its slots; beside all where it cites none."""
    slots = claim.span.slots
    passages = tuple(item for item in index.passages if not slots or item.slot in slots)
    within = sum(item.bits for item in passages)
    terms = tuple(claim.terms(index))
    alone = scores(terms, within, near=False)
    near = _nearest(alone)
    return Held(
        claim=claim,
        passages=passages,
        within=within,
        terms=terms,
        whole=coverage(terms, within),
        near=_best(terms, within),
        elsewhere=_best(terms, sum(item.bits for item in index.passages) & ~within),
        alike=max(alone.values(), default=0.0),
        nearest=tuple(index.units[bit] for bit in near),
        rest=tuple(index.units[bit] for bit in _rest(near, alone, terms, within)),
    )


def _nearest(alone: Mapping[int, float]) -> list[int]:
    """The bits of the best unit and of those about as good."""
    ordered = sorted(alone, key=lambda bit: (-alone[bit], bit))[:NEAREST]
    return [bit for bit in ordered if alone[bit] >= NEARLY * alone[ordered[0]]]


def _rest(
    near: Sequence[int], alone: Mapping[int, float], terms: Sequence[Term], within: int
) -> list[int]:
    """The bit of the unit that holds most of what the best one lacks, if that is much."""
    if not near or 1 - alone[near[0]] < PART:
        return []
    left = [term for term in terms if not term.bits >> near[0] & 1]
    others = scores(left, within, near=False)
    best = max(others, key=lambda bit: (others[bit], -bit), default=-1)
    return [best] if best >= 0 and others[best] >= MOST_OF_REST else []


def _best(terms: Sequence[Term], within: int) -> float:
    return max(scores(terms, within, near=True).values(), default=0.0)

"""A claim beside the evidence: how much of it stands there, and in which units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag import surface
from rag.grounding.claims import Claim
from rag.grounding.index import Index, Passage, Term, Unit, coverage, scores

NEAREST = 3
"""Units that a claim is compared with word by word."""
NEARLY = 0.85
"""Share of the best unit's score from which on others count as near."""
PART, MOST_OF_REST = 0.2, 0.5
"""Where the best unit lacks this share of a claim, the one that holds most of that counts, too."""


@dataclass(frozen=True, slots=True)
class Held:
    """`whole`, `near`, `elsewhere` and `alike` are shares 0..1 of the weight of its words.

    What its passages hold anywhere, what a unit of them holds with its neighbours, the same of
    passages that it does not cite, and what a unit holds alone. `nearest` are units, best first.
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

    @property
    def foreign(self) -> bool:
        """A Korean claim on passages without Hangul: its words cannot be compared with theirs."""
        return bool(surface.HANGUL.search(self.claim.text)) and not any(
            surface.HANGUL.search(passage.bare) for passage in self.passages
        )

    @property
    def told(self) -> str:
        """All that its passages say, as names are looked for."""
        return " ".join(passage.bare for passage in self.passages)


def hold(claim: Claim, index: Index) -> Held:
    """The claim beside the passages of its slots; beside all where it cites none."""
    slots = claim.span.slots
    passages = tuple(item for item in index.passages if not slots or item.slot in slots)
    within = sum(item.bits for item in passages)
    terms = tuple(claim.terms(index))
    alone = scores(terms, within, near=False)
    return Held(
        claim=claim,
        passages=passages,
        within=within,
        terms=terms,
        whole=coverage(terms, within),
        near=_best(terms, within),
        elsewhere=_best(terms, sum(item.bits for item in index.passages) & ~within),
        alike=max(alone.values(), default=0.0),
        nearest=tuple(index.units[bit] for bit in _nearest(alone, terms, within)),
    )


def _nearest(alone: Mapping[int, float], terms: Sequence[Term], within: int) -> list[int]:
    """The bits of the best unit, of those as good, and of the one that holds most of the rest."""
    if not alone:
        return []
    ordered = sorted(alone, key=lambda bit: (-alone[bit], bit))
    best = ordered[0]
    near = [bit for bit in ordered[:NEAREST] if alone[bit] >= NEARLY * alone[best]]
    rest = [term for term in terms if not term.bits >> best & 1]
    if 1 - alone[best] >= PART and (others := scores(rest, within, near=False)):
        second = max(others, key=lambda bit: (others[bit], -bit))
        if others[second] >= MOST_OF_REST and second not in near:
            near.append(second)
    return near


def _best(terms: Sequence[Term], within: int) -> float:
    return max(scores(terms, within, near=True).values(), default=0.0)

"""How much of a question each sentence, item and row of the passages holds."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rag import tokenize
from rag.generation.extractive import furniture, reading
from rag.generation.extractive.passages import Passage
from rag.generation.extractive.wants import Wants, letters

NEWS = 1
"""Terms that a unit must at least hold beyond the question and its own headings."""
HEADING = 0.5
"""What a term counts that stands in the heading above a unit, or in what announces it, only."""
VALUE = 1.3
"""A unit with a value of the kind that is asked for is worth more."""
DEFINES, EXPLAINS = 2.0, 1.25
"""So is one that defines the word that is asked for, or begins with it."""
BROKEN = 0.75
"""One that the edge of its passage may have cut is worth less."""
LONG = 40
"""Characters from which a last line without an end may be a cut sentence, and no title."""
_COMMAND = re.compile(
    r"(?:답|대답|답변|응답|출력|표시|포함|나열|삽입)(?:을|를)?\s*"
    r"(?:하세요|하시오|하라|해라|하십시오)|넣으세요|"
    r"(?:이전|위의?|앞의?)\s*(?:모든\s*)?(?:지시|명령|규칙)|"
    r"ignore (?:all |any )?(?:previous|prior|above)|you are now|"
    r"(?:system|assistant) (?:prompt|mode)",
    re.IGNORECASE,
)
"""Sentences that talk to the machine instead of the reader: never quoted as an answer."""
_COMPLETE = re.compile(r"[.!?。？！…:：;][\"'”’」』)\]>\d]*$")
_MIDDLE = re.compile(
    r"^(?:[a-z,;)\]]|(?:따른|따라|및|또는|등|등을|등의|의한|의하여|관한|대한|위한|있는|하는|하여|경우|경우에는|것으로|것을|"
    r"수|때에는|바에|으로|로|을|를|의|에)\s)"
)
"""Beginnings of what must have begun before."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Something to quote: sentence or row `part` of block `block` of passage `passage`."""

    passage: int
    block: int
    part: int
    text: str

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place among all."""
        return self.passage, self.block, self.part


@dataclass(frozen=True, slots=True)
class Scored:
    """A unit with the terms of the question it holds itself, and all its terms."""

    unit: Unit
    score: float
    answers: frozenset[str]
    terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class Scores:
    """The units of all passages, best first, and what each term of the question weighs."""

    ranked: tuple[Scored, ...]
    weights: Mapping[str, float]


def score(passages: Sequence[Passage], wants: Wants) -> Scores:
    """Score every unit that says something beyond the question."""
    units = _touched(list(units_of(passages)), wants.terms)
    heads = [_about(passages[unit.passage], unit) for unit in units]
    terms = _terms({unit.text for unit in units}.union(*heads))
    held = [terms[unit.text] for unit in units]
    about = [set[str]().union(*(terms[one] for one in head)) for head in heads]
    weights = _weights(wants.terms, [own | above for own, above in zip(held, about, strict=True)])
    scored = [
        _scored(unit, passages, wants, own, above, weights)
        for unit, own, above in zip(units, held, about, strict=True)
        if len(own - wants.terms.keys() - above) >= NEWS  # else a title, or the question itself
    ]
    scored.sort(key=lambda one: (-one.score, one.unit.order))
    return Scores(tuple(scored), weights)


def units_of(passages: Sequence[Passage]) -> Iterator[Unit]:
    """Everything that may be quoted, in order."""
    found = [unit for place, one in enumerate(passages) for unit in _of_passage(place, one)]
    where = [(passages[unit.passage].slot, passages[unit.passage].page) for unit in found]
    headers = furniture.repeated(
        (*place, unit.text) for place, unit in zip(where, found, strict=True)
    )
    for (slot, _page), unit in zip(where, found, strict=True):
        if (slot, furniture.shape(unit.text)) not in headers:
            yield unit


def _of_passage(place: int, passage: Passage) -> Iterator[Unit]:
    for number, block in enumerate(passage.blocks):
        for part, text in enumerate(reading.told(block)):
            if not (_COMMAND.search(text) or furniture.is_nothing(text)):
                yield Unit(place, number, part, text)


def _about(passage: Passage, unit: Unit) -> list[str]:
    """What stands above a unit: its document, its headings, and what announces it."""
    block = passage.blocks[unit.block]
    above = [passage.name, passage.section, block.heading, block.label]
    at = block.parent
    while at is not None:
        above += passage.blocks[at].sentences
        at = passage.blocks[at].parent
    return above


def _touched(units: list[Unit], wanted: Mapping[str, float]) -> list[Unit]:
    """The units in whose letters some term of the question stands: the others need no reading."""
    touched = [unit for unit in units if any(term in unit.text.casefold() for term in wanted)]
    return touched or units


def _terms(texts: Iterable[str]) -> dict[str, set[str]]:
    """The terms of each text."""
    ordered = sorted(texts)
    return dict(zip(ordered, map(set, tokenize.terms_of_all(ordered)), strict=True))


def _weights(wanted: Mapping[str, float], held: Sequence[set[str]]) -> dict[str, float]:
    """What each term of the question tells units apart by: little where nearly all hold it."""
    total = len(held)
    return {
        term: share * math.log(1 + (total + 1) / (1 + sum(term in terms for terms in held)))
        for term, share in wanted.items()
    }


def _scored(  # noqa: PLR0913, PLR0917 - one unit with all that is known of it
    unit: Unit,
    passages: Sequence[Passage],
    wants: Wants,
    own: set[str],
    above: set[str],
    weights: Mapping[str, float],
) -> Scored:
    passage = passages[unit.passage]
    total = math.fsum(
        weight * (1.0 if term in own else HEADING)
        for term, weight in weights.items()
        if term in own or term in above
    )
    total *= _worth(unit.text, wants) * (0.5 + 0.5 * passage.relevance)
    if _broken(unit, passage):
        total *= BROKEN
    # rounded, so that equal ones are equal and their order decides
    return Scored(unit, round(total, 9), frozenset(own & weights.keys()), frozenset(own))


def _worth(text: str, wants: Wants) -> float:
    worth = VALUE if wants.holds_value(text) else 1.0
    if wants.defined:
        said = letters(text)
        if any(f"{wants.defined}{end}" in said for end in ("이란", "란", "이라함은", "라함은")):
            return worth * DEFINES
        subject = re.match(
            rf"(?:an?|the)?{re.escape(wants.defined)}(?:은|는|is|are|was|means|refers)", said
        )
        return worth * EXPLAINS if subject else worth
    return worth


def _broken(unit: Unit, passage: Passage) -> bool:
    """Whether a unit seems to begin before its passage, or to go on behind it."""
    begun = unit.block == 0 and unit.part == 0 and _MIDDLE.search(unit.text)
    if begun or unit.text.endswith((",", "，")):
        return True
    last = passage.blocks[-1]
    at_end = unit.block == len(passage.blocks) - 1 and unit.part == len(last.sentences) - 1
    plain = not last.mark and last.table is None
    return at_end and plain and len(unit.text) >= LONG and not _COMPLETE.search(unit.text)

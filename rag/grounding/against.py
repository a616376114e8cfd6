"""What speaks against a claim: words, figures, dates, names and signs that its passages lack."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from rag.grounding import claims, dates, figures, names, polarity, swaps
from rag.grounding.holding import Held
from rag.grounding.index import Index, Told, Unit
from rag.morphemes import Morpheme

ENOUGH_NEAR, ENOUGH_WHOLE = 0.4, 0.45
"""Shares of a claim's words that must stand close together, and anywhere in its passages."""
BETTER_ELSEWHERE = 0.2
"""How much more of a claim a passage that it does not cite may hold."""
ALIKE = 0.5
"""Share of its words from which on a unit is taken to tell the same matter."""
MOST = 40
"""Figures and dates of a sentence that are looked at."""
SAME = 0.8
"""Share of words in the same order, either way, from which on a unit is nearly the claim."""


@dataclass(frozen=True, slots=True)
class Read:
    """A unit of the evidence as far as it is compared word by word."""

    signs: polarity.Signs
    words: Sequence[swaps.Word]


def read(held: Sequence[Held]) -> dict[int, Read]:
    """The units that these claims are compared with, by their bits; all analysed together."""
    units = {
        unit.bit: unit
        for item in held
        if item.alike >= ALIKE
        for unit in (*item.nearest, *item.rest)
    }
    found = claims.analysed([unit.text for unit in units.values()])
    return {
        bit: Read(_signs(unit.text, parts), swaps.read(unit.text, parts))
        for (bit, unit), parts in zip(units.items(), found, strict=True)
    }


def _signs(text: str, found: Sequence[Morpheme] | None) -> polarity.Signs:
    signs = claims.signs_of(text, found)
    return polarity.loosened(signs) if polarity.excepts(text) else signs


def reasons(held: Held, index: Index, units: Mapping[int, Read]) -> Iterator[str]:
    """Why the passages do not bear out the claim, each kind of reason perhaps several times."""
    if not held.foreign and _too_little(held):
        yield "overlap"
    near = [unit for unit in (*held.nearest, *held.rest) if unit.bit in units]
    told = index.within(held.within)
    yield from _figures(held, told, near)
    if any(day not in told.bare for day in names.weekdays(held.claim.text)):
        yield "date"
    if names.missing(held.names, told.bare):
        yield "name"
    read = [units[unit.bit] for unit in near]
    if read and _denied(held, read):
        yield "negation"
    if read and _renamed(held, read, near, index):
        yield "name"


def _too_little(held: Held) -> bool:
    return (
        held.near < ENOUGH_NEAR
        or held.whole < ENOUGH_WHOLE
        or held.elsewhere - held.near > BETTER_ELSEWHERE
    )


def _figures(held: Held, told: Told, near: Sequence[Unit]) -> Iterator[str]:
    for date in held.claim.dates[:MOST]:
        if not dates.agrees(date, told.dates, told.numbers) or _other_date(date, held, near):
            yield "date"
    close = [figure for unit in near for figure in unit.figures[:MOST]]
    for figure in held.claim.figures[:MOST]:
        same = told.figures.same(figure)
        if not (same or figure.loose):
            yield "number"
        elif figures.opposed(figure, figures.tells(figure, close) or same):
            yield "negation"
        elif near and _other_figure(figure, held, near):
            yield "number"


def _other_figure(figure: figures.Figure, held: Held, near: Sequence[Unit]) -> bool:
    """Whether the nearest unit has another figure of the kind, and none that is near has this."""
    told = (near[0], *held.rest)
    if not figure.dimension or any(figures.tells(figure, unit.figures) for unit in told):
        return False
    return any(
        other.dimension == figure.dimension and not figures.tells(other, held.claim.figures)
        for other in near[0].figures
    )


def _other_date(date: dates.Date, held: Held, near: Sequence[Unit]) -> bool:
    """Whether the nearest unit has other dates in the place of this one."""
    if not near or not near[0].dates or any(_meet(date, other) for u in near for other in u.dates):
        return False
    return not any(_meet(mine, other) for mine in held.claim.dates for other in near[0].dates)


def _meet(date: dates.Date, other: dates.Date) -> bool:
    return all(mine == its for mine, its in zip(date, other, strict=True) if mine and its)


def _denied(held: Held, units: Sequence[Read]) -> bool:
    """Whether the nearest units have a word of the claim only the other way round."""
    mine = held.claim.signs
    its = polarity.joined([unit.signs for unit in units])
    if polarity.turned(mine, its):
        return True
    odd = (mine.denials - units[0].signs.denials) % 2 and mine.denials != its.denials
    return bool(odd) and _nearly_same(held.claim.words, units[0].words)


def _nearly_same(mine: Sequence[swaps.Word], its: Sequence[swaps.Word]) -> bool:
    matcher = SequenceMatcher(None, [w.key for w in mine], [w.key for w in its], autojunk=False)
    return matcher.ratio() >= SAME


def _renamed(held: Held, read: Sequence[Read], near: Sequence[Unit], index: Index) -> bool:
    """Whether the nearest unit names another in one place; headings tell what "it" is."""
    known = index.about(near[0].bit)
    return all(swaps.swapped(held.claim.words, unit.words, known) for unit in read[:1])

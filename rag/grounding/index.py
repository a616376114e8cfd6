"""The evidence cut into units, with what stands where: each word is a set of bits, one a unit."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from rag import surface, tokenize
from rag.generation.brief import Evidence
from rag.grounding import dates, figures, names
from rag.grounding.spans import Form, split
from rag.language import reply_language

LONGEST_EVIDENCE = 60_000
"""Characters of all passages together that are read; a prompt holds less."""
PREFIX, LONG = 5, 6
"""Latin words that share this beginning and are this long are taken for forms of one word."""
PREFIX_WORTH = 0.8
MOST_UNITS = 3000
"""Units of all passages together that are read."""
COMMON = 300
NOWHERE = 4
"""In how many units a word that stands in none is taken to stand, for its weight."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence, item or row of a passage. `bit` is its place; passages are a bit apart."""

    bit: int
    text: str
    heading: str
    dates: tuple[dates.Date, ...]
    figures: tuple[figures.Figure, ...]


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage with its bits, and its words as names are looked for (`names.bare`)."""

    slot: int
    bits: int
    about: str
    bare: str
    figures: tuple[figures.Figure, ...]
    """Those of its document's name and section: "제11조"."""
    language: str
    """ "ko" or "en": what it is mostly written in."""


@dataclass(frozen=True, slots=True)
class Told:
    """Figures and dates of several units, and what their passages say (`names.bare`)."""

    figures: figures.Known
    dates: frozenset[dates.Date]
    numbers: frozenset[float]
    bare: str

    @classmethod
    def of(cls, passages: Sequence[Passage], units: Sequence[Unit]) -> Self:
        """Those of these passages and units."""
        found = [figure for passage in passages for figure in passage.figures]
        found += [figure for unit in units for figure in unit.figures]
        told = frozenset(date for unit in units for date in unit.dates)
        parts = {part for date in told for part in date if part}
        return cls(
            figures.Known([*found, *(figures.Figure(part, "", part) for part in parts)]),
            told,
            frozenset(figure.raw for figure in found),
            " ".join(passage.bare for passage in passages),
        )


@dataclass(frozen=True, slots=True)
class Term:
    """A word of a claim: what it weighs there, and the units that hold it."""

    weight: float
    bits: int


@dataclass(slots=True)
class Index:
    """What the passages hold. Built once an answer, in time linear in their length."""

    units: dict[int, Unit] = field(default_factory=dict)
    passages: list[Passage] = field(default_factory=list)
    _pairs: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _words: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _told: dict[int, Told] = field(default_factory=dict)
    _numbers: dict[float, int] = field(default_factory=lambda: defaultdict(int))

    def hangul(self, word: str) -> Iterator[tuple[float, int]]:
        """Share and bits of a Hangul word: whole, or its pairs where it stands nowhere whole."""
        pairs = [self._pairs.get(pair, 0) for pair in surface.pairs(word)]
        whole = -1
        for bits in pairs:
            whole &= bits
        if whole or len(pairs) < 2:
            yield 1.0, whole
        else:
            yield from ((1 / len(pairs), bits) for bits in pairs)

    def latin(self, stem: str) -> Iterator[tuple[float, int]]:
        """Share and bits of a stem; of its beginning where it stands nowhere."""
        bits = self._words.get(stem, 0)
        if not bits and len(stem) >= LONG and (bits := self._words.get(stem[:PREFIX] + "~", 0)):
            yield PREFIX_WORTH, bits
            yield 1 - PREFIX_WORTH, 0
        else:
            yield 1.0, bits

    def number(self, raw: float) -> int:
        """The bits of a number as told."""
        return self._numbers.get(raw, 0)

    def telling(self, bits: int) -> float:
        """What a word tells that stands in these units: more, the fewer they are."""
        return math.log(1 + len(self.units) / (1 + (bits.bit_count() or NOWHERE)))

    def add(self, item: Evidence, text: str) -> None:
        """Take in a passage: its units under its own name and heading."""
        first = max(self.units, default=-2) + 2
        bit, heading = first, ""
        spans = split(text, wrapped=True)[: max(0, MOST_UNITS - len(self.units))]
        for bit, span in enumerate(spans, first):
            heading = span.text if span.form is Form.TITLE else heading
            self._read(span.text, bit, heading)
        bits = (2 << bit) - (1 << first)
        about = tokenize.normalise(f"{item.document_name} {item.section}")
        self._note(about, bits)
        self.passages.append(
            Passage(
                item.slot,
                bits,
                names.bare(about),
                names.bare(f"{about} {text}"),
                tuple(figures.read(about)),
                reply_language(text),
            )
        )

    def within(self, bits: int) -> Told:
        """What the units at these bits tell; remembered."""
        if bits not in self._told:
            passages = [item for item in self.passages if item.bits & bits]
            units = [unit for bit, unit in self.units.items() if bits >> bit & 1]
            self._told[bits] = Told.of(passages, units)
        return self._told[bits]

    def about(self, bit: int) -> str:
        """What the unit at a bit is about: its document, section and heading, `names.bare`."""
        passage = next(item for item in self.passages if item.bits >> bit & 1)
        return f"{passage.about} {names.bare(self.units[bit].heading)}"

    def _read(self, text: str, bit: int, heading: str) -> None:
        found, rest = dates.read(text)
        told = figures.read(rest)
        self.units[bit] = Unit(bit, text, heading, tuple(found), tuple(told))
        self._note(f"{heading} {text}", 1 << bit)
        for raw in (*(figure.raw for figure in told), *(part for date in found for part in date)):
            self._numbers[raw] |= 1 << bit

    def _note(self, text: str, bits: int) -> None:
        for run in surface.HANGUL.findall("".join(text.split())):
            for pair in surface.pairs(run):
                self._pairs[pair] |= bits
        for word in text.split():
            for stem in latin_stems(word):
                self._words[stem] |= bits
                if len(stem) >= LONG:
                    self._words[stem[:PREFIX] + "~"] |= bits


def build(evidence: Sequence[Evidence]) -> Index:
    """The index of all passages, as far as `LONGEST_EVIDENCE` reaches."""
    index = Index()
    left = LONGEST_EVIDENCE
    for item in evidence:
        index.add(item, tokenize.normalise(item.text[:left]))
        left = max(0, left - len(item.text))
    return index


def latin_stems(word: str) -> Iterable[str]:
    """The terms of a word that are neither Hangul nor numbers."""
    return [
        term
        for term in surface.read(word).others
        if not term[0].isdigit() and not surface.HANGUL.search(term)
    ]


def spread(bits: int) -> int:
    """The bits with their neighbours: what stands beside counts, too."""
    return bits | bits << 1 | bits >> 1


def coverage(terms: Sequence[Term], within: int) -> float:
    """The share of the terms' weight that stands anywhere within these bits."""
    total = sum(term.weight for term in terms)
    return sum(term.weight for term in terms if term.bits & within) / total if total else 0.0


def scores(terms: Sequence[Term], within: int, *, near: bool) -> Mapping[int, float]:
    """Share of weight a unit holds, for all within that hold some; `near`: with its neighbours.

    Words of more than `COMMON` units tell none apart: all count as having them.
    """
    total = sum(term.weight for term in terms)
    common, found = 0.0, defaultdict[int, float](float)
    for term in terms:
        bits = (spread(term.bits & within) if near else term.bits) & within
        if bits.bit_count() > COMMON:
            common += term.weight / total
            found[_lowest(bits)] += 0.0
            continue
        while bits:
            found[_lowest(bits)] += term.weight / total
            bits &= bits - 1
    return {bit: share + common for bit, share in found.items()}


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1

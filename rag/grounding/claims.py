"""What a sentence of an answer claims: its words, figures, dates, names and signs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag import morphemes, particles, surface, tokenize
from rag.errors import EngineUnavailable
from rag.grounding import dates, figures, names, polarity, swaps
from rag.grounding.index import Index, Term, latin_stems
from rag.grounding.spans import MARKER, Span
from rag.words import words

LONGEST = 1000
"""Characters of a sentence that are looked at."""
VERB, FIGURE = 0.4, 1.0
"""What a verb and a figure weigh beside a noun."""
_NOUNS = frozenset(("NNG", "NNP", "XR"))
_VERBS = frozenset(("VV", "VA"))
_EMPTY_VERBS = words("empty_verbs.ko")
_LINK = re.compile(r"!?\[([^\[\]\n]{0,200})\]\([^()\s]{0,400}\)")
_MARKUP = re.compile(r"\*{1,3}|`+|~~|^[#>\s]+|__")


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence read. `found` is None where there is no analyser for its Hangul."""

    span: Span
    text: str
    found: Sequence[morphemes.Morpheme] | None
    dates: tuple[dates.Date, ...]
    figures: tuple[figures.Figure, ...]
    names: tuple[str, ...]
    signs: polarity.Signs
    words: Sequence[swaps.Word]

    @property
    def language(self) -> str:
        """Korean ("ko") where it holds Hangul, else "en"."""
        return "ko" if surface.HANGUL.search(self.text) else "en"

    def terms(self, index: Index) -> list[Term]:
        """Its words with their weights and the units that hold them."""
        return [
            Term(weight * share * index.telling(bits), bits)
            for weight, held in self._words(index)
            for share, bits in held
        ]

    def _words(self, index: Index) -> Iterator[tuple[float, Iterator[tuple[float, int]]]]:
        for word, weight in self._hangul().items():
            yield weight, index.hangul(word)
        for stem in dict.fromkeys(stem for word in self.text.split() for stem in latin_stems(word)):
            yield 1.0, index.latin(stem)
        numbers = [figure.raw for figure in self.figures]
        numbers += [part for date in self.dates for part in date if part]
        for raw in dict.fromkeys(numbers):
            yield FIGURE, iter([(1.0, index.number(raw))])

    def _hangul(self) -> dict[str, float]:
        if self.found is None:
            runs = [run for word in self.text.split() for run in surface.hangul(word)]
            return {word: 1.0 for run in runs if len(word := particles.strip(run)) > 1}
        kept: dict[str, float] = {}
        for item in self.found:
            verb = item.tag in _VERBS and item.form not in _EMPTY_VERBS
            long = len(item.form) > 1 and surface.HANGUL.fullmatch(item.form)
            if long and (verb or item.tag in _NOUNS):
                kept.setdefault(item.form, VERB if verb else 1.0)
        return kept


def read(spans: Sequence[Span]) -> list[Claim]:
    """The claims of these sentences; all are analysed together."""
    texts = [tokenize.normalise(_plain(span.text)) for span in spans]
    return [_claim(*parts) for parts in zip(spans, texts, analysed(texts), strict=True)]


def analysed(texts: Sequence[str]) -> list[Sequence[morphemes.Morpheme] | None]:
    """The morphemes of every text's beginning; None where the analyser is not there."""
    texts = [text[:LONGEST] for text in texts]
    try:
        korean = [text for text in texts if surface.HANGUL.search(text)]
        found = iter(list(morphemes.analyse(korean)) if korean else ())
    except EngineUnavailable:
        return [None] * len(texts)
    return [next(found) if surface.HANGUL.search(text) else () for text in texts]


def signs_of(text: str, found: Sequence[morphemes.Morpheme] | None) -> polarity.Signs:
    """What a sentence affirms and denies."""
    if surface.HANGUL.search(text):
        return polarity.korean(found or ())
    return polarity.english(text)


def _claim(span: Span, text: str, found: Sequence[morphemes.Morpheme] | None) -> Claim:
    told, rest = dates.read(text)
    return Claim(
        span,
        text,
        found,
        tuple(dict.fromkeys(told)),
        tuple(dict.fromkeys(figures.read(rest))),
        tuple(names.read(text, found)),
        signs_of(text, found),
        swaps.read(text, found),
    )


def _plain(text: str) -> str:
    """Without markers and Markdown."""
    return (
        _MARKUP.sub("", _LINK.sub(r"\1", MARKER.sub(" ", text[:LONGEST]))).replace("|", " ").strip()
    )

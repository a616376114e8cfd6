"""A message as it is spoken: whether a word stands in it as a word, and not inside another."""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag import particles, surface, tokenize
from rag.morphemes import Morpheme

LOOKED_AT = 2000
"""Characters of a message that its words are looked for in."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message as written (`raw`), in small letters, and with its morphemes.

    `morphemes` None: the analyser is not there.
    """

    raw: str
    text: str
    morphemes: Sequence[Morpheme] | None

    @property
    def korean(self) -> bool:
        """True when there is Korean in it."""
        return bool(surface.HANGUL.search(self.text))

    def places(self, word: str) -> Iterable[tuple[int, int]]:
        """Where the word or phrase stands by itself, or as a whole part of a compound."""
        for match in _shape(word).finditer(self.text):
            if self._stands(*match.span()):
                yield match.span()

    def holds(self, words: Iterable[str]) -> bool:
        """True when one of the words stands in the message."""
        return any(True for word in words for _ in self.places(word))

    def before(self, place: int) -> Morpheme | None:
        """The last morpheme that ends before a place."""
        ended = [item for item in self.morphemes or () if item.end <= place]
        return ended[-1] if ended else None

    def after(self, place: int) -> Morpheme | None:
        """The first morpheme that begins at a place or behind it."""
        return next((item for item in self.morphemes or () if item.start >= place), None)

    def _stands(self, start: int, end: int) -> bool:
        if not surface.HANGUL.search(self.text[start:end]):
            return True
        if self.morphemes is None:
            word = re.match(r"\w+", self.text[start:])
            return not re.match(r"\w", self.text[start - 1 : start]) and (
                word is not None and particles.strip(word[0]) == self.text[start:end]
            )
        return any(item.start == start for item in self.morphemes) and any(
            item.end == end for item in self.morphemes
        )


def spoken(text: str) -> Spoken:
    """The message as it is read: folded, composed, its beginning only."""
    clean = tokenize.normalise(text[:LOOKED_AT])
    return Spoken(clean, clean.lower(), tokenize.morphemes_of(clean))


@functools.lru_cache(maxsize=256)
def _shape(word: str) -> re.Pattern[str]:
    """The word in small letters; spaces in Korean phrases are optional."""
    clean = tokenize.normalise(word).lower()
    if surface.HANGUL.search(clean):
        return re.compile(r"\s?".join(re.escape(part) for part in clean.split()))
    return re.compile(rf"(?<![^\W가-힣]){re.escape(clean)}(?![^\W가-힣])")

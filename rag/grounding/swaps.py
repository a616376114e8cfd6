"""A sentence nearly as the evidence has it, but with another name in one place."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from rag import particles, surface
from rag.grounding import names
from rag.morphemes import Morpheme

LIKE = 0.6
"""Share of a sentence's words that must stand in the same order in the evidence."""
LONGEST, LONGEST_THERE = 5, 8
"""Words that a name may have, and that may stand for it in the evidence."""
MOST = 120
"""Words of a sentence that are compared."""
_WORD = re.compile(r"\S+")
_ACTS = frozenset(("VV", "VA", "VX", "VCN", "XSV", "XSA", "MAG", "MAJ", "NP", "NNB", "MM"))
_NOUNS = frozenset(("NNG", "NNP", "NR", "SL", "SH", "XR"))
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it is compared; `names` tells whether it may be part of a name."""

    key: str
    names: bool


def read(text: str, found: Sequence[Morpheme] | None) -> list[Word]:
    """The words of a sentence."""
    acting = {item.start for item in found or () if item.tag in _ACTS}
    nouns = {item.start for item in found or () if item.tag in _NOUNS}
    hangul = bool(surface.HANGUL.search(text))
    words: list[Word] = []
    for match in _WORD.finditer(text):
        bare = _EDGES.sub("", match[0])
        if bare and len(words) < MOST:
            key = particles.strip(bare) if surface.HANGUL.search(bare) else bare
            place = range(match.start(), match.end())
            noun = acting.isdisjoint(place) and not nouns.isdisjoint(place)
            named = noun if hangul else bare[0].isupper() and bool(words)
            words.append(Word(names.bare(key), named and not _DIGIT.search(bare)))
    return [word for word in words if word.key]


def swapped(mine: Sequence[Word], its: Sequence[Word], known: str) -> bool:
    """Whether one place of a sentence names something else than the evidence does there.

    Names in `known` (as `names.bare` writes it) are what the evidence is about anyway.
    """
    own = [word.key for word in mine]
    other = [word.key for word in its]
    matcher = SequenceMatcher(None, own, other, autojunk=False)
    blocks = matcher.get_matching_blocks()
    if sum(block.size for block in blocks) < LIKE * len(own):
        return False
    said, told = "".join(own), "".join(other)
    for left, right in _gaps(mine, its, blocks):
        new = [word.key for word in left if word.names and len(word.key) > 1]
        lost = [word.key for word in right if word.names and len(word.key) > 1]
        strange = [key for key in new if not _has(told, key) and not _has(known, key)]
        if strange and any(not _has(said, key) for key in lost):
            return True
    return False


def _has(text: str, key: str) -> bool:
    """Whether a word, or half of it, is part of a text: names are written apart and shortened."""
    if key.isascii():
        return key in text
    pairs = list(surface.pairs(key))
    return 2 * sum(pair in text for pair in pairs) >= len(pairs)


def _gaps(
    mine: Sequence[Word], its: Sequence[Word], blocks: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[Sequence[Word], Sequence[Word]]]:
    """What stands on either side between two places that are the same."""
    here = there = 0
    for a, b, size in blocks:
        left, right = mine[here:a], its[there:b]
        if 0 < len(left) <= LONGEST and 0 < len(right) <= LONGEST_THERE and size:
            yield left, right
        here, there = a + size, b + size

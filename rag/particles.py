"""Korean particles at the end of a word, for what the morphological analyser does not settle."""

from rag.words import words

PARTICLES = words("particles.ko")
LONGEST = max(map(len, PARTICLES))

_AFTER_VOWEL = frozenset("가는를와로랑라야여나란며예")
_AFTER_CONSONANT = frozenset("은을과으아")
"""First syllables of the particles that have one form after a vowel and one after a consonant."""
_FINALS = 28
_RIEUL = 8


def strip(word: str) -> str:
    """The word without its particle, longest match first; at least one syllable stays.

    A particle must fit what it follows: "국가" and "사과" keep their last syllables.
    """
    for length in range(min(LONGEST, len(word) - 1), 0, -1):
        particle = word[-length:]
        if particle in PARTICLES and _fits(word[-length - 1], particle):
            return word[:-length]
    return word


def _fits(syllable: str, particle: str) -> bool:
    """Whether Korean joins the two: 책은 but 나무는, 책으로 but 서울로."""
    final = (ord(syllable) - ord("가")) % _FINALS
    if particle[0] in _AFTER_VOWEL:
        return final == 0 or (final == _RIEUL and particle[0] == "로")
    if particle[0] in _AFTER_CONSONANT or particle == "이":
        return final != 0
    return True

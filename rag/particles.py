"""Korean particles at the end of a word, for what the morphological analyser does not settle."""

from rag.words import words

PARTICLES = sorted(words("particles.ko"), key=len, reverse=True)


def strip(word: str) -> str:
    """The word without its particle, longest match first; at least one syllable stays."""
    for particle in PARTICLES:
        if len(word) > len(particle) and word.endswith(particle):
            return word[: -len(particle)]
    return word

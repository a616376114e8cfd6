"""Terms of words as they are written, without analysis: bigrams, Latin stems, numbers, codes."""

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from rag.lexicon import load_words
from rag.tokenize.korean import PARTICLES, strip_particle

MAX_TERM_CHARACTERS = 64
"""Longer terms (URLs, keys, one-word pages) are cut, so that no term fills an index entry."""
MAX_MIXED_CHARACTERS = 24
"""In characters; what is longer ("A사/B사/C사...") is a list and no word."""
MAX_REMEMBERED_WORDS = 1 << 14
MAX_REMEMBERED_CHARACTERS = 32

HANGUL = re.compile("[가-힣]+")
_BESIDES = re.compile("[^\\W_가-힣]")
_IDEOGRAPHS = re.compile("[\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]+")
_LETTER = "[^\\W_가-힣\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
_FOREIGN = re.compile(rf"{_LETTER}+(?:[-_./'’@&]{_LETTER}+)*(?:\+\+|#)?")
_MIXED = re.compile(rf"(?:{_LETTER}|[가-힣])+(?:[-_.,&](?:{_LETTER}|[가-힣])+)*")
_TAIL = re.compile("[가-힣]+$")
_CLITIC = re.compile("['’](?:s|t|re|ll|ve|d|m)$", re.IGNORECASE)
_JOINT = re.compile("[-_.'’&]")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?%?|\d+(?:\.\d+)*%?")
_DOTTED = re.compile(r"\d+(?:\.\d+)+")
_DIGIT = re.compile(r"\d")
_COMMA = re.compile(r"(?<=\d),(?=\d)")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ATTACHES = re.compile(r"[\w)\]}>%℃\"'’”」』》〉]$")
_STOP = load_words("stop.en")


class Surface(NamedTuple):
    """The terms of a written word: of its Hangul the pairs of syllables, and all others."""

    bigrams: tuple[str, ...]
    others: tuple[str, ...]


def read_surface(word: str) -> Surface:
    """The terms of a word between white space."""
    return _remembered(word) if len(word) <= MAX_REMEMBERED_CHARACTERS else _read(word)


def _read(word: str) -> Surface:
    if not _BESIDES.search(word):
        return Surface(tuple(_bigrams(word)), ())
    others = (*_foreign(word), *_numbers(word), *_ideographs(word), *_mixed(word))
    return Surface(tuple(_bigrams(word)), tuple(term[:MAX_TERM_CHARACTERS] for term in others))


_remembered = functools.lru_cache(maxsize=MAX_REMEMBERED_WORDS)(_read)
"""Words come back often."""


def split_pairs(word: str) -> Iterator[str]:
    """The neighbouring letters of a word; a single letter as it is."""
    if len(word) == 1:
        yield word
    for start in range(len(word) - 1):
        yield word[start : start + 2]


def split_hangul(word: str) -> Iterator[str]:
    """The runs of Hangul, but for a particle that hangs on something else ("API를", "(갑)은")."""
    for run in HANGUL.finditer(word):
        if run[0] not in PARTICLES or not _ATTACHES.search(word[: run.start()]):
            yield run[0]


def _bigrams(word: str) -> Iterator[str]:
    """Pairs of syllables; a unit behind a number ("30일까지") is in `_mixed`, not a word here."""
    for run in HANGUL.finditer(word):
        before = word[: run.start()]
        if run[0] in PARTICLES and _ATTACHES.search(before):
            continue
        stem = strip_particle(run[0])
        if len(stem) > 1 or not before[-1:].isdigit():
            yield from split_pairs(stem)
        if len(stem) == 1 and len(run[0]) > 1:
            # "도로" may be a noun or "도" with a particle: both readings count, so that "도로가"
            # finds either.
            yield run[0][:2]


def _foreign(word: str) -> Iterator[str]:
    """Latin words and those of other scripts; what is joined by marks whole and in its parts."""
    for match in _FOREIGN.findall(word):
        if match[-1] in "+#":
            yield match.lower()
        pieces = re.split("[/@]", match.rstrip("+#"))
        if len(pieces) > 1:
            yield match.lower()
        for piece in pieces:
            yield from _joined(_CLITIC.sub("", piece))


def _joined(piece: str) -> Iterator[str]:
    parts = _JOINT.split(piece)
    if len(parts) > 1 and not _DOTTED.fullmatch(piece):
        yield piece.lower()
        if "-" in piece and _DIGIT.search(piece) and not piece[0].isdigit():
            yield "".join(parts).lower()  # "E-1234" is also written "E1234"
    for part in parts:
        yield from _single(part)


def _single(word: str) -> Iterator[str]:
    lower = word.lower()
    if lower.isdigit() or (lower in _STOP and not (len(word) > 1 and word.isupper())):
        return
    yield stem_word(lower)
    if lower == word or not word.isascii():
        return
    pieces = _CAMEL.findall(word)
    if 1 < len(pieces) <= 5:
        yield from (
            stem_word(piece.lower()) for piece in pieces if len(piece) > 1 and not piece.isdigit()
        )


def _numbers(word: str) -> Iterator[str]:
    """Numbers without thousands separators; dates and versions whole and in their parts."""
    for match in _NUMBER.findall(word):
        number = match.replace(",", "")
        if number.endswith("%"):
            yield number
            number = number[:-1]
        yield number
        parts = number.split(".")
        if len(parts) > 2:
            yield from parts
        yield from (part[1] for part in parts if len(part) == 2 and part[0] == "0")


def _ideographs(word: str) -> Iterator[str]:
    for run in _IDEOGRAPHS.findall(word):
        yield from split_pairs(run)
        if 2 < len(run) <= MAX_MIXED_CHARACTERS:
            yield run


def _mixed(word: str) -> Iterator[str]:
    """Words of Hangul and other signs whole, without their particle: "2세대", "제2024-15호"."""
    if not HANGUL.search(word) or not _FOREIGN.search(word):
        return
    for match in _MIXED.findall(word):
        whole = _COMMA.sub("", _without_particle(match))
        if len(whole) <= MAX_MIXED_CHARACTERS and HANGUL.search(whole) and _FOREIGN.search(whole):
            yield whole.lower()


def _without_particle(match: str) -> str:
    tail = _TAIL.search(match)
    if tail is None:
        return match
    rest = match[: tail.start()]
    return rest if tail[0] in PARTICLES else rest + strip_particle(tail[0])


_VOWELS = frozenset("aeiouy")


def stem_word(word: str) -> str:
    """The stem of a lower-case English word: without its plural or verb ending.

    "studies" and "study" meet, as do "running", "runs" and "run"; no different words do.
    """
    word = to_singular(word)
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= 3 and not _VOWELS.isdisjoint(base):
            return _undouble(base)
    if len(word) > 3 and word.endswith("y"):
        return word[:-1] + "i"
    return word.removesuffix("e") if len(word) > 4 else word


def to_singular(word: str) -> str:
    """A lower-case English word without its plural ending."""
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1]


@functools.cache
def read_stems(name: str) -> frozenset[str]:
    """The stems of the words of a list of the lexicon."""
    return frozenset(map(stem_word, load_words(name)))


def _undouble(base: str) -> str:
    if base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    if base.endswith("y"):
        return base[:-1] + "i"
    return base.removesuffix("e")

"""Korean words: their morphemes from Kiwi, the user dictionary, and the particles at their ends.

The only module that loads kiwipiepy.
"""

import functools
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rag.errors import EngineUnavailable
from rag.lexicon import load_words

TAGS = frozenset(
    (
        *("NNG", "NNP", "NNB", "NR", "NP", "VV", "VA", "VX", "VCP", "VCN", "MM", "MAG", "MAJ"),
        *("IC", "XPN", "XSN", "XSV", "XSA", "XSM", "XR", "JKS", "JKC", "JKG", "JKO", "JKB"),
        *("JKV", "JKQ", "JX", "JC", "EP", "EF", "EC", "ETN", "ETM", "SL", "SH", "SN", "SW"),
    )
)
"""The Sejong tags as Kiwi writes them."""
MAX_CACHED_TEXTS = 64
"""A search asks several times for the morphemes of its question."""

PARTICLES = load_words("particles.ko")
MAX_PARTICLE_CHARACTERS = max(map(len, PARTICLES))
_AFTER_VOWEL = frozenset("가는를와로랑라야여나란며예")
_AFTER_CONSONANT = frozenset("은을과으아")
"""First syllables of the particles that have one form after a vowel and one after a consonant."""
_FINALS = 28
_RIEUL = 8


class Morpheme(NamedTuple):
    """A morpheme with its Sejong tag and its offsets in the text."""

    form: str
    tag: str
    start: int
    end: int


class DictionaryUnreadable(ValueError):
    """The file is missing, not UTF-8 or has an invalid line; the message names file and line."""


class DictionaryEntry(NamedTuple):
    """A word with its tag; a higher score is preferred over other readings."""

    word: str
    tag: str
    score: float = 0.0


@dataclass(slots=True)
class Analyser:
    """Kiwi with the words of a user dictionary, loaded at first use. Thread-safe."""

    _path: str = ""
    _entries: Sequence[DictionaryEntry] = ()
    _kiwi: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set_dictionary(self, path: str) -> None:
        """Use the words of this file; of none if the path is empty.

        Raises `DictionaryUnreadable`; the dictionary in use then stays.
        """
        with self._lock:
            if path != self._path:
                self._entries = read_dictionary(path) if path else ()
                self._path, self._kiwi = path, None

    def get_kiwi(self) -> Any:
        """The analyser itself. Raises `EngineUnavailable`."""
        with self._lock:
            if self._kiwi is None:
                self._kiwi = _load_kiwi(self._entries)
            return self._kiwi


_ANALYSER = Analyser()


def use_dictionary(path: str) -> None:
    """Analyse with this user dictionary from now on; see `read_dictionary`."""
    _ANALYSER.set_dictionary(path)


def analyse_texts(texts: Sequence[str]) -> Iterator[list[Morpheme]]:
    """The morphemes of every text, in order. Thread-safe.

    Raises `EngineUnavailable` when kiwipiepy or its model is not installed.
    """
    kiwi = get_analyser()
    return (_to_morphemes(text, kiwi.tokenize(text, z_coda=False)) for text in texts)


def get_analyser() -> Any:
    """The analyser for `analyse_word`; a new one after `use_dictionary`.

    Raises `EngineUnavailable`.
    """
    return _ANALYSER.get_kiwi()


def analyse_word(analyser: Any, word: str) -> list[Morpheme]:
    """The morphemes of one word, analysed without context. Thread-safe."""
    # An open ending, since a word read as a whole sentence would be made to end like one.
    return _to_morphemes(word, analyser.tokenize(word, z_coda=False, open_ending=True))


def analyse_question(text: str) -> Sequence[Morpheme]:
    """The morphemes of one short text; the latest results are cached.

    Raises `EngineUnavailable`.
    """
    return _analyse_remembered(get_analyser(), text)


@functools.lru_cache(maxsize=MAX_CACHED_TEXTS)
def _analyse_remembered(kiwi: Any, text: str) -> tuple[Morpheme, ...]:
    return tuple(_to_morphemes(text, kiwi.tokenize(text, z_coda=False)))


def _to_morphemes(text: str, tokens: Sequence[Any]) -> list[Morpheme]:
    """Convert tokens; one that spans words ("마리 앙투아네트" is one name to Kiwi) is split."""
    morphemes: list[Morpheme] = []
    for token in tokens:
        form, tag, start, end = token.form, token.tag, token.start, token.end
        if "-" in tag:  # VV-R and VV-I: regular and irregular
            tag = tag.partition("-")[0]
        if " " not in form:
            morphemes.append(Morpheme(form, tag, start, end))
            continue
        words_within = re.compile(r"\S+").finditer(text, start, end)
        morphemes += (Morpheme(word[0], tag, *word.span()) for word in words_within)
    return morphemes


def _load_kiwi(entries: Sequence[DictionaryEntry]) -> Any:
    try:
        from kiwipiepy import Kiwi

        with warnings.catch_warnings():
            # "behavior of `num_workers=0` is changed": to what we want, no threads of its own, as
            # these would be missing after a fork of this process.
            warnings.simplefilter("ignore", DeprecationWarning)
            # The dictionary of multi-word names would take 165 MB and two thirds of the time.
            # Words are analysed one by one, so it hardly changes a term.
            kiwi = Kiwi(num_workers=0, load_multi_dict=False)
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineUnavailable("kiwipiepy cannot be loaded") from error
    for entry in entries:
        kiwi.add_user_word(*entry)
    return kiwi


def read_dictionary(path: str) -> tuple[DictionaryEntry, ...]:
    """The entries of a file in Kiwi's form: `word<TAB>tag<TAB>score` a line, the score optional.

    Blank lines and lines that start with `#` are ignored. Raises `DictionaryUnreadable`.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DictionaryUnreadable(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DictionaryUnreadable(f"{path}, line {line}: not UTF-8") from error
    return tuple(
        _to_entry(line, f"{path}, line {number}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.startswith("#")
    )


def _to_entry(line: str, location: str) -> DictionaryEntry:
    fields = [field.strip() for field in line.split("\t")]
    if len(fields) not in (2, 3) or not all(fields):
        raise DictionaryUnreadable(f"{location}: expected word<TAB>tag<TAB>score, not {line!r}")
    word, tag, *score = fields
    if tag not in TAGS:
        raise DictionaryUnreadable(f"{location}: {tag!r} is no tag such as NNP or NNG")
    try:
        return DictionaryEntry(word, tag, float(score[0]) if score else 0.0)
    except ValueError:
        raise DictionaryUnreadable(f"{location}: the score {score[0]!r} is no number") from None


def strip_particle(word: str) -> str:
    """The word without its particle, longest match first; at least one syllable stays.

    A particle must fit what it follows: "국가" and "사과" keep their last syllables.
    """
    for length in range(min(MAX_PARTICLE_CHARACTERS, len(word) - 1), 0, -1):
        particle = word[-length:]
        if particle in PARTICLES and is_fitting_particle(word[-length - 1], particle):
            return word[:-length]
    return word


def is_fitting_particle(syllable: str, particle: str) -> bool:
    """Whether a particle has the form for this syllable: 책은 but 나무는, 책으로 but 서울로."""
    final = (ord(syllable) - ord("가")) % _FINALS
    if particle[0] in _AFTER_VOWEL:
        return final == 0 or (final == _RIEUL and particle[0] == "로")
    return final != 0 or not (particle == "이" or particle[0] in _AFTER_CONSONANT)

"""Korean morphemes from Kiwi: the one place that loads kiwipiepy."""

import functools
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rag import dictionary
from rag.errors import EngineUnavailable

REMEMBERED = 64
"""A search asks several times for the morphemes of its question."""


class Morpheme(NamedTuple):
    """A morpheme with its Sejong tag and its offsets in the text."""

    form: str
    tag: str
    start: int
    end: int


class Analyser:
    """Kiwi with the words of a user dictionary, loaded at first use. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path = ""
        self._entries: tuple[dictionary.Entry, ...] = ()
        self._kiwi: Any = None

    def use(self, path: str) -> None:
        """Take the words of this file, none with an empty path.

        Raises `DictionaryUnreadable`; what was in use then stays.
        """
        with self._lock:
            if path != self._path:
                self._entries = dictionary.read(path) if path else ()
                self._path, self._kiwi = path, None

    def kiwi(self) -> Any:
        """The analyser itself. Raises `EngineUnavailable`."""
        with self._lock:
            if self._kiwi is None:
                self._kiwi = _load(self._entries)
            return self._kiwi


_ANALYSER = Analyser()


def use(path: str) -> None:
    """Analyse with this user dictionary from now on; see `rag.dictionary.read`."""
    _ANALYSER.use(path)


def available() -> bool:
    """True when the analyser can be loaded; loads it."""
    try:
        _ANALYSER.kiwi()
    except EngineUnavailable:
        return False
    return True


def analyse(texts: Sequence[str]) -> Iterator[list[Morpheme]]:
    """The morphemes of every text, in order; one batch, analysed on all cores. Thread-safe.

    Raises `EngineUnavailable` when kiwipiepy or its model is not installed.
    """
    found = _ANALYSER.kiwi().tokenize(list(texts), z_coda=False)
    return (_morphemes(text, tokens) for text, tokens in zip(texts, found, strict=True))


def in_use() -> Any:
    """The analyser that `alone` takes; another object after `use`. Raises `EngineUnavailable`."""
    return _ANALYSER.kiwi()


def alone(analyser: Any, word: str) -> list[Morpheme]:
    """The morphemes of one word between blanks, whatever stands beside it. Thread-safe."""
    # An open ending: read as a whole sentence, a word would rather end like one.
    return _morphemes(word, analyser.tokenize(word, z_coda=False, open_ending=True))


def analyse_question(text: str) -> Sequence[Morpheme]:
    """The morphemes of one short text; the last ones are remembered.

    Raises `EngineUnavailable`.
    """
    return _remembered(_ANALYSER.kiwi(), text)


@functools.lru_cache(maxsize=REMEMBERED)
def _remembered(kiwi: Any, text: str) -> tuple[Morpheme, ...]:
    return tuple(_morphemes(text, kiwi.tokenize(text, z_coda=False)))


def _morphemes(text: str, tokens: Sequence[Any]) -> list[Morpheme]:
    """The tokens; one that spans words ("마리 앙투아네트" is one name to Kiwi) as its words."""
    found: list[Morpheme] = []
    for token in tokens:
        form, tag, start, length = token.form, token.tag, token.start, token.len
        if "-" in tag:  # VV-R and VV-I: regular and irregular
            tag = tag.partition("-")[0]
        if " " not in form:
            found.append(Morpheme(form, tag, start, start + length))
            continue
        found += (
            Morpheme(word[0], tag, start + word.start(), start + word.end())
            for word in re.finditer(r"\S+", text[start : start + length])
        )
    return found


def _load(entries: Sequence[dictionary.Entry]) -> Any:
    try:
        from kiwipiepy import Kiwi

        kiwi = Kiwi()
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineUnavailable("kiwipiepy cannot be loaded") from error
    for entry in entries:
        kiwi.add_user_word(entry.word, entry.tag, entry.score)
    return kiwi

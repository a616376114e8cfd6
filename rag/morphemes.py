"""Korean morphemes from Kiwi: the one place that loads kiwipiepy."""

import functools
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rag.errors import EngineUnavailable

_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Morpheme:
    """A morpheme with its Sejong tag and its offsets in the text."""

    form: str
    tag: str
    start: int
    end: int


def available() -> bool:
    """True when the analyser can be loaded; loads it."""
    try:
        _kiwi()
    except EngineUnavailable:
        return False
    return True


def analyse(texts: Sequence[str]) -> Iterator[list[Morpheme]]:
    """The morphemes of every text, in order; one batch, analysed on all cores. Thread-safe.

    Raises `EngineUnavailable` when kiwipiepy or its model is not installed.
    """
    for text, tokens in zip(texts, _kiwi().tokenize(list(texts)), strict=True):
        yield [part for token in tokens for part in _parts(text, token)]


def _parts(text: str, token: Any) -> Iterator[Morpheme]:
    """The token; where it spans words ("마리 앙투아네트" is one name to Kiwi) each of its words."""
    tag = token.tag.split("-")[0]
    if " " not in token.form:
        yield Morpheme(token.form, tag, token.start, token.start + token.len)
        return
    for word in re.finditer(r"\S+", text[token.start : token.start + token.len]):
        yield Morpheme(word[0], tag, token.start + word.start(), token.start + word.end())


def _kiwi() -> Any:
    with _LOADING:
        return _load()


@functools.cache
def _load() -> Any:
    try:
        from kiwipiepy import Kiwi

        return Kiwi()
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineUnavailable("kiwipiepy cannot be loaded") from error

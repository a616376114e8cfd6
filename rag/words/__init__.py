"""Word lists of the lexical rules: data, one file a list, words between white space."""

import functools
from pathlib import Path

_FOLDER = Path(__file__).parent


@functools.cache
def words(name: str) -> frozenset[str]:
    """The words of a list, such as "stop.en"."""
    return frozenset((_FOLDER / f"{name}.txt").read_text(encoding="utf-8").split())


@functools.cache
def phrases(name: str) -> tuple[str, ...]:
    """The lines of a list whose entries may hold several words, in order."""
    lines = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip())

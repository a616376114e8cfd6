"""Word lists of the lexical rules: data, one file a list, words between white space."""

import functools
from pathlib import Path

_FOLDER = Path(__file__).parent


@functools.cache
def words(name: str) -> frozenset[str]:
    """The words of a list, such as "stop.en"."""
    return frozenset((_FOLDER / f"{name}.txt").read_text(encoding="utf-8").split())

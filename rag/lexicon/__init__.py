"""What lexical rules know, as data: word lists (`NAME.txt`) and named patterns (`NAME.toml`)."""

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_PIECE = re.compile(r"\{([a-z_]+)\}")


@functools.cache
def load_words(name: str) -> frozenset[str]:
    """The words of a list, such as "stop.en"."""
    return frozenset((_FOLDER / f"{name}.txt").read_text(encoding="utf-8").split())


@functools.cache
def load_phrases(name: str) -> tuple[str, ...]:
    """The lines of a list whose entries may hold several words, in order."""
    lines = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip())


@functools.cache
def load_rules(name: str) -> dict[str, Any]:
    """Words and patterns of one purpose, from `NAME.toml`."""
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Patterns:
    """Named patterns, the pieces that they are made of, and the numbers that words spell.

    `examples` and `refuses` are what a pattern finds and what it does not, by its name.
    """

    named: Mapping[str, re.Pattern[str]]
    pieces: Mapping[str, str]
    numbers: Mapping[str, int]
    examples: Mapping[str, tuple[str, ...]]
    refuses: Mapping[str, tuple[str, ...]]

    def __getitem__(self, name: str) -> re.Pattern[str]:
        """The pattern of this name. Raises `KeyError`."""
        return self.named[name]


@functools.cache
def load_patterns(name: str) -> Patterns:
    """The patterns of a file such as "references.ko"; pieces of "references" may stand there, too.

    A piece stands in a pattern, or in a later piece, as {its_name}. Line breaks are dropped.
    """
    parent, _, language = name.rpartition(".")
    pieces = dict(load_patterns(parent).pieces) if language and parent else {}
    read = load_rules(name)

    def fill(text: str) -> str:
        return _PIECE.sub(lambda match: pieces[match[1]], text.replace("\n", ""))

    for piece, text in read.get("pieces", {}).items():
        pieces[piece] = fill(text)
    found = read["patterns"]
    return Patterns(
        named={
            key: re.compile(fill(one["match"]), re.IGNORECASE if one.get("ignore_case") else 0)
            for key, one in found.items()
        },
        pieces=pieces,
        numbers=read.get("numbers", {}),
        examples={key: tuple(one["examples"]) for key, one in found.items()},
        refuses={key: tuple(one.get("refuses", ())) for key, one in found.items()},
    )

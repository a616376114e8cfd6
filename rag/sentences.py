"""Sentences of Korean and English prose, Markdown and lists."""

import itertools
import re

_END = re.compile(
    r"(?<=[.!?。？！…])[\"'”’)\]]*\s+|(?<=[다요죠음함임])\.(?=[가-힣A-Z\"“'])|\n\s*\n|\n(?=\s*(?:[-*•·○●□■]|\d+[.)]|[가-하][.)]|제\d+조|#))"
)
_BULLET = re.compile(r"^\s*(?:[-*•·○●□■#>|]+\s+)+")
_SPACE = re.compile(r"\s+")
ABBREVIATIONS = (
    *("e.g", "i.e", "etc", "vs", "Mr", "Mrs", "Ms", "Dr", "No", "Fig", "St", "Inc", "Ltd"),
    *("approx", "cf"),
)
"""Words whose full stop ends no sentence."""
_ABBREVIATION = re.compile(
    rf"(?:\b(?:{'|'.join(map(re.escape, ABBREVIATIONS))})|\b[A-Z]|^\s*\d+|^\s*[가-하])\.$"
)


def split(text: str) -> list[str]:
    """The sentences of a text in order, white space folded, list marks and empty ones left out."""
    parts: list[str] = []
    held = ""
    for piece in _pieces(text):
        held += piece
        if _ABBREVIATION.search(held.rstrip()):
            continue
        parts.append(held)
        held = ""
    parts.append(held)
    clean = (_SPACE.sub(" ", _BULLET.sub("", part)).strip() for part in parts)
    return [part for part in clean if part]


def _pieces(text: str) -> list[str]:
    cuts = [0, *(match.end() for match in _END.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(cuts)]

"""Sentences of a paragraph that can be quoted: none that ends within brackets or behind "No."."""

import re

from rag import sentences

LONGEST_JOINED = 600
"""Characters after which an open bracket is held to be a mistake."""
_PAIRS = (("(", ")"), ("「", "」"), ("『", "』"), ("“", "”"), ("[", "]"))
_SHORTENED = re.compile(
    r"\b(?:Vol|pp?|Sec|Art|Co|Corp|Gov|Sen|Rep|Prof|Sr|Jr|Gen|Rev|vs|a\.m|p\.m|U\.S|[A-Z]\.[A-Z])\.$"
)
_DATE = re.compile(r"\b(?:(?:19|20)\d\d|\d{1,2})\.$")


def split(paragraph: str) -> list[str]:
    """The sentences, in order, on one line each."""
    found: list[str] = []
    for part in sentences.split(paragraph):
        if found and _open(found[-1], part) and len(found[-1]) < LONGEST_JOINED:
            found[-1] = f"{found[-1]} {part}"
        else:
            found.append(part)
    return found


def _open(text: str, following: str) -> bool:
    if _SHORTENED.search(text) or (_DATE.search(text) and following[0].isdigit()):
        return True
    return any(text.count(left) > text.count(right) for left, right in _PAIRS)

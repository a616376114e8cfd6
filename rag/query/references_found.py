"""What a question says of a document's place, before it is known which documents there are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

_BEFORE_MARK = re.compile(r"\s([,.?!:;])")

MOST = 12
"""Places that are looked at in one message; more are no sentence."""

_PREPOSITION = re.compile(r"\s*(in|about|of|from)\b", re.IGNORECASE)

Span = tuple[int, int]
"""Start and end in the text."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Words that may refer to documents by place.

    `places` count from 1, negative ones from the end; none: "that document". `named` are words
    between "that" and "document". `spans` are what the reference takes of the text.
    """

    spans: tuple[Span, ...]
    places: tuple[int, ...] = ()
    named: str = ""
    noun: bool = False
    """Documents or sources are spoken of, and not only a number."""
    back: bool = False
    """Something said earlier is spoken of: "방금", "you cited"."""
    session: bool = False
    """Counted over the whole session."""
    answer: int | None = None
    """Of the answer with this number; -2: of the one before the last with documents."""
    kind: str = ""
    """A kind of document instead of the word: "두 번째 법"."""
    soft: bool = False
    """"이 문서": may as well be one that was never shown."""
    others: bool = False
    """All but the places."""


def first(patterns: Sequence[re.Pattern[str]], text: str) -> list[re.Match[str]]:
    """The first `MOST` matches of each pattern in the order of the text, longer ones first."""
    found = [match for pattern in patterns for match in islice(pattern.finditer(text), MOST)]
    return sorted(found, key=lambda match: (match.start(), -match.end()))


def joined(mentions: list[Mention]) -> Mention | None:
    """All of them as one; None of none. What one of them says holds for all."""
    if not mentions:
        return None
    return Mention(
        spans=tuple(sorted({span for one in mentions for span in one.spans})),
        places=tuple(dict.fromkeys(place for one in mentions for place in one.places)),
        noun=any(one.noun for one in mentions),
        back=any(one.back for one in mentions),
        session=any(one.session for one in mentions),
        answer=next((one.answer for one in mentions if one.answer is not None), None),
        kind=next((one.kind for one in mentions if one.kind), ""),
        others=any(one.others for one in mentions),
    )


def with_pronoun(text: str, spans: tuple[Span, ...]) -> str:
    """The text with "it" in place of the first stretch: "What does document 2 say?"."""
    start, end = min(spans)
    preposition = _PREPOSITION.match(text, start, end)
    said = f"{preposition[1]} it" if preposition else "it"
    later = tuple((one - end, other - end) for one, other in spans if one >= end)
    return f"{text[:start].strip()} {said} {without(text[end:], later)}".replace(" ?", "?").strip()


def without(text: str, spans: tuple[Span, ...]) -> str:
    """The text without these stretches, cleaned of the marks that they leave behind."""
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]} {text[end:]}"
    return _BEFORE_MARK.sub(r"\1", " ".join(text.split())).lstrip(" ,.;:·").strip()

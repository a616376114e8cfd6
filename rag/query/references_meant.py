"""What a reference means in the end: documents, what is wanted of them, or why to ask back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rag.conversation import DocRef
from rag.query import references_wish

_LONGEST_WISH = 400
"""Characters; a longer message holds more than a wish."""
_LETTER = re.compile(r"[^\W_]")
_EMPTY = re.compile(
    r"\b(?:what(?:'s)?|how|is|are|was|in|the|a|an|it|of|on|does|do|did|says?|about|and|please|i|to|want|me)\b",
    re.IGNORECASE,
)
"""Words that are nothing to look for; whatever is left of a question must hold more."""


class Unclear(StrEnum):
    """Why a reference must be asked back."""

    NOTHING = "nothing"
    OUT_OF_RANGE = "out_of_range"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a question refers to.

    `documents` are meant, in the order named; `rest` is the question without the reference,
    the one before for "2번은?", and all of it where nothing is left.
    `whole`: the document itself is to be shown, from part `part` on, `present`: as it is now.
    `unclear`: nothing is meant for sure; `documents` are the candidates then, numbered anew.
    `whole_session`: slots were counted over it.
    """

    documents: tuple[DocRef, ...]
    rest: str
    whole: bool = False
    part: int = 1
    unclear: Unclear | None = None
    whole_session: bool = False
    present: bool = False


def asked_back(why: Unclear, candidates: Sequence[DocRef], rest: str) -> Reference:
    """The reference that is not clear, with its candidates numbered from 1."""
    numbered = tuple(replace(ref, slot=slot) for slot, ref in enumerate(candidates, 1))
    return Reference(numbered, rest, unclear=why)


def is_empty(rest: str) -> bool:
    """Whether there are words left, but none that says anything: "What does say?"."""
    return bool(_LETTER.search(rest)) and not _LETTER.search(_EMPTY.sub("", rest))


def wanting(made: Reference, text: str) -> Reference:
    """With what is wanted: the document itself, a part of it, or an answer from it."""
    if len(made.rest) > _LONGEST_WISH:
        return made
    asked = references_wish.part(made.rest)
    if asked and (not asked[1] or references_wish.shows(asked[1])):
        made = replace(made, whole=True, part=asked[0])
    elif references_wish.shows(made.rest):
        made = replace(made, whole=True)
    made = replace(made, present=made.whole and references_wish.present(text))
    return made if _LETTER.search(made.rest) else replace(made, rest=text)

"""What the last turns were about, as far as a question's words can be held against it."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from rag import stems, surface, tokenize
from rag.conversation import Conversation, Turn
from rag.query import laws
from rag.words import words

TURNS = 3
"""The last turns that count."""
CHARACTERS = 1000
"""Of an answer's beginning."""
TITLES = 8

_NOUNS = frozenset(("NNG", "NNP", "XR"))
RELATIONAL = words("relational.ko") | {stems.stem(word) for word in words("relational.en")}
"""Nouns that name a side of something and need that something: "기한", "penalty"."""
_ASKING = words("asking.ko") | {stems.stem(word) for word in words("asking.en")}


@dataclass(frozen=True, slots=True)
class Background:
    """The words of the last turns: of the questions, of everything, and the names among them."""

    asked: frozenset[str]
    words: frozenset[str]
    names: frozenset[str]


def of(conversation: Conversation) -> Background:
    """What was said last, and the titles of the documents shown."""
    turns = conversation.turns[-TURNS:]
    questions = [turn.user_text[:CHARACTERS] for turn in turns]
    titles = _titles(conversation, turns)
    texts = [*questions, *(turn.assistant_text[:CHARACTERS] for turn in turns), *titles]
    asked = frozenset().union(*(content(text) for text in questions)) if questions else frozenset()
    return Background(
        asked=asked,
        words=asked.union(*(content(text) for text in texts)),
        names=frozenset().union(*(laws.named(text) for text in texts)) if texts else frozenset(),
    )


@functools.lru_cache(maxsize=256)
def content(text: str) -> frozenset[str]:
    """The nouns of a text, Latin words by their stems; words that only ask are left out."""
    clean = tokenize.normalise(text)
    found = {
        item.form.lower()
        for item in tokenize.morphemes_of(clean) or ()
        if item.tag in _NOUNS and not item.form.isascii()
    }
    for word in clean.split():
        found.update(term for term in surface.read(word).others if not term[0].isdigit())
    return frozenset(found - _ASKING)


def naming(text: str) -> frozenset[str]:
    """The nouns of a text that name something by themselves."""
    return content(text) - RELATIONAL


def _titles(conversation: Conversation, turns: Sequence[Turn]) -> list[str]:
    remembered = [item.title for item in conversation.memory.documents]
    shown = [ref.title for turn in turns for ref in turn.doc_refs]
    return list(dict.fromkeys([*remembered, *shown]))[:TITLES]

"""Everyday words beside the words of documents: 물어내다 - 변상, 말로 - 구술, fired - dismissal.

What people say is looked up by its morphemes in a list of this project's own making
(`everyday.ko.txt`, `everyday.en.txt`); what documents say for it is searched beside it, as weak
terms.
"""

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rag import tokenize
from rag.lexicon import load_phrases
from rag.tokenize import surface
from rag.tokenize.korean import Morpheme

TERM_WEIGHT = 0.4
"""What such a term weighs beside the question's own."""
MOST_SHARE = 0.5
"""What all of them together weigh at most beside all of the question's own."""
MAX_TERMS = 10
SLACK = 1
"""Other words that may stand between the words of an entry: "돈을 꼭 내야"."""

_TELLING = frozenset(("NNG", "NNP", "NNB", "NP", "XR", "SL", "VV", "VA", "MAG", "MM", "XPN"))
_JOINED = frozenset(("XSV", "XSA", "XSN", "VX"))
"""What makes another word with the one before it: 일하다, 갑질, 돌려받다."""
_MEANS = frozenset(("로", "으로"))
"""Particles that an entry may end with: "말로" is another thing than "말"."""

Entry = tuple[tuple[str, ...], tuple[str, ...]]
"""The words of an everyday phrase, and the terms that documents have for it."""
WordReadings = Sequence[frozenset[str]]
"""Word by word how it may be read: a noun alone, or with what makes a verb of it."""


def find_document_terms(text: str) -> Mapping[str, float]:
    """Terms that documents may have for what a question says, with weights below 1.

    Longer entries leave out the shorter ones in them; what the question says itself is left out.
    """
    said = _read(text)
    own = tokenize.weigh_query_terms(text)
    taken: set[int] = set()
    found: dict[str, None] = {}
    for words, terms in _matching(said):
        places = _find_places(words, said)
        if places and taken.isdisjoint(places):
            taken |= places
            found |= dict.fromkeys(term for term in terms if term not in own)
    kept = list(found)[:MAX_TERMS]
    if not kept:
        return {}
    weight = min(TERM_WEIGHT, MOST_SHARE * sum(own.values()) / len(kept))
    return dict.fromkeys(kept, weight)


def _matching(said: WordReadings) -> list[Entry]:
    """The entries whose first word is said, longer ones first."""
    entries = _entries()
    words = dict.fromkeys(word for ways in said for word in sorted(ways, key=len, reverse=True))
    found = [entry for word in words for entry in entries.get(word, ())]
    return sorted(found, key=lambda entry: -len("".join(entry[0])))


def _find_places(words: Sequence[str], said: WordReadings) -> set[int]:
    """Where the words stand in this order and close to each other; empty where they do not."""
    for start, ways in enumerate(said):
        if words[0] not in ways:
            continue
        places = [start]
        for wanted in words[1:]:
            after = range(places[-1] + 1, min(len(said), places[-1] + 2 + SLACK))
            at = next((place for place in after if wanted in said[place]), None)
            if at is None:
                break
            places.append(at)
        if len(places) == len(words):
            return set(places)
    return set()


@functools.cache
def _entries() -> Mapping[str, Sequence[Entry]]:
    """All entries by their first word. Korean ones are written in stems: "돈 돌려받"."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for language, to_stem in (("ko", str), ("en", surface.stem_word)):
        for line in load_phrases(f"everyday.{language}"):
            if not line.startswith("#"):
                words, terms = (tuple(map(to_stem, side.split())) for side in line.split(": "))
                found[words[0]].append((words, terms))
    return found


@functools.lru_cache(maxsize=64)
def _read(text: str) -> WordReadings:
    """The words of a text as entries are compared: stems of verbs and of Latin words, nouns."""
    clean = tokenize.normalise(text)
    if surface.HANGUL.search(clean):
        return _telling(clean, tokenize.analyse_morphemes(clean) or ())
    words = (part.strip(".,?!'\"") for part in clean.lower().split())
    return [frozenset((surface.stem_word(word),)) for word in words if word]


def _telling(text: str, found: Sequence[Morpheme]) -> WordReadings:
    words: list[set[str]] = []
    begins = 0
    before = ""
    for item in found:
        written = before == "EC" and item.tag == "VV" and not text[item.start - 1].isspace()
        if words and (item.tag in _JOINED or written):
            words[-1].add(text[begins : item.start] + item.form)
        elif item.tag in _TELLING or (item.tag == "JKB" and item.form in _MEANS):
            if before == "XPN":
                words[-1].add(text[begins : item.end])
            else:
                begins = item.start
            words.append({item.form.lower()})
        before = item.tag
    return [frozenset(ways) for ways in words]

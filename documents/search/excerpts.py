"""Looking for words in texts as a person does: passages by BM25, and a stretch with its hits."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from documents.search.store import ScopedStore
from rag import tokenize
from rag.generate.markdown import to_plain_text
from rag.types import Passage

EXCERPT_BEFORE = 24
"""Characters of an excerpt that stand before its first hit."""
EXCERPT_LENGTH = 110
MAX_WORDS = 8
"""Words of a search that are looked for; whoever types more finds little by more."""
CANDIDATES = 4
"""For each passage wanted, so many are looked at: some hold the terms, but not the words."""
MIN_COVERAGE = 0.5
"""A passage without the very words must hold so much of what the search is about."""


@dataclass(frozen=True, slots=True)
class MarkedExcerpt:
    """A stretch of a text on one line; `marks` are the start and end of each hit in it."""

    excerpt: str
    marks: list[tuple[int, int]]

    def split(self) -> list[tuple[str, bool]]:
        """The stretch in pieces, each with whether it is a hit: what a template draws."""
        pieces: list[tuple[str, bool]] = []
        at = 0
        for start, end in self.marks:
            pieces += [(self.excerpt[at:start], False), (self.excerpt[start:end], True)]
            at = end
        return [piece for piece in [*pieces, (self.excerpt[at:], False)] if piece[0]]


def split_words(query: str) -> list[str]:
    """The words of a search, each once."""
    return list(dict.fromkeys(query.replace("\x00", "").split()))[:MAX_WORDS]


def cut_excerpt(text: str, words: Collection[str]) -> MarkedExcerpt:
    """The stretch of `text` around the place where most of the words stand, with its hits."""
    flat = to_plain_text(text)
    hits = find_hits(flat, words)
    start = max(_choose_place(hits) - EXCERPT_BEFORE, 0)
    if start:  # not in the middle of a word, if its end is near
        start = flat.find(" ", start, start + EXCERPT_BEFORE // 2) + 1 or start
    end = start + EXCERPT_LENGTH
    before, after = "…" if start else "", "…" if end < len(flat) else ""
    shift = len(before) - start
    marks = [(a + shift, min(b, end) + shift) for a, b in hits if start <= a < end]
    return MarkedExcerpt(before + flat[start:end] + after, marks)


def find_hits(text: str, words: Collection[str]) -> list[tuple[int, int]]:
    """Where the words stand, whatever their case; of words within each other the longest."""
    if not words:
        return []
    longest = sorted(words, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest)), re.IGNORECASE)
    return [found.span() for found in pattern.finditer(text)]


def _choose_place(hits: list[tuple[int, int]]) -> int:
    """The beginning of the hit with the most hits behind it in one excerpt; the first of these."""
    best, most = 0, 0
    for at, (start, _end) in enumerate(hits):
        count = sum(start <= other < start + EXCERPT_LENGTH for other, _ in hits[at:])
        if count > most:
            best, most = start, count
    return best


def list_marked_words(query: str) -> list[str]:
    """What of a search is marked in a text: its words, and those without their endings."""
    words = split_words(query)
    return [*words, *sorted(tokenize.find_subject_terms(query))] if words else []


def find_passages(document_ids: Iterable[UUID], query: str, limit: int) -> list[Passage]:
    """The best passages of documents that passed `visible_to(user)`, those with the words first.

    Raises `RetrievalFailed`.
    """
    words = [word.casefold() for word in split_words(query)]
    if not words:
        return []
    store = ScopedStore(list(document_ids))
    hits = store.find_by_terms(tokenize.weigh_query_terms(query), CANDIDATES * limit)
    literal, others = [], []
    for hit in hits:
        text = hit.passage.text.casefold()
        if all(word in text for word in words):
            literal.append(hit.passage)
        elif hit.scores["coverage"] >= MIN_COVERAGE:
            others.append(hit.passage)
    return [*literal, *others][:limit]

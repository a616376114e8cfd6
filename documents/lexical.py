"""The lexical index: how terms become the `lexemes` of a chunk and its `ChunkTerms`.

A term's place is its hash. `marks` tells at each place whether the term stands once in the text
and no more (1), or stands more often or is emphasised (2); the inner product with powers of `BASE`
reads `DIGITS` terms of a row at a time, exactly, because pgvector sums in single precision, which
holds integers below 2^24. `surplus` holds what a term marked 2 scores more (or less) than if it
stood once, so that BM25 = term_weight(1) * sum of the held terms' weights + surplus . query.
"""

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from documents.models import LEXICAL_DIMENSIONS
from rag.retrieve.bm25 import REFERENCE_LENGTH, term_weight
from rag.types import IndexedChunk

BASE = 3
DIGITS = 15
"""Marks that fit into one inner product: 3^15 < 2^24."""

TERM_CHARACTERS = 64
MOST_TERMS = 16_000
"""What a sparsevec can hold."""
REMEMBERED = 1 << 14
"""Places: terms come back often."""

_ONCE = (1, 0.0)
"""Count and emphasis of what stands once and no more."""

Count = TypeVar("Count", int, float)


def clean(terms: Mapping[str, Count]) -> dict[str, Count]:
    """Terms as the index keeps them: storable, at most 64 characters; equal ones summed up."""
    cleaned: dict[str, Count] = {}
    for term, count in terms.items():
        kept = term
        if len(term) > TERM_CHARACTERS or not term.isprintable():
            kept = term.replace("\0", "").encode("utf-8", "ignore").decode()[:TERM_CHARACTERS]
        if kept.strip() and count > 0:
            cleaned[kept] = cleaned[kept] + count if kept in cleaned else count
    return cleaned


@functools.lru_cache(maxsize=REMEMBERED)
def position(term: str) -> int:
    """Where a term stands in the hashed space, from 1: the same on every machine."""
    digest = hashlib.blake2b(term.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % LEXICAL_DIMENSIONS + 1


def quoted(term: str) -> str:
    """A term as a literal of tsvector and tsquery: no character in it is an operator."""
    escaped = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def tsvector(terms: Iterable[str]) -> str:
    """The text form of a chunk's lexemes."""
    return " ".join(quoted(term) for term in terms)


def sparsevec(values: Iterable[tuple[str, float]]) -> str:
    """The text form of a sparse vector; terms with the same hash share a place."""
    places: dict[int, float] = {}
    for term, value in values:
        place = position(term)
        places[place] = places.get(place, 0.0) + value
    return _literal(places)


def powers(places: Sequence[int]) -> str:
    """The sparse vector that reads the marks of at most `DIGITS` places as one number."""
    return _literal({place: float(BASE**digit) for digit, place in enumerate(places)})


def marks_and_surplus(
    terms: Mapping[str, int], emphasis: Mapping[str, float]
) -> tuple[str, str | None]:
    """The text forms of a chunk's marks, and of what terms marked 2 score beyond a single one.

    None instead of the latter where there is none.
    """
    length = sum(terms.values())
    once = term_weight(1, length, REFERENCE_LENGTH)
    places = _frequencies(terms, emphasis)
    more = {
        (count, extra): term_weight(count, length, REFERENCE_LENGTH, extra) - once
        for count, extra in {*places.values()} - {_ONCE}
    }
    marks = {place: 1.0 if found == _ONCE else 2.0 for place, found in places.items()}
    surplus = {place: more[found] for place, found in places.items() if found != _ONCE}
    return _literal(marks), _literal(surplus) if surplus else None


@dataclass(frozen=True, slots=True)
class Row:
    """What the index keeps of a chunk: the sum of its term counts, and the text forms."""

    length: int
    lexemes: str
    marks: str
    surplus: str | None


def row(indexed: IndexedChunk) -> Row:
    """The index row of a chunk with its terms and emphasis."""
    terms, emphasis = clean(indexed.terms), clean(indexed.emphasis)
    marks, surplus = marks_and_surplus(terms, emphasis)
    return Row(sum(terms.values()), tsvector(terms | emphasis), marks, surplus)


def _frequencies(
    terms: Mapping[str, int], emphasis: Mapping[str, float]
) -> dict[int, tuple[int, float]]:
    """Count and emphasis by place, of the weightiest terms where there are too many."""
    found = [(term, count, emphasis.get(term, 0.0)) for term, count in terms.items()]
    found += [(term, 0, extra) for term, extra in emphasis.items() if term not in terms]
    if len(found) > MOST_TERMS:
        found = sorted(found, key=lambda item: -item[1] - item[2])[:MOST_TERMS]
    places: dict[int, tuple[int, float]] = {}
    for term, count, extra in found:
        place = position(term)
        others, more = places.get(place, (0, 0.0))
        places[place] = (others + count, more + extra)
    return places


def _literal(places: Mapping[int, float]) -> str:
    body = ",".join(f"{place}:{places[place]:.9g}" for place in sorted(places) if places[place])
    return f"{{{body}}}/{LEXICAL_DIMENSIONS}"


def halfvec(vector: Sequence[float]) -> str:
    """The text form of a dense vector."""
    return "[" + ",".join(f"{value:.7g}" for value in vector) + "]"

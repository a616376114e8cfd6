"""The lexical index: how terms become the `lexemes` of a chunk and its `ChunkTerms`.

A term's place is its hash. `marks` tells at each place whether the term stands once (1) or more
often (2); the inner product with powers of `BASE` reads `DIGITS` terms of a row at a time, exactly,
because pgvector sums in single precision, which holds integers below 2^24. `surplus` holds what a
term that stands more often scores more than if it stood once, so that
BM25 = term_weight(1) * sum of the held terms' weights + surplus . query.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from documents.models import LEXICAL_DIMENSIONS
from rag.retrieval.bm25 import term_weight

REFERENCE_LENGTH = 500.0
"""`avgdl`: terms of a chunk; measured 260 (manuals with short sections) to 600 (laws).

One constant for all: the true mean changes with every upload and scope, stored figures must not."""

BASE = 3
DIGITS = 15
"""Marks that fit into one inner product: 3^15 < 2^24."""

TERM_CHARACTERS = 64
MOST_TERMS = 16_000
"""What a sparsevec can hold."""


Count = TypeVar("Count", int, float)


def clean(terms: Mapping[str, Count]) -> dict[str, Count]:
    """Terms as the index keeps them: storable, at most 64 characters; equal ones summed up."""
    cleaned: dict[str, Count] = {}
    for term, count in terms.items():
        kept = term.replace("\0", "").encode("utf-8", "ignore").decode()[:TERM_CHARACTERS]
        if kept.strip() and count > 0:
            cleaned[kept] = cleaned[kept] + count if kept in cleaned else count
    return cleaned


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


def any_of(terms: Iterable[str]) -> str:
    """The text form of a tsquery for chunks that hold at least one of the terms."""
    return " | ".join(quoted(term) for term in terms)


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


def marks(terms: Mapping[str, int]) -> str:
    """The text form of a chunk's marks."""
    places = _counts(terms)
    return _literal({place: float(min(count, 2)) for place, count in places.items()})


def surplus(terms: Mapping[str, int]) -> str | None:
    """The text form of what repeated terms score beyond a single one; None where none repeats."""
    length = sum(terms.values())
    once = term_weight(1, length, REFERENCE_LENGTH)
    more = {
        place: term_weight(count, length, REFERENCE_LENGTH) - once
        for place, count in _counts(terms).items()
        if count > 1
    }
    return _literal(more) if more else None


def _counts(terms: Mapping[str, int]) -> dict[int, int]:
    """Counts by place, of the terms that stand most often where there are too many."""
    places: dict[int, int] = {}
    for term, count in sorted(terms.items(), key=lambda item: -item[1])[:MOST_TERMS]:
        place = position(term)
        places[place] = places.get(place, 0) + count
    return places


def _literal(places: Mapping[int, float]) -> str:
    body = ",".join(f"{place}:{places[place]:.9g}" for place in sorted(places) if places[place])
    return f"{{{body}}}/{LEXICAL_DIMENSIONS}"


def halfvec(vector: Sequence[float]) -> str:
    """The text form of a dense vector."""
    return "[" + ",".join(f"{value:.7g}" for value in vector) + "]"

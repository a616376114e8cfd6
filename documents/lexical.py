"""The lexical index: how terms become the `lexemes` and `weights` of a chunk.

A chunk's `weights` holds `rag.retrieval.bm25.term_weight` per term under the term's hash; the inner
product with the IDF of a question's terms is BM25. A chunk's length is the sum of its term counts.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from documents.models import LEXICAL_DIMENSIONS
from rag.retrieval.bm25 import term_weight

REFERENCE_LENGTH = 500.0
"""`avgdl`: terms of a chunk; measured 260 (manuals with short sections) to 600 (laws).

One constant for all: the true mean changes with every upload and scope, stored weights must not."""

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
    body = ",".join(f"{place}:{places[place]:.6g}" for place in sorted(places) if places[place])
    return f"{{{body}}}/{LEXICAL_DIMENSIONS}"


def chunk_weights(terms: Mapping[str, int]) -> str:
    """The text form of a chunk's term weights."""
    length = sum(terms.values())
    heaviest = sorted(terms.items(), key=lambda item: -item[1])[:MOST_TERMS]
    return sparsevec(
        (term, term_weight(count, length, REFERENCE_LENGTH)) for term, count in heaviest
    )


def halfvec(vector: Sequence[float]) -> str:
    """The text form of a dense vector."""
    return "[" + ",".join(f"{value:.7g}" for value in vector) + "]"

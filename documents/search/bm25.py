"""The lexical index, and BM25 within a scope, exactly, in two statements.

A term's place is its hash. `marks` tells at each place whether the term stands once in the text
and no more (1), or stands more often or is emphasised (2); the inner product with powers of `BASE`
reads `DIGITS` terms of a row at a time, exactly, because pgvector sums in single precision, which
holds integers below 2^24. `surplus` holds what a term marked 2 scores more (or less) than if it
stood once, so that BM25 = term_weight(1) * sum of the held terms' weights + surplus . query.

The first statement finds which terms each chunk holds: in small scopes from the marks of every row,
in large ones from the lexical index. That gives the document frequencies, and for each chunk its
score but for the surplus of repeated terms, with a bound of what that can be. The second reads the
surplus of those that can still be among the best, and the passages of the best.
"""
# ruff: noqa: S608 - every part of every statement is a constant

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from documents.models import LEXICAL_DIMENSIONS
from documents.search import database
from documents.search.database import SearchTransaction, parse_numbers
from rag.retrieve.bm25 import (
    K1,
    LEAST_EMPHASIS,
    REFERENCE_LENGTH,
    B,
    compute_coverage_weight,
    compute_idf,
    compute_term_weight,
)
from rag.types import Hit, IndexedChunk

BASE = 3
DIGITS = 15
"""Marks that fit into one inner product: 3^15 < 2^24."""
MAX_TERM_CHARACTERS = 64
MAX_CHUNK_TERMS = 16_000
"""What a sparsevec can hold."""
REMEMBERED_PLACES = 1 << 14
"""Places: terms come back often."""
_ONCE = (1, 0.0)
"""Count and emphasis of terms that occur exactly once."""


Count = TypeVar("Count", int, float)


def clean_terms(terms: Mapping[str, Count]) -> dict[str, Count]:
    """Terms as the index keeps them: storable, at most 64 characters; equal ones summed up."""
    cleaned: dict[str, Count] = {}
    for term, count in terms.items():
        kept = term
        if len(term) > MAX_TERM_CHARACTERS or not term.isprintable():
            kept = term.replace("\0", "").encode("utf-8", "ignore").decode()[:MAX_TERM_CHARACTERS]
        if kept.strip() and count > 0:
            cleaned[kept] = cleaned[kept] + count if kept in cleaned else count
    return cleaned


@functools.lru_cache(maxsize=REMEMBERED_PLACES)
def hash_term(term: str) -> int:
    """A term's position in the hashed space, from 1; the same on every machine."""
    digest = hashlib.blake2b(term.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % LEXICAL_DIMENSIONS + 1


def quote_lexeme(term: str) -> str:
    """A term as a literal of tsvector and tsquery: no character in it is an operator."""
    escaped = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def to_tsvector(terms: Iterable[str]) -> str:
    """The text form of a chunk's lexemes."""
    return " ".join(quote_lexeme(term) for term in terms)


def to_sparsevec(values: Iterable[tuple[str, float]]) -> str:
    """The text form of a sparse vector; terms with the same hash share a place."""
    places: dict[int, float] = {}
    for term, value in values:
        place = hash_term(term)
        places[place] = places.get(place, 0.0) + value
    return _to_literal(places)


def to_power_vector(places: Sequence[int]) -> str:
    """The sparse vector that reads the marks of at most `DIGITS` places as one number."""
    return _to_literal({place: float(BASE**digit) for digit, place in enumerate(places)})


def weigh_marks(terms: Mapping[str, int], emphasis: Mapping[str, float]) -> tuple[str, str | None]:
    """The text forms of a chunk's marks, and of what terms marked 2 score beyond a single one.

    None instead of the latter where there is none.
    """
    length = sum(terms.values())
    once = compute_term_weight(1, length, REFERENCE_LENGTH)
    places = _frequencies(terms, emphasis)
    more = {
        (count, extra): compute_term_weight(count, length, REFERENCE_LENGTH, extra) - once
        for count, extra in {*places.values()} - {_ONCE}
    }
    marks = {place: 1.0 if found == _ONCE else 2.0 for place, found in places.items()}
    surplus = {place: more[found] for place, found in places.items() if found != _ONCE}
    return _to_literal(marks), _to_literal(surplus) if surplus else None


@dataclass(frozen=True, slots=True)
class LexicalRow:
    """What the index keeps of a chunk: the sum of its term counts, and the text forms."""

    length: int
    lexemes: str
    marks: str
    surplus: str | None


def to_lexical_row(indexed: IndexedChunk) -> LexicalRow:
    """The index row of a chunk with its terms and emphasis."""
    terms, emphasis = clean_terms(indexed.terms), clean_terms(indexed.emphasis)
    marks, surplus = weigh_marks(terms, emphasis)
    return LexicalRow(sum(terms.values()), to_tsvector(terms | emphasis), marks, surplus)


def _frequencies(
    terms: Mapping[str, int], emphasis: Mapping[str, float]
) -> dict[int, tuple[int, float]]:
    """Count and emphasis by place, of the weightiest terms where there are too many."""
    found = [(term, count, emphasis.get(term, 0.0)) for term, count in terms.items()]
    found += [(term, 0, extra) for term, extra in emphasis.items() if term not in terms]
    if len(found) > MAX_CHUNK_TERMS:
        found = sorted(found, key=lambda item: -item[1] - item[2])[:MAX_CHUNK_TERMS]
    places: dict[int, tuple[int, float]] = {}
    for term, count, extra in found:
        place = hash_term(term)
        others, more = places.get(place, (0, 0.0))
        places[place] = (others + count, more + extra)
    return places


def _to_literal(places: Mapping[int, float]) -> str:
    body = ",".join(f"{place}:{places[place]:.9g}" for place in sorted(places) if places[place])
    return f"{{{body}}}/{LEXICAL_DIMENSIONS}"


Figures = NDArray[np.float64]


POSTING_COST = 0.12
"""What the lexical index costs for each chunk of the library, in chunks that are walked through."""
INDEX_COST = 1500
"""The same for what it costs in any library."""
FIRST = 4
"""In large scopes, for each hit wanted, so many likely ones are scored first: they set the bar."""
EMPHASISED = compute_term_weight(0, 0, REFERENCE_LENGTH, LEAST_EMPHASIS)
"""Smallest emphasis of a term in the title, the section or the first words."""
TOGETHER = 5
PATTERNS = BASE**TOGETHER
"""Marks are looked up in tables, so many at a time."""
_EACH = np.arange(PATTERNS)[:, None] // BASE ** np.arange(TOGETHER) % BASE
HELD, SEVERAL = (_EACH > 0).astype(float), (_EACH > 1).astype(float)
WALK = """
    SELECT array_send(array_agg(chunk_id)), array_send(array_agg(length)), {marks}
      FROM documents_chunkterms WHERE document_id = ANY(%(documents)s::uuid[])
"""


MARKS = "array_send(array_agg(-(marks <#> %(places{number})s::sparsevec)))"
POSTINGS = """
    SELECT held.keys, held.lengths
      FROM unnest(%(terms)s::text[]) WITH ORDINALITY AS term(quoted, place),
           LATERAL (SELECT array_send(array_agg(id)) AS keys,
                           array_send(array_agg(term_count)) AS lengths
                      FROM documents_chunk
                     WHERE (document_id IN (SELECT unnest(%(documents)s::uuid[]))) IS TRUE
                       AND lexemes @@ term.quoted::tsquery) held
     ORDER BY term.place
"""


SCORED = """
    SELECT terms.chunk_id AS id,
           found.score - coalesce(terms.surplus <#> %(query)s::sparsevec, 0) AS score
      FROM unnest(%(keys)s::int8[], %(scores)s::float8[]) AS found(id, score)
      JOIN documents_chunkterms terms ON terms.chunk_id = found.id
     ORDER BY 2 DESC, 1 LIMIT %(limit)s
"""


BEST = f"""
    WITH best AS MATERIALIZED ({SCORED})
    SELECT {database.PASSAGE_COLUMNS}, best.score
      FROM {database.PASSAGE_TABLES} JOIN best ON best.id = chunk.id
     ORDER BY best.score DESC, chunk.id
"""


@dataclass(frozen=True, slots=True)
class _Weights:
    """What each term of the question gives to the score and to the coverage."""

    score: Figures
    coverage: Figures

    @classmethod
    def of(cls, counts: Sequence[float], held: Sequence[int], size: int) -> "_Weights":
        pairs = list(zip(counts, held, strict=True))
        return cls(
            np.array([count * compute_idf(df, size) for count, df in pairs]),
            np.array(
                [compute_coverage_weight(df, size) if count >= 1 else 0.0 for count, df in pairs]
            ),
        )


@dataclass(frozen=True, slots=True)
class _TermChunks:
    """Chunks that hold a term: `lower <= score <= upper`; `base` is the score without surplus."""

    keys: NDArray[np.int64]
    base: Figures
    lower: Figures
    upper: Figures
    coverage: Figures

    def above(self, bar: float) -> "_TermChunks":
        """Those that may reach the bar."""
        kept = (self.upper >= bar) & (self.upper > 0)
        return _TermChunks(
            self.keys[kept],
            self.base[kept],
            self.lower[kept],
            self.upper[kept],
            self.coverage[kept],
        )


def find_best_chunks(
    search: SearchTransaction, terms: Mapping[str, float], limit: int
) -> list[Hit]:
    """The best `limit` chunks; see `rag.ports.PassageStore.find_by_terms`. `terms` are clean."""
    walk = search.facts.chunks <= INDEX_COST + POSTING_COST * search.facts.everywhere
    weights, found = (_walk_marks if walk else _look_up_postings)(search, terms)
    query = to_sparsevec(zip(terms, weights.score, strict=True))
    bar = _find_bar(found.lower, limit)
    if not walk and len(found.keys) > FIRST * limit:
        likely = np.argpartition(-found.base, FIRST * limit)[: FIRST * limit]
        sample = _score_exactly(
            search, SCORED, query, found.keys[likely], found.base[likely], limit
        )
        bar = max(bar, sample[-1][1] * (1 - 1e-9)) if len(sample) == limit else bar
    found = found.above(bar)
    coverage = dict(zip(found.keys.tolist(), found.coverage.tolist(), strict=True))
    rows = _score_exactly(search, BEST, query, found.keys, found.base, limit)
    most = float(weights.score.sum()) * (K1 + 1)
    return [_to_hit(row, most, coverage[row[0]]) for row in rows]


def _find_bar(lower: Figures, limit: int) -> float:
    """What the best `limit` reach at least."""
    if len(lower) <= limit:
        return 0.0
    return float(np.partition(lower, -limit)[-limit]) * (1 - 1e-9)


def _score_exactly(  # noqa: PLR0913, PLR0917
    search: SearchTransaction,
    statement: str,
    query: str,
    keys: NDArray[np.int64],
    scores: Figures,
    limit: int,
) -> list[tuple[Any, ...]]:
    if not len(keys):
        return []
    return search.rows(
        statement, query=query, keys=keys.tolist(), scores=scores.tolist(), limit=limit
    )


def _walk_marks(
    search: SearchTransaction, terms: Mapping[str, float]
) -> tuple[_Weights, _TermChunks]:
    """Every chunk of the scope, by its marks."""
    places = sorted({hash_term(term) for term in terms})
    keys, lengths, patterns = _fetch_marks(search, places)
    held = np.concatenate([np.bincount(one, minlength=PATTERNS) @ HELD for one in patterns])
    where = np.searchsorted(places, [hash_term(term) for term in terms])
    weights = _Weights.of(list(terms.values()), held[where].tolist(), len(keys))
    score, coverage = (
        _sum_by_place(where, values, len(held)) for values in (weights.score, weights.coverage)
    )
    once, twice = _term_weights(lengths)
    several = _sum_marked(patterns, SEVERAL, score)
    base = once * _sum_marked(patterns, HELD, score)
    least = np.minimum(twice, EMPHASISED)
    found = _TermChunks(
        keys=keys,
        base=base,
        lower=base + (least - once) * several,
        upper=base + (K1 + 1 - once) * several,
        coverage=_sum_marked(patterns, HELD, coverage) / (weights.coverage.sum() or 1.0),
    )
    return weights, found


def _fetch_marks(
    search: SearchTransaction, places: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[Any], list[NDArray[np.int32]]]:
    """Keys, lengths and marks of every chunk; a pattern holds the marks of `TOGETHER` places."""
    groups = [places[at : at + DIGITS] for at in range(0, len(places), DIGITS)]
    columns = ", ".join(MARKS.format(number=number) for number in range(len(groups)))
    parameters = {f"places{number}": to_power_vector(group) for number, group in enumerate(groups)}
    ((keys, lengths, *sent),) = search.rows(WALK.format(marks=columns), **parameters)
    read = [parse_numbers(one, ">f8").astype(np.int32) for one in sent]
    parts = range(DIGITS // TOGETHER)
    patterns = [one // PATTERNS**part % PATTERNS for one in read for part in parts]
    return parse_numbers(keys, ">i8").astype(np.int64), parse_numbers(lengths, ">i4"), patterns


def _sum_by_place(where: NDArray[Any], values: Figures, size: int) -> Figures:
    """The values at their places; those of terms that share a place are summed up."""
    return np.bincount(where, values, size).astype(np.float64)


def _sum_marked(
    patterns: Sequence[NDArray[np.int32]], counted: Figures, values: Figures
) -> Figures:
    """For every chunk the sum of the values at those places whose marks are counted."""
    total = np.zeros(len(patterns[0]))
    for part, pattern in zip(values.reshape(-1, TOGETHER), patterns, strict=True):
        total += (counted @ part)[pattern]
    return total


def _look_up_postings(
    search: SearchTransaction, terms: Mapping[str, float]
) -> tuple[_Weights, _TermChunks]:
    """The chunks that the lexical index names for each term."""
    rows = search.rows(POSTINGS, terms=[quote_lexeme(term) for term in terms])
    held = [parse_numbers(row[0], ">i8") for row in rows]
    counts = [len(keys) for keys in held]
    size = max(search.facts.chunks, *counts)
    weights = _Weights.of(list(terms.values()), counts, size)
    keys, place = np.unique(np.concatenate(held), return_inverse=True)
    lengths = np.zeros(len(keys))
    lengths[place] = np.concatenate([parse_numbers(row[1], ">i4") for row in rows])
    total = np.bincount(place, np.repeat(weights.score, counts), len(keys)).astype(np.float64)
    coverage = np.bincount(place, np.repeat(weights.coverage, counts), len(keys))
    once = _term_weights(lengths)[0]
    found = _TermChunks(
        keys=keys,
        base=once * total,
        lower=np.minimum(once, EMPHASISED) * total,
        upper=(K1 + 1) * total,
        coverage=coverage / (weights.coverage.sum() or 1.0),
    )
    return weights, found


def _term_weights(lengths: NDArray[Any]) -> tuple[Figures, Figures]:
    """`rag.retrieve.bm25.term_weight` of a term that stands once, and twice."""
    norm = K1 * (1 - B + B * lengths / REFERENCE_LENGTH)
    return (K1 + 1) / (1 + norm), 2 * (K1 + 1) / (2 + norm)


def _to_hit(row: tuple[Any, ...], most: float, coverage: float) -> Hit:
    score = float(row[database.PASSAGE_WIDTH])
    scores = {"bm25": score, "share": score / most, "coverage": coverage}
    return Hit(database.to_passage(row), score, scores)

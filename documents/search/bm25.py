"""The lexical index, and BM25 within a scope.

A term's place is its hash. `marks` tells at each place whether the term stands once in the text
and no more (1), or stands more often or is emphasised (2); the inner product with powers of `BASE`
reads `DIGITS` terms of a row at a time, exactly, because pgvector sums in single precision, which
holds integers below 2^24. `surplus` holds what a term marked 2 scores more (or less) than if it
stood once, so that BM25 is what a term that stands once scores in a text of that length, times the
sum of the weights of the terms that are there, plus surplus . query.

Small scopes are scanned in two statements: the first reads the marks of every chunk, which gives
the document frequencies, and for each chunk its score but for the surplus of repeated terms, with
bounds of what that can be. The second reads the surplus of those that can still be among the best,
and the passages of the best. In large scopes that are in segments (`documents.search.segments`),
these name the chunks that score best. In others the postings of the rarest terms come from the
lexical index (`documents_chunk.lexemes`), and only the marks of these chunks are read.
"""
# ruff: noqa: S608 - every part of every statement is a constant

import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from documents.models import LEXICAL_DIMENSIONS
from documents.search import database
from documents.search.database import Namespaces, SearchTransaction, parse_numbers
from documents.search.segments import find_top_indexes, read_segments
from rag.indexing import (
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
MAX_CACHED_TERMS = 1 << 14
"""Terms whose places a process caches: they come back often."""
_ONCE = (1, 0.0)
"""Count and emphasis of terms that occur exactly once."""


Count = TypeVar("Count", int, float)


def clean_terms(terms: Mapping[str, Count]) -> dict[str, Count]:
    """Terms as the index keeps them: storable, at most 64 characters; equal ones summed up."""
    cleaned: dict[str, Count] = {}
    for raw, count in terms.items():
        term = raw
        if len(raw) > MAX_TERM_CHARACTERS or not raw.isprintable():
            term = raw.replace("\0", "").encode("utf-8", "ignore").decode()[:MAX_TERM_CHARACTERS]
        if term.strip() and count > 0:
            cleaned[term] = cleaned[term] + count if term in cleaned else count
    return cleaned


@functools.lru_cache(maxsize=MAX_CACHED_TERMS)
def hash_term(term: str) -> int:
    """A term's place in the hashed space, from 1; the same on every machine."""
    digest = hashlib.blake2b(term.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % LEXICAL_DIMENSIONS + 1


def quote_lexeme(term: str) -> str:
    """A term as a literal of tsvector and tsquery: no character in it is an operator."""
    escaped = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


NAMESPACE_SIGN = "\x1f"
"""What the lexeme of a namespace begins with; no clean term holds it."""


def to_namespace_term(namespace: int) -> str:
    """The lexeme of all chunks of a namespace."""
    return f"{NAMESPACE_SIGN}{namespace:x}"


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


def to_marks_and_surplus(
    terms: Mapping[str, int], emphasis: Mapping[str, float]
) -> tuple[str, str | None]:
    """The text forms of a chunk's marks and of its surplus (see the module); None: no surplus.

    `terms` are counts, `emphasis` what a term counts more in the title, the section and so on.
    """
    length = sum(terms.values())
    once = compute_term_weight(1, length, REFERENCE_LENGTH)
    places = _sum_by_place(terms, emphasis)
    more = {
        (count, extra): compute_term_weight(count, length, REFERENCE_LENGTH, extra) - once
        for count, extra in {*places.values()} - {_ONCE}
    }
    marks = {place: 1.0 if counted == _ONCE else 2.0 for place, counted in places.items()}
    surplus = {place: more[counted] for place, counted in places.items() if counted != _ONCE}
    return _to_literal(marks), _to_literal(surplus) if surplus else None


@dataclass(frozen=True, slots=True)
class LexicalRow:
    """What the index keeps of a chunk: the sum of its term counts, and the text forms."""

    length: int
    lexemes: str
    marks: str
    surplus: str | None


def to_lexical_row(indexed: IndexedChunk, namespace: int) -> LexicalRow:
    """The index row of a chunk with its terms and emphasis, in the namespace of its document."""
    terms, emphasis = clean_terms(indexed.terms), clean_terms(indexed.emphasis)
    marks, surplus = to_marks_and_surplus(terms, emphasis)
    lexemes = to_tsvector([*(terms | emphasis), to_namespace_term(namespace)])
    return LexicalRow(sum(terms.values()), lexemes, marks, surplus)


def _sum_by_place(
    terms: Mapping[str, int], emphasis: Mapping[str, float]
) -> dict[int, tuple[int, float]]:
    """Count and emphasis by place, of the weightiest terms where there are too many."""
    counted = [(term, count, emphasis.get(term, 0.0)) for term, count in terms.items()]
    counted += [(term, 0, extra) for term, extra in emphasis.items() if term not in terms]
    if len(counted) > MAX_CHUNK_TERMS:
        counted = sorted(counted, key=lambda item: -item[1] - item[2])[:MAX_CHUNK_TERMS]
    places: dict[int, tuple[int, float]] = {}
    for term, count, extra in counted:
        place = hash_term(term)
        other_count, other_extra = places.get(place, (0, 0.0))
        places[place] = (other_count + count, other_extra + extra)
    return places


def _to_literal(places: Mapping[int, float]) -> str:
    body = ",".join(f"{place}:{places[place]:.9g}" for place in sorted(places) if places[place])
    return f"{{{body}}}/{LEXICAL_DIMENSIONS}"


Floats = NDArray[np.float64]


MAX_SCANNED_CHUNKS, MAX_SCANNED_SHARE = 10_000, 0.005
"""Scopes up to that many chunks, and that share of all, are scanned: by then it costs as much as
the postings of the rarest terms."""
SAMPLED_DOCUMENTS, SAMPLED_CHUNKS = 64, 2000
"""Of a large scope; they tell how common each term is."""
EXPECTED_SHARE = 0.75
"""What the best passages reach of the weight of all terms, before any score is known."""
PROBED_PER_HIT = 4
"""In large scopes, for each hit wanted, so many likely chunks are scored to find the threshold."""
MAX_POSTINGS = 20_000
"""A term that more chunks hold, wherever they are, is common: it is not looked up alone, since each
of them costs a row."""
MAX_JOINT_TERMS = 4
"""So many common terms, the rarest, are looked up jointly where the other terms do not suffice."""
MAX_SCORED = 4000
"""Chunks whose marks are read in large scopes; those of the rarest terms come first."""
MIN_EMPHASISED_WEIGHT = compute_term_weight(0, 0, REFERENCE_LENGTH, LEAST_EMPHASIS)
"""Smallest weight of a term in the title, the section or the first words."""
MARKS_PER_PATTERN = 5
PATTERNS = BASE**MARKS_PER_PATTERN
"""Marks are looked up in tables, so many at a time."""
_MARKS = np.arange(PATTERNS)[:, None] // BASE ** np.arange(MARKS_PER_PATTERN) % BASE
PRESENT, REPEATED = (_MARKS > 0).astype(float), (_MARKS > 1).astype(float)
"""By pattern and place: whether the term is there at all, and whether its mark is 2."""
MARKS = "array_send(array_agg(-(marks <#> %(places{number})s::sparsevec)))"
SCAN = """
    SELECT array_send(array_agg(chunk_id)), array_send(array_agg(length)), {marks}
      FROM documents_chunkterms WHERE document_id = ANY(%(documents)s::uuid[])
"""
SAMPLE = """
    SELECT array_send(array_agg(chunk_id)), array_send(array_agg(length)), {marks}
      FROM (SELECT * FROM documents_chunkterms
             WHERE document_id = ANY(%(sampled)s::uuid[]) LIMIT %(limit)s) AS terms
"""
MARKS_BY_KEY = """
    SELECT array_send(array_agg(chunk_id)), array_send(array_agg(length)), {marks},
           array_send(array_agg(-coalesce(surplus <#> %(query)s::sparsevec, 0))),
           array_send(array_agg(document_id))
      FROM documents_chunkterms WHERE chunk_id = ANY(%(keys)s::int8[])
"""
OR_UNSEGMENTED = "OR document_id = ANY(%(unsegmented)s::uuid[])"
"""And the chunks of these documents."""
CANDIDATES_PER_HIT = 8
"""In scopes that are in segments, for each hit wanted, so many of the likely ones are scored."""
POSTINGS = """
    SELECT held.keys, held.lengths
      FROM unnest(%(lookups)s::text[]) WITH ORDINALITY AS term(quoted, place),
           LATERAL (SELECT array_send(array_agg(id)) AS keys,
                           array_send(array_agg(term_count)) AS lengths
                      FROM (SELECT id, term_count FROM documents_chunk
                             WHERE {within} lexemes @@ term.quoted::tsquery
                             LIMIT %(most)s) AS holding) held
     ORDER BY term.place
"""


BEST_CHUNKS = f"""
    WITH best AS MATERIALIZED (
        SELECT terms.chunk_id AS id,
               found.score - coalesce(terms.surplus <#> %(query)s::sparsevec, 0) AS score
          FROM unnest(%(keys)s::int8[], %(scores)s::float8[]) AS found(id, score)
          JOIN documents_chunkterms terms ON terms.chunk_id = found.id
         ORDER BY 2 DESC, 1 LIMIT %(limit)s)
    SELECT {database.PASSAGE_COLUMNS}, best.score, halfvec_send(embedding.vector)
      FROM {database.PASSAGE_TABLES} JOIN best ON best.id = chunk.id
      LEFT JOIN documents_chunkembedding embedding
        ON embedding.chunk_id = chunk.id AND embedding.space_id = %(space)s
     ORDER BY best.score DESC, chunk.id
"""
"""With their vectors, which whoever searches by both asks for next: one statement less."""


@dataclass(frozen=True, slots=True)
class _Query:
    """The terms of a question, and what each of them adds to the score and to the coverage."""

    terms: Mapping[str, float]
    weights: Floats
    coverage: Floats

    @classmethod
    def from_frequencies(
        cls, terms: Mapping[str, float], frequencies: Floats, size: float
    ) -> "_Query":
        """By the terms' document frequencies in a scope of `size` chunks."""
        pairs = list(zip(terms.values(), frequencies.tolist(), strict=True))
        return cls(
            terms,
            np.array([count * compute_idf(df, size) for count, df in pairs]),
            np.array(
                [compute_coverage_weight(df, size) if count >= 1 else 0.0 for count, df in pairs]
            ),
        )

    def to_sparsevec(self) -> str:
        """The terms' weights, as the surplus of chunks is multiplied with them."""
        return to_sparsevec(zip(self.terms, self.weights, strict=True))


@dataclass(frozen=True, slots=True)
class _MarkedChunks:
    """The marks of chunks at the places of a question's terms.

    All arrays have an element a chunk, but `term_indexes`, which has one a term: which of the
    sorted places is the term's. Each of the `patterns` holds the marks of `MARKS_PER_PATTERN`
    places as one number. `surplus` and `documents`, ids of 16 bytes, are empty where they were not
    asked for.
    """

    keys: NDArray[np.int64]
    lengths: NDArray[Any]
    patterns: list[NDArray[np.int32]]
    surplus: Floats
    documents: NDArray[Any]
    term_indexes: NDArray[Any]

    def select(self, mask: NDArray[np.bool_]) -> "_MarkedChunks":
        """The chunks where the mask is true; only where surplus and documents were asked for."""
        return _MarkedChunks(
            keys=self.keys[mask],
            lengths=self.lengths[mask],
            patterns=[pattern[mask] for pattern in self.patterns],
            surplus=self.surplus[mask],
            documents=self.documents[mask],
            term_indexes=self.term_indexes,
        )

    def count_frequencies(self) -> Floats:
        """The document frequency of each term: how many of the chunks hold it."""
        by_place = [np.bincount(one, minlength=PATTERNS) @ PRESENT for one in self.patterns]
        counts: Floats = np.concatenate(by_place)[self.term_indexes]
        return counts

    def sum_values(self, table: Floats, values: Floats) -> Floats:
        """For every chunk the sum of the values of its terms, as `table` counts their marks.

        `table` is `PRESENT` or `REPEATED`; `values` has one number for each term.
        """
        total: Floats = np.zeros(len(self.keys))
        by_place = np.bincount(self.term_indexes, values, len(self.patterns) * MARKS_PER_PATTERN)
        parts = by_place.reshape(-1, MARKS_PER_PATTERN)
        for part, pattern in zip(parts, self.patterns, strict=True):
            total += (table @ part)[pattern]
        return total

    def compute_coverage(self, query: _Query) -> Floats:
        """How much of what the question is about each chunk holds, 0 to 1."""
        return self.sum_values(PRESENT, query.coverage) / (query.coverage.sum() or 1.0)

    def compute_scores(self, query: _Query) -> Floats:
        """The exact scores, where the surplus was asked for."""
        once = compute_term_weights(self.lengths)[0]
        scores: Floats = once * self.sum_values(PRESENT, query.weights) + self.surplus
        return scores


def find_best_chunks(
    search: SearchTransaction, terms: Mapping[str, float], limit: int
) -> list[Hit]:
    """The best `limit` chunks; see `rag.ports.PassageStore.find_by_terms`. `terms` are clean."""
    facts = search.facts
    if facts.chunks <= MAX_SCANNED_CHUNKS + MAX_SCANNED_SHARE * facts.everywhere:
        return find_by_scan(search, terms, limit)
    hits = _find_by_segments(search, terms, limit)
    if hits is not None:
        return hits
    return search.find_in_scope(
        lambda searched, most: _find_by_rare_terms(searched, terms, most), limit
    )


def find_by_scan(search: SearchTransaction, terms: Mapping[str, float], limit: int) -> list[Hit]:
    """The best `limit` chunks by the marks of every chunk in scope: frequencies are exact, too."""
    marked = _fetch_marks(search, terms, SCAN)
    query = _Query.from_frequencies(terms, marked.count_frequencies(), len(marked.keys))
    once, twice = compute_term_weights(marked.lengths)
    repeated = marked.sum_values(REPEATED, query.weights)
    base = once * marked.sum_values(PRESENT, query.weights)
    lower_bounds = base + (np.minimum(twice, MIN_EMPHASISED_WEIGHT) - once) * repeated
    upper_bounds = base + (K1 + 1 - once) * repeated
    threshold = _find_threshold(lower_bounds, limit)
    kept = np.flatnonzero((upper_bounds >= threshold) & (upper_bounds > 0))
    coverage = marked.compute_coverage(query)
    return _fetch_hits(search, query, (marked.keys[kept], base[kept], coverage[kept]), limit)


def _fetch_hits(
    search: SearchTransaction,
    query: _Query,
    candidates: tuple[NDArray[np.int64], Floats, Floats],
    limit: int,
) -> list[Hit]:
    """The best of the candidates, given by key, score without surplus, and coverage."""
    keys, base, coverage = candidates
    if not len(keys):
        return []
    space = search.facts.space
    rows = search.fetch_rows(
        BEST_CHUNKS,
        query=query.to_sparsevec(),
        limit=limit,
        space=space.pk if space else None,
        keys=database.to_number_array(keys),
        scores=database.to_number_array(base),
    )
    search.scope.vectors |= {row[0]: row[-1] for row in rows if row[1] in search.scope}
    coverage_by_key = dict(zip(keys.tolist(), coverage.tolist(), strict=True))
    max_score = float(query.weights.sum()) * (K1 + 1)
    return [_to_hit(row, max_score, coverage_by_key[row[0]]) for row in rows]


def _find_threshold(scores: Floats, limit: int) -> float:
    """The score that the best `limit` reach at least; 0 where there are fewer."""
    if len(scores) < limit:
        return 0.0
    return float(np.partition(scores, -limit)[-limit]) * (1 - 1e-9)


def _fetch_marks(
    search: SearchTransaction, terms: Iterable[str], statement: str, **parameters: Any
) -> _MarkedChunks:
    """Keys, lengths and marks of the statement's chunks."""
    hashes = [hash_term(term) for term in terms]
    places = sorted(set(hashes))
    groups = [places[at : at + DIGITS] for at in range(0, len(places), DIGITS)]
    columns = ", ".join(MARKS.format(number=number) for number in range(len(groups)))
    powers = {f"places{number}": to_power_vector(group) for number, group in enumerate(groups)}
    ((keys, lengths, *sent),) = search.fetch_rows(
        statement.format(marks=columns), **powers, **parameters
    )
    sums = [parse_numbers(array, ">f8").astype(np.int32) for array in sent[: len(groups)]]
    parts = range(DIGITS // MARKS_PER_PATTERN)
    surplus, documents = sent[len(groups) :] or (None, None)
    return _MarkedChunks(
        keys=parse_numbers(keys, ">i8").astype(np.int64),
        lengths=parse_numbers(lengths, ">i4"),
        patterns=[marks // PATTERNS**part % PATTERNS for marks in sums for part in parts],
        surplus=parse_numbers(surplus, ">f8").astype(np.float64),
        documents=parse_numbers(documents, "V16"),
        term_indexes=np.searchsorted(places, hashes),
    )


def _find_by_segments(
    search: SearchTransaction, terms: Mapping[str, float], limit: int
) -> list[Hit] | None:
    """By the postings of the scope's segments; None where too little of it is in any.

    Their order holds but for the rounding of weights, so the best are among the candidates, whose
    scores are exact. Chunks that were deleted or are out of scope may be among these as well: where
    they leave too few, nobody knows what comes behind them.
    """
    places = [hash_term(term) for term in terms]
    size = search.facts.chunks
    segments = read_segments(search, sorted(set(places)))
    if segments is None:
        return None
    frequencies = np.array([segments.count_chunks(place) for place in places], float)
    query = _Query.from_frequencies(terms, frequencies, max(size, *frequencies))
    by_place = dict.fromkeys(places, 0.0)
    for place, weight in zip(places, query.weights.tolist(), strict=True):
        by_place[place] += weight
    candidates = segments.find_candidate_keys(search, by_place, CANDIDATES_PER_HIT * limit)
    if candidates is None:
        return None
    marked = _fetch_marks_by_key(search, query, candidates, segments.unsegmented)
    in_scope = [search.scope.has_id_bytes(raw) for raw in marked.documents.tolist()]
    marked = marked.select(np.array(in_scope, bool))
    is_candidate = np.isin(marked.keys, candidates)
    if np.count_nonzero(is_candidate) < limit <= len(candidates):
        return None
    frequencies += marked.select(~is_candidate).count_frequencies()
    query = _Query.from_frequencies(terms, frequencies, max(size, *frequencies))
    scores = marked.compute_scores(query)
    best = find_top_indexes(scores, 2 * limit)  # their surplus is yet to be weighed anew
    best = best[scores[best] > 0]
    return _fetch_scored_hits(search, query, marked, (scores, best), limit)


def _find_by_rare_terms(
    search: SearchTransaction, terms: Mapping[str, float], limit: int
) -> list[Hit]:
    """By the postings of the lexical index, those terms first that are rarest for their weight.

    A chunk that holds none of the terms that were looked up scores at most what the others weigh.
    Once that upper bound is below the threshold, the score that the best reach, the terms looked up
    are the essential ones, and nobody looks for the others (Turtle and Flood 1995, "max score").
    What these add to the chunks that were found is read from their marks.
    A common term is only looked up jointly with others: a chunk that holds just one of them is not
    found, unless there is nothing else. Document frequencies are exact for the terms looked up;
    those of the common ones are estimated from a sample of the scope.
    """
    names = [quote_lexeme(term) for term in terms]
    frequencies, size = _estimate_frequencies(search, terms)
    query = _Query.from_frequencies(terms, frequencies, size)
    namespaces = _find_namespaces(search)
    is_rare = frequencies * (namespaces.chunks / size) <= MAX_POSTINGS
    rare_count = int(np.count_nonzero(is_rare))
    cost = np.where(is_rare, frequencies / np.maximum(query.weights, 1e-9), frequencies)
    order = np.lexsort((cost, ~is_rare))
    postings, done, threshold = _Postings.make_empty(), 0, 0.0
    expected = EXPECTED_SHARE * float(query.weights.sum())
    while (
        needed := min(
            rare_count, _count_essential_terms(query.weights[order], threshold or expected)
        )
    ) > done:
        expected = 0.0
        looked_up = order[done:needed]
        postings = _add_postings(search, postings, [names[term] for term in looked_up])
        frequencies[looked_up] = postings.counts[done:needed]
        done, size = needed, max(size, *postings.counts)
        query = _Query.from_frequencies(terms, frequencies, size)
        keys, held, once = postings.sum_weights(query.weights[order[:done]])
        probed = find_top_indexes(once * held, PROBED_PER_HIT * limit)
        threshold = _find_threshold(_score_chunks(search, query, keys[probed])[1], limit)
    weights = query.weights[order[:done]]
    if _count_essential_terms(query.weights[order], threshold) > done:
        common = [(names[at], query.weights[at]) for at in order[done : done + MAX_JOINT_TERMS]]
        postings, joint_weights = _add_joint_postings(search, postings, common, limit)
        weights = np.array([*weights, *joint_weights])
    keys, held, once = postings.sum_weights(weights)
    upper_bounds = (K1 + 1) * (held + query.weights[order[done:]].sum())
    kept = np.flatnonzero(upper_bounds >= threshold)
    kept = kept[find_top_indexes((once * held)[kept], MAX_SCORED)]
    marked, scores = _score_chunks(search, query, keys[kept])
    return _fetch_scored_hits(
        search, query, marked, (scores, find_top_indexes(scores, limit)), limit
    )


def _fetch_scored_hits(
    search: SearchTransaction,
    query: _Query,
    marked: _MarkedChunks,
    scored: tuple[Floats, NDArray[Any]],
    limit: int,
) -> list[Hit]:
    """The best of the chunks, given the scores of all and the places of the candidates."""
    scores, candidates = scored
    coverage, base = marked.compute_coverage(query), scores - marked.surplus
    chosen = (marked.keys[candidates], base[candidates], coverage[candidates])
    return _fetch_hits(search, query, chosen, limit)


def _find_namespaces(search: SearchTransaction) -> Namespaces:
    """The namespaces that a lookup is limited to; none where next to nothing is out of scope."""
    return (
        Namespaces((), search.facts.everywhere) if search.facts.whole else search.find_namespaces()
    )


def _estimate_frequencies(
    search: SearchTransaction, terms: Mapping[str, float]
) -> tuple[Floats, float]:
    """How many chunks of the scope hold each term, and how many there are, from a sample."""
    documents = database.to_uuid_array(search.scope.sample_documents(SAMPLED_DOCUMENTS))
    sample = _fetch_marks(search, terms, SAMPLE, sampled=documents, limit=SAMPLED_CHUNKS)
    frequencies, size = sample.count_frequencies(), max(search.facts.chunks, len(sample.keys))
    if len(sample.keys) == size:
        return frequencies, size
    return (frequencies + 0.5) / (len(sample.keys) + 1) * size, size


def _count_essential_terms(weights: Floats, threshold: float) -> int:
    """How many terms must be looked up, in this order, so that the rest stays below the threshold.

    All of them where there is none yet.
    """
    rest = (K1 + 1) * (weights.sum() - np.cumsum(weights))
    return int(np.count_nonzero(rest >= threshold)) + 1 if threshold > 0 else len(weights)


@dataclass(frozen=True, slots=True)
class _Postings:
    """The chunks that each lookup found: their keys and lengths, one lookup after another."""

    counts: list[int]
    keys: NDArray[Any]
    lengths: NDArray[Any]

    @classmethod
    def make_empty(cls) -> "_Postings":
        return cls([], np.empty(0, np.int64), np.empty(0, int))

    def sum_weights(self, weights: Floats) -> tuple[NDArray[Any], Floats, Floats]:
        """Each chunk once: key, weight of the lookups that found it, score of a term standing once.

        Terms that joint lookups share are counted more than once: good for an order, no score.
        """
        keys, first, place = np.unique(self.keys, return_index=True, return_inverse=True)
        held = np.bincount(place, np.repeat(weights, self.counts), len(keys)).astype(np.float64)
        return keys, held, compute_term_weights(self.lengths[first])[0]


def _add_postings(
    search: SearchTransaction, postings: _Postings, lookups: Sequence[str]
) -> _Postings:
    """These and the postings of further lookups, from the lexical index or the scope's cache."""
    whole = search.facts.whole
    statement = POSTINGS.format(within="" if whole else database.WITHIN)
    if namespaces := _find_namespaces(search).keys:
        among = " | ".join(quote_lexeme(to_namespace_term(namespace)) for namespace in namespaces)
        lookups = [f"({lookup}) & ({among})" for lookup in lookups]
    cached = search.scope.postings
    missing = [lookup for lookup in lookups if (whole, lookup) not in cached]
    rows = search.fetch_rows(statement, lookups=missing, most=MAX_POSTINGS) if missing else []
    for lookup, (keys, lengths) in zip(missing, rows, strict=True):
        cached[whole, lookup] = parse_numbers(keys, ">i8"), parse_numbers(lengths, ">i4")
    found = [cached[whole, lookup] for lookup in lookups]
    return _Postings(
        [*postings.counts, *(len(keys) for keys, _ in found)],
        np.concatenate([postings.keys, *(keys for keys, _ in found)]),
        np.concatenate([postings.lengths, *(lengths for _, lengths in found)]),
    )


def _add_joint_postings(
    search: SearchTransaction, postings: _Postings, terms: Sequence[tuple[str, float]], limit: int
) -> tuple[_Postings, list[float]]:
    """These and the chunks that hold all of the common terms, then all but one, down to two.

    No further once enough were found. A single term, the first, is looked up where there is nothing
    else. The second value is the weight that each lookup stands for.
    """
    joint_weights: list[float] = []
    known = len(postings.keys)
    for together in range(len(terms), 1, -1):
        groups = list(itertools.combinations(terms, together))
        lookups = [" & ".join(name for name, _ in group) for group in groups]
        postings = _add_postings(search, postings, lookups)
        joint_weights += [sum(weight for _, weight in group) for group in groups]
        if len(np.unique(postings.keys[known:])) >= MAX_SCORED:
            return postings, joint_weights
    if len(np.unique(postings.keys)) < limit:
        name, weight = terms[0]
        postings = _add_postings(search, postings, [name])
        joint_weights.append(weight)
    return postings, joint_weights


def _score_chunks(
    search: SearchTransaction, query: _Query, keys: NDArray[np.int64]
) -> tuple[_MarkedChunks, Floats]:
    """The marks of these chunks and their scores, in the order of the marks."""
    marked = _fetch_marks_by_key(search, query, keys)
    return marked, marked.compute_scores(query)


def _fetch_marks_by_key(
    search: SearchTransaction,
    query: _Query,
    keys: NDArray[np.int64],
    documents: Sequence[UUID] = (),
) -> _MarkedChunks:
    """Marks and surplus of these chunks, and of all chunks of these documents."""
    parameters: dict[str, Any] = {
        "keys": database.to_number_array(keys),
        "query": query.to_sparsevec(),
    }
    if not documents:
        return _fetch_marks(search, query.terms, MARKS_BY_KEY, **parameters)
    parameters["unsegmented"] = database.to_uuid_array(documents)
    return _fetch_marks(search, query.terms, MARKS_BY_KEY + OR_UNSEGMENTED, **parameters)


def compute_term_weights(lengths: NDArray[Any]) -> tuple[Floats, Floats]:
    """`rag.indexing.compute_term_weight` of a term that stands once, and twice."""
    norm = K1 * (1 - B + B * lengths / REFERENCE_LENGTH)
    return (K1 + 1) / (1 + norm), 2 * (K1 + 1) / (2 + norm)


def _to_hit(row: tuple[Any, ...], max_score: float, coverage: float) -> Hit:
    score = float(row[database.PASSAGE_WIDTH])
    scores = {"bm25": score, "share": score / max_score, "coverage": coverage}
    return Hit(database.to_passage(row), score, scores)

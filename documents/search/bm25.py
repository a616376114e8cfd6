"""The lexical index, and BM25 within a scope.

A term's place is its hash. `marks` tells at each place whether the term stands once in the text
and no more (1), or stands more often or is emphasised (2); the inner product with powers of `BASE`
reads `DIGITS` terms of a row at a time, exactly, because pgvector sums in single precision, which
holds integers below 2^24. `surplus` holds what a term marked 2 scores more (or less) than if it
stood once, so that BM25 = term_weight(1) * sum of the held terms' weights + surplus . query.

Small scopes take two statements: the first reads the marks of every chunk, which gives the document
frequencies, and for each chunk its score but for the surplus of repeated terms, with a bound of
what that can be. The second reads the surplus of those that can still be among the best, and the
passages of the best. In large scopes that are in segments (`documents.search.segments`), these name
the chunks that score best. In others the lexical index names those that hold the rarest terms, and
only their marks are read.
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
from documents.search.segments import find_largest, read_segments
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


def weigh_marks(terms: Mapping[str, int], emphasis: Mapping[str, float]) -> tuple[str, str | None]:
    """The text forms of a chunk's marks, and of what terms marked 2 score beyond a single one.

    None instead of the latter where there is none.
    """
    length = sum(terms.values())
    once = compute_term_weight(1, length, REFERENCE_LENGTH)
    places = _compute_frequencies(terms, emphasis)
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


def to_lexical_row(indexed: IndexedChunk, namespace: int) -> LexicalRow:
    """The index row of a chunk with its terms and emphasis, in the namespace of its document."""
    terms, emphasis = clean_terms(indexed.terms), clean_terms(indexed.emphasis)
    marks, surplus = weigh_marks(terms, emphasis)
    lexemes = to_tsvector([*(terms | emphasis), to_namespace_term(namespace)])
    return LexicalRow(sum(terms.values()), lexemes, marks, surplus)


def _compute_frequencies(
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


WALKED_CHUNKS, WALKED_SHARE = 10_000, 0.005
"""Scopes up to that many chunks, and that share of all, are walked through: by then it costs as
much as the rarest terms of all."""
SAMPLED_DOCUMENTS, SAMPLED_CHUNKS = 64, 2000
"""Of a large scope; they tell how common each term is."""
EXPECTED_SHARE = 0.75
"""What the best passages reach of the weight of all terms, before any score is known."""
FIRST = 4
"""In large scopes, for each hit wanted, so many likely ones are scored first: they set the bar."""
MAX_POSTINGS = 20_000
"""A term that more chunks hold, wherever they are, is not looked up alone: each costs a row."""
CROWD = 4
"""So many of them, the rarest, are looked up together where the other terms do not suffice."""
MAX_SCORED = 4000
"""Chunks whose marks are read in large scopes; those of the rarest terms come first."""
EMPHASISED = compute_term_weight(0, 0, REFERENCE_LENGTH, LEAST_EMPHASIS)
"""Smallest emphasis of a term in the title, the section or the first words."""
TOGETHER = 5
PATTERNS = BASE**TOGETHER
"""Marks are looked up in tables, so many at a time."""
_EACH = np.arange(PATTERNS)[:, None] // BASE ** np.arange(TOGETHER) % BASE
HELD, SEVERAL = (_EACH > 0).astype(float), (_EACH > 1).astype(float)
MARKS = "array_send(array_agg(-(marks <#> %(places{number})s::sparsevec)))"
WALK = """
    SELECT array_send(array_agg(chunk_id)), array_send(array_agg(length)), {marks}
      FROM documents_chunkterms WHERE document_id = ANY(%(documents)s::uuid[])
"""
SAMPLE = """
    SELECT array_send(array_agg(chunk_id)), array_send(array_agg(length)), {marks}
      FROM (SELECT * FROM documents_chunkterms
             WHERE document_id = ANY(%(sampled)s::uuid[]) LIMIT %(limit)s) AS terms
"""
MARKS_OF = """
    SELECT array_send(array_agg(chunk_id)), array_send(array_agg(length)), {marks},
           array_send(array_agg(-coalesce(surplus <#> %(query)s::sparsevec, 0))),
           array_send(array_agg(document_id))
      FROM documents_chunkterms WHERE chunk_id = ANY(%(keys)s::int8[])
"""
OR_UNSEGMENTED = "OR document_id = ANY(%(unsegmented)s::uuid[])"
"""And the chunks of these documents."""
LIKELY_PER_HIT = 8
"""In scopes that are in segments, for each hit wanted, so many of the likely ones are scored."""
POSTINGS = """
    SELECT held.keys, held.lengths
      FROM unnest(%(asked)s::text[]) WITH ORDINALITY AS term(quoted, place),
           LATERAL (SELECT array_send(array_agg(id)) AS keys,
                           array_send(array_agg(term_count)) AS lengths
                      FROM (SELECT id, term_count FROM documents_chunk
                             WHERE {within} lexemes @@ term.quoted::tsquery
                             LIMIT %(most)s) AS holding) held
     ORDER BY term.place
"""


BEST = f"""
    WITH best AS MATERIALIZED (
        SELECT terms.chunk_id AS id,
               found.score - coalesce(terms.surplus <#> %(query)s::sparsevec, 0) AS score
          FROM unnest(%(keys)s::int8[], %(scores)s::float8[]) AS found(id, score)
          JOIN documents_chunkterms terms ON terms.chunk_id = found.id
         ORDER BY 2 DESC, 1 LIMIT %(limit)s)
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
    def from_counts(cls, counts: Sequence[float], held: Sequence[float], size: float) -> "_Weights":
        pairs = list(zip(counts, held, strict=True))
        return cls(
            np.array([count * compute_idf(df, size) for count, df in pairs]),
            np.array(
                [compute_coverage_weight(df, size) if count >= 1 else 0.0 for count, df in pairs]
            ),
        )


@dataclass(frozen=True, slots=True)
class _Marked:
    """The marks of chunks at the places of a question's terms; `where` are the terms' places.

    A pattern holds the marks of `TOGETHER` places. `surplus` and `documents`, raw ids, are empty
    where they were not asked for.
    """

    keys: NDArray[np.int64]
    lengths: NDArray[Any]
    patterns: list[NDArray[np.int32]]
    surplus: Figures
    documents: NDArray[Any]
    where: NDArray[Any]

    def select(self, chosen: NDArray[np.bool_]) -> "_Marked":
        """Some of the chunks, with all that was asked for."""
        patterns = [one[chosen] for one in self.patterns]
        surplus, documents = self.surplus[chosen], self.documents[chosen]
        lengths, where = self.lengths[chosen], self.where
        return _Marked(self.keys[chosen], lengths, patterns, surplus, documents, where)

    def count_held(self) -> Figures:
        """How many of the chunks hold each term."""
        each = [np.bincount(one, minlength=PATTERNS) @ HELD for one in self.patterns]
        counts: Figures = np.concatenate(each)[self.where]
        return counts

    def sum_marked(self, counted: Figures, values: Figures) -> Figures:
        """For every chunk the sum of the terms' values at those places whose marks are counted."""
        total: Figures = np.zeros(len(self.keys))
        by_place = np.bincount(self.where, values, len(self.patterns) * TOGETHER)
        for part, pattern in zip(by_place.reshape(-1, TOGETHER), self.patterns, strict=True):
            total += (counted @ part)[pattern]
        return total


def find_best_chunks(
    search: SearchTransaction, terms: Mapping[str, float], limit: int
) -> list[Hit]:
    """The best `limit` chunks; see `rag.ports.PassageStore.find_by_terms`. `terms` are clean."""
    facts = search.facts
    if facts.chunks <= WALKED_CHUNKS + WALKED_SHARE * facts.everywhere:
        return compare_exactly(search, terms, limit)
    found = _find_by_segments(search, terms, limit)
    if found is not None:
        return found
    return search.find_inside(
        lambda searched, most: _find_by_rare_terms(searched, terms, most), limit
    )


def compare_exactly(search: SearchTransaction, terms: Mapping[str, float], limit: int) -> list[Hit]:
    """The same by the marks of every chunk in scope: exact document frequencies and scores."""
    found = _fetch_marks(search, terms, WALK)
    weights = _Weights.from_counts(
        list(terms.values()), found.count_held().tolist(), len(found.keys)
    )
    once, twice = compute_term_weights(found.lengths)
    several = found.sum_marked(SEVERAL, weights.score)
    base = once * found.sum_marked(HELD, weights.score)
    lower = base + (np.minimum(twice, EMPHASISED) - once) * several
    upper = base + (K1 + 1 - once) * several
    bar = _find_bar(lower, limit)
    kept = np.flatnonzero((upper >= bar) & (upper > 0))
    coverage = found.sum_marked(HELD, weights.coverage) / (weights.coverage.sum() or 1.0)
    return _read_best(search, terms, weights, (found.keys[kept], base[kept], coverage[kept]), limit)


def _read_best(
    search: SearchTransaction,
    terms: Mapping[str, float],
    weights: _Weights,
    found: tuple[NDArray[np.int64], Figures, Figures],
    limit: int,
) -> list[Hit]:
    """The best of chunks given by key, score without surplus, and coverage."""
    keys, base, coverage = found
    if not len(keys):
        return []
    query = to_sparsevec(zip(terms, weights.score, strict=True))
    asked = {"keys": database.to_number_array(keys), "scores": database.to_number_array(base)}
    rows = search.fetch_rows(BEST, query=query, limit=limit, **asked)
    covered = dict(zip(keys.tolist(), coverage.tolist(), strict=True))
    most = float(weights.score.sum()) * (K1 + 1)
    return [_to_hit(row, most, covered[row[0]]) for row in rows]


def _find_bar(lower: Figures, limit: int) -> float:
    """What the best `limit` reach at least."""
    if len(lower) < limit:
        return 0.0
    return float(np.partition(lower, -limit)[-limit]) * (1 - 1e-9)


def _fetch_marks(
    search: SearchTransaction, terms: Iterable[str], statement: str, **parameters: Any
) -> _Marked:
    """Keys, lengths and marks of the statement's chunks."""
    hashes = [hash_term(term) for term in terms]
    places = sorted(set(hashes))
    groups = [places[at : at + DIGITS] for at in range(0, len(places), DIGITS)]
    columns = ", ".join(MARKS.format(number=number) for number in range(len(groups)))
    powers = {f"places{number}": to_power_vector(group) for number, group in enumerate(groups)}
    ((keys, lengths, *sent),) = search.fetch_rows(
        statement.format(marks=columns), **powers, **parameters
    )
    read = [parse_numbers(one, ">f8").astype(np.int32) for one in sent[: len(groups)]]
    parts = range(DIGITS // TOGETHER)
    surplus, documents = sent[len(groups) :] or (None, None)
    return _Marked(
        keys=parse_numbers(keys, ">i8").astype(np.int64),
        lengths=parse_numbers(lengths, ">i4"),
        patterns=[one // PATTERNS**part % PATTERNS for one in read for part in parts],
        surplus=parse_numbers(surplus, ">f8").astype(np.float64),
        documents=parse_numbers(documents, "V16"),
        where=np.searchsorted(places, hashes),
    )


def _find_by_segments(
    search: SearchTransaction, terms: Mapping[str, float], limit: int
) -> list[Hit] | None:
    """By the postings of the scope's segments; None where too little of it is in any.

    Their order holds but for the rounding of weights, so the best are among the likely ones, whose
    scores are exact. Chunks that were deleted or are out of scope may be among these as well: where
    they leave too few, nobody knows what comes behind them.
    """
    places, counts = [hash_term(term) for term in terms], list(terms.values())
    size = search.facts.chunks
    segments = read_segments(search, sorted(set(places)))
    if segments is None:
        return None
    frequencies = np.array([segments.count_chunks(place) for place in places], float)
    weights = _Weights.from_counts(counts, frequencies.tolist(), max(size, *frequencies))
    by_place = dict.fromkeys(places, 0.0)
    for place, weight in zip(places, weights.score.tolist(), strict=True):
        by_place[place] += weight
    likely = segments.find_likely(search, by_place, LIKELY_PER_HIT * limit)
    if likely is None:
        return None
    marked = _fetch_marks_of(search, terms, weights, likely, segments.unsegmented)
    inside = [search.scope.has_raw(one) for one in marked.documents.tolist()]
    marked = marked.select(np.array(inside, bool))
    is_likely = np.isin(marked.keys, likely)
    if np.count_nonzero(is_likely) < limit <= len(likely):
        return None
    frequencies += marked.select(~is_likely).count_held()
    weights = _Weights.from_counts(counts, frequencies.tolist(), max(size, *frequencies))
    scores = _compute_scores(marked, weights)
    best = find_largest(scores, 2 * limit)  # their surplus is yet to be weighed anew
    best = best[scores[best] > 0]
    return _read_scored(search, (terms, weights), marked, (scores, best), limit)


def _find_by_rare_terms(
    search: SearchTransaction, terms: Mapping[str, float], limit: int
) -> list[Hit]:
    """By the lexical index, those terms first that are rarest for what they weigh.

    A chunk that holds none of the terms that were looked up can reach at most what the others
    weigh; once that is below what the best reach, nobody looks for it (Turtle and Flood 1995,
    "max score"). What the common terms add to the chunks that were found is read from their marks.
    A term that too many hold is only looked up together with others like it: a chunk that holds
    just one of them is not found, unless there is nothing else. Document frequencies are exact for
    the terms looked up; those of the common ones are estimated from a sample of the scope.
    """
    counts, names = list(terms.values()), [quote_lexeme(term) for term in terms]
    frequencies, size = _estimate_frequencies(search, terms)
    weights = _Weights.from_counts(counts, frequencies.tolist(), size)
    namespaces = _find_namespaces(search)
    alone = frequencies * (namespaces.chunks / size) <= MAX_POSTINGS
    most = int(np.count_nonzero(alone))
    dearness = np.where(alone, frequencies / np.maximum(weights.score, 1e-9), frequencies)
    order = np.lexsort((dearness, ~alone))
    found, asked, bar = _Postings.make_empty(), 0, 0.0
    expected = EXPECTED_SHARE * float(weights.score.sum())
    while (wanted := min(most, _count_needed(weights.score[order], bar or expected))) > asked:
        expected = 0.0
        looked_up = order[asked:wanted]
        found = _look_up(search, found, [names[term] for term in looked_up])
        frequencies[looked_up] = found.counts[asked:wanted]
        asked, size = wanted, max(size, *found.counts)
        weights = _Weights.from_counts(counts, frequencies.tolist(), size)
        keys, held, once = found.sum_up(weights.score[order[:asked]])
        likely = find_largest(once * held, FIRST * limit)
        bar = _find_bar(_score_chunks(search, terms, weights, keys[likely])[1], limit)
    values = weights.score[order[:asked]]
    if _count_needed(weights.score[order], bar) > asked:
        crowd = [(names[at], weights.score[at]) for at in order[asked : asked + CROWD]]
        found, joint = _look_up_crowd(search, found, crowd, limit)
        values = np.array([*values, *joint])
    keys, held, once = found.sum_up(values)
    reach = (K1 + 1) * (held + weights.score[order[asked:]].sum())
    kept = np.flatnonzero(reach >= bar)
    kept = kept[find_largest((once * held)[kept], MAX_SCORED)]
    marked, scores = _score_chunks(search, terms, weights, keys[kept])
    return _read_scored(
        search, (terms, weights), marked, (scores, find_largest(scores, limit)), limit
    )


def _read_scored(
    search: SearchTransaction,
    asked: tuple[Mapping[str, float], _Weights],
    marked: _Marked,
    found: tuple[Figures, NDArray[Any]],
    limit: int,
) -> list[Hit]:
    """The best of the chunks at these places for the terms and their weights, given all scores."""
    (terms, weights), (scores, best) = asked, found
    coverage = marked.sum_marked(HELD, weights.coverage) / (weights.coverage.sum() or 1.0)
    base = scores - marked.surplus
    return _read_best(
        search, terms, weights, (marked.keys[best], base[best], coverage[best]), limit
    )


def _find_namespaces(search: SearchTransaction) -> Namespaces:
    """Those that keep a lookup within the scope; none where next to nothing lies outside."""
    return (
        Namespaces((), search.facts.everywhere) if search.facts.whole else search.find_namespaces()
    )


def _look_up_crowd(
    search: SearchTransaction, found: "_Postings", crowd: Sequence[tuple[str, float]], limit: int
) -> tuple["_Postings", list[float]]:
    """With the chunks that hold all of the crowd, then all but one, down to two.

    No further once enough were found. A single term, the rarest, is looked up where there is
    nothing else. Also the weight that each lookup stands for.
    """
    joint: list[float] = []
    known = len(found.keys)
    for together in range(len(crowd), 1, -1):
        groups = list(itertools.combinations(crowd, together))
        found = _look_up(search, found, [" & ".join(name for name, _ in one) for one in groups])
        joint += [sum(weight for _, weight in one) for one in groups]
        if len(np.unique(found.keys[known:])) >= MAX_SCORED:
            return found, joint
    if len(np.unique(found.keys)) < limit:
        found = _look_up(search, found, [crowd[0][0]])
        joint.append(crowd[0][1])
    return found, joint


def _estimate_frequencies(
    search: SearchTransaction, terms: Mapping[str, float]
) -> tuple[Figures, float]:
    """How many chunks of the scope hold each term, and how many there are."""
    sampled = database.to_uuid_array(search.scope.sample_documents(SAMPLED_DOCUMENTS))
    found = _fetch_marks(search, terms, SAMPLE, sampled=sampled, limit=SAMPLED_CHUNKS)
    held, size = found.count_held(), max(search.facts.chunks, len(found.keys))
    if len(found.keys) == size:
        return held, size
    return (held + 0.5) / (len(found.keys) + 1) * size, size


def _count_needed(weights: Figures, bar: float) -> int:
    """How many terms must be looked up, the rarest first, so that the rest cannot reach the bar."""
    rest = (K1 + 1) * (weights.sum() - np.cumsum(weights))
    return int(np.count_nonzero(rest >= bar)) + 1 if bar > 0 else len(weights)


@dataclass(frozen=True, slots=True)
class _Postings:
    """The chunks that were found for each lookup: their keys and lengths, one after another."""

    counts: list[int]
    keys: NDArray[Any]
    lengths: NDArray[Any]

    @classmethod
    def make_empty(cls) -> "_Postings":
        return cls([], np.empty(0, np.int64), np.empty(0, int))

    def sum_up(self, weights: Figures) -> tuple[NDArray[Any], Figures, Figures]:
        """Each chunk once: its key, the lookups' weights that it holds, what a single term scores.

        What pairs share is counted more than once: an order of promise, no score.
        """
        keys, first, place = np.unique(self.keys, return_index=True, return_inverse=True)
        held = np.bincount(place, np.repeat(weights, self.counts), len(keys)).astype(np.float64)
        return keys, held, compute_term_weights(self.lengths[first])[0]


def _look_up(search: SearchTransaction, before: _Postings, asked: Sequence[str]) -> _Postings:
    """With what the lexical index names for further terms, or named before in this scope."""
    whole = search.facts.whole
    statement = POSTINGS.format(within="" if whole else database.WITHIN)
    if namespaces := _find_namespaces(search).keys:
        among = " | ".join(quote_lexeme(to_namespace_term(namespace)) for namespace in namespaces)
        asked = [f"({one}) & ({among})" for one in asked]
    known = search.scope.postings
    missing = [one for one in asked if (whole, one) not in known]
    rows = search.fetch_rows(statement, asked=missing, most=MAX_POSTINGS) if missing else []
    for one, (keys, lengths) in zip(missing, rows, strict=True):
        known[whole, one] = parse_numbers(keys, ">i8"), parse_numbers(lengths, ">i4")
    found = [known[whole, one] for one in asked]
    return _Postings(
        [*before.counts, *(len(keys) for keys, _ in found)],
        np.concatenate([before.keys, *(keys for keys, _ in found)]),
        np.concatenate([before.lengths, *(lengths for _, lengths in found)]),
    )


def _score_chunks(
    search: SearchTransaction,
    terms: Mapping[str, float],
    weights: _Weights,
    keys: NDArray[np.int64],
) -> tuple[_Marked, Figures]:
    """The marks of these chunks and their scores, in the order of the marks."""
    found = _fetch_marks_of(search, terms, weights, keys)
    return found, _compute_scores(found, weights)


def _fetch_marks_of(
    search: SearchTransaction,
    terms: Mapping[str, float],
    weights: _Weights,
    keys: NDArray[np.int64],
    documents: Sequence[UUID] = (),
) -> _Marked:
    """Everything about these chunks, and about all chunks of these documents."""
    query = to_sparsevec(zip(terms, weights.score, strict=True))
    asked: dict[str, Any] = {"keys": database.to_number_array(keys), "query": query}
    if not documents:
        return _fetch_marks(search, terms, MARKS_OF, **asked)
    asked["unsegmented"] = database.to_uuid_array(documents)
    return _fetch_marks(search, terms, MARKS_OF + OR_UNSEGMENTED, **asked)


def _compute_scores(found: _Marked, weights: _Weights) -> Figures:
    once = compute_term_weights(found.lengths)[0]
    scores: Figures = once * found.sum_marked(HELD, weights.score) + found.surplus
    return scores


def compute_term_weights(lengths: NDArray[Any]) -> tuple[Figures, Figures]:
    """`rag.indexing.term_weight` of a term that stands once, and twice."""
    norm = K1 * (1 - B + B * lengths / REFERENCE_LENGTH)
    return (K1 + 1) / (1 + norm), 2 * (K1 + 1) / (2 + norm)


def _to_hit(row: tuple[Any, ...], most: float, coverage: float) -> Hit:
    score = float(row[database.PASSAGE_WIDTH])
    scores = {"bm25": score, "share": score / most, "coverage": coverage}
    return Hit(database.to_passage(row), score, scores)

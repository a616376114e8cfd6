"""BM25 in Postgres against `rank_bm25` on the same tokens, by both of its ways."""

import contextlib
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from documents.models import Document, Library
from documents.search import bm25, database
from rag.indexing import K1, REFERENCE_LENGTH, B, compute_idf
from tests.documents.test_store import index, store

pytestmark = pytest.mark.django_db

WORDS = [f"말{number}" for number in range(12)]
texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40), min_size=1, max_size=25)
questions = st.dictionaries(
    st.sampled_from([*WORDS, "없는말"]),
    st.floats(min_value=0.05, max_value=3.0),
    min_size=1,
    max_size=8,
)


@contextlib.contextmanager
def force_way(name):
    """Scan the scope, or go by the lexical index, however large it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25, "MAX_SCANNED_CHUNKS", 10**9 if name == "scan" else -(10**9))
        yield


def score_with_rank_bm25(chunks, question):
    """What rank_bm25 gives with our IDF, our reference length, and each term's weight."""
    scorer = BM25Okapi(chunks, k1=K1, b=B)
    held = Counter(chain.from_iterable(map(set, chunks)))
    scorer.avgdl = REFERENCE_LENGTH
    scorer.idf = {
        word: weight * compute_idf(held[word], len(chunks)) for word, weight in question.items()
    }
    return np.array(scorer.get_scores(list(question)))


@pytest.mark.parametrize("name", ["scan", "index"])
@given(chunks=texts, question=questions, limit=st.integers(1, 30), cut=st.integers(0, 25))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bm25_is_that_of_rank_bm25(owner, name, chunks, question, limit, cut):
    owner.documents.all().delete()
    index(owner, [WORDS] * 3)  # out of scope: must not count
    parts = [part for part in (chunks[:cut], chunks[cut:]) if part]
    scope = [index(owner, part) for part in parts]
    with force_way(name):
        hits = store(*scope).find_by_terms(question, limit)
    scores = score_with_rank_bm25([*chain(*parts)], question)
    expected = sorted((score for score in scores.tolist() if score > 0), reverse=True)[:limit]
    assert [hit.score for hit in hits] == pytest.approx(expected, rel=1e-5)
    places = {scope[0].pk: 0, scope[-1].pk: len(chunks) - len(parts[-1])}
    for hit in hits:
        place = places[hit.passage.document_id] + hit.passage.index
        assert hit.score == pytest.approx(scores[place], rel=1e-5)


def count_looked_up(scope):
    """The chunks that were read for lookups in the word index, before the scope was asked for."""
    read = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "WITHIN", "")
        patch.setattr(bm25, "_add_postings", count_into(read, bm25._add_postings))
        with force_way("index"):
            store(*scope).find_by_terms({"공통": 1.0}, 5)
    return sum(read)


def count_into(counts, add_postings):
    def add_and_count(search, postings, lookups):
        added = add_postings(search, postings, lookups)
        counts.append(len(added.keys) - len(postings.keys))
        return added

    return add_and_count


def test_a_lookup_reads_no_rows_of_other_namespaces(owner):
    """Those of other people's documents and other libraries."""
    library = Library.objects.create(name="인사")
    stranger = User.objects.create_user("stranger")
    own = index(owner, ["공통 말"] * 7)
    index(stranger, ["공통 말"] * 500)
    inside = index(owner, ["공통 말"] * 11, library=library)
    assert count_looked_up([own]) == 7
    assert count_looked_up([inside]) == 11
    assert count_looked_up([own, inside]) == 18


def test_a_document_is_found_where_it_was_moved_and_left(owner):
    """It keeps its namespace until it is processed again."""
    libraries = [Library.objects.create(name=name) for name in ("인사", "법무")]
    moved, *others = [index(owner, ["공통 말"] * 3, library=libraries[0]) for _ in range(3)]
    there = index(owner, ["공통 말"] * 3, library=libraries[1])
    Document.objects.filter(pk=moved.pk).update(library=libraries[1])
    assert count_looked_up([moved, there]) == 12  # both namespaces
    with force_way("index"):
        hits = store(moved, there).find_by_terms({"공통": 1.0}, 30)
        left = store(*others).find_by_terms({"공통": 1.0}, 30)
    assert {hit.passage.document_id for hit in hits} == {moved.pk, there.pk}
    assert {hit.passage.document_id for hit in left} == {one.pk for one in others}


@pytest.mark.parametrize("stranger_is", ["in another namespace", "of an earlier version"])
def test_a_document_that_no_sample_shows_is_found_beside_others(owner, monkeypatch, stranger_is):
    """A large scope is counted by some of its documents, which are all in one namespace."""
    library = Library.objects.create(name="인사")
    usual = [index(owner, ["공통 말"] * 3, library=library) for _ in range(4)]
    other = index(owner, ["공통 말"] * 3)
    index(owner, ["공통 말"] * 5, library=Library.objects.create(name="법무"))
    if stranger_is == "of an earlier version":
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE documents_chunk SET lexemes = %s::tsvector WHERE document_id = %s",
                [bm25.to_tsvector(["공통", "말"]), other.pk],
            )
        Document.objects.filter(pk=other.pk).update(terms_version=1)
    monkeypatch.setattr(database, "COUNTED_DOCUMENTS", 1)
    scope = [*usual, other]
    with pytest.MonkeyPatch.context() as patch, force_way("index"):
        patch.setattr(database.SearchScope, "sample_documents", lambda _self, _most: [usual[0].pk])
        found = store(*scope).find_by_terms({"공통": 1.0}, 30)
        read = count_looked_up(scope)
    assert {hit.passage.document_id for hit in found} == {one.pk for one in scope}
    assert read == (15 if stranger_is == "in another namespace" else 20)


@pytest.mark.parametrize("namespace", [None, 7])
def test_a_document_of_an_earlier_version_is_found_beside_others(owner, namespace):
    """Its terms name no namespace yet, even while they are brought over."""
    earlier, present = (index(owner, ["공통 말"] * 3) for _ in range(2))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE documents_chunk SET lexemes = %s::tsvector WHERE document_id = %s",
            [bm25.to_tsvector(["공통", "말"]), earlier.pk],
        )
    Document.objects.filter(pk=earlier.pk).update(terms_version=1, namespace=namespace)
    with force_way("index"):
        hits = store(earlier, present).find_by_terms({"공통": 1.0}, 30)
    assert {hit.passage.document_id for hit in hits} == {earlier.pk, present.pk}


def test_a_scope_on_many_namespaces_is_searched_without_them(owner, monkeypatch):
    monkeypatch.setattr(database, "MAX_NAMESPACES", 2)
    libraries = [Library.objects.create(name=str(number)) for number in range(3)]
    scope = [index(owner, ["공통 말"] * 2, library=one) for one in libraries]
    index(owner, ["공통 말"] * 5)
    assert count_looked_up(scope) == 11
    assert count_looked_up(scope[:2]) == 4


def test_a_rollback_leaves_the_lexical_index_as_it_was(owner):
    from django.db import transaction

    document = index(owner, ["연차 휴가"])
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        index(owner, ["출장 여비"])
        document.chunks.all().delete()
        1 / 0  # noqa: B018
    (hit,) = store(document).find_by_terms({"연차": 1}, 5)
    assert hit.scores["coverage"] == pytest.approx(1.0)

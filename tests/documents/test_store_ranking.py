"""BM25 in Postgres against `rank_bm25` on the same tokens, by both of its ways."""

import contextlib
import random
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from documents.models import Chunk, Document, Library
from documents.search import bm25, database
from documents.search import store as searching
from rag.indexing import K1, REFERENCE_LENGTH, B, compute_idf
from tests.documents.conftest import TinyEmbedder
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
def way(name):
    """Walk through the scope, or go by the lexical index, however large it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25, "WALKED_CHUNKS", 10**9 if name == "walk" else -(10**9))
        yield


def oracle(chunks, question):
    """What rank_bm25 gives with our IDF, our reference length, and each term's weight."""
    scorer = BM25Okapi(chunks, k1=K1, b=B)
    held = Counter(chain.from_iterable(map(set, chunks)))
    scorer.avgdl = REFERENCE_LENGTH
    scorer.idf = {
        word: weight * compute_idf(held[word], len(chunks)) for word, weight in question.items()
    }
    return np.array(scorer.get_scores(list(question)))


@pytest.mark.parametrize("name", ["walk", "index"])
@given(chunks=texts, question=questions, limit=st.integers(1, 30), cut=st.integers(0, 25))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bm25_is_that_of_rank_bm25(owner, name, chunks, question, limit, cut):
    owner.documents.all().delete()
    index(owner, [WORDS] * 3)  # out of scope: must not count
    parts = [part for part in (chunks[:cut], chunks[cut:]) if part]
    scope = [index(owner, part) for part in parts]
    with way(name):
        hits = store(*scope).find_by_terms(question, limit)
    scores = oracle([*chain(*parts)], question)
    expected = sorted((score for score in scores.tolist() if score > 0), reverse=True)[:limit]
    assert [hit.score for hit in hits] == pytest.approx(expected, rel=1e-5)
    places = {scope[0].pk: 0, scope[-1].pk: len(chunks) - len(parts[-1])}
    for hit in hits:
        place = places[hit.passage.document_id] + hit.passage.index
        assert hit.score == pytest.approx(scores[place], rel=1e-5)


@pytest.fixture
def crowd(owner):
    """Forty documents of twenty chunks; some words stand in most of these, most words in few."""
    dice = random.Random(8)
    words = [f"말{number}" for number in range(400)]
    shares = [1 / (number + 1) for number in range(len(words))]
    chunks = [dice.choices(words, shares, k=dice.randint(20, 60)) for _ in range(800)]
    return words, [index(owner, chunks[at : at + 20]) for at in range(0, len(chunks), 20)]


def test_where_common_words_are_only_sampled_the_same_is_found(crowd, monkeypatch):
    words, documents = crowd
    monkeypatch.setattr(bm25, "SAMPLED_DOCUMENTS", 10)
    dice, held, asked = random.Random(4), 0, 60
    for _ in range(asked):
        # two that everybody says, and four that few do
        question = dict.fromkeys(dice.sample(words[:12], 2) + dice.sample(words[40:], 4), 1.0)
        with way("walk"):
            right = {hit.passage.key for hit in store(*documents).find_by_terms(question, 10)}
        with way("index"):
            found = [hit.passage.key for hit in store(*documents).find_by_terms(question, 30)]
        held += len(right & set(found[:10]))
    assert held >= 0.97 * 10 * asked  # of a sample of 200 chunks; of 2,000 it is .99 and more


def test_words_that_all_say_are_looked_up_together(crowd, monkeypatch):
    """None of them is rare enough to be looked up alone; the best passages hold several."""
    words, documents = crowd
    monkeypatch.setattr(bm25, "MAX_POSTINGS", 100)
    held, dice = 0, random.Random(6)
    for _ in range(20):
        question = dict.fromkeys(dice.sample(words[2:9], 3), 1.0)
        with way("walk"):
            right = {hit.passage.key for hit in store(*documents).find_by_terms(question, 10)}
        with way("index"):
            found = [hit.passage.key for hit in store(*documents).find_by_terms(question, 30)]
        assert len(found) == 30
        held += len(right & set(found[:10]))
    assert held >= 0.45 * 200  # of 800 chunks no more than 100 were read for a lookup


def test_a_large_scope_finds_nothing_outside_of_it(crowd, owner):
    words, documents = crowd
    beside = index(owner, [words[:50]] * 5)
    with way("index"):
        hits = store(*documents).find_by_terms(dict.fromkeys(words[:50], 1.0), 30)
        alone = store(beside).find_by_terms(dict.fromkeys(words[:50], 1.0), 30)
    assert len(hits) == 30
    assert beside.pk not in {hit.passage.document_id for hit in hits}
    assert {hit.passage.document_id for hit in alone} == {beside.pk}


def test_other_words_for_a_question_come_with_its_own_which_are_looked_up_once(crowd, monkeypatch):
    words, documents = crowd
    looked_up, fetch = [], database._fetch_rows

    def fetch_rows(cursor, statement, given):
        looked_up.extend(given.get("asked", ()))
        return fetch(cursor, statement, given)

    monkeypatch.setattr(database, "_fetch_rows", fetch_rows)
    own = dict.fromkeys(words[40:44], 1.0)
    reworded = {**own, **dict.fromkeys(words[50:53], 0.3)}
    with way("index"):
        alone = store(*documents).find_by_terms(reworded, 10)
        looked_up.clear()
        asked = store(*documents)
        asked.find_by_terms(own, 10)
        found = asked.find_by_terms(reworded, 10)
    assert [(hit.passage.key, hit.score) for hit in found] == [
        (hit.passage.key, hit.score) for hit in alone
    ]
    assert looked_up
    assert len(looked_up) == len(set(looked_up))


def count_looked_up(scope):
    """The chunks that were read for lookups in the word index, before the scope was asked for."""
    read = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "WITHIN", "")
        patch.setattr(bm25, "_look_up", count_into(read, bm25._look_up))
        with way("index"):
            store(*scope).find_by_terms({"공통": 1.0}, 5)
    return sum(read)


def count_into(read, look_up):
    def looked_up(search, before, asked):
        found = look_up(search, before, asked)
        read.append(len(found.keys) - len(before.keys))
        return found

    return looked_up


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
    with way("index"):
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
    with pytest.MonkeyPatch.context() as patch, way("index"):
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
    with way("index"):
        hits = store(earlier, present).find_by_terms({"공통": 1.0}, 30)
    assert {hit.passage.document_id for hit in hits} == {earlier.pk, present.pk}


def test_a_scope_on_many_namespaces_is_searched_without_them(owner, monkeypatch):
    monkeypatch.setattr(database, "MAX_NAMESPACES", 2)
    libraries = [Library.objects.create(name=str(number)) for number in range(3)]
    scope = [index(owner, ["공통 말"] * 2, library=one) for one in libraries]
    index(owner, ["공통 말"] * 5)
    assert count_looked_up(scope) == 11
    assert count_looked_up(scope[:2]) == 4


@pytest.fixture
def whole(monkeypatch):
    """Scopes of more than a document are counted by a sample, and nearly all is the whole."""
    monkeypatch.setattr(database, "COUNTED_DOCUMENTS", 1)
    monkeypatch.setattr(database, "WHOLE_SHARE", 0.9)


@pytest.mark.parametrize("strangers", [5, 500])
def test_a_scope_of_all_but_a_few_finds_nothing_of_those(crowd, owner, whole, strangers):
    """They would fill all places, or some."""
    words, documents = crowd
    beside = index(owner, [words[:50]] * strangers)
    with connection.cursor() as cursor:
        # how many there are is not counted
        cursor.execute("ANALYZE documents_document, documents_chunk")
    question = dict.fromkeys(words[:50], 1.0)
    vector = TinyEmbedder().embed_query(" ".join(words[:50]))
    with pytest.MonkeyPatch.context() as patch, way("index"):
        patch.setattr(searching, "EXACT_CHUNKS", 0)
        asked = store(*documents)
        for found in (asked.find_by_terms(question, 30), asked.find_similar(vector, 30)):
            assert asked._scope.facts.whole
            assert asked._scope.facts.chunks == Chunk.objects.count()
            assert len(found) == 30
            assert beside.pk not in {hit.passage.document_id for hit in found}
        everywhere = store(*documents, beside).find_by_terms(question, 5)
    assert {hit.passage.document_id for hit in everywhere} == {beside.pk}


def test_words_that_no_chunk_of_a_large_scope_holds_find_nothing(crowd):
    _, documents = crowd
    with way("index"):
        assert store(*documents).find_by_terms({"없는말": 1.0, "이것도": 2.0}, 10) == []


def test_a_rollback_leaves_the_lexical_index_as_it_was(owner):
    from django.db import transaction

    document = index(owner, ["연차 휴가"])
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        index(owner, ["출장 여비"])
        document.chunks.all().delete()
        1 / 0  # noqa: B018
    (hit,) = store(document).find_by_terms({"연차": 1}, 5)
    assert hit.scores["coverage"] == pytest.approx(1.0)

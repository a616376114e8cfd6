"""Words in a scope of many documents, where most words stand in few of them and some in most.

One library for all tests: it takes longer to make than to search.
"""

import random

import pytest
from django.db import connection

from documents.models import Chunk
from documents.search import bm25, database
from documents.search import store as searching
from tests.documents.conftest import TinyEmbedder, make_owner
from tests.documents.test_store import index, store
from tests.documents.test_store_ranking import force_way

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def owner(lasting_rows):
    return make_owner()


@pytest.fixture(scope="module")
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
        with force_way("scan"):
            right = {hit.passage.key for hit in store(*documents).find_by_terms(question, 10)}
        with force_way("index"):
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
        with force_way("scan"):
            right = {hit.passage.key for hit in store(*documents).find_by_terms(question, 10)}
        with force_way("index"):
            found = [hit.passage.key for hit in store(*documents).find_by_terms(question, 30)]
        assert len(found) == 30
        held += len(right & set(found[:10]))
    assert held >= 0.45 * 200  # of 800 chunks no more than 100 were read for a lookup


def test_a_large_scope_finds_nothing_outside_of_it(crowd, owner):
    words, documents = crowd
    beside = index(owner, [words[:50]] * 5)
    with force_way("index"):
        hits = store(*documents).find_by_terms(dict.fromkeys(words[:50], 1.0), 30)
        alone = store(beside).find_by_terms(dict.fromkeys(words[:50], 1.0), 30)
    assert len(hits) == 30
    assert beside.pk not in {hit.passage.document_id for hit in hits}
    assert {hit.passage.document_id for hit in alone} == {beside.pk}


def test_other_words_for_a_question_come_with_its_own_which_are_looked_up_once(crowd, monkeypatch):
    words, documents = crowd
    looked_up, fetch = [], database._fetch_rows

    def fetch_rows(cursor, statement, given):
        looked_up.extend(given.get("lookups", ()))
        return fetch(cursor, statement, given)

    monkeypatch.setattr(database, "_fetch_rows", fetch_rows)
    own = dict.fromkeys(words[40:44], 1.0)
    reworded = {**own, **dict.fromkeys(words[50:53], 0.3)}
    with force_way("index"):
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


def test_words_that_no_chunk_of_a_large_scope_holds_find_nothing(crowd):
    _, documents = crowd
    with force_way("index"):
        assert store(*documents).find_by_terms({"없는말": 1.0, "이것도": 2.0}, 10) == []


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
    with pytest.MonkeyPatch.context() as patch, force_way("index"):
        patch.setattr(searching, "MAX_SCANNED_CHUNKS", 0)
        asked = store(*documents)
        for found in (asked.find_by_terms(question, 30), asked.find_similar(vector, 30)):
            assert asked._scope.facts.whole
            assert asked._scope.facts.chunks == Chunk.objects.count()
            assert len(found) == 30
            assert beside.pk not in {hit.passage.document_id for hit in found}
        assert (
            asked.read_vectors([chunk.pk for chunk in Chunk.objects.filter(document=beside)]) == {}
        )
        everywhere = store(*documents, beside).find_by_terms(question, 5)
    assert {hit.passage.document_id for hit in everywhere} == {beside.pk}

"""Search by the signs of vectors: what it finds, and the codes that it goes by.

One library for all tests: it takes longer to make than to search.
"""

import random
import uuid
from dataclasses import replace
from importlib import import_module

import pytest
from django.db import connection
from pgvector import HalfVector

from documents import spaces
from documents.models import ChunkEmbedding, Document, VectorCodes
from documents.search import codes, database
from documents.search import store as searching
from documents.search.store import ScopedStore
from tests.documents.conftest import TinyEmbedder, make_owner
from tests.documents.test_store import index

pytestmark = pytest.mark.django_db


class SignedEmbedder(TinyEmbedder):
    """100 figures of either sign from the words of a text: not a whole number of bytes."""

    name = "signed"
    dimensions = 100

    def embed_query(self, text):
        words = [random.Random(word) for word in text.split()]
        figures = [sum(word.gauss(0, 1) for word in words) for _ in range(self.dimensions)]
        length = sum(value * value for value in figures) ** 0.5
        return [value / length for value in figures]


def list_codes(space):
    """The keys that stand in the codes of each document of the space."""
    width = 8 + 13
    found = VectorCodes.objects.filter(space_id=space.pk).values_list("document_id", "codes")
    return {
        document: {int.from_bytes(codes[at : at + 8], "big") for at in range(0, len(codes), width)}
        for document, codes in found
    }


@pytest.fixture(scope="module")
def owner(lasting_rows):
    return make_owner()


@pytest.fixture(scope="module")
def signed_documents(owner):
    """Six documents of two hundred chunks, and how each is searched: by signs, or exactly."""
    dice, embedder = random.Random(9), SignedEmbedder()
    words = [f"w{number}" for number in range(300)]
    texts = [" ".join(dice.choices(words, k=5)) for _ in range(1200)]
    documents = [index(owner, texts[at : at + 200], embedder) for at in range(0, 1200, 200)]
    asked = [embedder.embed_query(" ".join(dice.choices(words, k=5))) for _ in range(10)]
    space = spaces.get_active_space()
    space.unrelated = 0.1

    def find(scope, vector, candidates, share=1.0):
        compared = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(searching, "MAX_SCANNED_CHUNKS", 0 if candidates else 10**9)
            patch.setattr(searching, "COSINE_CANDIDATES", candidates)
            patch.setattr(searching, "MAX_CODES_SHARE", share)
            fetch, fetch_facts = database._fetch_rows, database._fetch_facts
            patch.setattr(  # an estimate otherwise, which autovacuum renews at any time
                database,
                "_fetch_facts",
                lambda *given: replace(fetch_facts(*given), everywhere=1200),
            )
            patch.setattr(
                database,
                "_fetch_rows",
                lambda cursor, statement, given: (
                    compared.extend(map(int, filter(None, given.get("keys", "")[1:-1].split(",")))),
                    fetch(cursor, statement, given),
                )[1],
            )
            hits = ScopedStore([one.pk for one in scope], space=space).find_similar(vector, 10)
        return [hit.passage.key for hit in hits], compared

    return documents, asked, find


def test_the_nearest_by_signs_hold_the_nearest(signed_documents):
    documents, asked, find = signed_documents
    held = 0
    for vector in asked:
        found, compared = find(documents[:5], vector, 200)
        assert 200 <= len(compared) < 400  # of a thousand
        held += len(set(found) & set(find(documents[:5], vector, 0)[0]))
    assert held >= 95


def test_signs_count_for_what_the_figures_of_the_question_weigh(signed_documents, monkeypatch):
    documents, asked, find = signed_documents
    right = [set(find(documents[:5], vector, 0)[0]) for vector in asked]

    def count_held(likely):
        monkeypatch.setattr(searching, "HAMMING_CANDIDATES", likely)
        found = [find(documents[:5], vector, 40) for vector in asked]
        assert all(40 <= len(compared) < 100 for _, compared in found)
        return sum(len(right[at] & set(hits)) for at, (hits, _) in enumerate(found))

    assert count_held(1000) > count_held(40)


def test_most_of_all_chunks_are_searched_through_the_graph(signed_documents):
    documents, asked, find = signed_documents
    found, compared = find(documents[:5], asked[0], 200, share=0.5)
    assert len(found) == 10
    assert not compared


def test_the_graph_of_a_large_library_is_walked_a_second_time(signed_documents, monkeypatch):
    documents, asked, find = signed_documents
    monkeypatch.setattr(searching, "EF_SEARCH", "12")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")  # few rows: a sort would be cheaper

    def count_held(most):
        monkeypatch.setattr(searching, "MAX_CHUNKS_OF_ONE_WALK", most)
        found = [find(documents[:5], vector, 200, share=0.5)[0] for vector in asked]
        assert all(len(hits) == 10 for hits in found)
        pairs = zip(found, asked, strict=True)
        return sum(len({*hits} & {*find(documents[:5], one, 0)[0]}) for hits, one in pairs)

    assert count_held(1199) > count_held(1200)


def test_signs_that_are_too_many_to_be_read_are_not_gone_by(signed_documents, monkeypatch):
    documents, asked, find = signed_documents
    a_code = searching.KEY_BYTES + 13
    monkeypatch.setattr(searching, "MAX_CODE_BYTES", 1000 * a_code)
    assert find(documents[:5], asked[0], 200)[1]
    monkeypatch.setattr(searching, "MAX_CODE_BYTES", 1000 * a_code - 1)
    found, compared = find(documents[:5], asked[0], 200)
    assert len(found) == 10
    assert not compared


def test_signs_find_nothing_outside_of_the_scope(signed_documents, stranger):
    documents, asked, find = signed_documents
    index(stranger, ["w1 w2"] * 3, SignedEmbedder())
    inside = set(documents[0].chunks.values_list("pk", flat=True))
    for vector in asked:
        found, compared = find(documents[:1], vector, 20)
        assert len(found) == 10
        assert set(compared) <= inside


@pytest.fixture
def read_rows(monkeypatch):
    """The documents whose codes were read since the process remembers none, in order."""
    monkeypatch.setattr(codes, "code_cache", codes.CodeCache(codes.MAX_CACHED_BYTES))
    read, fetch = [], database._fetch_rows

    def fetch_rows(cursor, statement, given):
        rows = fetch(cursor, statement, given)
        if statement == codes.CODES:
            read.extend(uuid.UUID(bytes=row[:16]) for row, _ in rows)
        return rows

    monkeypatch.setattr(database, "_fetch_rows", fetch_rows)
    return read


def test_the_codes_of_a_document_are_read_once(signed_documents, read_rows):
    documents, asked, find = signed_documents
    first = [find(documents[:3], vector, 100) for vector in asked]
    assert sorted(read_rows) == sorted(one.pk for one in documents[:3])
    again = [find(documents[:3], vector, 100) for vector in asked]
    assert again == first
    find(documents[1:5], asked[0], 100)
    assert set(read_rows[3:]) == {documents[3].pk, documents[4].pk}
    assert len(read_rows) == 5


def test_codes_of_vectors_that_changed_or_went_are_not_gone_by(signed_documents, read_rows):
    documents, asked, find = signed_documents
    found, _ = find(documents[:2], asked[0], 50)
    went = ChunkEmbedding.objects.get(chunk_id=found[0])
    went.delete()
    changed = documents[1] if went.document_id == documents[0].pk else documents[0]
    first = changed.chunks.first()
    ChunkEmbedding.objects.filter(chunk=first).delete()
    ChunkEmbedding.objects.create(
        chunk=first,
        document=changed,
        space_id=went.space_id,
        vector=HalfVector(asked[0]),
    )
    now, compared = find(documents[:2], asked[0], 50)
    assert now[0] == first.pk
    assert went.chunk_id not in compared
    Document.objects.get(pk=changed.pk).delete()
    left, compared = find(documents[:2], asked[0], 50)
    assert left
    assert first.pk not in compared


def test_what_was_remembered_is_not_found_outside_of_the_scope(signed_documents, read_rows):
    documents, asked, find = signed_documents
    for vector in asked:
        find(documents, vector, 100)
        found, compared = find(documents[:1], vector, 100)
        inside = set(documents[0].chunks.values_list("pk", flat=True))
        assert len(found) == 10
        assert set(compared) <= inside


def test_codes_that_name_chunks_of_others_find_none_of_them(signed_documents, read_rows):
    """As they would if the database were set back, and gave their keys to others."""
    documents, asked, find = signed_documents
    find(documents[:2], asked[0], 100)
    mine, theirs = sorted(
        codes.code_cache._codes, key=lambda row: row[:16] != documents[0].pk.bytes
    )
    codes.code_cache._codes[mine] = codes.code_cache._codes[theirs]
    found, compared = find(documents[:1], asked[0], 100)
    assert compared
    assert found == []


def test_a_process_remembers_no_more_codes_than_it_may():
    kept = codes.CodeCache(10_000)
    for number in range(100):
        row = uuid.UUID(int=number).bytes + number.to_bytes(8)
        kept.add({row: bytes(1000)})
        assert kept.find([row]) == {row: bytes(1000)}
        assert sum(map(len, kept._codes.values())) <= 10_000
    assert len(kept._codes) > 1


@pytest.mark.parametrize("unrelated", [None, 0.8])
def test_signs_of_vectors_that_all_lean_one_way_are_not_gone_by(
    signed_documents, unrelated, monkeypatch
):
    """Nor where nobody knows whether they do."""
    documents, asked, _ = signed_documents
    space = spaces.get_active_space()
    space.unrelated = unrelated
    monkeypatch.setattr(searching, "MAX_SCANNED_CHUNKS", 0)
    monkeypatch.setattr(codes, "ROWS", "SELECT 1/0")
    assert len(ScopedStore([documents[0].pk], space=space).find_similar(asked[0], 5)) == 5


def test_the_codes_of_a_document_are_those_of_its_vectors(signed_documents):
    """Whoever writes and deletes them."""
    documents, _, _ = signed_documents
    space = spaces.get_active_space()

    def list_vectors():
        found = {}
        for document, key in space.embeddings.values_list("document_id", "chunk_id"):
            found.setdefault(document, set()).add(key)
        return found

    assert list_codes(space) == list_vectors()
    ChunkEmbedding.objects.filter(chunk_id=documents[1].chunks.first().pk).delete()
    Document.objects.filter(pk=documents[2].pk).delete()
    index_again = list(documents[3].chunks.all())
    space.embeddings.filter(document=documents[3]).delete()
    ChunkEmbedding.objects.bulk_create(
        ChunkEmbedding(
            chunk=one,
            document=documents[3],
            space=space,
            vector=HalfVector([1.0] * SignedEmbedder.dimensions),
        )
        for one in index_again[:7]
    )
    assert len(list_codes(space)[documents[1].pk]) == 199
    assert len(list_codes(space)[documents[3].pk]) == 7
    assert list_codes(space) == list_vectors()


def test_vectors_from_before_get_their_codes_by_the_migration(signed_documents):
    space = spaces.get_active_space()
    before = list_codes(space)
    VectorCodes.objects.exclude(document_id=signed_documents[0][0].pk).delete()
    fill = import_module("documents.migrations.0016_fill_vector_codes")
    with pytest.MonkeyPatch.context() as patch, connection.schema_editor() as editor:
        patch.setattr(fill, "DOCUMENTS_AT_ONCE", 4)
        fill.fill_codes(None, editor)
    assert list_codes(space) == before

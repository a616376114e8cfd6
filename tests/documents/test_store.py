import random
import threading
import uuid
from collections import Counter

import pytest
from django.db import connection
from rank_bm25 import BM25Okapi

from documents import spaces
from documents.models import (
    ChunkTerms,
    Document,
    EmbeddingSpace,
)
from documents.search import bm25, database
from documents.search import store as searching
from documents.search.store import ScopedStore
from nura.embedded import locations
from rag.errors import RetrievalFailed
from rag.indexing import K1, REFERENCE_LENGTH, B, compute_idf, compute_term_weight
from rag.types import Box, IndexedChunk, Kind, Page
from rag.types import TextChunk as RagChunk
from tests.documents.conftest import TinyEmbedder, make_row, store_rows
from tests.support import ROOT

pytestmark = pytest.mark.django_db


def index(owner, chunks, embedder=None, **fields):
    """A completed document with these chunks: texts, or mappings of terms."""
    document = make_row(owner, **fields)
    index_waiting(chunks, embedder or TinyEmbedder())
    return document


def index_waiting(chunks, embedder):
    """Give the document that waits these chunks, as `index`."""
    indexed = []
    for number, terms in enumerate(chunks):
        text = terms if isinstance(terms, str) else " ".join(terms)
        counts = {}
        for word in terms.split() if isinstance(terms, str) else terms:
            counts[word] = counts.get(word, 0) + 1
        chunk = RagChunk(number, text, 0, len(text), 1, 1, "절", (Box(1, 0.1, 0.2, 0.3, 0.4),))
        indexed.append(IndexedChunk(chunk, counts, tuple(embedder.embed_query(text))))
    page = Page(1, "\n".join(entry.chunk.text for entry in indexed))
    store_rows([page], indexed, spaces.ensure_active_space(embedder))


def store(*documents):
    return ScopedStore(
        [document.pk for document in documents], space=spaces.ensure_active_space(TinyEmbedder())
    )


def test_a_passage_of_a_table_comes_with_its_kind_and_header(owner):
    document = make_row(owner)
    header = "| 품목 | 단가 |\n| --- | --- |"
    chunk = RagChunk(0, "| 책상 | 9만 |", 0, 11, 1, 1, "", kind=Kind.TABLE, header=header)
    vector = tuple(TinyEmbedder().embed_query(chunk.content))
    space = spaces.ensure_active_space(TinyEmbedder())
    store_rows([Page(1, chunk.text)], [IndexedChunk(chunk, {"책상": 1}, vector)], space)

    for found in (
        [hit.passage for hit in store(document).find_by_terms({"책상": 1}, 5)],
        [hit.passage for hit in store(document).find_similar(vector, 5)],
        store(document).read_openings(1),
    ):
        assert [(one.kind, one.header) for one in found] == [(Kind.TABLE, header)]
        assert found[0].content == f"{header}\n{chunk.text}"


def test_bm25_ranks_as_rank_bm25_does_on_the_same_tokens(owner):
    dice = random.Random(7)
    words = [f"말{n}" for n in range(60)]
    texts = [
        dice.choices(words, weights=range(60, 0, -1), k=int(REFERENCE_LENGTH)) for _ in range(80)
    ]
    found = store(index(owner, texts[:50]), index(owner, texts[50:]))
    oracle = BM25Okapi(texts, k1=K1, b=B, epsilon=0.0)
    held = Counter(word for text in texts for word in set(text))
    for _ in range(5):
        query = dict.fromkeys(dice.sample(words, 6), 1)
        # the oracle's own IDF may be negative: give it ours
        oracle.idf = {word: compute_idf(held[word], 80) for word in query}
        scores = oracle.get_scores(list(query))
        best = sorted(scores, reverse=True)[:10]
        hits = found.find_by_terms(query, 10)
        assert [hit.score for hit in hits] == pytest.approx(best, rel=1e-3)


def test_bm25_prefers_the_rare_term(owner):
    document = index(owner, ["연차 휴가", "연차 출장", "연차 수당"])
    hits = store(document).find_by_terms({"연차": 1, "출장": 1}, 5)
    assert hits[0].passage.text == "연차 출장"
    assert hits[0].scores["coverage"] == pytest.approx(1.0)
    assert 0 < hits[1].scores["coverage"] < 1


def test_terms_that_nobody_holds_lower_the_coverage(owner):
    document = index(owner, ["연차 휴가"])
    (hit,) = store(document).find_by_terms({"연차": 1, "우주선": 1}, 5)
    assert 0.3 < hit.scores["coverage"] < 0.7


def test_frequencies_are_those_of_the_scope(owner):
    one = index(owner, ["가 나", "가 다"])
    index(owner, ["나"] * 50)
    (hit, *_) = store(one).find_by_terms({"나": 1}, 5)
    assert hit.score == pytest.approx(
        0.6931 * compute_term_weight(1, 2, REFERENCE_LENGTH), rel=1e-3
    )


@pytest.mark.parametrize(
    "term",
    ["'", "\\", "a'b", "a\\'b", "&", "|", "!", "(", ")", ":*", "a:*", "' | 'x", "%s", "%(x)s",
     "<->", "x:A", "a b", '"', "''", "\\\\", "$$", "{1:2}/3", ","],
)  # fmt: skip
def test_hostile_terms_are_literal(owner, term):
    document = index(owner, [[term, "보통"], ["x", "a", "b", "보통"]])
    hits = store(document).find_by_terms({term: 1}, 5)
    assert [hit.passage.index for hit in hits] == [0]


def test_terms_with_nul_or_of_great_length_do_no_harm(owner):
    long = "가" * 5000
    document = index(owner, [[long, "나\0나", "\0", ""], ["다"]])
    found = store(document)
    assert [hit.passage.index for hit in found.find_by_terms({long: 1}, 5)] == [0]
    assert [hit.passage.index for hit in found.find_by_terms({"나나": 1, "\0": 1}, 5)] == [0]
    assert found.find_by_terms({"\0": 3, "": 1}, 5) == []


def test_a_thousand_terms_are_bounded(owner):
    document = index(owner, ["말1 말2"])
    assert store(document).find_by_terms({f"말{n}": 1 for n in range(3000)}, 5)


def test_nothing_out_of_scope_is_found(owner, stranger):
    mine = index(owner, ["비밀 계획"])
    theirs = index(stranger, ["비밀 계획"])
    found = store(mine)
    vector = TinyEmbedder().embed_query("비밀 계획")
    assert {h.passage.document_id for h in found.find_by_terms({"비밀": 1}, 10)} == {mine.pk}
    assert {h.passage.document_id for h in found.find_similar(vector, 10)} == {mine.pk}
    places = [(mine.pk, 0), (theirs.pk, 0)]
    assert {p.document_id for p in found.read_places(places)} == {mine.pk}
    assert {p.document_id for p in found.read_openings(10)} == {mine.pk}
    assert theirs.pk not in {h.passage.document_id for h in found.find_similar(vector, 10)}


def test_an_empty_scope_finds_nothing_without_a_query(django_assert_num_queries):
    with django_assert_num_queries(0):
        empty = ScopedStore([])
        assert empty.find_by_terms({"가": 1}, 5) == []
        assert empty.find_similar([0.1], 5) == []
        assert empty.read_openings(5) == []


def test_a_made_up_document_finds_nothing(owner):
    index(owner, ["가"])
    assert ScopedStore([uuid.uuid4()]).find_by_terms({"가": 1}, 5) == []


def test_similar_gives_the_cosine(owner):
    document = index(owner, ["연차 휴가 규정", "출장 여비", "사무실 청소"])
    hits = store(document).find_similar(TinyEmbedder().embed_query("출장 여비"), 2)
    assert hits[0].passage.text == "출장 여비"
    assert hits[0].scores["similarity"] == pytest.approx(1.0, abs=1e-3)
    assert hits[0].score >= hits[1].score


def test_the_vectors_of_what_words_found_come_with_it(owner, monkeypatch):
    document = index(owner, ["연차 휴가", "연차 출장", "수당"])
    found = store(document)
    keys = [hit.passage.key for hit in found.find_by_terms({"연차": 1}, 5)]
    (other,) = {hit.passage.key for hit in found.find_by_terms({"수당": 1, "연차": 1}, 5)} - {*keys}
    right = store(document).read_vectors([*keys, other])
    assert right[keys[0]] == pytest.approx(TinyEmbedder().embed_query("연차 휴가"), abs=1e-3)
    monkeypatch.setattr(database, "_fetch_rows", lambda *_: pytest.fail("asked again"))
    assert found.read_vectors([*keys, other]) == right


def test_vectors_are_read_within_the_scope_alone(owner, stranger):
    mine, theirs = index(owner, ["연차 휴가"]), index(stranger, ["연차 출장"])
    (hit,) = store(theirs).find_by_terms({"연차": 1}, 5)
    assert store(theirs).read_vectors([hit.passage.key])
    assert store(mine).read_vectors([hit.passage.key]) == {}


def test_the_graph_finds_what_the_exact_scan_finds(owner, monkeypatch):
    dice = random.Random(3)
    texts = [" ".join(dice.choices([f"w{n}" for n in range(200)], k=12)) for _ in range(400)]
    wide, narrow = index(owner, texts[:395]), index(owner, texts[395:])
    vector = TinyEmbedder().embed_query("w1 w2 w3 w4")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")  # few rows: a sort would be cheaper
    for found in (store(wide, narrow), store(narrow)):
        exact = [hit.passage.key for hit in found.find_similar(vector, 10)]
        monkeypatch.setattr(searching, "MAX_SCANNED_CHUNKS", 0)
        graph = [hit.passage.key for hit in found.find_similar(vector, 10)]
        monkeypatch.undo()
        assert len(set(exact) & set(graph)) >= 0.9 * len(exact)
        assert len(graph) == len(exact)


def test_vectors_that_all_have_the_same_signs_are_all_compared(owner, monkeypatch):
    """There is no order among them to choose the nearest by."""
    document = index(owner, [f"말{number}" for number in range(50)])
    space = spaces.get_active_space()
    space.unrelated = 0.1
    found = ScopedStore([document.pk], space=space)
    vector = TinyEmbedder().embed_query("말31")
    exact = [hit.passage.key for hit in found.find_similar(vector, 5)]
    monkeypatch.setattr(searching, "MAX_SCANNED_CHUNKS", 0)
    monkeypatch.setattr(searching, "MAX_CODES_SHARE", 1.0)
    monkeypatch.setattr(searching, "COSINE_CANDIDATES", 5)
    assert [hit.passage.key for hit in found.find_similar(vector, 5)] == exact


def test_c88_a_filter_that_keeps_a_thousandth_still_gives_all_that_were_wanted(owner, monkeypatch):
    """The graph's walk goes on until it has found enough, and where it may not all are compared."""
    dice = random.Random(5)
    texts = [" ".join(dice.choices([f"w{n}" for n in range(200)], k=12)) for _ in range(2000)]
    narrow = index(owner, texts[:2])
    index(owner, texts[2:], name="다른 것.md")
    vector = TinyEmbedder().embed_query("w1 w2 w3 w4")
    exact = [hit.passage.key for hit in store(narrow).find_similar(vector, 2)]
    assert len(exact) == 2
    monkeypatch.setattr(searching, "MAX_SCANNED_CHUNKS", 0)
    monkeypatch.setattr(searching, "EF_SEARCH", "10")
    for bound in ("20000", "1"):
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_sort = off")
            cursor.execute("SELECT '[1]'::halfvec")
            cursor.execute(f"SET LOCAL hnsw.max_scan_tuples = {bound}")
        assert [hit.passage.key for hit in store(narrow).find_similar(vector, 2)] == exact


def test_large_scopes_use_the_index_of_their_space(owner):
    space = spaces.ensure_active_space(TinyEmbedder())
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_sort = off")
        cursor.execute(
            "EXPLAIN " + searching.to_graph_statement(space),
            {
                "vector": searching.to_halfvec([0.1] * 16),
                "documents": [index(owner, ["가"]).pk],
                "limit": 5,
                "passed": 0,
            },
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert f"embedding_space_{space.pk}" in plan


def test_iterative_scan_is_known_to_the_database():
    """A wrong value only warns and silently turns it off."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT '[1]'::halfvec")
        cursor.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        cursor.execute("SHOW hnsw.iterative_scan")
        assert cursor.fetchone() == ("relaxed_order",)


def test_a_vector_of_another_width_finds_nothing(owner):
    assert store(index(owner, ["가"])).find_similar([0.5, 0.5], 5) == []


def test_a_passage_knows_its_place_in_document_and_page(owner):
    document = index(owner, ["가", "나", "다"])
    (passage,) = store(document).read_places([(document.pk, 2), (document.pk, 9)])
    assert passage.text == "다"
    assert passage.boxes == (Box(1, 0.1, 0.2, 0.3, 0.4),)
    assert passage.chunk_id == f"{document.pk}_2"


def test_all_chunks_come_in_reading_order_by_document(owner):
    one, two = index(owner, ["가 나", "다 라", "마"]), index(owner, ["바", "사"], name="둘.md")
    found = store(two, one).read_all(5)
    assert [(item.document_id, item.index) for item in found] == [
        (two.pk, 0),
        (two.pk, 1),
        (one.pk, 0),
        (one.pk, 1),
        (one.pk, 2),
    ]


def test_too_many_chunks_are_not_read_at_all(owner):
    assert store(index(owner, ["가", "나", "다"])).read_all(2) is None


def test_chunks_are_read_by_their_places_and_only_within_the_scope(owner):
    mine, other = index(owner, ["가", "나", "다"]), index(owner, ["라", "마"], name="둘.md")
    found = store(mine).read_places([(mine.pk, 2), (other.pk, 0), (mine.pk, 9), (mine.pk, 0)])
    assert sorted((item.document_id, item.index) for item in found) == [(mine.pk, 0), (mine.pk, 2)]
    assert store().read_places([(mine.pk, 0)]) == []


def test_a_passage_knows_its_place_and_what_its_document_says_of_itself(owner):
    document = index(owner, ["가 나"])
    document.metadata = {"title": "여비 규정", "issuer": "국토교통부", "date": "2026-01-02"}
    document.save(update_fields=["metadata"])
    (found,) = store(document).read_all(10)
    assert (found.start, found.end) == (0, 3)
    assert (found.title, found.issuer, found.date) == ("여비 규정", "국토교통부", "2026-01-02")


def test_the_opening_takes_turns_between_documents(owner):
    one, two = index(owner, ["가1", "가2", "가3"]), index(owner, ["나1"])
    texts = [passage.text for passage in store(two, one).read_openings(3)]
    assert texts == ["나1", "가1", "가2"]


@pytest.mark.django_db(transaction=True)
def test_an_error_in_the_database_is_a_failed_retrieval_and_the_connection_stays(
    owner, monkeypatch
):
    document = index(owner, ["가"])
    found = store(document)
    monkeypatch.setattr(database, "FACTS", "SELECT 1/0, %(documents)s::text")
    with pytest.raises(RetrievalFailed):
        found.find_by_terms({"가": 1}, 5)
    monkeypatch.undo()
    assert found.find_by_terms({"가": 1}, 5)


@pytest.mark.django_db(transaction=True)
def test_a_slow_search_ends_by_itself(owner, monkeypatch):
    found = store(index(owner, ["가"]))
    monkeypatch.setattr(database, "STATEMENT_TIMEOUT", "100ms")
    monkeypatch.setattr(bm25, "SCAN", "SELECT pg_sleep(5), %(documents)s::text, {marks}")
    monkeypatch.setattr(bm25, "MARKS", "%(places{number})s::text")
    with pytest.raises(RetrievalFailed):
        found.find_by_terms({"가": 1}, 5)


@pytest.mark.django_db(transaction=True)
def test_the_settings_of_a_search_hold_to_its_end_and_no_longer(owner):
    told = "SELECT current_setting('enable_seqscan'), current_setting('statement_timeout')"
    with connection.cursor() as cursor:
        cursor.execute(told)
        before = cursor.fetchone()
    with database.open_search(database.SearchScope([index(owner, ["가"]).pk])) as search:
        assert search.fetch_rows("SELECT 1") == [(1,)]
        assert search.fetch_rows(told) == [("off", database.STATEMENT_TIMEOUT)]
    with connection.cursor() as cursor:
        cursor.execute(told)
        assert cursor.fetchone() == before


def cut_connections():
    """What a restart of Postgres does to every connection, idle or not."""
    import psycopg

    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.django_db(transaction=True)
def test_g86_a_search_whose_connection_is_cut_fails_and_the_next_one_works(owner):
    connection.close()
    connection.close_pool()  # the pool waits longer for each broken one: only ours counts here
    found = store(index(owner, ["가"]))
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    cut_connections()
    with pytest.raises(RetrievalFailed):
        found.find_by_terms({"가": 1}, 5)
    assert found.find_by_terms({"가": 1}, 5)


@pytest.mark.django_db(transaction=True)
def test_g86_connections_that_were_cut_while_idle_are_not_handed_out(owner, monkeypatch):
    monkeypatch.setattr(locations, "PROVEN_SECONDS", 0.0)  # idle for longer than that
    connection.close()
    connection.close_pool()  # the pool waits longer for each broken one: only ours counts here
    found = store(index(owner, ["가"]))
    connection.close()  # back into the pool, as at the end of a request
    cut_connections()
    assert found.find_by_terms({"가": 1}, 5)


def test_another_model_becomes_the_active_space(owner):
    class Other(TinyEmbedder):
        name = "other"
        dimensions = 8

    first = spaces.ensure_active_space(TinyEmbedder())
    second = spaces.ensure_active_space(Other())
    assert first.pk != second.pk
    assert list(EmbeddingSpace.objects.filter(active=True)) == [second]
    assert spaces.ensure_active_space(TinyEmbedder()).pk == first.pk
    assert Document.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_what_runs_beside_a_search_has_a_connection_of_its_own_while_some_are_free():
    go_on = threading.Event()

    def ask():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return cursor.fetchone()[0]

    def ask_later():
        assert go_on.wait(timeout=20)
        return ask()

    found = store()
    begun = [found.run_concurrently(ask_later) for _ in range(database.MAX_CONCURRENT_SEARCHES)]
    assert found.run_concurrently(ask)() == ask()  # none is free: its caller does it
    go_on.set()
    assert ask() not in {wait() for wait in begun}
    assert found.run_concurrently(ask)() != ask()  # and they are given back


def test_nothing_runs_beside_a_transaction_which_alone_sees_its_rows(owner):
    document = index(owner, ["연차 휴가"])
    wait = store(document).run_concurrently(
        lambda: Document.objects.filter(pk=document.pk).exists()
    )
    assert wait()


def test_the_keys_that_shards_need_change_no_search_no_upload_and_no_deletion(owner):
    script = (ROOT / "deploy" / "citus" / "distribute.sql").read_text(encoding="utf-8")
    keys = script.partition("BEGIN;\n")[2].partition("\\if")[0]
    kept, gone = index(owner, ["연차 휴가 규정", "출장 여비"]), index(owner, ["연차 수당"])

    def search(*documents):
        found = store(*documents)
        near = found.find_similar(TinyEmbedder().embed_query("출장 여비"), 3)
        return [
            [(hit.passage.key, hit.score) for hit in hits]
            for hits in (found.find_by_terms({"연차": 1}, 3), near)
        ]

    before = search(kept, gone)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(keys)
        cursor.execute(
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype = 'p' AND conrelid::regclass::text LIKE 'documents_chunk%'"
        )
        assert dict(cursor.fetchall()) == {
            "documents_chunk": "PRIMARY KEY (document_id, id)",
            "documents_chunkterms": "PRIMARY KEY (document_id, chunk_id)",
            "documents_chunkembedding": "PRIMARY KEY (document_id, id)",
        }
    assert search(kept, gone) == before
    added = index(owner, ["연차 촉진"])
    gone.delete()
    assert len(search(kept, added)[0]) == 2
    assert not ChunkTerms.objects.filter(document_id=gone.pk).exists()

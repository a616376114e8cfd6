"""Segments find what the exact search finds, whatever has changed since they were written."""

import random
from dataclasses import replace

import numpy as np
import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.db import connection

from documents import segments, services
from documents.index import delete_index
from documents.models import (
    Chunk,
    Document,
    Library,
    Postings,
    PostingSegment,
    UnsegmentedDocument,
)
from documents.search import bm25, database
from documents.search import segments as searched
from nura import retention
from tests.documents.conftest import TinyEmbedder
from tests.documents.test_store import index, index_waiting, store
from tests.documents.test_store_ranking import force_way

pytestmark = pytest.mark.django_db

WORDS = [f"말{number}" for number in range(60)]
QUESTION = {WORDS[3]: 1.0, WORDS[20]: 0.5, WORDS[41]: 1.5, "없는말": 1.0}


@pytest.fixture(autouse=True)
def shrink_segments(monkeypatch):
    """Three chunks make a namespace large, and two a segment."""
    monkeypatch.setattr(segments, "MIN_NAMESPACE_CHUNKS", 3)
    monkeypatch.setattr(segments, "MIN_SEGMENT_CHUNKS", 2)


def make_chunks(seed, count=20):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(5, 40))) for _ in range(count)]


@pytest.fixture
def library(owner):
    return Library.objects.create(name="인사")


@pytest.fixture
def documents(owner, library):
    """In segments, all of them."""
    made = [index(owner, make_chunks(seed), library=library) for seed in range(6)]
    while segments.write_due_segments():
        pass
    assert PostingSegment.objects.exists()
    assert not UnsegmentedDocument.objects.exists()
    return made


def search(scope, monkeypatch, limit=10, question=None):
    """By segments, and exactly; fails where the lexical index was asked."""
    question = question or QUESTION
    with force_way("scan"):
        exact = store(*scope).find_by_terms(question, limit)
    with force_way("index"), monkeypatch.context() as patch:
        patch.setattr(bm25, "_find_by_rare_terms", forbid)
        found = store(*scope).find_by_terms(question, limit)
    return to_scores(found), to_scores(exact)


def forbid(*_arguments):
    raise AssertionError("the lexical index was asked")


def to_scores(hits):
    return {hit.passage.key: (round(hit.score, 4), round(hit.scores["share"], 4)) for hit in hits}


def test_they_find_what_the_exact_search_finds(documents, monkeypatch):
    found, exact = search(documents, monkeypatch)
    assert found == exact
    assert len(found) == 10


def test_a_long_document_fills_several(owner, library, monkeypatch):
    monkeypatch.setattr(segments, "MAX_SEGMENT_CHUNKS", 8)
    document = index(owner, make_chunks(1), library=library)
    segments.write_due_segments()
    assert sorted(PostingSegment.objects.values_list("chunk_count", flat=True)) == [4, 8, 8]
    found, exact = search([document], monkeypatch)
    assert found == exact


def test_what_is_new_or_changed_is_found_at_once(owner, library, documents, monkeypatch):
    new = index(owner, ["새말 새말", WORDS[3]], library=library)
    found, exact = search([*documents, new], monkeypatch, question={"새말": 1.0, WORDS[3]: 1.0})
    assert found == exact
    key = Chunk.objects.get(document=new, index=0).pk
    assert key in found


def test_of_what_is_in_segments_only_the_likely_ones_are_read(
    owner, library, documents, monkeypatch
):
    """Beside all that is new."""
    monkeypatch.setattr(bm25, "CANDIDATES_PER_HIT", 1)
    new = index(owner, ["새말 새말", WORDS[3]], library=library)
    fetch, read = bm25._fetch_marks_by_key, []

    def record(*arguments):
        marked = fetch(*arguments)
        read.extend(marked.keys.tolist())
        return marked

    monkeypatch.setattr(bm25, "_fetch_marks_by_key", record)
    search([*documents, new], monkeypatch, limit=4)
    assert {*Chunk.objects.filter(document=new).values_list("pk", flat=True)} < {*read}
    assert len(read) == 4 + 2


def test_with_too_much_new_the_lexical_index_is_asked(owner, library, documents, monkeypatch):
    monkeypatch.setattr(searched, "MAX_UNSEGMENTED_CHUNKS", 1)
    new = index(owner, ["새말 새말", WORDS[3]], library=library)
    with force_way("index"):
        hits = store(*documents, new).find_by_terms({"새말": 1.0}, 10)
    assert [hit.passage.document_id for hit in hits] == [new.pk]


def test_a_deleted_document_is_not_found(documents, monkeypatch):
    """Until the night it counts among those that hold a term."""
    gone, *left = documents
    delete_index(gone.pk)
    gone.delete()
    found, exact = search(left, monkeypatch, limit=30)
    assert len(found) == 30
    assert len(found.keys() & exact.keys()) >= 28
    assert Chunk.objects.filter(pk__in=found, document__in=left).count() == 30


def test_where_too_few_are_left_of_the_likely_ones_the_lexical_index_is_asked(
    owner, library, documents, monkeypatch
):
    """All likely ones are deleted."""
    monkeypatch.setattr(bm25, "CANDIDATES_PER_HIT", 1)
    best, _ = search(documents, monkeypatch, limit=3)
    Chunk.objects.filter(pk__in=best).delete()
    with force_way("scan"):
        exact = store(*documents).find_by_terms(QUESTION, 3)
    with force_way("index"):
        found = store(*documents).find_by_terms(QUESTION, 3)
    assert len(found) == 3
    assert [hit.passage.key for hit in found] == [hit.passage.key for hit in exact]


def test_nothing_out_of_scope_is_found(owner, library, documents, monkeypatch):
    """A stranger's documents in another namespace, and a document of the same one."""
    stranger = User.objects.create_user("stranger")
    index(stranger, make_chunks(77))
    hidden, *visible = documents
    monkeypatch.setattr(searched, "MIN_SHARE", 0.5)
    found, _ = search(visible, monkeypatch, limit=30)
    shown = set(Chunk.objects.filter(pk__in=found).values_list("document_id", flat=True))
    assert shown
    assert shown <= {one.pk for one in visible}
    assert hidden.pk not in shown


def test_a_small_part_of_a_namespace_is_not_searched_by_its_segments(documents, monkeypatch):
    """The likely ones would be others'."""
    fetch = database._fetch_facts
    monkeypatch.setattr(
        database, "_fetch_facts", lambda *given: replace(fetch(*given), everywhere=1000)
    )
    monkeypatch.setattr(searched.Segments, "find_candidate_keys", forbid)
    with force_way("index"):
        assert store(*documents[:5]).find_by_terms(QUESTION, 5)
        with pytest.raises(AssertionError):
            store(*documents).find_by_terms(QUESTION, 5)


def test_a_document_that_moved_is_found_where_it_is(owner, library, documents, monkeypatch):
    """By the segments of the namespace that it keeps."""
    moved = index(owner, ["유일 말", "둘째 말"], library=library)
    other = Library.objects.create(name="법무")
    there = [index(owner, make_chunks(seed), library=other) for seed in (31, 32)]
    while segments.write_due_segments():
        pass
    assert not UnsegmentedDocument.objects.exists()
    Document.objects.filter(pk=moved.pk).update(library=other)
    monkeypatch.setattr(searched, "MIN_SHARE", 0.1)
    found, _ = search([moved, *there], monkeypatch, question={"유일": 1.0})
    assert [*found] == [Chunk.objects.get(document=moved, index=0).pk]
    with force_way("index"):
        assert not store(*documents).find_by_terms({"유일": 1.0}, 5)


def test_a_namespace_without_segments_is_read_chunk_by_chunk(owner, documents, monkeypatch):
    beside = index(owner, [f"{WORDS[41]} {WORDS[3]}"])
    segments.write_due_segments()
    assert not UnsegmentedDocument.objects.exists()  # of small namespaces nothing is kept
    found, exact = search([*documents, beside], monkeypatch)
    assert found == exact


@pytest.fixture
def everything(owner, documents, monkeypatch):
    """Two libraries in segments and three people's documents in none, searched as the whole."""
    monkeypatch.setattr(database, "COUNTED_DOCUMENTS", 1)
    monkeypatch.setattr(database, "WHOLE_SHARE", 0.9)
    other = Library.objects.create(name="법무")
    there = [index(owner, make_chunks(seed), library=other) for seed in range(10, 16)]
    while segments.write_due_segments():
        pass
    people = [User.objects.create_user(name) for name in ("first", "second", "third")]
    alone = [index(one, [f"{WORDS[41]} {WORDS[3]}", WORDS[20]]) for one in people]
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE documents_document, documents_chunk")
    return [*documents, *there, *alone]


def test_the_whole_is_searched_by_all_segments(everything, monkeypatch):
    found, exact = search(everything, monkeypatch, limit=30)
    assert found == exact
    asked = store(*everything)
    asked.find_by_terms(QUESTION, 1)
    assert asked._scope.facts.whole
    assert {*Chunk.objects.filter(document__in=everything[-3:], index=0)} <= {
        *Chunk.objects.filter(pk__in=found)
    }


def test_of_the_whole_nothing_out_of_scope_is_found(everything, monkeypatch):
    hidden, *visible = everything
    found, _ = search(visible, monkeypatch, limit=200)
    shown = {*Chunk.objects.filter(pk__in=found).values_list("document_id", flat=True)}
    assert shown
    assert hidden.pk not in shown


def test_the_whole_with_too_many_documents_in_none_is_searched_by_the_index(
    everything, monkeypatch
):
    monkeypatch.setattr(searched, "MAX_UNSEGMENTED_CHUNKS", 5)
    monkeypatch.setattr(searched.Segments, "find_candidate_keys", forbid)
    with force_way("index"):
        assert store(*everything).find_by_terms(QUESTION, 5)
    monkeypatch.setattr(searched, "MAX_UNSEGMENTED_CHUNKS", 6)
    with force_way("index"), pytest.raises(AssertionError):
        store(*everything).find_by_terms(QUESTION, 5)


def test_the_whole_with_one_document_too_many_in_none_is_searched_by_the_index(
    everything, monkeypatch
):
    """Those of one person, a chunk each."""
    monkeypatch.setattr(searched, "MAX_UNSEGMENTED_CHUNKS", 8)
    person = User.objects.create_user("fourth")
    others = [index(person, [f"{WORDS[41]} 유일"]) for _ in range(9)]
    monkeypatch.setattr(segments, "MIN_NAMESPACE_CHUNKS", 10)
    segments.write_due_segments()
    assert not UnsegmentedDocument.objects.exists()
    Document.objects.filter(pk__in=[one.pk for one in everything[-3:]]).update(chunk_count=0)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE documents_document, documents_chunk")
    monkeypatch.setattr(searched.Segments, "find_candidate_keys", forbid)
    with force_way("index"):
        assert len(store(*everything, *others).find_by_terms({"유일": 1.0}, 20)) == 9


def test_a_namespace_that_was_there_before_segments_is_found_by_any_of_its_documents(
    owner, library, monkeypatch
):
    """The migration notes one document of each."""
    documents = [index(owner, make_chunks(seed), library=library) for seed in range(3)]
    UnsegmentedDocument.objects.exclude(document_id=documents[0].pk).delete()
    segments.write_due_segments()
    assert PostingSegment.objects.get().chunk_count == 60
    assert not UnsegmentedDocument.objects.exists()
    found, exact = search(documents, monkeypatch)
    assert found == exact


def test_beat_has_them_written(settings, owner, library):
    schedule = settings.CELERY_BEAT_SCHEDULE["segments"]
    index(owner, make_chunks(1), library=library)
    current_app.tasks[schedule["task"]].apply()
    assert PostingSegment.objects.exists()


def test_a_change_of_terms_or_namespace_is_noted(documents):
    document = documents[0]
    Document.objects.filter(pk=document.pk).update(name="다른 이름")
    assert not UnsegmentedDocument.objects.exists()
    Document.objects.filter(pk=document.pk).update(namespace=7)
    assert UnsegmentedDocument.objects.get().document_id == document.pk


def get_sizes():
    return sorted(PostingSegment.objects.values_list("chunk_count", flat=True))


def test_segments_of_one_size_become_one(owner, library, documents, monkeypatch):
    added, sizes = [], []
    assert get_sizes() == [120]
    for seed in range(50, 58):
        added.append(index(owner, make_chunks(seed), library=library))
        segments.write_due_segments()
        sizes.append(get_sizes())
    assert sizes == [
        [20, 120],
        [40, 120],
        [20, 40, 120],
        [80, 120],
        [20, 80, 120],
        [40, 80, 120],
        [20, 40, 80, 120],
        [280],
    ]
    assert {row.segment_id for row in Postings.objects.all()} == {PostingSegment.objects.get().pk}
    found, exact = search([*documents, *added], monkeypatch)
    assert found == exact


def test_no_segment_grows_beyond_what_a_number_can_tell(owner, library, documents, monkeypatch):
    monkeypatch.setattr(segments, "MAX_SEGMENT_CHUNKS", 50)
    added = []
    for seed in range(50, 56):
        added.append(index(owner, make_chunks(seed), library=library))
        segments.write_due_segments()
    assert get_sizes() == [40, 40, 40, 120]
    found, exact = search([*documents, *added], monkeypatch)
    assert found == exact


def test_at_night_deleted_passages_leave_the_word_index(documents, monkeypatch):
    gone, *left = documents
    delete_index(gone.pk)
    gone.delete()
    assert retention.purge(dry_run=True)["postings"] == 1
    assert retention.purge()["postings"] == 1
    assert PostingSegment.objects.get().chunk_count == 100
    assert retention.purge(dry_run=True)["postings"] == 0
    found, exact = search(left, monkeypatch)
    assert found == exact
    for document in left:
        delete_index(document.pk)
        document.delete()
    retention.purge()
    assert not PostingSegment.objects.exists()
    assert not Postings.objects.exists()


def delete(document):
    delete_index(document.pk)
    document.delete()


def replace_by_another(document):
    """Passages, documents and namespaces are as many as before."""
    delete(document)
    index(document.owner, make_chunks(90), library=document.library)


def read_again(document):
    services.reprocess_document(document=document)
    index_waiting(make_chunks(90), TinyEmbedder())


def read_again_and_segment(document):
    read_again(document)
    segments.write_due_segments()


def replace_and_segment(document):
    replace_by_another(document)
    segments.write_due_segments()


def empty(document):
    delete_index(document.pk)
    Document.objects.filter(pk=document.pk).update(chunk_count=0)


def give_another_namespace(document):
    Document.objects.filter(pk=document.pk).update(namespace=7)


def delete_a_noted_one(document):
    read_again(document)
    delete(document)


@pytest.mark.parametrize(
    "change",
    [
        delete,
        replace_by_another,
        replace_and_segment,
        read_again,
        read_again_and_segment,
        empty,
        give_another_namespace,
        delete_a_noted_one,
    ],
)
def test_at_night_no_word_of_a_deleted_passage_is_left(documents, change):
    """Whatever removed it, and whatever came in its place."""
    gone = {*Chunk.objects.filter(document=documents[0]).values_list("pk", flat=True)}
    assert gone < list_held_keys()
    change(documents[0])
    retention.purge()
    there = Chunk.objects.filter(document__namespace=documents[1].choose_namespace())
    assert not gone & list_held_keys()
    assert list_held_keys() <= {*there.values_list("pk", flat=True)}
    assert retention.purge(dry_run=True)["postings"] == 0


def test_at_night_a_passage_is_left_in_one_segment(documents):
    """Terms that are renewed come into a new segment, and the old ones leave the old one."""
    Document.objects.filter(pk=documents[0].pk).update(terms_version=0)
    segments.write_due_segments()
    assert get_sizes() == [20, 120]
    retention.purge()
    assert get_sizes() == [20, 100]


def test_at_night_words_of_what_has_not_changed_are_not_read(
    owner, library, documents, monkeypatch
):
    monkeypatch.setattr(segments, "_find_existing_keys", forbid)
    assert retention.purge()["postings"] == 0
    index(owner, make_chunks(90), library=library)  # in no segment yet
    assert retention.purge()["postings"] == 0
    other = Library.objects.create(name="법무")
    for seed in range(10, 13):
        index(owner, make_chunks(seed), library=other)
    while segments.write_due_segments():
        pass
    assert retention.purge()["postings"] == 0


def list_held_keys():
    held = PostingSegment.objects.values_list("keys", flat=True)
    return {key for keys in held for key in np.frombuffer(bytes(keys), searched.KEY).tolist()}


def test_one_process_writes_at_a_time(owner, library, monkeypatch):
    monkeypatch.setattr(segments, "LOCK", "SELECT %s IS NULL")  # another one holds it
    index(owner, make_chunks(1), library=library)
    assert segments.write_due_segments() == 0
    assert segments.renew_stale_segments() == 0
    assert not PostingSegment.objects.exists()


def test_a_segment_that_was_replaced_meanwhile_leaves_the_search_to_the_index(
    documents, monkeypatch
):
    monkeypatch.setattr(searched, "_cached_keys", {})
    monkeypatch.setattr(searched, "KEYS", searched.KEYS + " AND false")
    with force_way("scan"):
        exact = to_scores(store(*documents).find_by_terms(QUESTION, 5))
    with force_way("index"):
        found = to_scores(store(*documents).find_by_terms(QUESTION, 5))
    assert set(found) == set(exact)


def test_terms_and_plans_name_no_other_rows(documents):
    """A search reads the postings by their key."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        places = [bm25.hash_term(word) for word in QUESTION]
        asked = {"namespaces": [documents[0].choose_namespace()], "places": places}
        cursor.execute("EXPLAIN " + searched.POSTINGS.format(within=searched.IN_NAMESPACES), asked)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "documents_postings_pkey" in plan

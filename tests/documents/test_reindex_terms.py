"""An index that an earlier version made gets the present terms while it serves."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from documents import ingest, renewal, services
from documents.models import Chunk, ChunkEmbedding, ChunkTerms, Document, DocumentLabel, Library
from documents.search import bm25
from documents.search.store import ScopedStore
from jobs.connections import run_and_release
from nura.management.commands import doctor
from rag import tokenize
from rag.indexing import TERMS_VERSION
from tests.documents.changing import TOPICS, run_reindex_command
from tests.locks import has_waiting
from tests.support import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("first_model")]


def index_rows():
    return (
        list(ChunkTerms.objects.order_by("pk").values_list("pk", "length", "marks", "surplus")),
        list(Chunk.objects.order_by("pk").values_list("pk", "term_count", "lexemes", "text")),
    )


def list_vectors():
    return list(ChunkEmbedding.objects.order_by("pk").values_list("pk", "vector"))


def make_terms_outdated(*documents):
    """Give documents the terms of another time: none that a question has."""
    keys = [document.pk for document in documents]
    Document.objects.filter(pk__in=keys).update(terms_version=0, namespace=None)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE documents_chunk SET lexemes = '''old''', term_count = 1"
            " WHERE document_id = ANY(%s)",
            (keys,),
        )
        cursor.execute(
            "UPDATE documents_chunkterms SET marks = '{1:1}/1000000000', surplus = NULL, length = 1"
            " WHERE document_id = ANY(%s)",
            (keys,),
        )


def find_documents(document):
    (first, *_) = TOPICS
    asked = tokenize.weigh_query_terms(first)
    return [hit.passage.document_id for hit in ScopedStore([document.pk]).find_by_terms(asked, 3)]


def check_terms():
    return next(doctor.check_terms())


def test_an_ingest_writes_the_present_terms(library):
    assert {document.terms_version for document in Document.objects.all()} == {TERMS_VERSION}
    assert not renewal.list_outdated_documents().exists()
    assert check_terms().state is doctor.State.OK


def test_old_terms_become_those_of_an_ingest_and_nothing_is_embedded(library, embedding_server):
    rows, embedded = index_rows(), list_vectors()
    make_terms_outdated(*library)
    assert not find_documents(library[0])
    assert "3 documents" in check_terms().detail
    before = embedding_server.count("words-16")
    text = run_reindex_command(terms=True)
    assert index_rows() == rows
    assert list_vectors() == embedded
    assert embedding_server.count("words-16") == before
    assert find_documents(library[0])
    assert "3 documents brought over" in text
    assert f"terms {len(rows[0])}/{len(rows[0])}" in text
    assert check_terms().state is doctor.State.OK


def test_only_what_is_old_is_touched(library):
    make_terms_outdated(*library)
    Document.objects.filter(pk=library[0].pk).update(terms_version=TERMS_VERSION)
    assert renewal.renew_terms(lambda _done, _total: None) == 2
    assert not find_documents(library[0])


def test_a_run_that_was_interrupted_goes_on_where_it_was(library, monkeypatch):
    rows = index_rows()
    make_terms_outdated(*library)
    monkeypatch.setattr(renewal, "MAX_RENEWED_CHUNKS", 1)

    def stop(_done, _total):
        if renewal.list_outdated_documents().count() == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        renewal.renew_terms(stop)
    assert renewal.renew_terms(lambda _done, _total: None) == 2
    assert index_rows() == rows


def test_a_document_that_is_processed_anew_meanwhile_keeps_its_own_terms(library, monkeypatch):
    make_terms_outdated(library[0])
    monkeypatch.setattr(renewal, "MAX_RENEWED_CHUNKS", 1)
    seen = []

    def process(done, _total):
        if not seen:
            services.reprocess_document(document=Document.objects.get(pk=library[0].pk))
            ingest.ingest_next_document()
            seen.append(index_rows())

    renewal.renew_terms(process)
    assert index_rows() == seen[0]
    assert find_documents(library[0])
    assert Document.objects.get(pk=library[0].pk).terms_version == TERMS_VERSION


def test_a_document_that_moves_while_its_terms_are_made_keeps_one_namespace(library, monkeypatch):
    """Half of it would not be found in its library's searches."""
    document = library[0]
    make_terms_outdated(document)
    monkeypatch.setattr(renewal, "MAX_RENEWED_CHUNKS", 1)
    there = Library.objects.create(name="인사")
    first = document.choose_namespace()

    def move(_done, _total):
        Document.objects.filter(pk=document.pk).update(library=there)

    renewal.renew_terms(move)
    document.refresh_from_db()
    assert document.library_id == there.pk
    assert document.namespace == first
    sign = bm25.quote_lexeme(bm25.to_namespace_term(first)).strip("'")
    lexemes = Chunk.objects.filter(document=document).values_list("lexemes", flat=True)
    assert len(lexemes) > 1
    assert all(sign in one for one in lexemes)


def test_a_document_that_goes_away_meanwhile_stops_nothing(library, monkeypatch):
    make_terms_outdated(*library)
    monkeypatch.setattr(renewal, "MAX_RENEWED_CHUNKS", 1)
    gone = []

    def delete(_done, _total):
        if not gone:
            gone.append(Document.objects.order_by("-indexed_at").first())
            gone[0].delete()

    renewal.renew_terms(delete)
    assert not renewal.list_outdated_documents().exists()
    assert not ChunkTerms.objects.filter(document_id=gone[0].pk).exists()


def test_a_document_that_is_renamed_meanwhile_keeps_its_new_name(library):
    document = library[0]
    make_terms_outdated(document)
    written, renamed = threading.Event(), threading.Event()

    def wait_for_the_name(_done, _total):
        written.set()
        renamed.wait(20)

    with ThreadPoolExecutor(1) as pool:
        brought = pool.submit(run_and_release, renewal.renew_terms, wait_for_the_name)
        assert written.wait(20)
        with transaction.atomic():
            services.update_document(document=document, name="새 이름.md")
            renamed.set()
            wait_until(has_waiting)
        brought.result(20)
    titles = DocumentLabel.objects.filter(document=document, field="title")
    names = set(titles.values_list("value", flat=True))
    assert "새 이름" in names
    assert "규정 0" not in names


def test_documents_get_the_names_that_new_ones_have(library):
    document = library[0]
    labels = DocumentLabel.objects.filter(document=document)
    names = set(labels.values_list("field", "name", "value"))
    labels.delete()
    make_terms_outdated(document)
    run_reindex_command(terms=True)
    assert set(labels.values_list("field", "name", "value")) == names != set()

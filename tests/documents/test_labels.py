"""The names that questions use are kept with the documents that bear them."""

import pytest
from django.db import connection

from documents import metadata as naming
from documents import services
from documents.metadata import rewrite_labels
from documents.models import Document, DocumentLabel
from documents.search.store import ScopedStore
from rag.understand.filters import to_name_key
from tests.documents.conftest import make_row, upload
from tests.documents.test_ingest import run

pytestmark = pytest.mark.django_db

NOTICE = """# 용역 안내

발주기관: 한국생산기술연구원
사업명: 차세대 연구관리 시스템 구축

예산은 3억 원이다.
"""


def make_described(owner, name="규정.md", **metadata):
    """A completed document with labels."""
    document = make_row(owner, name=name, status=Document.Status.COMPLETED, metadata=metadata)
    rewrite_labels(document.pk, document.name, metadata)
    return document


def list_names(document):
    return {(label.field, label.value) for label in document.labels.all()}


def find_named(name, *documents):
    store = ScopedStore([document.pk for document in documents])
    return {named.document_id for named in store.find_named([to_name_key(name)])}


def test_an_ingested_document_is_found_by_what_its_text_says(owner, sent, tiny_engine):
    document = run(upload(owner, content=NOTICE, name="공고.md"))
    assert find_named("차세대 연구관리시스템 구축", document) == {document.pk}
    assert find_named("한국생산기술연구원", document) == {document.pk}


def test_processing_twice_leaves_the_same_labels(owner, sent, tiny_engine):
    document = run(upload(owner, content=NOTICE, name="공고.md"))
    before = list_names(document)
    services.reprocess_document(document=document)
    assert list_names(run(document)) == before


def test_a_document_is_found_by_the_name_of_its_file(owner):
    document = make_described(owner, name="취업 규칙 2026.pdf")
    assert find_named("취업규칙 2026", document) == {document.pk}


def test_each_of_several_issuers_names_the_document(owner):
    document = make_described(owner, issuer=["법무부", "통계청"])
    assert find_named("통계청", document) == find_named("법무부", document) == {document.pk}


@pytest.mark.parametrize("value", [None, 5, {"a": "b"}, [["법무부"]], "", "  ", "가" * 500])
def test_what_is_no_name_gives_no_label(owner, value):
    assert list_names(make_described(owner, name="글.md", issuer=value)) == {("title", "글")}


def test_new_metadata_replaces_the_labels(api, owner):
    document = make_described(owner, issuer="조달청")
    response = api.patch(
        f"/api/v1/documents/{document.pk}", {"metadata": {"issuer": "통계청"}}, format="json"
    )
    assert response.status_code == 200
    assert find_named("조달청", document) == set()
    assert find_named("통계청", document) == {document.pk}


def test_a_new_name_replaces_the_labels_and_leaves_the_rest(api, owner):
    document = make_described(owner, name="옛 이름.md", issuer="조달청")
    api.patch(f"/api/v1/documents/{document.pk}", {"name": "새 이름.md"}, format="json")
    assert list_names(document) == {("title", "새 이름"), ("issuer", "조달청")}


def test_a_strangers_patch_changes_no_label(stranger_api, owner):
    document = make_described(owner, issuer="조달청")
    response = stranger_api.patch(
        f"/api/v1/documents/{document.pk}", {"metadata": {"issuer": "통계청"}}, format="json"
    )
    assert response.status_code == 404
    assert find_named("조달청", document) == {document.pk}


def test_a_name_is_never_found_in_a_strangers_document(owner, stranger):
    mine, theirs = make_described(owner, issuer="조달청"), make_described(stranger, issuer="조달청")
    assert find_named("조달청", mine) == {mine.pk}
    assert find_named("조달청", theirs) == {theirs.pk}


def test_labels_go_with_their_document(owner):
    services.delete_document(document=make_described(owner, issuer="조달청"))
    assert not DocumentLabel.objects.exists()


def test_a_thousand_candidates_are_one_look_up_by_index(owner):
    rows = [make_described(owner, name=f"문서 {number}.md") for number in range(300)]
    names = [to_name_key(f"문서 {number}") for number in range(1000)]
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE documents_documentlabel")
        cursor.execute("SET LOCAL enable_seqscan = off")
        for asked in (
            (naming.SELECT_LABELS, (names, 500)),
            (naming.SELECT_LABELS_IN_SCOPE, (names, [row.pk for row in rows])),
        ):
            cursor.execute("EXPLAIN " + asked[0], asked[1])
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert plan.count("Index Scan") == 1
            assert "documents_documentlabel_name" in plan


@pytest.mark.parametrize("most", [1, 500])
def test_of_many_documents_of_one_name_those_in_scope_are_found(owner, monkeypatch, most):
    monkeypatch.setattr(naming, "MAX_NAMESAKES", most)
    first, second, _ = [make_described(owner, name="취업 규칙.pdf") for _ in range(3)]
    assert find_named("취업규칙", first, second) == {first.pk, second.pk}

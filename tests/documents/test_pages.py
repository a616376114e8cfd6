import uuid

import pytest
from django.contrib.auth.models import User
from django.contrib.postgres.search import SearchVector
from django.db.models import Value
from django.utils.translation import override

from documents import wording
from documents.models import Chunk, Document
from documents.views import facts

HTMX = {"HX-Request": "true"}


def make_document(owner, name="규정.pdf", **fields):
    values = {
        "name": name,
        "original_name": name,
        "file": f"documents/{uuid.uuid4()}/original",
        "content_type": "application/pdf",
        "size": 2048,
        "sha256": "0" * 64,
        "status": "COMPLETED",
    }
    return Document.objects.create(owner=owner, **(values | fields))


@pytest.fixture
def owner(db):
    return User.objects.create_user("owner", password="pw")


@pytest.fixture
def visitor(client, owner):
    client.force_login(owner)
    return client


@pytest.fixture
def stranger(client, db):
    client.force_login(User.objects.create_user("stranger", password="pw"))
    return client


@pytest.mark.django_db
def test_the_pages_of_documents_are_for_people_who_signed_in(client):
    assert client.get("/documents").url.startswith("/accounts/login/")
    assert client.get(f"/documents/{uuid.uuid4()}").url.startswith("/accounts/login/")


def test_the_table_shows_ones_own_documents(visitor, owner):
    make_document(owner, "취업규칙.pdf", page_count=12)
    text = visitor.get("/documents").content.decode()
    assert "취업규칙.pdf" in text
    assert "12" in text


def test_a_stranger_sees_neither_row_nor_page(owner, stranger):
    document = make_document(owner, "남몰래.pdf")
    assert "남몰래" not in stranger.get("/documents").content.decode()
    assert (
        "남몰래" not in stranger.get("/documents", {"q": "남몰래"}, headers=HTMX).content.decode()
    )
    answer = stranger.get(f"/documents/{document.pk}")
    assert answer.status_code == 404
    assert "남몰래" not in answer.content.decode()


def test_a_failed_document_says_why(visitor, owner):
    document = make_document(owner, status="FAILED", error_code="encrypted")
    with override("ko"):
        sentence = str(wording.sentence("encrypted", {}))
    for path in ("/documents", f"/documents/{document.pk}"):
        assert sentence in visitor.get(path).content.decode()


def test_the_table_is_narrowed_by_status_and_name(visitor, owner):
    make_document(owner, "하나.pdf")
    make_document(owner, "둘.pdf", status="FAILED", error_code="corrupt")
    failed = visitor.get("/documents", {"status": "FAILED"}, headers=HTMX).content.decode()
    assert "둘.pdf" in failed
    assert "하나.pdf" not in failed
    named = visitor.get("/documents", {"q": "하나"}, headers=HTMX).content.decode()
    assert "하나.pdf" in named
    assert "둘.pdf" not in named


@pytest.mark.parametrize("values", [{"q": "\x00"}, {"q": "%"}, {"status": "x"}, {"page": "-1"}])
def test_odd_filters_are_answered(visitor, owner, values):
    make_document(owner)
    assert visitor.get("/documents", values).status_code == 200


def test_htmx_gets_the_table_alone(visitor, owner):
    make_document(owner)
    assert b"<html" not in visitor.get("/documents", headers=HTMX).content


def test_the_page_of_a_document_shows_what_was_read(visitor, owner):
    document = make_document(owner, metadata={"issuer": "해솔시", "front": {"deep": 1}})
    Chunk.objects.create(
        document=document,
        owner_id=owner.pk,
        index=0,
        text="제1조 목적",
        start=0,
        end=6,
        page=3,
        lexemes=SearchVector(Value("")),
    )
    text = visitor.get(f"/documents/{document.pk}").content.decode()
    assert "해솔시" in text
    assert "PDF" in text
    assert "제1조 목적" in text
    assert "3쪽" in text


def test_what_a_document_lacks_is_said_in_the_table_and_on_its_page(visitor, owner):
    document = make_document(owner, warnings=["page_unreadable"])
    with override("ko"):
        sentence = str(wording.sentence("page_unreadable"))
    for path in ("/documents", f"/documents/{document.pk}"):
        assert sentence in visitor.get(path).content.decode()


def test_metadata_reads_as_lines_of_text():
    metadata = {"a": " x ", "b": [1, {"c": 2}], "d": {"e": True, "f": None}, "g": "", "h": []}
    with override("en"):
        assert list(facts(metadata)) == [("a", "x"), ("b", "1, c: 2"), ("d · e", "Yes")]


def test_a_name_is_text(visitor, owner):
    document = make_document(owner, '"><img src=x onerror=alert(1)>.pdf')
    for path in ("/documents", f"/documents/{document.pk}"):
        assert b"<img src=x" not in visitor.get(path).content

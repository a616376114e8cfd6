from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from documents import ingest
from documents.models import Document
from tests.documents.conftest import make_row, upload

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin_page(db):
    client = Client()
    client.force_login(User.objects.create_superuser("root", password="x"))
    return client


@pytest.fixture
def document(owner, sent, tiny_engine):
    document = upload(owner)
    ingest.ingest_next_document()
    document.refresh_from_db()
    return document


def run_command(*command, **options):
    out = StringIO()
    call_command(*command, stdout=out, **options)
    return out.getvalue()


def test_inspect_index_counts(document, owner):
    make_row(owner, status="FAILED", error_code="corrupt")
    text = run_command("inspect_index")
    assert "documents: 2" in text
    assert "completed: 1" in text
    assert f"chunks: {document.chunk_count}" in text
    assert "space tiny (16) [active; *]" in text
    assert "failed corrupt: 1" in text


def test_inspect_index_shows_how_it_was_cut(document):
    text = run_command("inspect_index", str(document.pk))
    assert "규정.md (COMPLETED, version 1)" in text
    assert f"chunks: {document.chunk_count}" in text
    assert "연차 휴가는 15일이다." in text


@pytest.mark.parametrize("name", ["nonsense", "00000000-0000-0000-0000-000000000000"])
def test_inspect_index_knows_no_such_document(db, name):
    with pytest.raises(CommandError):
        run_command("inspect_index", name)


def test_the_admin_lists_documents_with_their_errors(admin_page, document, owner):
    make_row(owner, name="망가짐.pdf", status="FAILED", error_code="corrupt")
    page = admin_page.get("/admin/documents/document/?q=망가짐", HTTP_ACCEPT_LANGUAGE="en")
    text = page.content.decode()
    assert page.status_code == 200
    assert "망가짐.pdf" in text
    assert "규정.md" not in text


def test_the_admin_shows_one_document_without_a_form_to_change_it(admin_page, document):
    page = admin_page.get(f"/admin/documents/document/{document.pk}/change/")
    assert page.status_code == 200
    assert b'name="_save"' not in page.content


def test_the_admin_processes_again(admin_page, document, sent):
    page = admin_page.post(
        "/admin/documents/document/",
        {"action": "process_again", "_selected_action": [str(document.pk)]},
        follow=True,
    )
    assert page.status_code == 200
    document.refresh_from_db()
    assert document.status == "PROCESSING"


def test_the_admin_deletes_with_files(admin_page, document, django_capture_on_commit_callbacks):
    from tests.documents.conftest import stored_files

    with django_capture_on_commit_callbacks(execute=True):
        admin_page.post(f"/admin/documents/document/{document.pk}/delete/", {"post": "yes"})
    assert not Document.objects.exists()
    assert stored_files() == []


def test_the_admin_shows_spaces_only(admin_page, document):
    assert admin_page.get("/admin/documents/embeddingspace/").status_code == 200
    assert admin_page.get("/admin/documents/embeddingspace/add/").status_code == 403

"""A new file for a document, read while the old one serves; what it replaces stays to be opened."""

import hashlib
import uuid
from io import BytesIO

import pypdfium2
import pytest
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile

from documents import ingest, queue, services, versions
from documents.models import Document, DocumentVersion
from documents.parsers.base import TypeMismatch
from documents.search.store import ScopedStore
from jobs.lease import LeaseLostError, renew_lease
from nura.samples import FOLDER
from tests.documents.conftest import TEXT, stored_files, upload

pytestmark = pytest.mark.django_db
URL = "/api/v1/documents"
NEWER = "# 휴가 규정\n\n연차 휴가는 20일이다.\n"


@pytest.fixture
def document(owner, sent, tiny_engine):
    """An indexed document."""
    document = upload(owner)
    ingest.ingest_next_document()
    document.refresh_from_db()
    assert document.status == "COMPLETED", document.error_code
    return document


def receive(document, content=NEWER, name="새 규정.md"):
    data = content.encode() if isinstance(content, str) else content
    return versions.receive_version(document=document, name=name, content=ContentFile(data))


def put(api, document, content=NEWER, name="새 규정.md"):
    file = SimpleUploadedFile(name, content.encode() if isinstance(content, str) else content)
    return api.put(f"{URL}/{document.pk}/file", {"file": file}, format="multipart")


def list_versions(api, document):
    rows = api.get(f"{URL}/{document.pk}/versions").json()
    return [(row["number"], row["state"]) for row in rows]


def read_text(api, document, query=""):
    return api.get(f"{URL}/{document.pk}/text{query}").content.decode()


def download(api, document, query=""):
    response = api.get(f"{URL}/{document.pk}/file{query}")
    return b"".join(response.streaming_content).decode()


def test_the_old_version_serves_until_the_new_one_was_read(api, document):
    response = put(api, document)
    assert (response.status_code, response.json()["id"]) == (202, str(document.pk))
    assert (response.json()["status"], response.json()["version"]) == ("PROCESSING", 1)
    assert list_versions(api, document) == [(1, "current"), (2, "pending")]
    assert "15일" in read_text(api, document)
    assert Document.objects.searchable().get() == document


def test_a_version_that_was_read_takes_the_place_of_the_old_one(api, document):
    before = document.sha256
    put(api, document)
    ingest.ingest_next_document()
    body = api.get(f"{URL}/{document.pk}").json()
    assert (body["status"], body["version"], body["name"]) == ("COMPLETED", 2, "새 규정.md")
    assert body["sha256"] != before
    assert "20일" in read_text(api, document)
    assert download(api, document) == NEWER
    assert list_versions(api, document) == [(2, "current"), (1, "old")]


def test_an_old_version_is_opened_by_its_number(api, document):
    text = read_text(api, document)
    receive(document)
    ingest.ingest_next_document()
    assert download(api, document, "?version=1") == TEXT
    assert read_text(api, document, "?version=1") == text
    assert download(api, document, "?version=2") == NEWER
    old = DocumentVersion.objects.get()
    assert old.sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
    assert (old.size, old.page_starts) == (len(TEXT.encode()), [0])


@pytest.mark.parametrize("what", ["file", "text", "pages/1.png"])
@pytest.mark.parametrize("number", [2, 3, 2**31 - 1])
def test_a_version_that_is_not_there_is_404(api, document, what, number):
    receive(document)  # 2 waits, so it cannot be read yet
    response = api.get(f"{URL}/{document.pk}/{what}?version={number}")
    assert (response.status_code, response.json()["code"]) == (404, "version_not_found")


@pytest.mark.parametrize("number", ["0", "-1", "x", "2147483648"])
def test_a_number_that_no_version_can_have_is_400(api, document, number):
    assert api.get(f"{URL}/{document.pk}/text?version={number}").status_code == 400


def rotate_pdf(path):
    """The PDF with its first page on its side."""
    pdf = pypdfium2.PdfDocument(path)
    pdf[0].set_rotation(90)
    saved = BytesIO()
    pdf.save(saved)
    return saved.getvalue()


def test_pages_of_an_old_version_are_drawn_from_its_own_file(api, owner, sent, tiny_engine):
    sample = FOLDER / "care-system-notice.pdf"
    document = upload(owner, name="가.pdf", content=sample.read_bytes())
    ingest.ingest_next_document()
    before = api.get(f"{URL}/{document.pk}/pages/1.png").content
    put(api, document, rotate_pdf(sample), "나.pdf")
    ingest.ingest_next_document()
    assert api.get(f"{URL}/{document.pk}/pages/1.png").content != before
    assert api.get(f"{URL}/{document.pk}/pages/1.png?version=1").content == before


def test_the_same_bytes_change_nothing(api, document):
    response = put(api, document, TEXT)
    assert (response.status_code, response.json()["duplicate"]) == (200, True)
    assert response.json()["status"] == "COMPLETED"
    assert len(stored_files()) == 1


def test_a_version_that_cannot_be_read_leaves_the_document_as_it_was(
    api, document, django_capture_on_commit_callbacks
):
    put(api, document, b"%PDF-1.7 broken", "새 규정.pdf")
    with django_capture_on_commit_callbacks(execute=True):
        ingest.ingest_next_document()
    body = api.get(f"{URL}/{document.pk}").json()
    assert (body["status"], body["version"], body["name"]) == ("COMPLETED", 1, "규정.md")
    assert [one["code"] for one in body["warnings"]] == ["version_refused"]
    assert "15일" in read_text(api, document)
    _current, refused = api.get(f"{URL}/{document.pk}/versions").json()
    assert (refused["state"], refused["error"]["code"]) == ("refused", "corrupt")
    assert len(stored_files()) == 1


def test_the_next_version_after_a_refused_one_has_its_own_number_and_no_warning(api, document):
    put(api, document, b"%PDF-1.7 broken", "새 규정.pdf")
    ingest.ingest_next_document()
    put(api, document)
    ingest.ingest_next_document()
    body = api.get(f"{URL}/{document.pk}").json()
    assert (body["version"], body["warnings"]) == (3, [])
    assert list_versions(api, document) == [(3, "current"), (2, "refused"), (1, "old")]


def test_a_kind_of_file_that_is_refused_at_once_changes_nothing(document):
    with pytest.raises(TypeMismatch):
        receive(document, "글", "새.pdf")
    document.refresh_from_db()
    assert (document.status, document.versions.count()) == ("COMPLETED", 0)
    assert len(stored_files()) == 1


def test_a_second_version_takes_the_place_of_one_that_waits(
    api, document, django_capture_on_commit_callbacks
):
    receive(document, "# 하나\n\n첫째 것이다.\n")
    with django_capture_on_commit_callbacks(execute=True):
        receive(document, "# 둘\n\n둘째 것이다.\n")
    assert list_versions(api, document) == [(1, "current"), (2, "pending")]
    assert len(stored_files()) == 2
    ingest.ingest_next_document()
    assert "둘째" in read_text(api, document)


def test_work_on_a_version_that_was_replaced_is_in_vain(document):
    receive(document, "# 하나\n\n첫째 것이다.\n")
    claim = queue.claim_next_document()
    receive(document, "# 둘\n\n둘째 것이다.\n")
    with pytest.raises(LeaseLostError):
        renew_lease(claim)


def test_a_document_that_never_served_just_gets_the_new_file(
    owner, sent, tiny_engine, django_capture_on_commit_callbacks
):
    document = upload(owner, name="깨짐.pdf", content=b"%PDF-1.7 broken")
    ingest.ingest_next_document()
    with django_capture_on_commit_callbacks(execute=True):
        assert receive(document)
    ingest.ingest_next_document()
    document.refresh_from_db()
    assert (document.status, document.version, document.name) == ("COMPLETED", 2, "새 규정.md")
    assert document.versions.count() == 0
    assert len(stored_files()) == 1


def test_cancelling_a_new_version_leaves_the_old_one(
    api, document, django_capture_on_commit_callbacks
):
    receive(document)
    with django_capture_on_commit_callbacks(execute=True):
        body = api.post(f"{URL}/{document.pk}/cancel").json()
    assert (body["status"], body["error"], body["version"]) == ("COMPLETED", None, 1)
    assert body["warnings"] == []
    assert list_versions(api, document) == [(1, "current")]
    assert len(stored_files()) == 1


def test_what_people_said_of_a_document_stays_with_its_new_version(api, document):
    services.update_document(document=document, metadata={"issuer": "조달청", "title": None})
    receive(
        document, "---\ntitle: 새 제목\nauthor: 김철수\nissuer: 법무부\n---\n\n# 글\n\n새 글이다.\n"
    )
    ingest.ingest_next_document()
    metadata = api.get(f"{URL}/{document.pk}").json()["metadata"]
    assert metadata["issuer"] == "조달청"
    assert "title" not in metadata
    assert metadata["author"] == "김철수"


def test_passages_know_the_version_that_they_stand_in(document):
    assert find_versions(document) == {1}
    receive(document)
    ingest.ingest_next_document()
    assert find_versions(document) == {2}


def find_versions(document):
    found = ScopedStore((document.pk,)).find_by_terms({"휴가": 1.0}, 5)
    return {hit.passage.version for hit in found}


def test_deleting_a_document_takes_the_files_of_all_versions(
    document, django_capture_on_commit_callbacks
):
    receive(document)
    ingest.ingest_next_document()
    receive(document, "# 셋\n\n셋째 것이다.\n")
    assert len(stored_files()) == 3
    with django_capture_on_commit_callbacks(execute=True):
        services.delete_document(document=document)
    assert stored_files() == []
    assert not DocumentVersion.objects.exists()


def test_e70_a_document_that_was_deleted_meanwhile_takes_no_version(
    document, django_capture_on_commit_callbacks
):
    gone = Document.objects.get(pk=document.pk)
    with django_capture_on_commit_callbacks(execute=True):
        services.delete_document(document=document)
    with pytest.raises(Document.DoesNotExist):
        receive(gone)
    assert stored_files() == []


def test_a_new_version_is_limited_like_an_upload(api, document, settings):
    settings.MAX_UPLOAD_MB = 1
    response = put(api, document, b"a" * (1024 * 1024 + 1), "큰.txt")
    assert (response.status_code, response.json()["code"]) == (413, "file_too_large")
    assert document.versions.count() == 0


STRANGERS = [
    ("get", "/versions"), ("get", "/file?version=1"), ("get", "/text?version=1"),
    ("get", "/pages/1.png?version=1"), ("get", "/file?version=7"), ("put", "/file"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), STRANGERS)
def test_a1_a_stranger_learns_nothing_of_versions(stranger_api, document, method, path):
    receive(document)
    ingest.ingest_next_document()
    files = stored_files()
    theirs = getattr(stranger_api, method)(f"{URL}/{document.pk}{path}")
    made_up = getattr(stranger_api, method)(f"{URL}/{uuid.uuid4()}{path}")
    assert (theirs.status_code, theirs.content) == (404, made_up.content)
    assert stored_files() == files

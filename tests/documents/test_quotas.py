"""What one user may keep, counted under a lock, whichever way a file comes in."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.utils import timezone

from documents import errors, files, ingest, versions
from documents.models import Document, DocumentVersion
from tests.documents.conftest import make_row, stored_files, upload

pytestmark = pytest.mark.django_db
URL = "/api/v1/documents"
MEGABYTE = 1024 * 1024


def post(api, content="글", name="글.txt"):
    file = SimpleUploadedFile(name, content.encode())
    return api.post(URL, {"file": file}, format="multipart")


def text_of(size):
    return "a" * size


def test_a_document_too_many_is_refused_with_a_reason(api, owner, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    assert post(api, "하나").status_code == 201
    response = post(api, "둘")
    assert (response.status_code, response.json()["code"]) == (403, "quota_documents")
    assert "1" in response.json()["detail"]
    assert Document.objects.count() == len(stored_files()) == 1


def test_the_same_file_again_is_no_document_more(api, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    post(api, "하나")
    assert post(api, "하나").status_code == 200


def test_quotas_are_of_one_user_each(owner, stranger, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    upload(owner)
    assert upload(stranger).status == "PROCESSING"


def test_administrators_have_limits_too(owner, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    owner.is_staff = owner.is_superuser = True
    owner.save()
    upload(owner, content="하나")
    with pytest.raises(errors.QuotaDocuments):
        upload(owner, content="둘")


def test_bytes_beyond_the_limit_are_refused_and_leave_nothing(api, owner, sent, settings):
    settings.QUOTA_MB = 1
    make_row(owner, size=MEGABYTE - 10)
    response = post(api, text_of(11))
    assert (response.status_code, response.json()["code"]) == (403, "quota_bytes")
    assert stored_files() == []
    assert post(api, text_of(10)).status_code == 201


def test_old_versions_take_room_and_refused_ones_do_not(owner, sent, settings):
    settings.QUOTA_MB = 1
    document = make_row(owner, size=10)
    for number, state in enumerate(("old", "refused"), 2):
        DocumentVersion.objects.create(
            document=document,
            number=number,
            state=state,
            size=MEGABYTE - 20,
            created_at=timezone.now(),
        )
    assert files.count_kept(owner.pk).bytes == MEGABYTE - 10
    upload(owner, content=text_of(10))
    with pytest.raises(errors.QuotaBytes):
        upload(owner, content=text_of(9))


def test_c44_a_new_version_counts_like_an_upload(api, owner, sent, settings):
    settings.QUOTA_MB = 1
    document = make_row(owner, status="COMPLETED", size=MEGABYTE - 10)
    file = SimpleUploadedFile("글.txt", text_of(11).encode())
    response = api.put(f"{URL}/{document.pk}/file", {"file": file}, format="multipart")
    assert (response.status_code, response.json()["code"]) == (403, "quota_bytes")
    assert stored_files() == []
    assert not document.versions.exists()


def test_a_file_that_waits_gives_its_room_to_the_one_that_takes_its_place(owner, sent, settings):
    settings.QUOTA_MB = 1
    document = make_row(owner, status="COMPLETED", size=10)
    for letter in "ab":
        content = ContentFile(letter.encode() * (MEGABYTE - 10))
        assert versions.receive_version(document=document, name="글.txt", content=content)
    assert files.count_kept(owner.pk).bytes == MEGABYTE


def test_a_first_file_that_never_served_gives_its_room_to_the_next(owner, sent, settings):
    settings.QUOTA_MB = 1
    document = make_row(owner, status="FAILED", size=MEGABYTE)
    content = ContentFile(text_of(MEGABYTE).encode())
    assert versions.receive_version(document=document, name="글.txt", content=content)


@pytest.mark.django_db(transaction=True)
def test_two_uploads_at_once_cannot_both_be_the_last_one(owner, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    together = threading.Barrier(2)

    def send(number):
        try:
            together.wait()
            return upload(owner, content=f"글 {number}")
        except errors.QuotaDocuments:
            return None
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sum(one is not None for one in pool.map(send, range(2))) == 1
    assert Document.objects.count() == len(stored_files()) == 1


def test_pages_beyond_the_limit_fail_the_document_with_the_reason(
    api, owner, sent, tiny_engine, settings
):
    settings.QUOTA_PAGES = 10
    make_row(owner, status="COMPLETED", page_count=10)
    document = upload(owner)  # of one page, as formats without pages are
    ingest.ingest_next_document()
    body = api.get(f"{URL}/{document.pk}").json()
    assert (body["status"], body["error"]["code"]) == ("FAILED", "quota_pages")
    assert "10" in body["error"]["detail"]


def test_pages_of_a_document_that_is_read_again_count_once(owner, settings):
    settings.QUOTA_PAGES = 10
    document = make_row(owner, status="COMPLETED", page_count=10)
    files.check_page_quota(owner.pk, document.pk, 10)
    with pytest.raises(errors.QuotaPages):
        files.check_page_quota(owner.pk, document.pk, 11)


def test_what_is_kept_counts_a_page_where_a_format_has_none(owner, stranger):
    make_row(owner, status="COMPLETED", page_count=7)
    make_row(owner, status="COMPLETED", page_count=None)
    make_row(owner, status="FAILED", page_count=None)
    make_row(stranger, status="COMPLETED", page_count=7)
    assert files.count_kept(owner.pk).pages == 8

import json
import re
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from celery import current_app
from django.conf import settings
from django.core.files.base import ContentFile
from django.db import IntegrityError, connection, transaction
from kombu.exceptions import OperationalError

from documents import errors, files, metadata, queue, services
from documents.models import Document
from documents.parsers.base import EmptyFile, ParseFailed, TypeMismatch, UnsupportedType
from rag.errors import NuraError
from tests.documents.conftest import stored_files, upload

pytestmark = pytest.mark.django_db
NAMES = Path(__file__).parents[3] / "shared/data/bad-inputs/names/filenames.json"


def test_an_upload_waits_for_a_worker(owner, sent):
    document = upload(owner)
    assert (document.status, document.stage, document.progress) == ("PROCESSING", "queued", 0.0)
    assert document.content_type == "text/markdown"
    assert document.size == len(stored_files()[0].read_bytes())
    assert document.enqueued_at is not None


def test_the_file_is_stored_under_a_name_of_ours(owner, sent):
    document = upload(owner, name="../../etc/비밀.md")
    folder, name = document.file.name.rsplit("/", 1)
    assert folder == f"documents/{document.pk}"
    assert re.fullmatch(r"original-[0-9a-f]{8}\.md", name)
    assert document.name == "비밀.md"


def test_it_is_sent_to_the_workers_when_the_row_is_there(
    owner, sent, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        document = upload(owner)
        assert sent == []
    assert sent == [(queue.INGEST, str(document.pk))]


@pytest.mark.django_db(transaction=True)
def test_e67_nothing_is_sent_for_a_row_that_was_rolled_back(owner, sent):
    with transaction.atomic():
        upload(owner)
        transaction.set_rollback(True)
    assert sent == []
    assert Document.objects.count() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [OperationalError("down"), ConnectionRefusedError()])
def test_e66_a_broker_that_is_down_leaves_the_document_queued(owner, monkeypatch, error):
    def down(*_args, **_options):
        raise error

    monkeypatch.setattr(current_app, "send_task", down)
    document = upload(owner)
    document.refresh_from_db()
    assert (document.status, document.stage) == ("PROCESSING", "queued")


def test_a_file_without_a_row_does_not_stay(owner, monkeypatch):
    def broken(*_args, **_options):
        raise IntegrityError

    monkeypatch.setattr(Document, "save", broken)
    with pytest.raises(IntegrityError):
        upload(owner)
    assert stored_files() == []


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("빈.txt", b"", EmptyFile),
        ("글.exe", b"MZ\x90\x00", UnsupportedType),
        ("글.pdf", b"just some text", TypeMismatch),
        ("글.docx", b"%PDF-1.7 ...", TypeMismatch),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_and_leaves_nothing(owner, name, content, error):
    with pytest.raises(error):
        upload(owner, name=name, content=content)
    assert Document.objects.count() == 0
    assert stored_files() == []


def test_the_size_is_counted_not_believed(owner, settings):
    settings.MAX_UPLOAD_MB = 1
    content = ContentFile(b"a" * (1024 * 1024 + 1))
    content.size = 5
    with pytest.raises(errors.FileTooLarge):
        services.upload_document(owner=owner, name="큰.txt", content=content)
    assert stored_files() == []


def test_a_full_disk_is_said_and_leaves_nothing(owner, monkeypatch):
    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.default_storage, "save", full)
    with pytest.raises(errors.StorageFull):
        upload(owner)
    assert Document.objects.count() == 0


def test_c45_the_same_file_twice_is_one_document(owner, sent):
    one, again = upload(owner), upload(owner, name="다른 이름.md")
    assert again == one
    assert len(stored_files()) == 1


def test_what_a_second_upload_says_of_a_document_is_added(owner, sent):
    upload(owner, metadata={"issuer": "조달청", "year": 2024})
    document = upload(owner, metadata={"year": 2025, "title": "규정"})
    assert document.metadata == {"issuer": "조달청", "year": 2025, "title": "규정"}


def test_a_second_upload_of_what_failed_is_processed_again(owner, sent):
    services.cancel_document(document=upload(owner))
    assert upload(owner).status == "PROCESSING"


def test_another_user_with_the_same_file_has_a_document_of_his_own(owner, stranger, sent):
    assert upload(owner).pk != upload(stranger).pk


@pytest.mark.django_db(transaction=True)
def test_c45_two_equal_uploads_at_once_are_one_document(owner, sent):
    together = threading.Barrier(2)

    def send(_number):
        try:
            together.wait()
            return upload(owner).pk
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(send, range(2)))) == 1
    assert Document.objects.count() == 1
    assert len(stored_files()) == 1


def test_a_long_name_in_decomposed_hangul_is_composed_and_keeps_its_extension(owner, sent):
    name = unicodedata.normalize("NFD", "한글" * 150) + ".md"
    document = upload(owner, name=name)
    assert len(document.name) == 255
    assert document.name.startswith("한글한글")
    assert document.name.endswith(".md")
    assert document.original_name == "한글" * 150 + ".md"


@pytest.mark.parametrize(
    ("sent_name", "shown"),
    [
        ("../../etc/passwd.txt", "passwd.txt"),
        ("..\\win.ini.txt", "win.ini.txt"),
        ("보고서.pdf\0.exe", "보고서.pdf"),
        ("보고\r\nSet-Cookie: a=b.txt", "보고Set-Cookie: a=b.txt"),
        ("\u202efdp.exe", "fdp.exe"),
        ("보\u200b고서.pdf", "보고서.pdf"),
        ("보고서.pdf.", "보고서.pdf"),
        ("보고서.pdf ", "보고서.pdf"),
        (".pdf", "document.pdf"),
        (".htaccess", ".htaccess"),
        ("", "document"),
        ("/", "document"),
        ("<img src=x onerror=alert(1)>.pdf", "<img src=x onerror=alert(1)>.pdf"),
        ("가" * 2000 + ".pdf", "가" * 251 + ".pdf"),
    ],
)
def test_names_are_cleaned(sent_name, shown):
    assert metadata.to_display_name(sent_name) == shown


@pytest.mark.skipif(not NAMES.exists(), reason="needs ../shared/data/bad-inputs")
@pytest.mark.parametrize("entry", json.loads(NAMES.read_text()) if NAMES.exists() else [])
def test_c25_every_hostile_name_is_stored_safely_or_refused(owner, sent, entry):
    try:
        document = upload(owner, name=entry["name"], content="평범한 글입니다.\n")
    except ParseFailed:
        assert stored_files() == []
        return
    assert document.name == unicodedata.normalize("NFC", document.name)
    assert 0 < len(document.name) <= 255
    assert not any(unicodedata.category(character) == "Cc" for character in document.name)
    assert document.file.name.startswith(f"documents/{document.pk}/original")
    document.refresh_from_db()


@pytest.mark.parametrize(
    "metadata",
    [[], "글", 5, {"큰": "가" * 20_000}, {"x": float("nan")}, {"a": {"b": object()}}],
)
def test_metadata_that_is_no_modest_object_is_refused(owner, metadata):
    with pytest.raises(errors.InvalidMetadata):
        upload(owner, metadata=metadata)


def test_metadata_is_cleaned(owner, sent):
    issuer = unicodedata.normalize("NFD", "조달청")
    document = upload(owner, metadata={"issuer\0": issuer, "list": ["가\0", 1, None, True]})
    document.refresh_from_db()
    assert document.metadata == {"issuer": "조달청", "list": ["가", 1, None, True]}


def test_very_deep_metadata_is_refused(owner):
    deep = {}
    inner = deep
    for _ in range(50):
        inner["x"] = inner = {}
    with pytest.raises(NuraError):
        upload(owner, metadata=deep)


def test_deleting_takes_rows_and_files(owner, sent, django_capture_on_commit_callbacks):
    document = upload(owner)
    files.get_cache_folder(document.pk).mkdir(parents=True)
    with django_capture_on_commit_callbacks(execute=True):
        services.delete_document(document=document)
    assert Document.objects.count() == 0
    assert stored_files() == []
    assert not files.get_cache_folder(document.pk).exists()


def test_deleting_twice_is_no_error(owner, sent):
    document = upload(owner)
    services.delete_document(document=document)
    services.delete_document(document=document)


def test_a_document_at_work_is_not_processed_again(owner, sent):
    document = upload(owner)
    with pytest.raises(errors.DocumentBusy):
        services.reprocess_document(document=document)


def test_a_failed_document_is_processed_again(owner, sent):
    document = upload(owner)
    services.cancel_document(document=document)
    assert (document.status, document.error_code) == ("FAILED", "cancelled")
    services.reprocess_document(document=document)
    assert (document.status, document.error_code, document.attempts) == ("PROCESSING", "", 0)


def test_an_ended_document_cannot_be_cancelled(owner, sent):
    document = upload(owner)
    services.cancel_document(document=document)
    with pytest.raises(errors.DocumentNotProcessing):
        services.cancel_document(document=document)


def test_the_real_broker_that_is_gone_is_noticed_quickly(owner, monkeypatch):
    from celery import Celery

    gone = Celery(broker="redis+socket:///nowhere/redis.sock", set_as_current=False)
    gone.conf.broker_transport_options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    monkeypatch.setattr("jobs.queue.current_app", gone)
    queue.enqueue_ingest(upload(owner).pk)
    assert connection.is_usable()

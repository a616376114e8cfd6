"""Files in a bucket: moto's server behind the storage, over the real protocol."""

import errno
import io

import boto3
import pytest
from django.core.files.base import ContentFile, File
from django.core.files.storage import default_storage
from moto.server import ThreadedMotoServer

from documents import files, services
from documents.models import Document
from nura import housekeeping
from nura.backup.integrity import list_orphans
from nura.management.commands import doctor
from tests.documents.conftest import TEXT, upload
from tests.documents.test_downloads import body, get
from tests.documents.test_ingest import run

BUCKET = "nura-files"


@pytest.fixture(scope="module")
def server():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def bucket(server, settings, monkeypatch):
    """The storage of the test is a prefix of an empty bucket; a client of it."""
    host, port = server.get_host_and_port()
    for name, value in (
        ("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "y"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    settings.FILES_URL = f"s3://{BUCKET}/here"
    backend = {
        "BACKEND": "documents.bucket.BucketStorage",
        "OPTIONS": {"url": settings.FILES_URL},
    }
    settings.STORAGES = settings.STORAGES | {"default": backend}
    yield client
    for one in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=one["Key"])


def list_keys(client):
    found = client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
    return [one["Key"] for one in found]


def test_what_is_saved_is_read_in_parts_and_listed(bucket):
    data = bytes(range(256)) * 20_000
    content = File(io.BytesIO(data))
    content.seek(7)
    assert default_storage.save("a/b/c.bin", content) == "a/b/c.bin"
    assert not content.closed
    default_storage.save("a/d.txt", ContentFile(b""))
    assert list_keys(bucket) == ["here/a/b/c.bin", "here/a/d.txt"]
    assert default_storage.listdir("a") == (["b"], ["d.txt"])
    assert default_storage.listdir("") == (["a"], [])
    assert default_storage.size("a/b/c.bin") == len(data)
    with default_storage.open("a/b/c.bin") as file:
        assert file.read(10) == data[:10]
        file.seek(-5, io.SEEK_END)
        assert file.read() == data[-5:]
        assert file.read(1) == b""
        file.seek(3_000_000)
        assert file.read(1_500_000) == data[3_000_000:4_500_000]
    with default_storage.open("a/d.txt") as file:
        assert file.read() == b""


def test_what_fails_is_told_as_a_folder_tells_it(bucket, settings):
    with pytest.raises(FileNotFoundError):
        default_storage.open("nothing")
    assert not default_storage.exists("nothing")
    default_storage.delete("nothing")
    assert default_storage.listdir("nothing") == ([], [])
    with pytest.raises(NotImplementedError):
        default_storage.path("nothing")
    bucket.delete_bucket(Bucket=BUCKET)
    try:
        with pytest.raises(OSError, match="NoSuchBucket") as failed:
            default_storage.save("a", ContentFile(b"x"))
        assert failed.value.errno == errno.EIO
        (finding,) = doctor.check_bucket()
        assert finding.state is doctor.State.FAIL
    finally:
        bucket.create_bucket(Bucket=BUCKET)


@pytest.mark.django_db
def test_a_document_lives_in_the_bucket_from_its_upload_to_its_deletion(
    bucket, owner, api, sent, tiny_engine
):
    data = TEXT.encode()
    document = run(upload(owner))
    assert document.status == Document.Status.COMPLETED, document.error_code
    (key,) = list_keys(bucket)
    assert key.startswith(f"here/documents/{document.pk}/original-")
    whole = get(api, document)
    assert (whole.status_code, body(whole)) == (200, data)
    part = get(api, document, Range="bytes=2-9")
    assert (part.status_code, body(part)) == (206, data[2:10])
    with files.open_local_path(document) as path:
        assert path.read_bytes() == data
    assert not path.exists()
    assert housekeeping._measure_files() >= len(data)
    assert list_orphans() == []
    default_storage.save("documents/stray.txt", ContentFile(b"x"))
    assert list_orphans() == ["documents/stray.txt"]
    (finding,) = doctor.check_bucket()
    assert finding.state is doctor.State.OK
    services.delete_document(document=document)
    files.remove_document_files(document.pk)
    assert list_keys(bucket) == ["here/documents/stray.txt"]

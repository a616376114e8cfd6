"""Originals on their way out: whole, in parts, or not at all where the receiver has them."""

import io
import uuid
from typing import ClassVar

import pytest
from django.core.files.base import ContentFile, File
from django.core.files.storage import Storage

from documents import ingest, services, versions
from documents.models import Document
from nura.samples import FOLDER
from tests.documents.conftest import upload

pytestmark = pytest.mark.django_db
URL = "/api/v1/documents"
TEXT = "가나다라마바사아자차"  # 30 bytes
BYTES = TEXT.encode()


@pytest.fixture
def document(owner, sent):
    return upload(owner, name="글.txt", content=TEXT)


def get(api, document, **headers):
    return api.get(f"{URL}/{document.pk}/file", headers=headers)


def body(response):
    return b"".join(response.streaming_content)


def test_a_whole_file_says_that_it_can_be_had_in_parts(api, document):
    response = get(api, document)
    assert (response.status_code, body(response)) == (200, BYTES)
    assert response["Accept-Ranges"] == "bytes"
    assert response["Content-Length"] == "30"
    assert response["ETag"] == f'"{document.sha256}"'


@pytest.mark.parametrize(
    ("asked", "told", "part"),
    [
        ("bytes=0-8", "bytes 0-8/30", slice(0, 9)),
        ("bytes=9-", "bytes 9-29/30", slice(9, 30)),
        ("bytes=-6", "bytes 24-29/30", slice(24, 30)),
        ("bytes=-99", "bytes 0-29/30", slice(0, 30)),
        ("bytes=29-29", "bytes 29-29/30", slice(29, 30)),
        ("bytes=27-999999999999999999999", "bytes 27-29/30", slice(27, 30)),
        ("Bytes=0-0", "bytes 0-0/30", slice(0, 1)),
    ],
)
def test_a_part_is_206(api, document, asked, told, part):
    response = get(api, document, Range=asked)
    assert (response.status_code, response["Content-Range"]) == (206, told)
    assert body(response) == BYTES[part]
    assert response["Content-Length"] == str(len(BYTES[part]))
    assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert response["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "asked", ["bytes=30-", "bytes=30-40", "bytes=-0", "bytes=" + "9" * 400 + "-"]
)
def test_a_part_beyond_the_end_is_416(api, document, asked):
    response = get(api, document, Range=asked)
    assert (response.status_code, response["Content-Range"]) == (416, "bytes */30")
    assert response.content == b""


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=5-2",
        "bytes=0-1,4-5",
        "bytes=-",
        "bytes=a-b",
        "lines=0-1",
        "bytes 0-1",
        "bytes=٣-٤",
        "",
    ],
)
def test_what_is_no_single_range_is_answered_with_the_whole_file(api, document, asked):
    response = get(api, document, Range=asked)
    assert (response.status_code, body(response)) == (200, BYTES)


@pytest.mark.parametrize(
    ("condition", "status"), [("{tag}", 206), ('"another"', 200), ("W/{tag}", 200)]
)
def test_a_part_is_only_of_the_version_that_the_receiver_has_begun(
    api, document, condition, status
):
    tag = f'"{document.sha256}"'
    headers = {"Range": "bytes=0-8", "If-Range": condition.format(tag=tag)}
    assert get(api, document, **headers).status_code == status


def test_what_the_receiver_has_already_is_304(api, document):
    response = get(api, document, **{"If-None-Match": f'"{document.sha256}"'})
    assert (response.status_code, response.content) == (304, b"")
    assert response["ETag"] == f'"{document.sha256}"'
    assert get(api, document, **{"If-None-Match": '"another"'}).status_code == 200


def test_what_changed_meanwhile_is_412_for_who_wants_no_other(api, document):
    assert get(api, document, **{"If-Match": '"another"'}).status_code == 412


def test_a_page_that_the_receiver_has_already_is_304(api, owner, sent):
    content = (FOLDER / "care-system-notice.pdf").read_bytes()
    document = upload(owner, name="글.pdf", content=content)
    Document.objects.update(page_count=1)
    where = f"{URL}/{document.pk}/pages/1.png"
    tag = api.get(where)["ETag"]
    assert api.get(where, headers={"If-None-Match": tag}).status_code == 304


class Remote(Storage):
    """A storage whose files have no paths, and which replaces a file of the same name."""

    kept: ClassVar[dict[str, bytes]] = {}

    def _open(self, name, mode="rb"):
        return File(io.BytesIO(self.kept[name]), name)

    def _save(self, name, content):
        self.kept[name] = content.read()
        return name

    def exists(self, name):
        return False

    def delete(self, name):
        self.kept.pop(name, None)

    def listdir(self, path):
        return [], [name.rpartition("/")[2] for name in self.kept if name.startswith(f"{path}/")]


@pytest.fixture
def remote_storage(settings):
    settings.STORAGES = settings.STORAGES | {
        "default": {"BACKEND": "tests.documents.test_downloads.Remote"}
    }
    Remote.kept.clear()
    return Remote.kept


@pytest.mark.parametrize(("asked", "part"), [("", slice(0, 30)), ("bytes=9-17", slice(9, 18))])
def test_a_storage_without_paths_serves_the_same(remote_storage, api, document, asked, part):
    assert body(get(api, document, Range=asked)) == BYTES[part]
    assert len(remote_storage) == 1


def test_a_storage_without_paths_keeps_versions_and_forgets_them_with_the_document(
    remote_storage, api, document, tiny_engine, django_capture_on_commit_callbacks
):
    ingest.ingest_next_document()
    document.refresh_from_db()
    versions.receive_version(
        document=document, name="글.txt", content=ContentFile("새 글이다.".encode())
    )
    ingest.ingest_next_document()
    assert body(api.get(f"{URL}/{document.pk}/file?version=1")) == BYTES
    assert len(remote_storage) == 2
    with django_capture_on_commit_callbacks(execute=True):
        services.delete_document(document=document)
    assert remote_storage == {}


@pytest.mark.django_db(transaction=True)
async def test_a_part_streams_under_asgi(owner, sent, async_client):
    from asgiref.sync import sync_to_async

    document = await sync_to_async(upload)(owner, name="글.txt", content=TEXT)
    await async_client.aforce_login(owner)
    where = f"{URL}/{document.pk}/file"
    response = await async_client.get(where, headers={"Range": "bytes=3-11"})
    assert b"".join([block async for block in response.streaming_content]) == BYTES[3:12]


def test_a1_conditions_tell_a_stranger_nothing(stranger_api, document):
    for headers in ({"Range": "bytes=0-8"}, {"If-None-Match": f'"{document.sha256}"'}):
        theirs = get(stranger_api, document, **headers)
        made_up = stranger_api.get(f"{URL}/{uuid.uuid4()}/file", headers=headers)
        assert (theirs.status_code, theirs.content) == (404, made_up.content)

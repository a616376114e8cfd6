import uuid

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from documents import ingest, services
from documents.models import Deletion, Document
from tests.documents.conftest import TEXT, make_row, upload

pytestmark = pytest.mark.django_db
URL = "/api/v1/documents"


def post(api, name="규정.md", content=TEXT, **fields):
    data = content.encode() if isinstance(content, str) else content
    file = SimpleUploadedFile(name, data)
    return api.post(URL, {"file": file, **fields}, format="multipart")


@pytest.fixture
def document(owner, sent, tiny_engine):
    """A processed document."""
    document = upload(owner, metadata={"issuer": "조달청"})
    ingest.ingest_next_document()
    document.refresh_from_db()
    assert document.status == "COMPLETED", document.error_code
    return document


def test_an_upload_answers_201_at_once(api, sent):
    response = post(api, metadata='{"issuer": "조달청"}')
    assert response.status_code == 201
    body = response.json()
    assert body["status"] == "PROCESSING"
    assert body["name"] == "규정.md"
    assert body["metadata"] == {"issuer": "조달청"}
    assert body["error"] is None
    assert body["page_count"] is None


def test_the_outline_tells_headings_at_their_place_in_the_text(api, document):
    outline = api.get(f"{URL}/{document.pk}/outline").json()
    text = b"".join(api.get(f"{URL}/{document.pk}/text")).decode()
    assert [(one["title"], one["level"], one["page"]) for one in outline] == [
        ("휴가 규정", 1, None),
        ("출장 규정", 1, None),
    ]
    lines = [text[one["start"] :].splitlines()[0] for one in outline]
    assert lines == ["# 휴가 규정", "# 출장 규정"]


def test_a_document_names_its_owner(api, document):
    assert api.get(f"{URL}/{document.pk}").json()["owner"] == document.owner.username


def test_the_answer_has_every_field_of_the_contract(api, document):
    body = api.get(f"{URL}/{document.pk}").json()
    assert set(body) >= {
        "id", "name", "content_type", "size", "sha256", "status", "stage", "progress", "error",
        "page_count", "chunk_count", "metadata", "version", "created_at", "updated_at",
    }  # fmt: skip
    assert body["id"] == str(document.pk)
    assert body["progress"] == 1.0
    assert body["chunk_count"] > 0


@pytest.mark.parametrize(
    ("name", "content", "status", "code"),
    [
        ("빈.txt", b"", 422, "empty_file"),
        ("a.exe", b"MZ\x90", 415, "unsupported_type"),
        ("a.pdf", b"text", 415, "type_mismatch"),
    ],
)
def test_a_refused_upload_says_why(api, name, content, status, code):
    response = post(api, name, content)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response["Content-Type"] == "application/problem+json"
    assert len(response.json()["detail"]) > 10


def test_too_large_is_413(api, settings):
    settings.MAX_UPLOAD_MB = 1
    response = post(api, "큰.txt", b"a" * (1024 * 1024 + 1))
    assert (response.status_code, response.json()["code"]) == (413, "file_too_large")
    assert Document.objects.count() == 0


def test_too_large_is_413_for_a_session_without_a_csrf_header(owner, settings):
    settings.MAX_UPLOAD_MB = 1
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(owner)
    file = SimpleUploadedFile("큰.txt", b"a" * (1024 * 1024 + 1))
    assert browser.post(URL, {"file": file}).status_code in {403, 413}
    assert Document.objects.count() == 0


@pytest.mark.parametrize("metadata", ["[]", "{", "5", '{"a": NaN}', "[" * 50_000])
def test_bad_metadata_is_400(api, metadata):
    assert post(api, metadata=metadata).status_code == 400


def test_an_upload_without_a_file_is_400(api):
    response = api.post(URL, {"metadata": "{}"}, format="multipart")
    assert response.status_code == 400
    assert "file" in response.json()["errors"]


def test_an_upload_as_json_is_415(api):
    assert api.post(URL, {"file": "x"}, format="json").status_code == 415


def test_a_broken_form_is_400(api):
    response = api.generic(
        "POST", URL, b"--x\r\nContent-Disp", content_type="multipart/form-data; boundary=x"
    )
    assert response.status_code == 400


def test_c43_ten_thousand_parts_are_400(api):
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\na\r\n'
    response = api.generic(
        "POST", URL, part * 10_000 + b"--x--\r\n", content_type="multipart/form-data; boundary=x"
    )
    assert response.status_code == 400
    assert Document.objects.count() == 0


def test_a_disk_that_fills_up_while_receiving_is_507(api, monkeypatch):
    from django.core.files.uploadhandler import TemporaryFileUploadHandler

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TemporaryFileUploadHandler, "receive_data_chunk", full)
    response = post(api)
    assert (response.status_code, response.json()["code"]) == (507, "storage_full")


def test_a_name_of_300_decomposed_syllables_keeps_what_fits(api, sent):
    import unicodedata

    name = unicodedata.normalize("NFD", "한글" * 150) + ".md"
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="'
        + name.encode()
        + b'"\r\n\r\n# \xea\xb0\x80\r\n--x--\r\n'
    )
    response = api.generic("POST", URL, body, content_type="multipart/form-data; boundary=x")
    assert response.status_code == 201
    assert response.json()["name"] == ("한글" * 150)[:252] + ".md"


def test_fields_of_the_server_are_not_taken_from_the_client(api, stranger, sent):
    body = post(api, owner=stranger.pk, status="COMPLETED", sha256="f" * 64).json()
    assert body["status"] == "PROCESSING"
    assert Document.objects.get().owner.username == "owner"


def test_the_list_is_narrowed_by_status_and_name(api, owner):
    make_row(owner, name="휴가 규정.md", status="COMPLETED")
    make_row(owner, name="100%_할인.md", status="FAILED")
    names = lambda query: [row["name"] for row in api.get(URL + query).json()["results"]]  # noqa: E731
    assert names("?status=FAILED") == ["100%_할인.md"]
    assert names("?q=휴가") == ["휴가 규정.md"]
    assert names("?q=%25_") == ["100%_할인.md"]
    assert names("?q=%25%25") == []
    assert names("?q=") == ["100%_할인.md", "휴가 규정.md"]


def test_decomposed_hangul_finds_the_name(api, owner):
    import unicodedata

    make_row(owner, name="휴가 규정.md")
    found = api.get(URL, {"q": unicodedata.normalize("NFD", "휴가")}).json()
    assert found["count"] == 1


@pytest.mark.parametrize("query", ["?status=DONE", "?q=" + "가" * 300, "?q=%00"])
def test_a_bad_filter_is_400(api, query):
    assert api.get(URL + query).status_code == 400


def test_pages_of_the_list(api, owner):
    for number in range(3):
        make_row(owner, name=f"{number}.md")
    body = api.get(URL + "?page_size=2&page=2").json()
    assert (body["count"], len(body["results"]), body["next"]) == (3, 1, None)
    assert api.get(URL + "?page=99999999999999999999").status_code == 404


def test_a_document_is_renamed_and_described(api, document):
    response = api.patch(
        f"{URL}/{document.pk}", {"name": "../새 이름.md", "metadata": {"a": 1}}, format="json"
    )
    assert response.json()["name"] == "새 이름.md"
    assert response.json()["metadata"] == document.metadata | {"a": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "가" * 300_000},
        {"name": "가\0나"},
        {"metadata": []},
        {"metadata": {"a": "가" * 99_999}},
    ],
)
def test_g91_changes_beyond_the_limits_are_400(api, document, change):
    assert api.patch(f"{URL}/{document.pk}", change, format="json").status_code == 400


def test_deleting_is_204_and_then_404(api, document):
    assert api.delete(f"{URL}/{document.pk}").status_code == 204
    assert api.get(f"{URL}/{document.pk}").status_code == 404


def test_several_documents_are_deleted_together_or_not_at_all(api, owner, sent):
    ids = [str(upload(owner, name=f"{n}.md", content=f"{n}번째").pk) for n in range(3)]
    asked = {"document_ids": [ids[0], str(uuid.uuid4())]}
    assert api.post(f"{URL}/delete", asked, format="json").status_code == 404
    assert Document.objects.count() == 3
    assert api.post(f"{URL}/delete", {"document_ids": []}, format="json").status_code == 400
    asked = {"document_ids": ids[:2], "erase": True}
    assert api.post(f"{URL}/delete", asked, format="json").status_code == 204
    assert [str(one.pk) for one in Document.objects.all()] == ids[2:]
    assert {one.key for one in Deletion.objects.filter(due_at__lte=timezone.now())} == {*ids[:2]}


def test_the_original_comes_back_as_a_safe_download(api, document):
    response = api.get(f"{URL}/{document.pk}/file", HTTP_ACCEPT="application/pdf")
    assert b"".join(response.streaming_content) == TEXT.encode()
    assert response["Content-Disposition"].startswith("attachment; filename*=utf-8''")
    assert response["Content-Type"] == "text/markdown"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"


def test_c25_no_name_can_add_a_header(api, owner, sent):
    document = upload(owner, name='a"\r\nSet-Cookie: x=y;.md')
    header = api.get(f"{URL}/{document.pk}/file")["Content-Disposition"]
    assert "\n" not in header
    assert "\r" not in header


def test_a_lost_original_is_said(api, document):
    document.file.storage.delete(document.file.name)
    response = api.get(f"{URL}/{document.pk}/file")
    assert (response.status_code, response.json()["code"]) == (503, "storage_failed")


def test_the_whole_text(api, document):
    response = api.get(f"{URL}/{document.pk}/text")
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert "연차 휴가는 15일이다." in response.content.decode()


def test_chunks_are_the_text_at_their_offsets(api, document):
    text = api.get(f"{URL}/{document.pk}/text").content.decode()
    body = api.get(f"{URL}/{document.pk}/chunks").json()
    assert body["count"] == document.chunk_count
    for row, chunk in zip(body["results"], document.chunks.order_by("index"), strict=True):
        assert row["chunk_id"] == f"{document.pk}_{row['index']}"
        assert text[chunk.start : chunk.end] == row["text"]
        assert (row["kind"], row["header"]) == ("text", "")
        assert (row["vlm_image_text_present"], row["vlm_image_text"]) == (False, None)


def test_a_chunk_says_when_a_vision_model_wrote_it(api, document):
    document.chunks.filter(index=0).update(kind="picture")

    first = api.get(f"{URL}/{document.pk}/chunks").json()["results"][0]

    assert first["kind"] == "picture"
    assert first["vlm_image_text_present"] is True
    assert first["vlm_image_text"] == first["text"]


@pytest.mark.parametrize("page", ["0", "1", "99999999999999999999999"])
def test_a_file_without_pages_has_no_pictures(api, document, page):
    response = api.get(f"{URL}/{document.pk}/pages/{page}.png", HTTP_ACCEPT="image/png")
    assert response.status_code in {404, 415}


def test_reprocess_is_202_and_409_while_at_work(api, document):
    response = api.post(f"{URL}/{document.pk}/reprocess")
    assert (response.status_code, response.json()["status"]) == (202, "PROCESSING")
    response = api.post(f"{URL}/{document.pk}/reprocess")
    assert (response.status_code, response.json()["code"]) == (409, "document_busy")


def test_cancelling_a_second_processing_leaves_the_document_as_it_was(api, owner, sent):
    document = upload(owner)
    Document.objects.update(status="COMPLETED", indexed_at=timezone.now())
    services.reprocess_document(document=document)
    answer = api.post(f"{URL}/{document.pk}/cancel").json()
    assert (answer["status"], answer["progress"], answer["error"]) == ("COMPLETED", 1.0, None)


def test_cancel_is_202_and_says_so(api, owner, sent):
    document = upload(owner)
    response = api.post(f"{URL}/{document.pk}/cancel")
    assert response.status_code == 202
    assert response.json()["error"]["code"] == "cancelled"
    assert len(response.json()["error"]["detail"]) > 10


def test_sentences_speak_the_language_asked_for(api, owner, sent):
    document = upload(owner)
    services.cancel_document(document=document)
    answer = api.get(f"{URL}/{document.pk}", HTTP_ACCEPT_LANGUAGE="en").json()
    assert answer["error"]["detail"].startswith("The processing was cancelled.")


CALLS = [
    ("get", ""), ("patch", ""), ("delete", ""), ("get", "/file"), ("get", "/text"),
    ("get", "/chunks"), ("get", "/pages/1.png"), ("post", "/reprocess"), ("post", "/cancel"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a1_a_stranger_gets_the_404_of_a_made_up_id(stranger_api, document, method, path):
    theirs = getattr(stranger_api, method)(f"{URL}/{document.pk}{path}")
    made_up = getattr(stranger_api, method)(f"{URL}/{uuid.uuid4()}{path}")
    assert (theirs.status_code, theirs.content) == (404, made_up.content)
    before = Document.objects.values().get()
    assert before["status"] == "COMPLETED"
    assert before["updated_at"] == document.updated_at


def test_a12_a_stranger_sees_nothing_in_the_list(stranger_api, document):
    for query in ("", "?q=규정", "?status=COMPLETED"):
        assert stranger_api.get(URL + query).json()["count"] == 0


@pytest.mark.parametrize(("method", "path"), [*CALLS, ("post", None), ("get", None)])
def test_a13_nobody_gets_in_without_credentials(client, document, method, path):
    where = URL if path is None else f"{URL}/{document.pk}{path}"
    assert getattr(client, method)(where).status_code == 401


def test_an_id_that_is_none_is_404(api):
    assert api.get(f"{URL}/nonsense").status_code == 404
    assert api.get(f"{URL}/{uuid.uuid4()}/pages/x.png").status_code == 404


@pytest.mark.django_db(transaction=True)
async def test_the_download_streams_under_asgi(owner, sent, async_client):
    from asgiref.sync import sync_to_async

    document = await sync_to_async(upload)(owner)
    await async_client.aforce_login(owner)
    response = await async_client.get(f"{URL}/{document.pk}/file")
    assert b"".join([block async for block in response.streaming_content]) == TEXT.encode()

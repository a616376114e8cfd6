"""The pages and the API of sources, and who gets there."""

import hashlib

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from documents import libraries
from documents.audit import AuditEvent
from documents.models import Document, LibraryRole
from documents.sources.models import Source, SourceRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def manager(db, sent):
    return User.objects.create_user("manager", password="secret-of-them")


@pytest.fixture
def shared(manager):
    return libraries.create_library(creator=manager, name="규정집")


@pytest.fixture
def manager_api(manager):
    client = APIClient()
    client.force_authenticate(manager)
    return client


@pytest.fixture
def browser(manager):
    client = Client()
    client.force_login(manager)
    return client


def to_url(library, rest=""):
    return f"/api/v1/libraries/{library.pk}/sources{rest}"


def hash_text(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def program(manager_api, shared):
    """A source that a program fills; its address."""
    made = manager_api.post(to_url(shared), {"kind": "manifest"}, format="json").json()
    return to_url(shared, f"/{made['id']}")


def send_list(api, address, files, **options):
    body = {"files": [{"path": p, "sha256": hash_text(t)} for p, t in files.items()], **options}
    return api.post(f"{address}/manifest", body, format="json").json()


def send_file(api, address, path, text):
    file = SimpleUploadedFile("x.txt", text.encode())
    return api.post(f"{address}/files", {"path": path, "file": file}, format="multipart")


def test_a_program_sends_only_what_is_wanted(manager_api, program):
    files = {"규정/휴가.txt": "휴가", "출장.txt": "출장"}
    assert set(send_list(manager_api, program, files)["wanted"]) == set(files)
    for path, text in files.items():
        assert send_file(manager_api, program, path, text).status_code == 201
    assert Document.objects.count() == 2
    again = send_list(manager_api, program, files)
    assert (again["wanted"], again["run"]["status"]) == ([], "done")
    moved = {"규정/연차.txt": "휴가", "출장.txt": "출장 다시"}
    told = send_list(manager_api, program, moved)
    assert (told["wanted"], told["run"]["renamed"]) == (["출장.txt"], 1)
    assert send_file(manager_api, program, "출장.txt", "출장 다시").status_code == 201
    told = send_list(manager_api, program, {"출장.txt": "출장 다시"})
    assert (told["wanted"], told["run"]["removed"]) == ([], 1)
    assert Document.objects.get().metadata["source_uri"] == "출장.txt"


def test_a_program_sends_nothing_for_who_has_left_until_another_manager_saves_it(
    manager, manager_api, shared, program
):
    send_list(manager_api, program, {"휴가.txt": "휴가"})
    other = User.objects.create_user("other", password="secret-of-them")
    role = LibraryRole.MANAGER
    libraries.add_member(library=shared, principal=other, role=role, actor=manager)
    libraries.remove_member(member=shared.members.get(user=manager), actor=manager)
    api, page = APIClient(), Client()
    api.force_authenticate(other)
    page.force_login(other)
    refused = send_file(api, program, "휴가.txt", "휴가")
    assert (refused.status_code, refused.json()["code"]) == (409, "source_owner_lost")
    assert Document.objects.count() == 0
    source = Source.objects.get()
    page.post(f"/libraries/{shared.pk}/sources/{source.pk}", {"do": "save", "name": source.name})
    assert send_file(api, program, "휴가.txt", "휴가").status_code == 201
    assert Document.objects.get().owner == other


def test_no_file_that_is_sent_and_no_page_reads_the_whole_list_again(
    manager_api, browser, shared, program
):
    """A list may name fifty thousand files, each of which is then sent by itself."""
    send_list(manager_api, program, {"휴가.txt": "휴가"})
    with CaptureQueriesContext(connection) as asked:
        assert send_file(manager_api, program, "휴가.txt", "휴가").status_code == 201
        assert manager_api.get(program).status_code == 200
        assert browser.get(f"/libraries/{shared.pk}/sources").status_code == 200
    assert not [one["sql"] for one in asked.captured_queries if '"listing"' in one["sql"]]


def test_a_file_that_is_not_on_the_list_is_refused(manager_api, program):
    send_list(manager_api, program, {"a.txt": "하나"})
    for path, text in (("b.txt", "하나"), ("a.txt", "anders")):
        answer = send_file(manager_api, program, path, text)
        assert (answer.status_code, answer.json()["code"]) == (409, "file_not_wanted")


@pytest.mark.parametrize(
    "files",
    [
        None,
        "x",
        [1],
        [{"path": "a"}],
        [{"path": "a", "sha256": "z"}],
        [{"path": "..", "sha256": "0" * 64}],
    ],
)
def test_a_list_that_is_none_is_refused(manager_api, program, files):
    answer = manager_api.post(f"{program}/manifest", {"files": files}, format="json")
    assert answer.json()["code"] == "manifest_invalid"


def test_only_administrators_reach_folders_and_buckets(manager_api, shared, settings, tmp_path):
    settings.SOURCE_FOLDERS = (str(tmp_path),)
    for kind in ("folder", "s3"):
        body = {"kind": kind, "settings": {"path": str(tmp_path)}}
        answer = manager_api.post(to_url(shared), body, format="json")
        assert (answer.status_code, answer.json()["code"]) == (403, "source_for_administrators")


@pytest.mark.parametrize("role", [LibraryRole.READER, LibraryRole.CONTRIBUTOR, None])
def test_who_does_not_manage_the_library_finds_no_source(shared, program, manager, role):
    other = User.objects.create_user("other")
    if role:
        libraries.add_member(library=shared, principal=other, role=role, actor=manager)
    api, pages = APIClient(), Client()
    api.force_authenticate(other)
    pages.force_login(other)
    for path in (to_url(shared), program, f"{program}/runs", f"{program}/manifest"):
        assert api.get(path).status_code == 404
    assert api.post(f"{program}/run", {}, format="json").status_code == 404
    assert api.delete(program).status_code == 404
    page = program.removeprefix("/api/v1")
    assert pages.get(page).status_code == pages.post(page, {"do": "run"}).status_code == 404
    assert pages.get(f"/libraries/{shared.pk}/sources").status_code == 404
    assert Source.objects.count() == 1


def test_a_document_of_a_source_is_not_changed_by_hand(manager_api, program):
    send_list(manager_api, program, {"a.txt": "하나"})
    made = send_file(manager_api, program, "a.txt", "하나").json()["document_id"]
    document = f"/api/v1/documents/{made}"
    file = SimpleUploadedFile("a.txt", "다른".encode())
    put = manager_api.put(f"{document}/file", {"file": file}, format="multipart")
    move = manager_api.patch(document, {"library_id": None}, format="json")
    several = manager_api.post("/api/v1/documents/delete", {"document_ids": [made]}, format="json")
    for answer in (put, move, several, manager_api.delete(document)):
        assert (answer.status_code, answer.json()["code"]) == (409, "document_from_source")
    assert manager_api.get(document).json()["source_id"]


def test_removing_a_source_keeps_its_documents_unless_told_otherwise(manager_api, program):
    send_list(manager_api, program, {"a.txt": "하나"})
    made = send_file(manager_api, program, "a.txt", "하나").json()["document_id"]
    assert manager_api.delete(program).status_code == 204
    assert manager_api.get(f"/api/v1/documents/{made}").json()["source_id"] is None


def test_removing_a_source_with_its_documents(manager_api, program):
    send_list(manager_api, program, {"a.txt": "하나"})
    send_file(manager_api, program, "a.txt", "하나")
    assert manager_api.delete(f"{program}?documents=delete").status_code == 204
    assert Document.objects.count() == 0


def test_schedules_are_told_as_they_were_given(manager_api, shared):
    web = {"kind": "web", "settings": {"addresses": ["https://example.com/"]}}
    for schedule in (
        {"every": 90, "unit": "minutes"},
        {"every": 2, "unit": "days"},
        {"at": "03:30"},
        None,
    ):
        made = manager_api.post(to_url(shared), {**web, "schedule": schedule}, format="json").json()
        assert made["schedule"] == schedule
        assert (made["next_run_at"] is None) == (schedule is None)
    bad = {**web, "schedule": {"every": 1, "unit": "minutes"}}
    assert manager_api.post(to_url(shared), bad, format="json").status_code == 400


def test_what_is_done_to_sources_is_in_the_audit_log(manager_api, program, manager):
    manager_api.patch(program, {"name": "다른 이름"}, format="json")
    manager_api.post(f"{program}/run", {}, format="json")
    SourceRun.objects.all().delete()
    manager_api.delete(program)
    done = AuditEvent.objects.filter(action__startswith="source_", actor_id=manager.pk)
    assert [one.action for one in done.order_by("pk")] == [
        *("source_created", "source_changed", "source_run", "source_deleted")
    ]


def test_a_manager_adds_web_pages_in_the_page_and_sees_a_dry_run_first(browser, shared):
    page = f"/libraries/{shared.pk}/sources"
    assert "웹 페이지" in browser.get(page).content.decode()
    assert "?kind=folder" not in browser.get(page).content.decode()
    form = {"kind": "web", "addresses": "https://example.com/", "depth": "0", "max_pages": "5"}
    answer = browser.post(page, form | {"delay_seconds": "1", "unit": "hours", "every": "6"})
    source = Source.objects.get()
    assert answer.url == f"{page}/{source.pk}"
    assert SourceRun.objects.get().dry_run
    assert source.every_minutes == 360
    assert browser.get(answer.url).status_code == 200


def test_a_wrong_setting_is_told_in_the_page_and_what_was_typed_stays(browser, shared):
    page = f"/libraries/{shared.pk}/sources"
    answer = browser.post(page, {"kind": "web", "addresses": "nonsense", "name": "누리집"})
    assert answer.status_code == 400
    assert "nonsense" in answer.content.decode()
    assert "올바른 웹 주소가 아닙니다" in answer.content.decode()


def test_whoever_manages_many_libraries_reaches_the_sources_of_each(browser, manager):
    for number in range(51):
        libraries.create_library(creator=manager, name=f"자료실 {number:02}")
    first = browser.get("/sources").content.decode()
    assert "자료실 49" in first
    assert "자료실 50" not in first
    assert 'href="?page=2"' in first
    assert "자료실 50" in browser.get("/sources?page=2").content.decode()

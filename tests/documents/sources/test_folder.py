"""A folder that fills a library, with real files, real rows and a real worker's steps."""

import os
import shutil
import unicodedata

import pytest
from django.contrib.auth.models import User
from django.test import Client

from documents import libraries
from documents.models import Document, DocumentVersion, LibraryMember, LibraryRole
from documents.sources import runs, services, sync
from documents.sources.base import SourceSettingInvalid, clean_settings, get_kind
from documents.sources.kinds.folder import FolderReader, resolve_folder
from documents.sources.models import Source, SourceEntry, SourceRun
from jobs.lease import claim_job
from tests.strangers import client_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(tmp_path, settings):
    folder = tmp_path / "mounted"
    folder.mkdir()
    settings.SOURCE_FOLDERS = (str(folder),)
    return folder


@pytest.fixture
def administrator(db):
    return User.objects.create_user("administrator", password="secret-of-them", is_staff=True)


@pytest.fixture
def shared(administrator):
    return libraries.create_library(creator=administrator, name="규정집")


def write(root, path, text="연차 휴가는 15일이다."):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def make_source(library, owner, root, **given):
    values = clean_settings(get_kind("folder"), {"path": str(root), **given})
    return Source.objects.create(
        library=library, owner=owner, kind="folder", name="공유 폴더", settings=values
    )


def run(source, **options):
    """Request a run and carry it out here, documents of before being done."""
    Document.objects.processing().update(status="COMPLETED", stage="done")
    asked = runs.request_run(source=source, **options)
    while (asked := SourceRun.objects.get(pk=asked.pk)).status == "running":
        SourceRun.objects.filter(pk=asked.pk).update(lease_until=None)
        Document.objects.processing().update(status="COMPLETED", stage="done")
        runs.carry_out_run(claim_job(SourceRun, asked.pk))
    return asked


def get_counts(done):
    return {name: n for name, n in done.counts.items() if n and name != "listed"}


@pytest.fixture
def source(root, shared, administrator, sent):
    return make_source(shared, administrator, root)


def test_files_become_documents_of_the_library(source, root, shared):
    write(root, "규정/휴가.md", "# 휴가")
    write(root, "출장.txt")
    write(root, "그림.xyz")
    assert get_counts(run(source)) == {"added": 2}
    found = Document.objects.filter(library=shared, source=source)
    assert {(one.name, one.metadata["source_uri"]) for one in found} == {
        ("휴가.md", "규정/휴가.md"),
        ("출장.txt", "출장.txt"),
    }
    assert {one.owner for one in found} == {source.owner}


def test_a_document_tells_where_its_source_has_it_whatever_people_write_about_it(source, root):
    write(root, "규정/휴가.md", "# 휴가")
    run(source)
    api, (document,) = client_of(source.owner), Document.objects.all()
    address = f"/api/v1/documents/{document.pk}"
    forged = {"metadata": {"source_uri": "https://elsewhere.example/"}}
    api.patch(address, forged, format="json")
    assert api.get(address).data["origin"] == "규정/휴가.md"
    listed = api.get("/api/v1/documents").data["results"]
    assert [one["origin"] for one in listed] == ["규정/휴가.md"]
    page = Client()
    page.force_login(source.owner)
    shown = page.get(f"/documents/{document.pk}").content.decode()
    assert 'class="origin"' in shown
    assert 'href="https://elsewhere' not in shown
    Source.objects.all().delete()
    assert api.get(address).data["origin"] is None


def test_word_documents_are_read_too(source, root):
    from docx import Document as WordDocument

    word = WordDocument()
    word.add_paragraph("연차 휴가는 15일이다.")
    word.save(root / "휴가.docx")
    assert get_counts(run(source)) == {"added": 1}


def test_what_is_as_it_was_is_left_alone(source, root):
    write(root, "출장.txt")
    run(source)
    done = run(source)
    assert (get_counts(done), done.listed) == ({}, 1)


def test_a_changed_file_is_a_new_version(source, root):
    write(root, "출장.txt")
    run(source)
    document = Document.objects.get()
    Document.objects.update(indexed_at="2026-01-01T00:00Z")
    write(root, "출장.txt", "출장비는 하루 6만 원이다.")
    assert get_counts(run(source)) == {"changed": 1}
    assert DocumentVersion.objects.get(state="pending").document == document


def test_a_renamed_file_keeps_its_document(source, root):
    write(root, "출장.txt")
    run(source)
    document = Document.objects.get()
    (root / "새 폴더").mkdir()
    (root / "출장.txt").rename(root / "새 폴더" / "출장 규정.txt")
    assert get_counts(run(source)) == {"renamed": 1}
    assert Document.objects.get().pk == document.pk
    assert Document.objects.get().name == "출장 규정.txt"
    assert Document.objects.get().metadata["source_uri"] == "새 폴더/출장 규정.txt"


def test_a_deleted_file_takes_its_document_along(source, root):
    write(root, "출장.txt")
    write(root, "휴가.txt", "다른 내용")
    run(source)
    (root / "출장.txt").unlink()
    assert get_counts(run(source)) == {"removed": 1}
    assert Document.objects.get().name == "휴가.txt"


def test_copies_share_a_document_until_one_changes(source, root):
    write(root, "a.txt")
    write(root, "b.txt")
    assert get_counts(run(source)) == {"added": 2}
    assert Document.objects.count() == 1
    write(root, "b.txt", "이제 다르다")
    assert get_counts(run(source)) == {"changed": 1}
    assert Document.objects.count() == 2
    (root / "a.txt").unlink()
    assert get_counts(run(source)) == {"removed": 1}
    assert Document.objects.get().metadata["source_uri"] == "b.txt"


def test_an_upload_of_the_same_bytes_is_not_taken_over(source, root, shared, administrator):
    from tests.documents.conftest import upload

    mine = upload(administrator, name="내 파일.txt", content="연차 휴가는 15일이다.")
    Document.objects.filter(pk=mine.pk).update(library=shared)
    write(root, "휴가.txt")
    run(source)
    (root / "휴가.txt").unlink()
    write(root, "다른.txt", "남는 것")
    run(source)
    assert set(Document.objects.values_list("name", flat=True)) == {"내 파일.txt", "다른.txt"}


def test_a_folder_that_is_gone_deletes_nothing(source, root):
    write(root, "출장.txt")
    run(source)
    shutil.rmtree(root)
    done = run(source)
    assert (done.status, done.error_code) == ("failed", "source_unreachable")
    assert Document.objects.count() == 1


def test_a_folder_that_is_suddenly_empty_deletes_nothing(source, root):
    write(root, "출장.txt")
    run(source)
    (root / "출장.txt").unlink()
    done = run(source)
    assert (done.status, done.error_code) == ("failed", "source_empty")
    assert Document.objects.count() == 1


def test_without_its_marker_a_folder_counts_as_not_mounted(root, shared, administrator, sent):
    write(root, ".mounted", "")
    write(root, "a.txt", "하나")
    write(root, "b.txt", "둘")
    source = make_source(shared, administrator, root, marker=".mounted")
    run(source)
    (root / ".mounted").unlink()
    (root / "a.txt").unlink()
    assert run(source).error_code == "source_unreachable"
    assert Document.objects.count() == 2


def test_many_deletions_wait_for_a_yes(source, root):
    for number in range(20):
        write(root, f"{number:02}.txt", f"문서 {number}")
    run(source)
    for number in range(12):
        (root / f"{number:02}.txt").unlink()
    done = run(source)
    assert (done.status, done.held, done.removed) == ("held", 12, 0)
    assert Document.objects.count() == 20
    done = run(source, confirmed=True)
    assert (done.status, done.removed) == ("done", 12)
    assert Document.objects.count() == 8


def test_a_dry_run_changes_nothing_and_tells_what_would_happen(source, root):
    write(root, "a.txt", "하나")
    write(root, "b.txt", "둘")
    run(source)
    write(root, "a.txt", "하나 다시")
    (root / "b.txt").unlink()
    write(root, "c.txt", "셋")
    before = list(Document.objects.values("pk", "sha256"))
    done = run(source, dry_run=True)
    assert get_counts(done) == {"added": 1, "changed": 1, "removed": 1}
    assert done.report == {"added": ["c.txt"], "changed": ["a.txt"], "removed": ["b.txt"]}
    assert list(Document.objects.values("pk", "sha256")) == before
    assert get_counts(run(source)) == {"added": 1, "changed": 1, "removed": 1}


def test_a_dry_run_tells_a_renamed_file_by_its_bytes_as_a_real_run_does(source, root):
    write(root, "규정/출장.txt", "하나")
    write(root, "a.txt", "둘이")
    run(source)
    (root / "규정").rename(root / "2026 규정")
    (root / "a.txt").unlink()
    write(root, "b.txt", "세엣")
    told = run(source, dry_run=True)
    assert get_counts(told) == {"added": 1, "renamed": 1, "removed": 1}
    assert told.report == {
        "added": ["b.txt"],
        "renamed": ["2026 규정/출장.txt"],
        "removed": ["a.txt"],
    }
    assert get_counts(run(source)) == get_counts(told)


def test_a_dry_run_tells_a_copy_of_what_is_still_there_as_added(source, root):
    write(root, "b.txt", "하나")
    run(source)
    write(root, "a.txt", "하나")
    assert get_counts(run(source, dry_run=True)) == {"added": 1}
    assert get_counts(run(source)) == {"added": 1}


def test_a_dry_run_tells_which_of_two_copies_was_renamed(source, root):
    write(root, "a.txt", "하나")
    write(root, "z.txt", "하나")
    run(source)
    (root / "z.txt").rename(root / "0.txt")
    told = run(source, dry_run=True)
    assert (get_counts(told), told.report) == ({"renamed": 1}, {"renamed": ["0.txt"]})
    assert get_counts(run(source)) == {"renamed": 1}


def test_a_dry_run_twice_tells_the_same(source, root):
    write(root, "a.txt")
    run(source)
    (root / "a.txt").rename(root / "b.txt")
    assert (
        get_counts(run(source, dry_run=True))
        == get_counts(run(source, dry_run=True))
        == {"renamed": 1}
    )


def test_a_file_that_cannot_be_read_as_its_type_is_told_and_stays_told(source, root):
    write(root, "가짜.pdf", "이것은 PDF가 아니다")
    write(root, "a.txt")
    done = run(source)
    assert get_counts(done) == {"added": 1, "failed": 1}
    assert SourceEntry.objects.get(uri="가짜.pdf").error_code == "type_mismatch"
    assert get_counts(run(source)) == {"failed": 1}
    assert not SourceEntry.objects.get(uri="가짜.pdf").pending


def test_what_failed_is_tried_again_when_a_person_starts_the_source(source, root, administrator):
    write(root, "가짜.pdf", "이것은 PDF가 아니다")
    run(source)
    services.start_source(source=source, actor=administrator)
    assert SourceEntry.objects.get().pending


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_an_error_not_a_deletion(source, root):
    file = write(root, "a.txt")
    run(source)
    write(root, "a.txt", "neu")
    file.chmod(0)
    assert get_counts(run(source)) == {"failed": 1}
    assert Document.objects.count() == 1


def test_an_unreadable_folder_deletes_nothing_below_it(source, root, monkeypatch):
    write(root, "규정/a.txt", "하나")
    write(root, "b.txt", "둘")
    run(source)
    opened = os.open

    def refuse(path, *arguments, **options):
        if path == "규정":
            raise PermissionError(13, "refused")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    done = run(source)
    assert get_counts(done) == {"failed": 1}
    assert Document.objects.count() == 2


def test_links_lead_nowhere(source, root, tmp_path):
    outside = tmp_path / "outside"
    write(outside, "비밀.txt", "비밀")
    (root / "folder").symlink_to(outside)
    (root / "file.txt").symlink_to(outside / "비밀.txt")
    write(root, "a.txt")
    assert get_counts(run(source)) == {"added": 1}


def test_a_folder_that_becomes_a_link_after_it_was_listed_leads_nowhere(source, root, tmp_path):
    outside = tmp_path / "outside"
    write(outside, "a.txt", "비밀")
    write(root, "규정/a.txt", "공개")
    with FolderReader(source.settings) as reader:
        shutil.rmtree(root / "규정")
        (root / "규정").symlink_to(outside)
        with pytest.raises(sync.NuraError) as told, reader.open_entry("규정/a.txt"):
            pass
    assert told.value.code == "entry_gone"


def test_a_pipe_keeps_nobody_waiting(source, root):
    os.mkfifo(root / "pipe.txt")
    write(root, "a.txt")
    assert get_counts(run(source)) == {"added": 1}


def test_names_of_a_mac_and_of_an_old_server_are_read(source, root):
    write(root, unicodedata.normalize("NFD", "휴가 규정.txt"), "하나")
    old = os.fsencode(root) + b"/" + "출장 규정.txt".encode("cp949")
    handle = os.open(old, os.O_CREAT | os.O_WRONLY)
    os.write(handle, "둘".encode())
    os.close(handle)
    write(root, "줄\n바꿈.txt", "셋")
    assert get_counts(run(source)) == {"added": 3}
    assert {"휴가 규정.txt", "출장 규정.txt"} < set(Document.objects.values_list("name", flat=True))
    assert get_counts(run(source)) == {}


def test_patterns_choose_the_files(root, shared, administrator, sent):
    write(root, "규정/a.md", "하나")
    write(root, "규정/초안/b.md", "둘")
    write(root, "c.txt", "셋")
    source = make_source(shared, administrator, root, include="규정/*", exclude="*초안/*")
    run(source)
    assert [one.metadata["source_uri"] for one in Document.objects.all()] == ["규정/a.md"]


@pytest.mark.parametrize("path", ["/", "/etc", "relative", "{root}/../..", "{root}/link"])
def test_only_folders_that_the_administrator_allows(root, path):
    (root / "link").symlink_to("/etc")
    with pytest.raises(SourceSettingInvalid):
        resolve_folder(path.format(root=root))


def test_a_run_goes_on_where_it_was_cut_off(source, root, monkeypatch):
    for number in range(30):
        write(root, f"{number % 3}/{number:02}.txt", f"문서 {number}")
    monkeypatch.setattr(FolderReader, "BATCH", 4)
    asked = runs.request_run(source=source)
    cut = iter(range(3))

    def cut_off(self):
        if next(cut, None) is None:
            raise sync.LeaseLostError

    with monkeypatch.context() as patched:
        patched.setattr(sync.SourceSync, "_give_way", cut_off)
        runs.carry_out_run(claim_job(SourceRun, asked.pk))
    part = SourceRun.objects.get(pk=asked.pk)
    assert (part.status, part.listed) == ("running", 16)
    SourceRun.objects.filter(pk=asked.pk).update(lease_until="2026-01-01T00:00Z")
    Document.objects.processing().update(status="COMPLETED", stage="done")
    while SourceRun.objects.get(pk=asked.pk).status == "running":
        SourceRun.objects.filter(pk=asked.pk).update(lease_until=None)
        Document.objects.processing().update(status="COMPLETED", stage="done")
        runs.carry_out_run(claim_job(SourceRun, asked.pk))
    done = SourceRun.objects.get(pk=asked.pk)
    assert (done.status, done.listed, done.added) == ("done", 30, 30)
    assert Document.objects.count() == 30


def test_no_more_documents_wait_than_may(source, root, settings):
    settings.SOURCE_IN_FLIGHT = 3
    for number in range(5):
        write(root, f"{number}.txt", f"문서 {number}")
    asked = runs.request_run(source=source)
    runs.carry_out_run(claim_job(SourceRun, asked.pk))
    assert Document.objects.processing().count() == 3
    assert SourceRun.objects.get(pk=asked.pk).status == "running"


def test_whoever_may_no_longer_fills_nothing(source, root, administrator):
    write(root, "a.txt")
    administrator.is_staff = False
    administrator.save()
    assert run(source).error_code == "source_owner_lost"
    assert Document.objects.count() == 0


def test_a_run_of_a_deactivated_account_ends_and_somebody_else_goes_on(source, root, shared):
    write(root, "a.txt")
    User.objects.filter(pk=source.owner_id).update(is_active=False)
    asked = runs.request_run(source=source)
    assert claim_job(SourceRun, asked.pk) is None
    runs.reap_runs()
    ended = SourceRun.objects.get(pk=asked.pk)
    assert (ended.status, ended.error_code) == ("failed", "source_owner_lost")
    other = User.objects.create_user("other", password="secret-of-them", is_staff=True)
    LibraryMember.objects.create(library=shared, user=other, role=LibraryRole.MANAGER)
    services.update_source(source=source, actor=other, values={})
    assert run(source).added == 1


def test_runs_that_fail_are_kept_for_the_history_no_longer_than_others(source, monkeypatch):
    monkeypatch.setattr(runs, "MAX_RUNS_KEPT", 3)
    shutil.rmtree(source.settings["path"])
    assert {run(source).status for _time in range(5)} == {"failed"}
    assert source.runs.count() == 3


def test_due_sources_begin_once(source):
    source.every_minutes = 30
    source.next_run_at = "2026-01-01T00:00Z"
    source.save()
    assert (runs.start_due_runs(), runs.start_due_runs()) == (1, 0)
    assert SourceRun.objects.count() == 1

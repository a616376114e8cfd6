"""Whose turn it is, and what owners do with documents that wait."""

from datetime import timedelta

import pytest
from django.core.files.base import ContentFile
from django.db import connection
from django.utils import timezone

from documents import ingest, notices, queue, services, tasks, versions
from documents.models import Document
from documents.parsers.base import Corrupt
from documents.search.store import ScopedStore
from jobs.lease import LeaseLostError, renew_lease
from rag.types import Page
from tests.documents.conftest import make_row, upload
from tests.documents.test_ingest import reads, run  # noqa: F401

pytestmark = pytest.mark.django_db


def make_rows(owner, count, **fields):
    return [make_row(owner, name=f"{number}.md", **fields) for number in range(count)]


def taken(count=1):
    """Who owns the documents that are claimed next."""
    keys = [queue.claim_next_document().job_id for _ in range(count)]
    names = dict(Document.objects.values_list("pk", "owner__username"))
    return [names[key] for key in keys]


def finish():
    Document.objects.filter(claim__isnull=False).update(
        **queue.to_ended_values(Document.Status.COMPLETED)
    )


def post(client, path):
    response = client.post(f"/api/v1/documents/{path}")
    return response.status_code, response.json()


def find_documents(owner):
    """Documents of which a search among all of the owner's has passages."""
    scope = Document.objects.visible_to(owner).searchable().values_list("pk", flat=True)
    return {
        hit.passage.document_id for hit in ScopedStore(list(scope)).find_by_terms({"출장비": 1}, 3)
    }


def test_one_file_of_another_user_comes_next_before_a_thousand(owner, stranger):
    make_rows(owner, 30)
    assert taken() == ["owner"]
    make_rows(stranger, 1)
    assert taken(2) == ["stranger", "owner"]


def test_owners_take_turns_with_one_worker_too(owner, stranger):
    make_rows(owner, 3)
    make_rows(stranger, 3)
    seen = []
    for _ in range(6):
        seen += taken()
        finish()
    assert seen == ["owner", "stranger"] * 3


def test_of_one_owner_the_oldest_document_comes_first(owner):
    made = make_rows(owner, 3)
    Document.objects.filter(pk=made[2].pk).update(created_at=timezone.now() - timedelta(days=1))
    order = [queue.claim_next_document().job_id for _ in range(3)]
    assert order == [made[2].pk, made[0].pk, made[1].pk]


def test_whoever_has_least_at_work_comes_first(owner, stranger):
    make_rows(owner, 3)
    assert taken(2) == ["owner"] * 2
    make_rows(stranger, 3)
    assert taken(2) == ["stranger"] * 2


def test_a_document_that_failed_is_not_tried_again_at_once(owner, sent):
    make_row(owner)
    claim = queue.claim_next_document()
    assert queue.retry_later(claim)
    assert queue.claim_next_document() is None
    Document.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert queue.claim_next_document().job_id == claim.job_id


def test_a_message_works_on_whose_turn_it_is(owner, stranger, sent, tiny_engine):
    theirs, mine = upload(owner), upload(stranger)
    Document.objects.filter(pk=theirs.pk).update(started_at=timezone.now())
    tasks.ingest_document(str(theirs.pk))
    mine.refresh_from_db()
    assert mine.status == "COMPLETED"


def test_a_worker_carries_on_when_all_messages_were_lost(owner, sent, tiny_engine):
    first, second = upload(owner), upload(owner, name="b.md", content="# 다른 글\n\n내용이다.")
    tasks.ingest_document(str(first.pk))
    assert sent == [(queue.INGEST, str(second.pk))]
    tasks.ingest_document(str(first.pk))
    assert len(sent) == 1


def test_the_reaper_sends_no_second_messages_into_a_long_queue(owner, sent):
    late = timezone.now() - timedelta(seconds=40)
    make_rows(owner, queue.MAX_MESSAGES + 10, enqueued_at=late)
    ingest.reap_ingests()
    assert len(sent) == queue.MAX_MESSAGES
    Document.objects.update(enqueued_at=late)
    ingest.reap_ingests()
    assert len(sent) == queue.MAX_MESSAGES


def test_a_paused_document_waits_until_it_is_resumed(owner, api, sent):
    document = make_row(owner)
    status, body = post(api, f"{document.pk}/pause")
    assert (status, body["status"], body["stage"]) == (202, "PROCESSING", "paused")
    assert queue.claim_next_document() is None
    ingest.reap_ingests()
    assert sent == []
    status, body = post(api, f"{document.pk}/resume")
    assert (status, body["stage"]) == (202, "queued")
    assert sent == [(queue.INGEST, str(document.pk))]
    assert queue.claim_next_document().job_id == document.pk


def test_pausing_twice_is_pausing_once(owner, api, sent):
    document = make_row(owner)
    for word, stage in (("pause", "paused"), ("pause", "paused"), ("resume", "queued")):
        status, body = post(api, f"{document.pk}/{word}")
        assert (status, body["stage"]) == (202, stage)
    assert post(api, f"{document.pk}/resume")[0] == 202


def test_pausing_takes_the_document_away_from_its_worker(
    owner,
    api,
    sent,
    tiny_engine,
    reads,  # noqa: F811
):
    document = upload(owner)

    def paused():
        post(api, f"{document.pk}/pause")
        return Page(2, "zwei")

    reads(Page(1, "eins"), paused, AssertionError("went on"))
    run(document)
    assert (document.stage, document.claim, document.chunk_count) == ("paused", None, 0)
    post(api, f"{document.pk}/resume")
    reads(Page(1, "eins"))
    assert run(document).status == "COMPLETED"


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_document_that_has_ended_cannot_be_paused(owner, api, sent, word):
    document = make_row(owner, status="COMPLETED")
    status, problem = post(api, f"{document.pk}/{word}")
    assert (status, problem["code"]) == (409, "document_not_processing")


def test_all_of_mine_are_paused_resumed_and_cancelled_and_nobody_elses(
    owner, stranger, api, sent, monkeypatch
):
    told = []
    monkeypatch.setattr(notices, "send_notices", lambda user, *them: told.append((user, len(them))))
    make_rows(owner, 3)
    make_row(owner, status="COMPLETED")
    other = make_row(stranger)
    assert post(api, "pause") == (202, {"count": 3})
    assert post(api, "pause") == (202, {"count": 0})
    assert post(api, "resume") == (202, {"count": 3})
    assert len(sent) == 3
    assert post(api, "cancel") == (202, {"count": 3})
    assert told == [(owner.pk, 3)] * 3
    cancelled = Document.objects.filter(owner=owner, error_code="cancelled")
    assert set(cancelled.values_list("status", flat=True)) == {"FAILED"}
    assert len(cancelled) == 3
    other.refresh_from_db()
    assert (other.status, other.stage) == ("PROCESSING", "queued")


def test_cancelling_all_keeps_the_index_that_serves(owner, api, sent):
    document = make_row(owner, indexed_at=timezone.now())
    assert post(api, "cancel") == (202, {"count": 1})
    document.refresh_from_db()
    assert document.status == "COMPLETED"


def test_the_queue_tells_how_far_it_is(owner, stranger, api, sent):
    started = timezone.now() - timedelta(seconds=200)
    make_rows(owner, 2, size=1000)
    make_row(owner, size=1000, stage="paused")
    make_row(stranger, size=99_000)
    make_row(
        owner,
        size=2000,
        status="COMPLETED",
        progress=1.0,
        pages_done=400,
        started_at=started,
    )
    body = api.get("/api/v1/documents/queue").json()
    assert (body["waiting"], body["working"], body["paused"]) == (2, 0, 1)
    assert body["pages_per_second"] == pytest.approx(2.0, rel=0.1)
    assert taken(2) == ["stranger", "owner"]
    body = api.get("/api/v1/documents/queue").json()
    assert (body["waiting"], body["working"]) == (1, 1)


def test_an_empty_queue_needs_no_time(api):
    assert api.get("/api/v1/documents/queue").json() == {
        "waiting": 0,
        "working": 0,
        "paused": 0,
        "pages_per_second": 0.0,
        "seconds_left": 0.0,
    }


def test_a_stranger_finds_nothing_to_pause(owner, stranger_api, sent):
    document = make_row(owner)
    for word in ("pause", "resume"):
        assert post(stranger_api, f"{document.pk}/{word}")[0] == 404
    for word in ("pause", "resume", "cancel"):
        assert post(stranger_api, word) == (202, {"count": 0})
    assert stranger_api.get("/api/v1/documents/queue").json()["waiting"] == 0
    document.refresh_from_db()
    assert (document.status, document.stage) == ("PROCESSING", "queued")


def test_a_document_that_is_processed_again_is_found_meanwhile(owner, api, sent, tiny_engine):
    document = run(upload(owner))
    for word in ("reprocess", "pause"):
        post(api, f"{document.pk}/{word}")
        assert find_documents(owner) == {document.pk}
        assert api.get(f"/api/v1/documents/{document.pk}").json()["indexed"] is True


def test_a_document_that_fails_over_its_index_goes_on_with_it(
    owner,
    api,
    sent,
    tiny_engine,
    reads,  # noqa: F811
):
    document = run(upload(owner))
    written = document.indexed_at
    post(api, f"{document.pk}/reprocess")
    reads(Corrupt(detail="x"))
    run(document)
    body = api.get(f"/api/v1/documents/{document.pk}").json()
    assert (body["status"], body["indexed"], body["error"]["code"]) == (
        "COMPLETED",
        True,
        "corrupt",
    )
    assert [warning["code"] for warning in body["warnings"]] == ["reprocess_failed"]
    assert document.indexed_at == written
    assert find_documents(owner) == {document.pk}


def test_a_new_version_during_an_ingest_stops_the_old_work(
    owner,
    sent,
    tiny_engine,
    reads,  # noqa: F811
):
    document = run(upload(owner))
    services.reprocess_document(document=document)

    def replaced():
        new = ContentFile("출장비는 하루 7만 원이다.".encode())
        versions.receive_version(document=document, name="새 규정.md", content=new)
        return Page(2, "zwei")

    reads(Page(1, "eins"), replaced, AssertionError("went on"))
    run(document)
    assert (document.version, document.stage) == (1, "queued")
    assert find_documents(owner) == {document.pk}
    reads(Page(None, "출장비는 하루 7만 원이다."))
    run(document)
    assert (document.version, document.name, document.status) == (2, "새 규정.md", "COMPLETED")
    assert [chunk.text for chunk in document.chunks.all()] == ["출장비는 하루 7만 원이다."]


def test_a_document_without_an_index_is_not_searched(owner, api, sent, tiny_engine):
    upload(owner)
    assert not find_documents(owner)


def test_a_finished_document_knows_how_long_each_stage_took(owner, sent, tiny_engine):
    document = run(upload(owner))
    assert set(document.seconds) == {"parsing", "chunking", "embedding", "indexing"}
    assert (document.pages_done, document.progress) == (1, 1.0)
    assert document.started_at < document.indexed_at


def test_a_document_at_work_tells_how_long_it_may_take(owner, api):
    document = make_row(owner)
    claim = queue.claim_next_document()
    Document.objects.update(started_at=timezone.now() - timedelta(seconds=20))
    renew_lease(claim, progress=0.25, pages_done=7)
    body = api.get(f"/api/v1/documents/{document.pk}").json()
    assert body["seconds_left"] == pytest.approx(60, rel=0.1)
    assert (body["pages_done"], body["indexed"]) == (7, False)
    post(api, f"{document.pk}/pause")
    assert api.get(f"/api/v1/documents/{document.pk}").json()["seconds_left"] is None
    with pytest.raises(LeaseLostError):
        renew_lease(claim)


def test_a_file_that_is_read_at_once_is_told_when_it_is_done(owner, sent, tiny_engine, monkeypatch):
    told = []
    monkeypatch.setattr(
        notices,
        "send_notices",
        lambda _user, *them: told.extend(one["data"]["status"] for one in them),
    )
    monkeypatch.setattr(notices, "REPORT_SECONDS", 60.0)
    run(upload(owner))
    assert told == ["COMPLETED"]


def test_a_file_whose_reader_is_silent_is_shown_as_being_read(owner, sent, monkeypatch):
    told = []
    monkeypatch.setattr(notices, "notify_document_changed", lambda row: told.append(row.stage))
    monkeypatch.setattr(notices, "REPORT_SECONDS", 0.0)
    make_row(owner)
    with ingest.HEARTBEAT.hold(queue.claim_next_document()) as held:
        shown = notices.IngestProgress(held, notices.Stopwatch())
        shown.enter(Document.Stage.EMBEDDING)
        shown.check()
        shown.check()
    assert told == ["embedding"]


def test_what_a_worker_writes_every_moment_touches_no_index(owner):
    make_row(owner)
    claim = queue.claim_next_document()
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid FROM documents_document")
        place = cursor.fetchone()
        changed = "SELECT n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = %s"
        cursor.execute(changed, ["documents_document"])
        before = cursor.fetchone()[0]
        renew_lease(claim, stage=Document.Stage.EMBEDDING, progress=0.5, pages_done=3)
        cursor.execute(changed, ["documents_document"])
        assert cursor.fetchone()[0] == before + 1
        cursor.execute("SELECT ctid FROM documents_document")
        assert cursor.fetchone() != place

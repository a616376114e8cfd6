import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import OperationalError, connection
from django.utils import timezone

from documents import index, ingest, queue, services, tasks
from documents.models import Chunk, ChunkEmbedding, Document, DocumentPage
from documents.parsers.base import Corrupt, ParserCrashed
from documents.search.store import ScopedStore
from jobs import connections
from jobs.lease import Heartbeat, LeaseLostError, renew_lease
from rag.errors import EmbedderFailed
from rag.types import Page
from tests.documents.conftest import TEXT, stored_files, upload
from tests.documents.test_store import cut_connections
from tests.support import wait_until

pytestmark = pytest.mark.django_db


class Reading:
    """A reader in place of the child process: pages, or what it raises."""

    page_total = None
    metadata = {"title": "규정"}
    warnings = ["page_unreadable"]
    pictures = ()
    no_text = ""

    def __init__(self, *pages):
        self._pages = iter(pages)

    def __iter__(self):
        return self

    def __next__(self):
        page = next(self._pages)
        if isinstance(page, BaseException):
            raise page
        return page() if callable(page) else page

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None


@pytest.fixture
def reads(monkeypatch):
    """Replace the reader: `reads(page, error, function ...)`."""

    def use(*pages):
        monkeypatch.setattr(ingest, "read_document", lambda *_args, **_options: Reading(*pages))

    return use


@pytest.fixture
def document(owner, sent):
    return upload(owner)


def run(document):
    tasks.ingest_document(str(document.pk))
    document.refresh_from_db()
    return document


def run_later(document):
    """When the pause before the second attempt is over."""
    Document.objects.filter(pk=document.pk, claim=None).update(lease_until=None)
    return run(document)


def test_a_document_becomes_searchable(document, tiny_engine):
    run(document)
    assert (document.status, document.stage, document.progress) == ("COMPLETED", "done", 1.0)
    assert document.chunk_count == Chunk.objects.filter(document=document).count() > 0
    assert ChunkEmbedding.objects.filter(document=document).count() == document.chunk_count
    assert document.claim is None
    hits = ScopedStore([document.pk]).find_by_terms({"출장비": 1}, 3)
    assert "하루 5만 원" in hits[0].passage.text


@pytest.mark.django_db(transaction=True)
def test_the_real_parser_tokeniser_and_model_work_together(owner, sent):
    english = "# Leave\n\nEmployees have fifteen days of paid leave a year.\n"
    document = run(upload(owner, name="leave.md", content=english))
    assert document.status == "COMPLETED", document.error_code
    from documents import spaces
    from rag.factory import get_engine

    vector = get_engine(settings.RAG).embedder.embed_query("How many days of leave are there?")
    (hit,) = ScopedStore([document.pk]).find_similar(vector, 3)
    assert hit.scores["similarity"] > 0.3
    assert spaces.get_active_space().dimensions == 384


def test_running_twice_gives_the_same_rows(document, tiny_engine):
    run(document)
    before = list(Chunk.objects.values_list("index", "text"))
    run(document)
    assert list(Chunk.objects.values_list("index", "text")) == before
    assert document.attempts == 1


def test_processing_again_replaces_the_rows(document, tiny_engine, reads):
    run(document)
    services.reprocess_document(document=document)
    reads(Page(None, "새 내용입니다."))
    run(document)
    assert [chunk.text for chunk in document.chunks.all()] == ["새 내용입니다."]
    assert DocumentPage.objects.filter(document=document).count() == 1
    assert ChunkEmbedding.objects.count() == 1


def test_what_was_left_out_is_noted(document, tiny_engine, reads):
    reads(Page(1, "가나다"), Page(2, "라마바"))
    run(document)
    assert document.warnings == ["page_unreadable"]
    assert document.page_count == 2
    assert document.metadata == {"title": "규정"}


def test_metadata_given_by_people_wins(owner, sent, tiny_engine, reads):
    document = upload(owner, metadata={"title": "제 것"})
    reads(Page(1, "가나다"))
    assert run(document).metadata == {"title": "제 것"}


def test_a_broken_file_fails_with_a_reason(document, tiny_engine, reads):
    reads(Corrupt(detail="x"))
    run(document)
    assert (document.status, document.error_code) == ("FAILED", "corrupt")
    assert document.error_params == {"detail": "x"}


def test_e63_a_file_that_kills_its_child_is_tried_twice(document, tiny_engine, reads, sent):
    reads(ParserCrashed(detail="exit -9"))
    run(document)
    assert (document.status, document.stage) == ("PROCESSING", "queued")
    assert sent == [(queue.INGEST, str(document.pk))]
    run_later(document)
    assert (document.status, document.error_code) == ("FAILED", "parser_crashed")
    run(document)
    assert document.attempts == 2


def test_d56_an_embedder_that_stays_down_ends_the_document(document, tiny_engine, monkeypatch):
    def down(_texts):
        raise EmbedderFailed

    monkeypatch.setattr(tiny_engine.embedder, "embed_passages", down)
    run(document)
    for _ in range(Document.MAX_ATTEMPTS - 1):
        assert document.status == "PROCESSING"
        run_later(document)
    assert (document.status, document.error_code) == ("FAILED", "embedder_failed")
    assert not Chunk.objects.exists()


def test_a_database_that_goes_away_is_tried_again(document, tiny_engine, monkeypatch):
    def gone(*_args):
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(index, "replace_index", gone)
    monkeypatch.setattr(ingest.connection, "close", lambda: None)  # the test's own transaction
    run(document)
    assert (document.status, document.attempts) == ("PROCESSING", 1)


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_cut_while_rows_are_copied_is_an_outage(owner):
    with index.IndexDraft(upload(owner)) as draft, connection.cursor() as cursor:
        draft.add_page(Page(1, "제1조 휴가는 15일이다."), 0)
        cut_connections()
        with pytest.raises(OperationalError):
            draft.copy_rows(cursor)
    connection.close()


def test_c95_a_disk_that_fills_up_ends_the_document_with_that_reason_and_the_next_one_works(
    document, tiny_engine, monkeypatch
):
    with monkeypatch.context() as patch:

        def full(*_args):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(ingest.ChunkSpool, "add", full)
        run(document)
        assert (document.status, document.error_code) == ("FAILED", "storage_full")
    services.reprocess_document(document=document)
    run(document)
    assert document.status == "COMPLETED"


def test_a_defect_of_ours_ends_the_document_and_is_logged(document, tiny_engine, reads, caplog):
    reads(ZeroDivisionError("oops"))
    run(document)
    assert (document.status, document.error_code) == ("FAILED", "internal")
    assert "ZeroDivisionError" in caplog.text


def test_an_ingest_beyond_its_time_ends_with_timeout(document, tiny_engine, reads):
    reads(SoftTimeLimitExceeded())
    run(document)
    assert (document.status, document.error_code) == ("FAILED", "timeout")


def test_a_lost_original_fails_after_two_tries(document, tiny_engine):
    stored_files()[0].unlink()
    run(document)
    run_later(document)
    assert (document.status, document.error_code) == ("FAILED", "storage_failed")


def test_e64_of_two_deliveries_one_claims_and_one_leaves(document):
    first, second = queue.claim_next_document(), queue.claim_next_document()
    assert first is not None
    assert second is None


@pytest.mark.django_db(transaction=True)
def test_e64_two_workers_at_once_give_one_result(document, tiny_engine):
    def work():
        tasks.ingest_document(str(document.pk))
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    document.refresh_from_db()
    assert (document.status, document.attempts) == ("COMPLETED", 1)
    assert document.chunks.count() == document.chunk_count


def test_a_message_for_a_document_that_is_gone_is_dropped(document):
    services.delete_document(document=document)
    tasks.ingest_document(str(document.pk))


@pytest.mark.parametrize("end", [services.cancel_document, services.delete_document])
def test_e70_cancel_or_delete_during_ingest_stops_the_work(document, tiny_engine, reads, end):
    def ended():
        end(document=document)
        return Page(2, "zwei")

    reads(Page(1, "eins"), ended, AssertionError("went on"))
    tasks.ingest_document(str(document.pk))
    assert not Chunk.objects.exists()
    remaining = Document.objects.filter(pk=document.pk).first()
    assert remaining is None or remaining.error_code == "cancelled"


def test_e71_a_worker_that_has_to_go_hands_its_document_back_and_no_attempt_is_counted(
    document, tiny_engine, reads, sent
):
    sent.clear()
    leave = ingest.HEARTBEAT.share_leave_signal()
    try:

        def left():
            leave()
            return Page(2, "zwei")

        reads(Page(1, "eins"), left, AssertionError("went on"))
        tasks.ingest_document(str(document.pk))
        document.refresh_from_db()
        assert (document.status, document.stage, document.attempts) == ("PROCESSING", "queued", 0)
        assert (document.claim, document.lease_until) == (None, None)
        assert str(document.pk) in str(sent)
    finally:
        ingest.HEARTBEAT.share_leave_signal()
    reads(Page(1, "eins"), Page(2, "zwei"))
    run(document)
    assert (document.status, document.attempts) == ("COMPLETED", 1)


def test_text_is_read_between_pages_that_are_recognised_quickly(
    owner, document, tiny_engine, monkeypatch
):
    text = upload(owner, name="b.md", content="# 다른 글\n\n내용이다.")
    usual, seen = ingest.read_document, []

    def read(path, kind, name, *limits, **options):
        def recognise():
            options["on_recognition"]()
            time.sleep(ingest.MIN_SECONDS_BETWEEN_LOOKS)
            return Page(1, "eins")

        def look():
            seen.append(Document.objects.get(pk=text.pk).status)
            return Page(2, "zwei")

        if name == text.name:
            return usual(path, kind, name, *limits, **options)
        return Reading(recognise, look)

    monkeypatch.setattr(ingest, "read_document", read)
    assert run(document).status == "COMPLETED"
    assert seen == ["COMPLETED"]


def test_e70_a_cancelled_document_does_not_come_back_at_the_last_step(
    document, tiny_engine, monkeypatch
):
    replace = index.replace_index

    def late(*args):
        services.cancel_document(document=document)
        replace(*args)

    monkeypatch.setattr(index, "replace_index", late)
    run(document)
    assert (document.status, document.error_code) == ("FAILED", "cancelled")
    assert not Chunk.objects.exists()


def test_g89_a_crash_while_rows_are_replaced_keeps_the_old_ones(document, tiny_engine, monkeypatch):
    run(document)
    before = list(Chunk.objects.values_list("pk", flat=True))
    services.reprocess_document(document=document)

    def crash(*_args, **_options):
        raise RuntimeError("power cut")

    monkeypatch.setattr(queue, "complete_document", crash)
    run(document)
    assert list(Chunk.objects.values_list("pk", flat=True)) == before
    assert document.error_code == "internal"


def expire(document):
    Document.objects.filter(pk=document.pk).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )


def test_the_reaper_hands_a_lost_document_on(document, sent):
    queue.claim_next_document()
    expire(document)
    ingest.reap_ingests()
    document.refresh_from_db()
    assert (document.claim, document.stage) == (None, "queued")
    assert sent == [(queue.INGEST, str(document.pk))]


def test_the_reaper_leaves_a_living_ingest_alone(document, sent):
    queue.claim_next_document()
    ingest.reap_ingests()
    assert sent == []


def test_the_reaper_ends_a_document_that_was_lost_too_often(document, sent):
    for _ in range(Document.MAX_ATTEMPTS):
        assert queue.claim_next_document()
        expire(document)
        ingest.reap_ingests()
    document.refresh_from_db()
    assert (document.status, document.error_code) == ("FAILED", "worker_lost")


def test_e66_the_reaper_sends_a_document_that_nobody_took(document, sent):
    ingest.reap_ingests()
    assert sent == []
    Document.objects.update(enqueued_at=timezone.now() - timedelta(seconds=40))
    ingest.reap_ingests()
    ingest.reap_ingests()
    assert sent == [(queue.INGEST, str(document.pk))]


def test_a_worker_that_lost_its_lease_cannot_write(document, sent):
    old = queue.claim_next_document()
    expire(document)
    ingest.reap_ingests()
    new = queue.claim_next_document()
    for change in (renew_lease, queue.complete_document):
        with pytest.raises(LeaseLostError):
            change(old)
    assert not ingest.give_up_document(old.rows(), "x", {})
    renew_lease(new)


@pytest.mark.django_db(transaction=True)
def test_e65_a_long_step_keeps_its_lease(document, tiny_engine, reads, monkeypatch):
    monkeypatch.setattr(Document, "LEASE", timedelta(seconds=0.6))
    monkeypatch.setattr(ingest, "HEARTBEAT", Heartbeat(Document, seconds=0.1))

    def slow():
        leases = set()

        def renewed():
            leases.add(Document.objects.values_list("lease_until", flat=True).get())
            return len(leases) > 6

        wait_until(renewed)
        assert queue.claim_next_document() is None
        return Page(1, "langsam")

    reads(slow)
    assert run(document).status == "COMPLETED"


@pytest.mark.django_db(transaction=True)
def test_a_waiting_reader_is_told_that_the_document_is_gone(document, tiny_engine, monkeypatch):
    monkeypatch.setattr(ingest, "HEARTBEAT", Heartbeat(Document, seconds=0.05))
    seen = []

    def read(*_args, on_wait, **_options):
        def hang():
            services.cancel_document(document=document)
            for _ in range(1000):
                seen.append(threading.Event().wait(0.02))
                on_wait()
            raise AssertionError("nobody stopped the reader")

        return Reading(hang)

    monkeypatch.setattr(ingest, "read_document", read)
    assert run(document).error_code == "cancelled"
    assert len(seen) < 500


WORKER = textwrap.dedent(
    """
    import sys, threading
    from datetime import timedelta
    import django
    django.setup()
    from documents import ingest
    from documents.models import Document
    from jobs.lease import Heartbeat
    Document.LEASE = timedelta(seconds=1.5)
    ingest.HEARTBEAT = Heartbeat(Document, seconds=0.3)
    def hang(*args, **options):
        print("reading", flush=True)
        threading.Event().wait()
    ingest.read_document = hang
    from documents.tasks import ingest_document
    ingest_document(sys.argv[1])
    """
)


@pytest.mark.django_db(transaction=True)
def test_e62_a_document_of_a_killed_worker_is_found_and_finished(document, tiny_engine, sent):
    used = connection.settings_dict
    access = f"{used['USER']}:{used['PASSWORD']}"
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "nura.settings.prod",
        "DATABASE_URL": f"postgresql://{access}@/{used['NAME']}?host={used['HOST']}",
        "NURA_DATA_DIR": str(settings.DATA_DIR),
        "REDIS_URL": settings.REDIS_URL,
    }
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(document.pk)],
        env=environment,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )
    try:
        assert worker.stdout.readline() == b"reading\n"
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    sent.clear()

    def handed_on():
        ingest.reap_ingests()
        return sent

    wait_until(handed_on)
    assert run(document).status == "COMPLETED"
    assert document.attempts == 2
    assert document.chunks.count() == document.chunk_count


def test_the_owner_sees_each_step(document, tiny_engine, monkeypatch):
    from documents import notices

    told = []
    monkeypatch.setattr(notices, "send_notices", lambda user, payload: told.append((user, payload)))
    run(document)
    stages = [payload["data"]["stage"] for _, payload in told]
    assert stages == sorted(stages, key=Document.Stage.values.index)
    assert stages[-1] == "done"
    assert {user for user, _ in told} == {document.owner_id}
    shares = [payload["data"]["progress"] for _, payload in told]
    assert shares == sorted(shares)


def test_notices_are_sparing(owner, sent, tiny_engine, reads, monkeypatch):
    from documents import notices

    told = []
    monkeypatch.setattr(notices, "send_notices", lambda _user, payload: told.append(payload))
    reads(*(Page(number, TEXT) for number in range(1, 200)))
    run(upload(owner))
    assert len(told) < 40


def test_a_notice_without_redis_is_lost_quietly(document, monkeypatch):
    from documents import notices

    away = redis.Redis.from_url("unix:///nowhere/redis.sock")
    monkeypatch.setattr(notices.connections, "get_client", lambda: away)
    notices.notify_document_changed(document)


def test_a_worker_ends_what_was_lost_too_often_when_beat_is_gone(owner, document, sent):
    queue.claim_next_document()
    Document.objects.update(attempts=Document.MAX_ATTEMPTS)
    expire(document)
    connections.get_client().delete("nura:due:documents")
    tasks.ingest_document("sent for nobody")
    document.refresh_from_db()
    assert (document.status, document.error_code) == ("FAILED", "worker_lost")


def test_each_attempt_writes_one_line_without_names_or_text(
    owner, sent, tiny_engine, reads, caplog
):
    caplog.set_level("INFO")
    done = run(upload(owner, name="비밀 계획.md", content="# 비밀\n\n암호는 참새이다."))
    reads(Corrupt(detail="secret words"))
    failed = run(upload(owner, name="다른 비밀.md", content="깨진 글"))
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    (completed,) = [line for line in lines if line["event"] == "ingest_completed"]
    assert completed["document_id"] == str(done.pk)
    assert (completed["owner_id"], completed["bytes"]) == (owner.pk, done.size)
    assert (completed["chunks"], completed["outcome"]) == (done.chunk_count, "COMPLETED")
    assert set(completed["seconds"]) == {"parsing", "chunking", "embedding", "indexing"}
    (ended,) = [line for line in lines if line["event"] == "ingest_failed"]
    assert (ended["document_id"], ended["code"]) == (str(failed.pk), "corrupt")
    for secret in ("비밀", "참새", "secret", "계획"):
        assert secret not in str(lines)

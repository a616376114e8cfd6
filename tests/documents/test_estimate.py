"""How long the queue may still take, judged by the files that were read last."""

from datetime import timedelta

import pytest
from django.utils import timezone

from documents import queue
from documents.models import Document
from documents.queue import ReadingPace
from jobs.lease import renew_lease
from tests.documents.conftest import make_row

pytestmark = pytest.mark.django_db

PDF, MARKDOWN = "application/pdf", "text/markdown"


def read(owner, size, seconds, content_type=MARKDOWN, ago=1.0):
    """A file that took so long and ended `ago` seconds before now."""
    ended = timezone.now() - timedelta(seconds=ago)
    return make_row(
        owner,
        size=size,
        content_type=content_type,
        status="COMPLETED",
        started_at=ended - timedelta(seconds=seconds),
        indexed_at=ended,
    )


def make_waiting(owner, size, count=1, content_type=MARKDOWN, **fields):
    for _ in range(count):
        make_row(owner, size=size, content_type=content_type, **fields)


def left(owner):
    return queue.estimate_queue_seconds(owner.pk)


def test_files_of_each_type_take_what_files_of_the_type_took(owner):
    read(owner, 1_000_000, 100.0, PDF)
    read(owner, 1_000, 0.5, MARKDOWN, ago=0.5)
    make_waiting(owner, 2_000_000, content_type=PDF)
    assert left(owner) == pytest.approx(200, rel=0.01)
    Document.objects.processing().delete()
    make_waiting(owner, 1_000, count=10)
    assert left(owner) == pytest.approx(5, rel=0.01)


def test_small_files_cost_their_start_and_large_ones_their_bytes(owner):
    sizes, all_seconds = (1_000, 2_000, 1_001_000, 2_001_000), (1.0, 1.0, 11.0, 21.0)
    for ago, size, seconds in zip((0.0, 1.0, 2.0, 13.0), sizes, all_seconds, strict=True):
        read(owner, size, seconds, ago=ago)
    make_waiting(owner, 1_000, count=100)
    assert left(owner) == pytest.approx(100, rel=0.05)
    Document.objects.processing().delete()
    make_waiting(owner, 4_000_000)
    assert left(owner) == pytest.approx(41, rel=0.05)


def test_a_type_that_was_not_read_lately_takes_what_all_took(owner):
    read(owner, 1_000, 2.0, PDF)
    make_waiting(owner, 1_000, content_type="application/x-hwp")
    assert left(owner) == pytest.approx(2, rel=0.01)


def test_short_notes_do_not_tell_what_a_scan_takes(owner):
    read(owner, 30, 0.3)
    make_waiting(owner, 400_000, content_type=PDF)
    assert left(owner) is None  # by the byte it was an hour
    lease = queue.claim_next_document()
    Document.objects.filter(pk=lease.job_id).update(
        started_at=timezone.now() - timedelta(seconds=10), progress=0.25
    )
    Document.objects.filter(pk=lease.job_id).update(updated_at=timezone.now())
    assert left(owner) == pytest.approx(30, rel=0.05)


def test_an_idle_hour_between_two_uploads_makes_the_second_no_slower(owner):
    read(owner, 1_000, 1.0, ago=250)
    make_waiting(owner, 1_000, count=10)
    queue.claim_next_document()
    assert left(owner) == pytest.approx(10, rel=0.01)


def test_what_is_done_of_a_file_at_work_is_not_left(owner):
    read(owner, 1_000, 10.0)
    make_waiting(owner, 1_000)
    renew_lease(queue.claim_next_document(), progress=0.75)
    assert left(owner) == pytest.approx(2.5, rel=0.01)


def test_others_take_turns_and_no_more_than_they_need(owner, stranger):
    read(owner, 1_000, 1.0)
    make_waiting(owner, 1_000, count=10)
    make_waiting(stranger, 1_000, count=3)
    assert left(owner) == pytest.approx(13, rel=0.01)
    assert left(stranger) == pytest.approx(6, rel=0.01)


def test_two_workers_need_half_the_time(owner):
    read(owner, 1_000, 1.0)
    make_waiting(owner, 1_000, count=10)
    for _ in range(2):
        queue.claim_next_document()
    assert left(owner) == pytest.approx(5, rel=0.01)


def test_a_worker_between_two_files_does_not_double_the_time(owner):
    for ago in (1.0, 1.0, 2.0, 2.0):
        read(owner, 1_000, 1.0, ago=ago)
    make_waiting(owner, 1_000, count=10)
    queue.claim_next_document()
    assert left(owner) == pytest.approx(5, rel=0.01)


def test_a_file_read_while_another_one_waits_for_recognition_is_not_counted_twice(owner):
    for ago in range(10):
        read(owner, 1_000, 1.0, ago=ago)
    read(owner, 100_000, 20.0, PDF, ago=0)  # by the same worker: its own share is 10 seconds
    make_waiting(owner, 100_000, count=2, content_type=PDF)
    assert left(owner) == pytest.approx(2 * 20 / 1.5, rel=0.01)


def test_a_large_file_at_work_tells_what_small_ones_did_not(owner):
    for number in range(20):
        read(owner, 1_000 + number, 0.5, PDF, ago=10.0 + number)
    make_waiting(owner, 1_000_000, content_type=PDF)
    lease = queue.claim_next_document()
    Document.objects.filter(pk=lease.job_id).update(
        started_at=timezone.now() - timedelta(seconds=10), progress=0.5
    )
    Document.objects.filter(pk=lease.job_id).update(updated_at=timezone.now())
    make_waiting(owner, 1_000_000, content_type=PDF)
    assert 15 < left(owner) < 40  # 5 for the rest, and 20; by small files alone it was 750


def test_paused_files_are_not_counted(owner):
    read(owner, 1_000, 1.0)
    make_waiting(owner, 1_000, count=2)
    make_waiting(owner, 1_000, count=5, stage="paused")
    assert left(owner) == pytest.approx(2, rel=0.01)


def test_nobody_knows_before_a_file_was_read(owner):
    make_waiting(owner, 1_000)
    queue.claim_next_document()
    assert left(owner) is None


def test_nobody_knows_while_no_worker_lives(owner):
    read(owner, 1_000, 1.0, ago=queue.IDLE_PERIOD.total_seconds() + 5)
    make_waiting(owner, 1_000)
    assert left(owner) is None


def test_who_has_nothing_waiting_waits_for_nothing(owner, stranger):
    make_waiting(stranger, 1_000)
    assert left(owner) == 0.0


@pytest.mark.parametrize(
    ("sizes", "seconds"),
    [((1_000, 1_001, 1_002), (3.0, 1.0, 2.0)), ((10, 5_000), (4.0, 1.0)), ((1, 900), (0.0, 9.0))],
)
def test_no_pace_has_a_part_below_nothing(sizes, seconds):
    pace = ReadingPace.fit(sizes, seconds)
    assert min(pace.per_file, pace.per_byte) >= 0
    assert pace.seconds(len(sizes), sum(sizes)) == pytest.approx(sum(seconds))

"""What becomes of jobs whose worker is gone, and of those that nobody was told of."""

import threading
from datetime import timedelta

import pytest
from django.utils import timezone
from redis.exceptions import ConnectionError as RedisGone

from jobs import connections, lease
from jobs.lease import RELEASED, Heartbeat, LeaseLostError, claim_job
from tests.jobs.conftest import Errand

LONG_AGO = timedelta(minutes=1)


@pytest.fixture
def told():
    return []


def lose(row):
    Errand.objects.filter(pk=row.pk).update(lease_until=timezone.now() - LONG_AGO)


def reap(told, **ways):
    def give_up(lease):
        lease.rows().update(ended=True, place="given up", **RELEASED)

    return lease.reap_lost_jobs(Errand, announce=told.append, give_up=give_up, **ways)


def test_a_lost_job_is_handed_on_until_it_had_its_attempts(errands, told):
    row = errands.create()
    for attempt in (1, 2, 3):
        assert claim_job(Errand, row.pk) is not None
        assert reap(told) == []
        lose(row)
        assert reap(told) == [row.pk]
        assert len(told) == min(attempt, 2)
    row.refresh_from_db()
    assert (row.ended, row.place, row.attempts) == (True, "given up", 3)


def test_reaping_twice_does_nothing_more(errands, told):
    row = errands.create()
    claim_job(Errand, row.pk)
    lose(row)
    reap(told)
    assert reap(told) == []
    assert told == [row.pk]


def test_a_kind_of_job_may_resolve_what_was_lost_by_itself(errands, told):
    row = errands.create()
    claim_job(Errand, row.pk)
    lose(row)

    def resolve(lease):
        return bool(lease.rows().update(ended=True, place="resolved"))

    assert reap(told, resolve=resolve) == [row.pk]
    assert told == []
    row.refresh_from_db()
    assert row.place == "resolved"


def test_workers_are_told_again_of_what_nobody_took(errands, told):
    now = timezone.now()
    errands.create(enqueued_at=now)
    late = errands.create(enqueued_at=now - LONG_AGO)
    never = errands.create()
    resting = {"lease_until": now + LONG_AGO, "enqueued_at": now - LONG_AGO}
    errands.create(**resting)

    def announce():
        return lease.announce_unclaimed_jobs(
            Errand, announce=told.append, patience=timedelta(seconds=30)
        )

    assert set(announce()) == {late.pk, never.pk} == set(told)
    assert announce() == []


def test_one_of_several_processes_does_what_is_due(db):
    connections.get_client().flushdb()
    assert lease.claim_turn("errands", 60)
    assert not lease.claim_turn("errands", 60)


def test_what_is_due_is_done_by_each_while_redis_is_away(monkeypatch):
    class Away:
        def set(self, *_args, **_options):
            raise RedisGone

    monkeypatch.setattr(connections, "get_client", Away)
    assert lease.claim_turn("errands", 60)
    assert lease.claim_turn("errands", 60)


def test_a_heartbeat_renews_all_leases_and_tells_of_a_lost_one(errands):
    leases = [claim_job(Errand, errands.create().pk) for _ in range(2)]
    lost = threading.Event()
    heartbeat = Heartbeat(Errand, seconds=0.01)
    with heartbeat.hold(leases[0]) as first, heartbeat.hold(leases[1], lost.set) as second:
        errands.filter(pk=leases[1].job_id).update(claim=None)
        assert lost.wait(5)
        assert second.is_lost
        with pytest.raises(LeaseLostError):
            second.check()
        first.check()


def test_a_heartbeat_goes_on_after_a_pause(errands):
    heartbeat = Heartbeat(Errand, seconds=0.01)
    for _ in range(2):
        row = errands.create()
        lease = claim_job(Errand, row.pk)
        lost = threading.Event()
        with heartbeat.hold(lease, lost.set):
            errands.filter(pk=row.pk).update(ended=True)
            assert lost.wait(5)

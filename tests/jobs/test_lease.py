"""Who works on a job, and who comes next."""

import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from documents.models import Document
from jobs.lease import (
    RELEASED,
    LeaseLostError,
    claim_job,
    claim_next_jobs,
    release_lease,
    renew_lease,
    renew_leases,
    select_jobs_at_work,
    select_waiting_jobs,
)
from tests.jobs.conftest import Errand


def expire(row):
    Errand.objects.filter(pk=row.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def list_owners(leases):
    return [Errand.objects.get(pk=lease.job_id).owner for lease in leases]


def test_a_job_is_claimed_once(errands):
    row = errands.create()
    lease = claim_job(Errand, row.pk)
    assert lease is not None
    assert claim_job(Errand, row.pk) is None
    row.refresh_from_db()
    assert (row.claim, row.attempts) == (lease.token, 1)
    assert row.started_at is not None
    assert list(select_jobs_at_work(Errand)) == [row]


def test_a_job_whose_lease_ran_out_is_anybodys_and_the_late_worker_changes_nothing(errands):
    row = errands.create()
    late = claim_job(Errand, row.pk)
    expire(row)
    lease = claim_job(Errand, row.pk)
    assert lease is not None
    assert not late.rows().exists()
    assert not release_lease(late)
    with pytest.raises(LeaseLostError):
        renew_lease(late)
    renew_lease(lease, place="there")
    row.refresh_from_db()
    assert row.place == "there"


def test_of_two_claims_at_once_one_gets_the_job(errands):
    row = errands.create()
    found = []

    def claim():
        found.append(claim_job(Errand, row.pk))
        connection.close()

    other = threading.Thread(target=claim)
    with transaction.atomic():
        first = claim_job(Errand, row.pk)
        other.start()
        other.join(0.3)  # it waits for the row
    other.join()
    assert first is not None
    assert found == [None]


def test_a_job_that_had_all_its_attempts_waits_for_the_reaper_alone(errands):
    row = errands.create(attempts=3)
    assert claim_job(Errand, row.pk) is None
    assert claim_next_jobs(Errand) == []
    assert claim_job(Errand, row.pk, is_attempt=False) is not None


def test_a_job_that_rests_is_nobodys_for_a_while(errands):
    row = errands.create()
    lease = claim_job(Errand, row.pk)
    assert release_lease(lease, delay=timedelta(seconds=5))
    assert claim_job(Errand, row.pk) is None
    assert claim_next_jobs(Errand) == []
    assert not select_waiting_jobs(Errand).exists()
    expire(row)
    assert claim_job(Errand, row.pk) is not None


def test_a_job_is_released_for_so_many_attempts_and_no_more(errands):
    lease = claim_job(Errand, errands.create().pk)
    assert not release_lease(lease, max_attempts=1)
    assert release_lease(lease, max_attempts=2)


def test_a_job_that_has_ended_is_held_by_nobody(errands):
    lease = claim_job(Errand, errands.create().pk)
    assert lease.rows().update(ended=True, **RELEASED)
    assert renew_leases([lease]) == set()
    assert claim_job(Errand, lease.job_id, is_attempt=False) is None


def test_many_leases_are_renewed_in_one_statement(errands, django_assert_num_queries):
    leases = [claim_job(Errand, errands.create().pk) for _ in range(5)]
    with django_assert_num_queries(1):
        assert renew_leases(leases) == set(leases)
    release_lease(leases[0])
    assert renew_leases(leases) == set(leases[1:])


def test_one_job_of_another_owner_comes_next_before_a_thousand(errands):
    errands.bulk_create(Errand(owner=1) for _ in range(30))
    assert list_owners(claim_next_jobs(Errand)) == [1]
    errands.create(owner=2)
    assert list_owners(claim_next_jobs(Errand)) == [2]
    assert list_owners(claim_next_jobs(Errand)) == [1]


def test_owners_take_turns_with_one_worker_too(errands):
    for owner in (1, 1, 1, 2, 2, 2):
        errands.create(owner=owner)
    seen = []
    for _ in range(6):
        leases = claim_next_jobs(Errand)
        seen += list_owners(leases)
        leases[0].rows().update(ended=True, **RELEASED)
    assert seen == [1, 2, 1, 2, 1, 2]


def test_owners_take_turns_within_one_claim_of_many(errands):
    errands.bulk_create(Errand(owner=1) for _ in range(9))
    errands.bulk_create(Errand(owner=2) for _ in range(2))
    leases = claim_next_jobs(Errand, limit=5)
    assert sorted(list_owners(leases)) == [1, 1, 1, 2, 2]
    assert len({lease.token for lease in leases}) == 5


def test_of_an_owners_jobs_the_oldest_comes_first(errands):
    keys = [errands.create().pk for _ in range(3)]
    assert [claim_next_jobs(Errand)[0].job_id for _ in range(3)] == keys
    assert claim_next_jobs(Errand) == []


def test_jobs_that_others_are_claiming_are_passed_over(errands):
    keys = [errands.create().pk for _ in range(2)]
    found = []

    def claim():
        found.extend(claim_next_jobs(Errand))
        connection.close()

    other = threading.Thread(target=claim)
    with transaction.atomic():
        mine = claim_next_jobs(Errand)
        other.start()
        other.join()
    assert [lease.job_id for lease in mine + found] == keys


def test_what_is_written_with_a_claim_is_plain_values(errands):
    errands.create()
    lease = claim_next_jobs(Errand, place="50 % of O'Hara's")[0]
    assert Errand.objects.get(pk=lease.job_id).place == "50 % of O'Hara's"


def test_no_owner_has_more_at_work_than_one_may_however_much_room_there_is(errands):
    for owner in (1, 1, 1, 1, 2):
        errands.create(owner=owner)
    assert sorted(list_owners(claim_next_jobs(Errand, limit=10, limit_per_owner=2))) == [1, 1, 2]
    assert claim_next_jobs(Errand, limit=10, limit_per_owner=2) == []
    Errand.objects.filter(owner=1, claim__isnull=False).first().delete()
    assert list_owners(claim_next_jobs(Errand, limit=10, limit_per_owner=2)) == [1]


def test_of_some_jobs_alone_the_owners_take_turns_by_all_that_they_have_at_work(errands):
    for owner, place in ((1, "far"), (1, "near"), (2, "far"), (2, "near")):
        errands.create(owner=owner, place=place)
    assert list_owners(claim_next_jobs(Errand)) == [1]  # to far away
    near = Q(place="near")
    assert list_owners(claim_next_jobs(Errand, condition=near)) == [2]
    assert list_owners(claim_next_jobs(Errand, condition=near)) == [1]
    assert claim_next_jobs(Errand, condition=near) == []
    assert [one.place for one in select_waiting_jobs(Errand)] == ["far"]


@pytest.mark.django_db(transaction=True)
def test_the_jobs_of_an_owner_who_is_not_active_neither_begin_nor_go_on():
    owner = User.objects.create_user("owner")
    document = Document.objects.create(owner=owner, name="a", file="a", size=1, sha256="0")
    held = claim_job(Document, document.pk)
    assert renew_leases([held]) == {held}
    User.objects.update(is_active=False)
    assert renew_leases([held]) == set()
    with pytest.raises(LeaseLostError):
        renew_lease(held)
    assert release_lease(held)
    assert claim_job(Document, document.pk) is None
    assert claim_next_jobs(Document) == []
    assert not select_waiting_jobs(Document).exists()
    User.objects.update(is_active=True)
    assert len(claim_next_jobs(Document)) == 1

"""What becomes of runs whose worker is gone."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import transaction
from django.utils import timezone

from chats.models import Message, Run
from chats.runs import answering, log
from chats.runs.worker import reap_runs
from chats.services.turn_store import AnswerOutcome
from chats.services.turns import close_turn, open_turn
from jobs.connections import run_and_release
from jobs.lease import claim_job
from tests.locks import has_waiting
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def turn(owner):
    return open_turn(user=owner, content="질문")


def die(turn, content=""):
    """The worker took the run, perhaps kept some text, and has not been heard of since."""
    lease = claim_job(Run, turn.run.pk)
    answering.save_texts({lease: content})
    past = timezone.now() - timedelta(seconds=1)
    Run.objects.filter(pk=turn.run.pk).update(lease_until=past)


def load_message(turn):
    return Message.objects.get(pk=turn.assistant_message.pk)


CLAIMS = pytest.mark.parametrize(
    "claim", [lambda run_id: claim_job(Run, run_id), answering.claim_run], ids=["alone", "and read"]
)


@CLAIMS
def test_a_claim_that_waited_while_the_run_was_answered_gets_nothing(turn, claim):
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Run.objects.select_for_update().get(pk=turn.run.pk)
            late = pool.submit(run_and_release, claim, turn.run.pk)
            wait_until(has_waiting)  # it has seen a run that nobody holds, and waits for its row
            lease = claim_job(Run, turn.run.pk)
            outcome = AnswerOutcome(status=Message.Status.COMPLETED, content="답")
            assert close_turn(lease=lease, outcome=outcome)
        assert not late.result(20)


@CLAIMS
def test_of_two_claims_at_once_one_gets_the_run(turn, claim):
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Run.objects.select_for_update().get(pk=turn.run.pk)
            late = pool.submit(run_and_release, claim, turn.run.pk)
            wait_until(has_waiting)
            assert claim_job(Run, turn.run.pk)
        assert not late.result(20)


def test_a_claimed_run_cannot_be_claimed_again(turn):
    assert claim_job(Run, turn.run.pk)
    assert claim_job(Run, turn.run.pk) is None


def test_a_run_is_taken_and_read_by_one(turn):
    (claimed,) = answering.claim_run(turn.run.pk)
    assert (claimed.run.pk, claimed.run.attempts) == (turn.run.pk, 1)
    assert claimed.run.message.parent == turn.user_message
    assert answering.claim_run(turn.run.pk) == []
    assert Run.objects.get(pk=turn.run.pk).claim == claimed.lease.token
    assert answering.claim_run(uuid4()) == []


def test_a_lost_run_with_text_ends_interrupted_and_keeps_it(turn):
    die(turn, "반쯤")
    reap_runs()
    message = load_message(turn)
    assert (message.status, message.content) == ("INTERRUPTED", "반쯤")
    last = log.load_events(turn.run.pk)[-1]
    assert (last.type, last.data["code"]) == ("run.error", "interrupted")
    assert log.join_text(log.load_events(turn.run.pk)) == "반쯤"


def test_text_that_only_the_log_knows_is_kept_too(turn):
    die(turn)
    log.append_events(turn.run.pk, [log.RunEvent(2, "delta", {"text": "반쯤"})])
    reap_runs()
    assert load_message(turn).content == "반쯤"


def test_a_lost_run_that_said_nothing_runs_again_but_not_for_ever(turn):
    die(turn)
    reap_runs()
    assert load_message(turn).status == "STREAMING"
    assert claim_job(Run, turn.run.pk)
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    reap_runs()
    assert load_message(turn).status == "INTERRUPTED"


def test_a_lost_run_that_was_to_stop_ends_stopped(turn):
    die(turn, "반쯤")
    log.request_stop(turn.run.pk)
    reap_runs()
    assert load_message(turn).status == "STOPPED"


def test_a_run_with_a_live_worker_is_left_alone(turn):
    claim_job(Run, turn.run.pk)
    assert reap_runs() == 0


def test_a_run_that_nobody_took_is_enqueued_again(turn):
    old = timezone.now() - timedelta(seconds=60)
    Run.objects.update(enqueued_at=old)
    assert reap_runs() == 1
    assert Run.objects.get().enqueued_at > old

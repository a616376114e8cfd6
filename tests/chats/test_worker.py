"""An answers process: what wakes it, how much it takes, and how it ends."""

import asyncio
import threading
from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from chats.models import Message, Run
from chats.runs import answering, dispatch, log, worker
from chats.services.turns import open_turn
from jobs import connections, queue
from jobs.lease import claim_job
from jobs.queue import WorkStream
from tests.chats.engines import Delta, ScriptedEngine, make_finished
from tests.servers.worker import run_worker
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class Gate:
    """An engine whose answers wait until they are let go."""

    def __init__(self):
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()
        self.order = []

    async def answer(self, question, store, history=None):
        self.order.append(question.text)
        self.begun.release()
        await asyncio.to_thread(self.may_end.wait, 10)
        yield Delta("답")
        yield make_finished()


@pytest.fixture
def gate(monkeypatch):
    made = Gate()
    monkeypatch.setattr(answering, "get_engine", lambda _: made)
    yield made
    made.may_end.set()


@pytest.fixture
def plug_quick_engine(monkeypatch):
    monkeypatch.setattr(
        answering, "get_engine", lambda _: ScriptedEngine(Delta("답"), make_finished())
    )


def ask(owner, text="질문"):
    return open_turn(user=owner, content=text)


def get_status(turn):
    return Message.objects.get(pk=turn.assistant_message.pk).status


def has_ended(turn):
    return get_status(turn) == "COMPLETED"


def test_many_runs_are_answered_at_once(owner, gate):
    turns = [ask(owner) for _ in range(20)]
    with run_worker():
        for _ in turns:
            assert gate.begun.acquire(timeout=10)
        gate.may_end.set()
        wait_until(lambda: all(map(has_ended, turns)))


def test_beyond_what_a_process_takes_runs_wait_and_owners_take_turns(
    owner, stranger, gate, monkeypatch
):
    monkeypatch.setattr(worker, "MAX_TASKS", 1)
    for number in range(3):
        ask(owner, f"그의 {number}")
    with run_worker():
        assert gate.begun.acquire(timeout=10)
        turn = ask(stranger, "다른 사람의 것")
        assert not gate.begun.acquire(timeout=0.3)
        gate.may_end.set()
        wait_until(lambda: has_ended(turn))
    assert gate.order[1] == "다른 사람의 것"


def test_what_nobody_was_told_of_is_found_when_a_worker_comes(owner, plug_quick_engine):
    turn = ask(owner)
    connections.get_client().flushdb()
    with run_worker():
        wait_until(lambda: has_ended(turn))


def test_a_redis_that_forgot_everything_is_served_on(owner, plug_quick_engine):
    with run_worker():
        wait_until(lambda: connections.get_client().exists(dispatch.STREAM.key))
        connections.get_client().flushdb()
        turn = ask(owner)
        wait_until(lambda: has_ended(turn))


STRANGE = {
    "an id that is none": {"kind": "run", "id": "?"},
    "no kind": {"id": str(uuid4())},
    "nothing asked": {"kind": "request", "id": str(uuid4())},
    "no JSON": {"kind": "request", "id": str(uuid4()), "body": "{"},
}


@pytest.mark.parametrize("fields", STRANGE.values(), ids=STRANGE)
def test_a_message_that_nobody_understands_makes_no_worker_deaf(owner, plug_quick_engine, fields):
    with run_worker():
        connections.get_client().xadd(dispatch.STREAM.key, fields)
        turn = ask(owner)
        wait_until(lambda: has_ended(turn))
        wait_until(lambda: not connections.get_client().xlen(dispatch.STREAM.key))


@pytest.mark.parametrize("fields", STRANGE.values(), ids=STRANGE)
def test_a_message_that_nobody_understands_takes_no_other_with_it(owner, fields):
    connections.get_client().xadd(dispatch.STREAM.key, fields)
    request = dispatch.send_request("job", {"job": "title_generation", "messages": []})
    with run_worker():
        wait_until(lambda: log.load_events(request))


def test_a_run_that_nobody_took_is_announced_again(owner, plug_quick_engine, monkeypatch):
    monkeypatch.setitem(worker.REAPING_SECONDS, "runs", 0.05)
    with run_worker():
        with monkeypatch.context() as patch:
            patch.setattr(dispatch.STREAM, "add_entry", lambda *_: None)
            turn = ask(owner)
        Run.objects.update(enqueued_at=timezone.now() - timedelta(minutes=1))
        wait_until(lambda: has_ended(turn))


def test_a_message_that_a_dead_process_had_read_is_taken_over(
    owner, plug_quick_engine, monkeypatch
):
    monkeypatch.setattr(queue, "ABANDONED_SECONDS", 0.0)
    monkeypatch.setattr(worker, "READ_SECONDS", 0.05)
    dead = WorkStream(dispatch.STREAM.key)

    async def read():
        await dead.create_group()
        return await dead.read(limit=9, patience=0.1)

    request = dispatch.send_request("job", {"job": "title_generation", "messages": []})
    assert asyncio.run(read())
    with run_worker():
        wait_until(lambda: log.load_events(request))


def test_a_request_that_waited_too_long_is_not_begun(owner, monkeypatch):
    monkeypatch.setattr(worker, "QUEUE_SECONDS", -1.0)
    request = dispatch.send_request("job", {"job": "title_generation", "messages": []})
    with run_worker():
        wait_until(lambda: not connections.get_client().xlen(dispatch.STREAM.key))
    assert not log.load_events(request)


def test_a_worker_that_leaves_takes_no_more_and_lets_answers_finish(owner, gate):
    turn = ask(owner)
    with run_worker() as one:
        assert gate.begun.acquire(timeout=10)
        left = threading.Event()
        one.on_stop = left.set
        late = threading.Thread(target=lambda: (left.wait(10), gate.may_end.set()))
        late.start()
    late.join()
    assert has_ended(turn)
    waiting = ask(owner)
    assert get_status(waiting) == "STREAMING"
    assert len(gate.order) == 1


def test_what_has_not_ended_in_time_is_handed_on(owner, gate):
    turn = ask(owner)
    with run_worker(patience=0.1):
        assert gate.begun.acquire(timeout=10)
        threading.Timer(0.5, gate.may_end.set).start()  # a thread that is under way is waited for
    assert get_status(turn) == "STREAMING"
    assert claim_job(Run, turn.run.pk) is not None


def test_a_run_logs_under_the_id_of_the_request_that_asked(owner, plug_quick_engine, caplog):
    with caplog.at_level("INFO"), run_worker():
        first = ask(owner)
        wait_until(lambda: has_ended(first))  # from then on only messages tell of runs
        with bound_contextvars(request_id="edge-0123456789"):
            turn = ask(owner)
        wait_until(lambda: has_ended(turn))
    lines = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    line = [one for one in lines if one["event"] == "run_ended"][-1]
    assert line["request_id"] == "edge-0123456789"


def test_an_owner_has_so_many_answers_at_work_and_the_next_begins_as_one_ends(
    owner, stranger, gate, settings, monkeypatch
):
    monkeypatch.setattr(worker, "MAX_UNCLAIMED", timedelta(hours=1))  # nobody reminds the worker
    settings.LIMITS = settings.LIMITS | {"answers": 2}
    turns = [ask(owner, f"{number}") for number in range(5)]
    with run_worker():
        for _ in range(2):
            assert gate.begun.acquire(timeout=10)
        other = ask(stranger, "다른 사람의 것")
        assert gate.begun.acquire(timeout=10)
        assert gate.order[2] == "다른 사람의 것"
        assert not gate.begun.acquire(timeout=0.5)
        gate.may_end.set()
        wait_until(lambda: all(map(has_ended, [*turns, other])), 60)

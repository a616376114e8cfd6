"""The loop of an answers worker: what is handed to it, and how it ends."""

import asyncio
import threading
import uuid

import pytest

from chats import keeping, loop
from chats.runs.writer import RunWriter
from chats.services import leases


@pytest.fixture(autouse=True)
def _ends():
    yield
    loop.close()


class Work:
    """Coroutines that wait until they are let go."""

    def __init__(self):
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()
        self.ended = []

    async def one(self, name="one"):
        self.begun.release()
        try:
            await asyncio.to_thread(self.may_end.wait, 10)
            self.ended.append(name)
        except asyncio.CancelledError:
            self.may_end.set()
            self.ended.append("cut off")
            raise


def test_who_hands_over_waits_for_nothing():
    work = Work()
    for _ in range(40):
        assert loop.hand_over(work.one())
    for _ in range(40):
        assert work.begun.acquire(timeout=5)
    work.may_end.set()


def test_beyond_what_it_takes_at_once_it_waits_for_room(monkeypatch):
    monkeypatch.setattr(loop, "AT_ONCE", 1)
    work = Work()
    loop.hand_over(work.one())
    second = threading.Thread(target=lambda: loop.hand_over(work.one()))
    second.start()
    assert work.begun.acquire(timeout=5)
    assert not work.begun.acquire(timeout=0.1)
    work.may_end.set()
    assert work.begun.acquire(timeout=5)
    second.join(5)


def test_a_loop_that_is_left_takes_no_more_and_lets_work_finish():
    work = Work()
    loop.hand_over(work.one())
    assert work.begun.acquire(timeout=5)
    loop.leave(10)
    assert not loop.hand_over(work.one("late"))
    threading.Timer(0.1, work.may_end.set).start()
    loop.close()
    assert work.ended == ["one"]


def test_what_has_not_ended_in_time_is_cut_off():
    work = Work()
    loop.hand_over(work.one())
    assert work.begun.acquire(timeout=5)
    loop.leave(0.1)
    loop.close()
    assert work.ended == ["cut off"]


class Call:
    """A call that takes a moment longer than who waits for it."""

    def __init__(self):
        self.begun, self.may_end, self.has_ended = threading.Event(), threading.Event(), False

    def __call__(self, **_given):
        self.begun.set()
        self.may_end.wait(10)
        self.has_ended = True
        return set()

    def end_the_loop(self):
        assert self.begun.wait(5)
        threading.Timer(0.2, self.may_end.set).start()
        loop.leave(0)
        loop.close()


def test_a_call_in_a_thread_has_ended_when_the_loop_has():
    call = Call()
    loop.hand_over(asyncio.to_thread(call))
    call.end_the_loop()
    assert call.has_ended


def test_a_sign_of_life_that_is_under_way_has_ended_when_the_loop_has(monkeypatch):
    call = Call()
    monkeypatch.setattr(leases, "renew", call)
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)

    async def hold():
        claim = leases.Claim(uuid.uuid4(), uuid.uuid4())
        with keeping.held(claim, RunWriter(claim.run_id)):
            await asyncio.sleep(10)

    loop.hand_over(hold())
    call.end_the_loop()
    assert call.has_ended


def test_after_its_end_a_new_one_begins():
    loop.leave(0)
    loop.close()
    assert loop.run(asyncio.sleep(0, "again")) == "again"
    work = Work()
    assert loop.hand_over(work.one())
    work.may_end.set()

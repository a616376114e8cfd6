"""The loop of an answers worker: what is handed to it, and how it ends."""

import asyncio
import threading

import pytest

from chats import loop


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


def test_after_its_end_a_new_one_begins():
    loop.leave(0)
    loop.close()
    assert loop.run(asyncio.sleep(0, "again")) == "again"
    work = Work()
    assert loop.hand_over(work.one())
    work.may_end.set()

import asyncio
import contextlib
import threading

import pytest

from jobs import fairness
from jobs.fairness import FairPlaces, FairThreads, TooManyWaitingError, work_for
from tests.support import wait_until


@pytest.fixture
def threads():
    executor = FairThreads(4, 2)
    yield executor
    executor.shutdown(cancel_futures=True)


class Work:
    """Calls that last until they are let go; `begun` names their owners in order."""

    def __init__(self, executor):
        self._executor = executor
        self.begun = []
        self._go = threading.Semaphore(0)

    def add(self, owner, count=1):
        with work_for(owner):
            return [self._executor.submit(self._do, owner) for _ in range(count)]

    def let_go(self, count):
        self._go.release(count)

    def _do(self, owner):
        self.begun.append(owner)
        self._go.acquire()


def test_one_owner_never_has_all_threads(threads):
    work = Work(threads)
    work.add("greedy", 50)
    wait_until(lambda: len(work.begun) == 2)
    work.add("other")
    wait_until(lambda: work.begun == ["greedy", "greedy", "other"])
    work.let_go(51)


def test_owners_take_turns_where_all_threads_are_taken(threads):
    work = Work(threads)
    first = [*work.add("greedy", 20), *work.add("busy", 20)]
    wait_until(lambda: len(work.begun) == 4)
    (others,) = work.add("other")
    work.let_go(1)
    wait_until(lambda: len(work.begun) == 5)
    assert work.begun[-1] == "other"
    work.let_go(40)
    for future in (*first, others):
        future.result(10)


def test_housekeeping_is_nobodys_and_has_no_bound(threads):
    work = Work(threads)
    work.add(fairness.NOBODY, 4)
    wait_until(lambda: len(work.begun) == 4)
    work.let_go(4)


def test_a_call_hands_on_its_result_and_its_error(threads):
    assert threads.submit(lambda: 7).result(5) == 7
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(5)


async def test_a_loop_takes_its_threads_by_the_owner_of_the_task(threads):
    asyncio.get_running_loop().set_default_executor(threads)
    with work_for("somebody"):
        assert await asyncio.to_thread(fairness.get_owner) == "somebody"


async def test_who_waits_for_a_place_waits_in_the_loop_and_in_turn():
    places, order, gates = FairPlaces(2, 1), [], {}

    async def visit(owner, number):
        async with places.hold(owner):
            order.append((owner, number))
            await gates.setdefault(owner, asyncio.Event()).wait()

    tasks = [asyncio.create_task(visit("greedy", number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(visit("other", 0)))
    await asyncio.sleep(0)
    assert order == [("greedy", 0), ("other", 0)]
    for gate in gates.values():
        gate.set()
    await asyncio.gather(*tasks)
    assert len(order) == 4


async def test_a_place_that_nobody_waits_for_any_more_goes_to_the_next():
    places = FairPlaces(1, 1)
    await places.acquire("one")
    leaver = asyncio.create_task(places.acquire("one"))
    stayer = asyncio.create_task(places.acquire("two"))
    await asyncio.sleep(0)
    leaver.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await leaver
    places.release("one")
    await asyncio.wait_for(stayer, 1)


async def test_a_queue_that_is_full_says_so():
    places = FairPlaces(1, 1, max_waiting_per_owner=1)
    await places.acquire("one")
    waiting = asyncio.create_task(places.acquire("one"))
    await asyncio.sleep(0)
    with pytest.raises(TooManyWaitingError):
        await places.acquire("one")
    places.release("one")
    await waiting
    places.release("one")


async def test_a_place_is_left_from_a_thread_as_soon_as_only_waiting_is_left():
    places = FairPlaces(1, 1)
    await places.acquire("one")
    with fairness.hold_place(lambda: places.release("one")):
        await asyncio.to_thread(fairness.release_place)
        await asyncio.wait_for(places.acquire("two"), 1)
    places.release("two")

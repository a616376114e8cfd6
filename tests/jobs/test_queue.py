"""Messages that wake workers, and what is shared by the coroutines of one loop."""

import asyncio

import pytest
import redis.asyncio
from redis.exceptions import ConnectionError as RedisGone

from jobs import connections, queue
from jobs.background import LoopTask, stop_loop_tasks
from jobs.queue import WorkMessage, WorkStream


@pytest.fixture(autouse=True)
def _empty_redis(db):
    connections.get_client().flushdb()


def list_texts(messages):
    return [message.fields["text"] for message in messages]


def test_a_message_goes_to_one_of_several_readers():
    one, other = WorkStream("errands"), WorkStream("errands")
    for text in "abc":
        assert one.send({"text": text})

    async def read():
        found = [await one.read(limit=9, patience=0.01)]  # makes the group
        found += [await one.read(limit=2, patience=0.01), await other.read(limit=9, patience=0.01)]
        await one.acknowledge(found[1])
        return [list_texts(part) for part in found], await connections.get_async_client().xlen(
            one.key
        )

    assert asyncio.run(read()) == ([[], ["a", "b"], ["c"]], 1)


def test_what_a_dead_reader_left_is_taken_over(monkeypatch):
    dead, living = WorkStream("errands"), WorkStream("errands")
    dead.send({"text": "left"})

    async def read():
        await dead.create_group()
        await dead.read(limit=1, patience=0.01)
        early = await living.claim_abandoned(limit=9)
        monkeypatch.setattr(queue, "ABANDONED_SECONDS", 0.0)
        late = await living.claim_abandoned(limit=9)
        await living.acknowledge(late)
        await living.remove_idle_readers()
        await dead.remove_idle_readers()
        readers = await connections.get_async_client().xinfo_consumers("errands", "workers")
        return list_texts(early), list_texts(late), readers

    assert asyncio.run(read()) == ([], ["left"], [])


def test_a_redis_that_forgot_the_group_is_told_of_it_again():
    stream = WorkStream("errands")

    async def read():
        await stream.create_group()
        waiting = asyncio.create_task(stream.read(limit=1, patience=5))
        while not (await connections.get_async_client().info("clients"))["blocked_clients"]:
            await asyncio.sleep(0)
        await connections.get_async_client().flushdb()
        stream.send({"text": "after"})
        found = await waiting
        return list_texts(found or await stream.read(limit=1, patience=5))

    assert asyncio.run(read()) == ["after"]


MESSAGE = WorkMessage("1-0", {})


@pytest.mark.parametrize(
    "ask",
    [
        lambda stream: stream.create_group(),
        lambda stream: stream.read(limit=1, patience=0.01),
        lambda stream: stream.acknowledge([MESSAGE]),
        lambda stream: stream.claim_abandoned(limit=1),
        lambda stream: stream.remove_idle_readers(),
    ],
    ids=["create_group", "read", "acknowledge", "claim_abandoned", "remove_idle_readers"],
)
def test_a_redis_that_hangs_is_not_waited_for_for_ever(ask, monkeypatch):
    monkeypatch.setattr(connections, "HANGING_SECONDS", 0.0)

    async def wait():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)  # it says nothing
        port = server.sockets[0].getsockname()[1]
        hanging = redis.asyncio.Redis(port=port)
        monkeypatch.setattr(connections, "get_async_client", lambda: hanging)
        asking = asyncio.create_task(ask(WorkStream("errands")))
        done, _ = await asyncio.wait({asking}, timeout=5)
        server.close()
        return [task.exception() for task in done]

    (error,) = asyncio.run(wait())
    assert isinstance(error, TimeoutError)


def test_a_redis_that_is_away_fails_no_sender(monkeypatch):
    class Away:
        def xadd(self, *_args, **_options):
            raise RedisGone

    monkeypatch.setattr(connections, "get_client", Away)
    assert not WorkStream("errands").send({"text": "a"})


def test_the_id_of_a_task_says_what_it_is_for():
    first, second = (queue.make_task_id("ingest", 7) for _ in range(2))
    assert first.startswith("ingest:7:")
    assert first != second


class Rounds(LoopTask):
    RETRY_SECONDS = 0.0

    def __init__(self):
        self.rounds = 0
        self.changed = asyncio.Event()

    async def run_round(self):
        self.rounds += 1
        self.changed.set()
        if self.rounds == 2:
            raise RedisGone
        if self.rounds == 3:
            raise ValueError
        await asyncio.sleep(0)


def test_a_loop_has_one_background_task_of_a_kind_that_outlives_its_failures():
    async def see():
        one = Rounds.of_running_loop()
        while one.rounds < 5:
            one.changed.clear()
            await one.changed.wait()
        same = Rounds.of_running_loop() is one
        await stop_loop_tasks()
        return same, one.is_running, Rounds.of_running_loop() is one

    assert asyncio.run(see()) == (True, False, False)

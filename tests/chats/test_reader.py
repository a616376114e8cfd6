"""Following logs: one connection reads for everybody, and nobody is held up by anybody."""

import asyncio
import json
import uuid

import pytest

from chats.runs import log, reader
from chats.runs.log import RunEvent
from chats.services.turns import open_turn
from jobs import connections
from tests.chats import turns

pytestmark = pytest.mark.django_db(transaction=True)


def make_deltas(first, last):
    return [RunEvent(seq, "delta", {"text": f"{seq} "}) for seq in range(first, last + 1)]


def end(seq):
    return [RunEvent(seq, "run.completed", {})]


async def write(run_id, events):
    await asyncio.to_thread(log.append_events, run_id, events)


async def read(run_id, after_seq=0):
    async with asyncio.timeout(10):
        return [event.seq async for event in reader.read_events(run_id, after_seq) if event]


@pytest.mark.parametrize("text", ["", "말", 'a "quoted" \\ word\n', "\x01\U0001f600"])
def test_a_text_is_counted_and_handed_on_as_it_is_stored(text):
    encoded = log.to_text_json(text)
    assert encoded == log.to_json({"text": text})
    assert log.count_characters(encoded) == len(text)
    assert json.loads(log.find_text_json(encoded)) == text


async def test_followers_of_many_logs_each_get_their_own():
    logs = [uuid.uuid4() for _ in range(20)]
    reading = [asyncio.create_task(read(run_id)) for run_id in logs]
    for number, run_id in enumerate(logs):
        await write(run_id, make_deltas(1, number + 1) + end(number + 2))
    found = await asyncio.gather(*reading)
    assert found == [list(range(1, number + 3)) for number in range(20)]


async def test_followers_of_one_log_begin_where_each_left_off():
    run_id = uuid.uuid4()
    await write(run_id, make_deltas(1, 5))
    reading = [asyncio.create_task(read(run_id, after)) for after in (0, 5, 3)]
    await write(run_id, make_deltas(6, 6) + end(7))
    assert await asyncio.gather(*reading) == [[1, 2, 3, 4, 5, 6, 7], [6, 7], [4, 5, 6, 7]]


async def test_who_comes_while_all_is_quiet_is_served_at_once():
    quiet, spoken = uuid.uuid4(), uuid.uuid4()
    waiting = asyncio.create_task(read(quiet))
    await asyncio.sleep(0.1)  # by now Redis is asked to wait for the quiet one alone
    await write(spoken, make_deltas(1, 1) + end(2))
    async with asyncio.timeout(reader.BLOCK_SECONDS / 2):
        assert await read(spoken) == [1, 2]
    waiting.cancel()


async def test_who_comes_while_another_is_being_announced_is_served_at_once(monkeypatch):
    client, confirmed = connections.get_async_client(), asyncio.Event()
    pipeline = client.pipeline

    def confirming_late(**options):
        pipe = pipeline(**options)
        execute = pipe.execute

        async def execute_and_wait():
            await execute()
            await confirmed.wait()

        pipe.execute = execute_and_wait
        return pipe

    monkeypatch.setattr(reader, "BLOCK_SECONDS", 60.0)
    monkeypatch.setattr(client, "pipeline", confirming_late)
    quiet, announced, late = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    waiting = asyncio.create_task(read(quiet))
    await asyncio.sleep(0.1)  # by now Redis is asked to wait for the quiet one alone
    await write(announced, make_deltas(1, 1) + end(2))
    assert await read(announced) == [1, 2]
    await asyncio.sleep(0.1)  # and again
    await write(late, make_deltas(1, 1) + end(2))
    reading = asyncio.create_task(read(late))
    asyncio.get_running_loop().call_later(0.1, confirmed.set)
    assert await reading == [1, 2]
    waiting.cancel()


async def test_what_a_slow_follower_does_not_take_waits_in_redis(monkeypatch):
    monkeypatch.setattr(reader, "MAX_WAITING_ENTRIES", 10)
    monkeypatch.setattr(reader, "MAX_ENTRIES_A_READING", 5)
    run_id = uuid.uuid4()
    await write(run_id, make_deltas(1, 300) + end(301))
    with reader.follow_log(log.make_log_key(run_id), 0) as slow:
        first = await slow.get_next(5)
        assert await read(run_id) == list(range(1, 302))
        assert slow.seq < 20
        rest = [await slow.get_next(5) for _ in range(300)]
    assert [event.seq for event in (first, *rest)] == list(range(1, 302))


async def test_who_comes_while_others_are_read_for_misses_nothing():
    run_id = uuid.uuid4()
    await write(run_id, make_deltas(1, 50))
    ahead = asyncio.create_task(read(run_id, 50))
    await asyncio.sleep(0.1)  # by now Redis is asked for what comes after 50
    behind = asyncio.create_task(read(run_id))
    await write(run_id, make_deltas(51, 51) + end(52))
    assert await ahead == [51, 52]
    assert await behind == list(range(1, 53))


async def test_silence_is_told_now_and_then(monkeypatch):
    monkeypatch.setattr(reader, "IDLE_SECONDS", 0.05)
    async with asyncio.timeout(5):
        assert await anext(reader.read_events(uuid.uuid4())) is None


async def test_a_log_that_was_emptied_and_written_again_is_read_on():
    run_id = uuid.uuid4()
    await write(run_id, make_deltas(1, 3))
    reading = reader.read_events(run_id)
    assert [(await anext(reading)).seq for _ in range(3)] == [1, 2, 3]
    await asyncio.to_thread(connections.get_client().flushdb)
    await write(run_id, make_deltas(1, 4) + end(5))
    assert [event.seq async for event in reading if event] == [4, 5]


WORDS = ["하나 ", "둘 ", "셋 ", "넷"]


@pytest.fixture
def turn(owner):
    """A run whose log holds all of its answer but the last word, and its end not yet."""
    turn = open_turn(user=owner, content="질문")
    run_id = turn.run.pk
    if not log.load_events(run_id):
        log.append_events(run_id, [RunEvent(1, "run.started", {})])
    said = [RunEvent(seq, "delta", {"text": word}) for seq, word in enumerate(WORDS[:-1], 2)]
    log.append_events(run_id, said)
    return turn


def lose_last_entries(run_id, count):
    """As when a standby of Redis takes over that had not got them yet."""
    key, last = log.make_log_key(run_id), log.load_events(run_id)[-1].seq
    redis = connections.get_client()
    redis.xdel(key, *(f"{last - number}-0" for number in range(count)))
    redis.execute_command("XSETID", key, f"{last - count}-0")


async def follow(run_id, heard, after_seq=0):
    async for event in reader.follow_run(run_id, after_seq):
        if event is not None:
            heard.append(event)


async def hear(heard, count):
    async with asyncio.timeout(10):
        while len(heard) < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_who_heard_more_than_the_log_still_holds_gets_the_rest_once(turn, lost):
    """The completion of the log bears numbers of what he had: it would end him without the rest."""
    run_id, heard = turn.run.pk, []
    following = asyncio.create_task(follow(run_id, heard))
    await hear(heard, len(WORDS))
    lose_last_entries(run_id, lost)
    await asyncio.to_thread(turns.answer_turn, turn, content="".join(WORDS))
    await asyncio.to_thread(reader.finish_log, run_id)
    async with asyncio.timeout(10):
        await following
    assert [event.seq for event in heard] == list(range(1, len(heard) + 1))
    assert "".join(event.data["text"] for event in heard if event.type == "delta") == "".join(WORDS)
    assert heard[-1].type == "run.completed"


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_who_comes_back_after_a_loss_reads_the_whole_answer(turn, lost):
    run_id, heard = turn.run.pk, []
    last = log.load_events(run_id)[-1].seq
    lose_last_entries(run_id, lost)
    await asyncio.to_thread(turns.answer_turn, turn, content="".join(WORDS))
    await asyncio.to_thread(reader.finish_log, run_id)
    async with asyncio.timeout(10):
        await follow(run_id, heard, last)
    assert [event.seq for event in heard] == list(range(last + 1, last + 1 + len(heard)))
    known = [RunEvent(last, "delta", {"text": "".join(WORDS[:-1])})]
    assert log.join_text(known + heard) == "".join(WORDS)
    assert heard[-1].type == "run.completed"


async def test_who_comes_after_a_loss_reads_the_completed_log(turn):
    run_id, heard = turn.run.pk, []
    lose_last_entries(run_id, 2)
    await asyncio.to_thread(turns.answer_turn, turn, content="".join(WORDS))
    async with asyncio.timeout(10):
        await follow(run_id, heard)
    assert heard == log.load_events(run_id)
    assert log.join_text(heard) == "".join(WORDS)

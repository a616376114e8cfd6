"""The log of a run: written once, read from anywhere, whole whatever Redis loses."""

import asyncio
import uuid

import pytest
import redis.asyncio

from chats.errors import RunLost
from chats.runs import log, reader
from chats.runs import writer as writing
from chats.runs.writer import RunWriter
from jobs import connections

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run_id():
    return uuid.uuid4()


async def wait_for_events(run_id, count):
    async with asyncio.timeout(5):
        while len(log.load_events(run_id)) < count:
            await asyncio.sleep(0.01)


async def test_events_count_from_one_without_a_gap(run_id):
    writer = RunWriter(run_id)
    await writer.open()
    writer.add("status", {"step": "retrieve"})
    for word in "가나다라마":
        writer.add("delta", {"text": word})
        await asyncio.sleep(0.01)
    writer.add("run.completed", {"message": {}})
    await writer.close()
    events = log.load_events(run_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert log.join_text(events) == "가나다라마"


async def test_deltas_that_come_close_together_share_an_entry(run_id):
    writer = RunWriter(run_id)
    await writer.open()
    for _ in range(1000):
        writer.add("delta", {"text": "가"})
    await writer.close()
    events = log.load_events(run_id)
    assert len(events) == 1
    assert log.join_text(events) == "가" * 1000


async def test_what_comes_soon_after_the_first_word_shares_an_entry_too(run_id, monkeypatch):
    monkeypatch.setattr(writing, "COALESCE_SECONDS", 2.0)
    writer = RunWriter(run_id)
    await writer.open()
    writer.add("delta", {"text": "가"})
    await wait_for_events(run_id, 1)
    for word in "나다":
        writer.add("delta", {"text": word})
        await asyncio.sleep(0.05)
    writer.add("run.completed", {})
    await writer.close()
    assert [event.data.get("text") for event in log.load_events(run_id)] == ["가", "나다", None]


async def test_where_many_logs_grow_more_is_collected_between_two_writes(monkeypatch):
    monkeypatch.setattr(writing, "COALESCE_SECONDS", 0.0)
    monkeypatch.setattr(writing, "CROWDED_SECONDS", 10.0)
    writers = [RunWriter(uuid.uuid4()) for _ in range(writing.CROWD.start)]
    for writer in writers:
        writer.begin()
        writer.add("delta", {"text": "가"})
    await wait_for_events(writers[-1].run_id, 1)
    for word in "나다":
        for writer in writers:
            writer.add("delta", {"text": word})
        await asyncio.sleep(0.05)
    await asyncio.gather(*(writer.close() for writer in writers))
    for writer in writers:
        events = log.load_events(writer.run_id)
        assert [event.data["text"] for event in events] == ["가", "나다"]


async def test_the_first_word_of_another_answer_does_not_wait_where_many_logs_grow(
    run_id, monkeypatch
):
    monkeypatch.setattr(writing, "CROWDED_SECONDS", 60.0)
    writers = [RunWriter(uuid.uuid4()) for _ in range(writing.CROWD.start)]
    for writer in writers:
        writer.begin()
        writer.add("delta", {"text": "가"})
    await wait_for_events(writers[-1].run_id, 1)
    another = RunWriter(run_id)
    another.begin()
    another.add("delta", {"text": "나"})
    await wait_for_events(run_id, 1)
    for writer in [*writers, another]:
        await writer.close()


async def test_a_reader_gets_what_follows_its_last_seq(run_id):
    log.append_events(run_id, [log.RunEvent(n, "delta", {"text": str(n)}) for n in (1, 2, 3)])
    log.append_events(run_id, [log.RunEvent(4, "run.completed", {})])
    assert [event.seq async for event in reader.read_events(run_id, 2)] == [3, 4]


async def test_a_reader_waits_for_what_comes(run_id):
    async def read():
        return [event.seq async for event in reader.read_events(run_id) if event]

    reading = asyncio.create_task(read())
    writer = RunWriter(run_id)
    await writer.open()
    writer.add("delta", {"text": "가"})
    await wait_for_events(run_id, 1)
    writer.add("run.completed", {})
    await writer.close()
    assert await asyncio.wait_for(reading, 5) == [1, 2]


async def test_a_log_that_redis_forgot_is_written_again_with_the_same_numbers(run_id):
    writer = RunWriter(run_id)
    await writer.open()
    writer.add("delta", {"text": "가"})
    await wait_for_events(run_id, 1)
    connections.get_client().flushdb()
    writer.add("delta", {"text": "나"})
    await wait_for_events(run_id, 2)
    writer.add("run.completed", {})
    await writer.close()
    events = log.load_events(run_id)
    assert [event.seq for event in events] == [1, 2, 3]
    assert log.join_text(events) == "가나"


async def test_a_log_that_lost_its_last_entries_gets_them_again(run_id):
    writer = RunWriter(run_id)
    await writer.open()
    for number, kind in enumerate(("status", "sources", "usage"), 1):
        writer.add(kind, {"number": number})
    await wait_for_events(run_id, 3)
    connections.get_client().xdel(log.make_log_key(run_id), "2-0", "3-0")
    connections.get_client().execute_command("XSETID", log.make_log_key(run_id), "1-0")
    writer.add("delta", {"text": "가"})
    await writer.close()
    events = log.load_events(run_id)
    assert [event.type for event in events] == ["status", "sources", "usage", "delta"]


async def test_many_runs_are_written_side_by_side():
    writers = [RunWriter(uuid.uuid4()) for _ in range(30)]
    for writer in writers:
        await writer.open()
    for word in ("가", "나", "다"):
        for number, writer in enumerate(writers):
            writer.add("delta", {"text": f"{word}{number}"})
        await asyncio.sleep(0.03)
    for writer in writers:
        writer.add("run.completed", {})
    await asyncio.gather(*(writer.close() for writer in writers))
    for number, writer in enumerate(writers):
        text = log.join_text(log.load_events(writer.run_id))
        assert text == writer.text == f"가{number}나{number}다{number}"


async def test_a_log_that_somebody_else_writes_holds_up_no_other(run_id):
    robbed, other = RunWriter(run_id), RunWriter(uuid.uuid4())
    await robbed.open()
    await other.open()
    log.append_events(run_id, [log.RunEvent(1, "run.error", {"code": "interrupted"})])
    robbed.add("delta", {"text": "가"})
    other.add("delta", {"text": "나"})
    await other.close()
    assert log.join_text(log.load_events(other.run_id)) == "나"
    with pytest.raises(RunLost):
        await robbed.close()


@pytest.mark.parametrize("text", ["가\0나", "가\ud83d나", "\0", "\udc00"])
async def test_text_that_no_store_takes_is_written_without_what_is_wrong(run_id, text):
    writer = RunWriter(run_id)
    await writer.open()
    writer.add("delta", {"text": text})
    await writer.close()
    kept = log.join_text(log.load_events(run_id))
    assert kept == writer.text
    assert "\0" not in kept
    kept.encode()


async def test_another_kind_of_text_is_another_event(run_id):
    writer = RunWriter(run_id)
    await writer.open()
    for kind, text in (("reasoning", "음"), ("reasoning", "…"), ("delta", "가"), ("delta", "나")):
        writer.add(kind, {"text": text})
    writer.add("replace", {"text": "다"})
    writer.add("delta", {"text": "라"})
    await writer.close()
    events = log.load_events(run_id)
    assert [event.type for event in events] == ["reasoning", "delta", "replace", "delta"]
    assert (writer.text, writer.reasoning) == ("다라", "음…")
    assert (log.join_text(events), log.join_reasoning(events)) == ("다라", "음…")


async def test_a_fenced_log_takes_nothing_more_of_its_writer(run_id):
    writer = RunWriter(run_id)
    await writer.open()
    writer.add("delta", {"text": "가"})
    await wait_for_events(run_id, 1)
    assert log.join_text(await asyncio.to_thread(log.fence_log, run_id)) == "가"
    writer.add("delta", {"text": "나"})
    with pytest.raises(RunLost):
        await writer.close()
    assert log.join_text(log.load_events(run_id)) == "가"


async def test_a_redis_that_hangs_keeps_no_answer_from_ending(run_id, monkeypatch):
    async def answer():
        await asyncio.sleep(0)

    silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    hanging = redis.asyncio.Redis(port=silent.sockets[0].getsockname()[1])
    monkeypatch.setattr(connections, "HANGING_SECONDS", 0.05)
    monkeypatch.setattr(connections, "get_async_client", lambda: hanging)
    async with asyncio.timeout(5):
        work = asyncio.create_task(answer())
        assert not await log.wait_unless_stopped(run_id, work)
    assert work.done()
    silent.close()


async def test_a_second_attempt_goes_on_where_the_first_stopped(run_id):
    log.append_events(run_id, [log.RunEvent(1, "run.started", {})])
    writer = RunWriter(run_id)
    await writer.open()
    writer.add("delta", {"text": "가"})
    await writer.close()
    assert [event.seq for event in log.load_events(run_id)] == [1, 2]


async def test_a_writer_whose_number_was_taken_by_another_writes_no_more(run_id):
    writer = RunWriter(run_id)
    await writer.open()
    log.append_events(run_id, [log.RunEvent(1, "run.error", {"code": "interrupted"})])
    writer.add("delta", {"text": "가"})
    await asyncio.sleep(0.1)
    await writer.abandon()
    assert [event.type for event in log.load_events(run_id)] == ["run.error"]


def test_repair_adds_the_missing_text_and_the_last_event(run_id):
    log.append_events(run_id, [log.RunEvent(1, "run.started", {})])
    log.append_events(run_id, [log.RunEvent(2, "delta", {"text": "가나"})])
    for _ in range(2):
        log.repair_log(
            run_id, started={}, content="가나다", terminal_type="run.completed", terminal={}
        )
    events = log.load_events(run_id)
    assert [event.type for event in events] == ["run.started", "delta", "delta", "run.completed"]
    assert log.join_text(events) == "가나다"


def test_repair_writes_a_lost_log_whole(run_id):
    log.repair_log(
        run_id, started={"a": 1}, content="답", terminal_type="run.completed", terminal={}
    )
    assert [event.type for event in log.load_events(run_id)] == [
        "run.started",
        "delta",
        "run.completed",
    ]

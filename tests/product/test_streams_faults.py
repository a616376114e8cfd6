"""What is restarted, emptied, suspended or stopped while answers stream."""

import threading
import time

import pytest
import redis

from tests.product.sockets import Socket, join_deltas
from tests.servers.llm import Failure, Hang, Stream
from tests.support import wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(300)]

WORDS = [f"{number}번째 문장입니다. " for number in range(120)]
WHOLE = "".join(WORDS)
UNENDING = Stream(WORDS, delay=0.03, hold=threading.Event())
"""Its last words never come: who stops it cannot be late."""
TERMINAL = {"run.completed", "run.stopped", "run.error"}


@pytest.fixture(autouse=True)
def _calm(model, client):
    model.default = Stream(WORDS, delay=0.03)


@pytest.fixture
def phone(product, token):
    with Socket(product.url, token) as socket:
        yield socket


def begin_answer(client, phone):
    """A turn whose answer both devices have begun to hear, and one of the two."""
    turn = client.ask("길게 이야기해 줘")
    listener = client.follow(turn)
    phone.say("resume", run_id=turn["run_id"])
    heard = (lambda: listener.text, lambda: join_deltas(phone.run(turn["run_id"])))
    wait_until(lambda: all(len(text()) > 100 for text in heard), 60)
    return turn, listener


def assert_whole(client, turn, listener, *heard):
    wait_until(lambda: listener.ended, 40)
    message = client.message(turn)
    assert (message["status"], message["content"]) == ("COMPLETED", WHOLE)
    for events in (listener.events, *heard):
        assert join_deltas(events) == WHOLE
        assert [event["type"] in TERMINAL for event in events].index(True) == len(events) - 1


def test_f77_a_redis_that_forgets_everything_costs_no_character(product, client, phone):
    turn, listener = begin_answer(client, phone)
    store = redis.Redis.from_url(product.redis_url)
    for key in store.scan_iter(count=1000):
        store.unlink(key)
    heard = phone.wait_for_end(turn["run_id"])
    assert_whole(client, turn, listener, heard)
    assert_whole(client, turn, client.follow(turn))


def test_f77_a_redis_that_hangs_for_seconds_costs_no_character(product, client, phone):
    turn, listener = begin_answer(client, phone)
    server = product.find_process("redis")
    server.suspend()
    try:
        hung = time.monotonic()
        wait_until(lambda: time.monotonic() - hung > 3)
    finally:
        server.resume()
    assert_whole(client, turn, listener, phone.wait_for_end(turn["run_id"], 40))


def test_f77_redis_restarted_twice_costs_no_character_and_no_worker(product, client, phone):
    turn, listener = begin_answer(client, phone)
    workers = [product.find_process(name) for name in ("answers", "documents")]
    for _ in range(2):
        server = wait_until(lambda: find_redis(product), 30)
        server.terminate()
        server.wait(10)
        length = len(listener.text)
        wait_until(lambda: len(listener.text) > length or listener.ended, 30)  # noqa: B023
    assert_whole(client, turn, listener, phone.wait_for_end(turn["run_id"], 40))
    later, heard = begin_answer(client, phone)
    assert_whole(client, later, heard)
    assert [worker.is_running() for worker in workers] == [True, True]


def find_redis(product):
    """Redis, or None while it is away: words that were under way come without it, too."""
    try:
        return product.find_process("redis")
    except AssertionError:
        return None


def test_f79_a_restarted_web_process_is_found_again_and_the_answer_goes_on(
    product, token, client, phone
):
    turn, listener = begin_answer(client, phone)
    web = product.find_process("web")
    web.terminate()
    assert phone.closed.wait(10)
    before = phone.run(turn["run_id"])
    web.wait(10)
    with wait_until(lambda: open_socket(product, token), 20, step=0.1) as again:
        again.say("resume", run_id=turn["run_id"], after_seq=before[-1]["seq"])
        after = again.wait_for_end(turn["run_id"])
    assert_whole(client, turn, listener, before + after)


def open_socket(product, token):
    """A socket, or None while nobody lets us in."""
    try:
        return Socket(product.url, token)
    except (OSError, AssertionError):
        return None


def assert_stopped(client, turn, listener, model):
    """One clear end, the same for all who look, and nobody left on the line to the model."""
    wait_until(lambda: listener.ended, 20)
    message = client.message(turn)
    assert message["status"] == "STOPPED"
    assert message["error"] is None
    assert message["content"] == join_deltas(listener.events)
    assert WHOLE.startswith(message["content"])
    assert listener.events[-1]["type"] == "run.stopped"
    assert all(call.wait_closed_by_client(5) for call in model.chats)
    again = client.follow(turn)
    wait_until(lambda: again.ended)
    assert again.events == listener.events


def test_f80_a_stop_at_once_ends_the_run_before_or_at_its_first_words(client, model):
    model.default = UNENDING
    turn = client.ask("길게 이야기해 줘")
    assert client.call("POST", f"/runs/{turn['run_id']}/stop")[0] == 202
    assert_stopped(client, turn, client.follow(turn), model)


def test_f80_a_stop_from_another_device_during_the_words_keeps_them(client, model, phone):
    model.default = UNENDING
    turn, listener = begin_answer(client, phone)
    phone.say("stop", run_id=turn["run_id"])
    assert_stopped(client, turn, listener, model)
    assert len(client.message(turn)["content"]) > 100


def test_f80_a_stop_while_the_model_is_silent_hangs_up(client, model):
    model.default = Hang()
    turn = client.ask("길게 이야기해 줘")
    listener = client.follow(turn)
    wait_until(lambda: model.chats)
    assert client.call("POST", f"/runs/{turn['run_id']}/stop")[0] == 202
    assert_stopped(client, turn, listener, model)


def test_f80_a_stop_between_two_tries_ends_the_waiting(client, model):
    model.script(Failure(429, headers={"Retry-After": "9"}))
    turn = client.ask("길게 이야기해 줘")
    listener = client.follow(turn)
    wait_until(lambda: model.chats and model.chats[0].ended.is_set())
    assert client.call("POST", f"/runs/{turn['run_id']}/stop")[0] == 202
    wait_until(lambda: listener.ended, 5)
    assert listener.events[-1]["type"] == "run.stopped"
    assert client.message(turn)["status"] == "STOPPED"
    assert len(model.chats) == 1


def test_f80_many_stops_at_the_same_time_are_one(client, model, phone):
    model.default = UNENDING
    turn, listener = begin_answer(client, phone)
    for _ in range(5):
        phone.say("stop", run_id=turn["run_id"])
        assert client.call("POST", f"/runs/{turn['run_id']}/stop")[0] == 202
    assert_stopped(client, turn, listener, model)
    assert not [frame for frame in phone.heard if frame["type"] == "error"]


def test_f80_a_stop_after_the_end_changes_nothing(client, model):
    model.default = Stream(["끝났습니다."])
    turn = client.ask("길게 이야기해 줘")
    listener = client.follow(turn)
    wait_until(lambda: listener.ended)
    before = client.message(turn)
    assert client.call("POST", f"/runs/{turn['run_id']}/stop")[0] == 202
    again = client.follow(turn)
    wait_until(lambda: again.ended)
    assert again.events == listener.events
    assert client.message(turn) == before
    assert before["status"] == "COMPLETED"


def test_e71_an_answers_worker_that_is_told_to_go_ends_its_answer_first(
    product, client, model, phone
):
    turn, listener = begin_answer(client, phone)
    worker = product.find_process("answers")
    worker.terminate()
    assert_whole(client, turn, listener, phone.wait_for_end(turn["run_id"]))
    assert len(model.chats) == 1
    worker.wait(20)
    model.default = Stream(["weiter"])
    later = client.ask("그 다음 질문")
    wait_until(lambda: client.message(later)["content"] == "weiter", 60)

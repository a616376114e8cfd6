"""Following answers: reloads, many devices, slow and vanished readers, the same question twice."""

import contextlib
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.product.browser import Browser
from tests.product.sockets import Socket, join_deltas
from tests.servers.llm import Stream
from tests.support import wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(300)]

WORDS = [f"{number}번째 문장입니다. " for number in range(120)]
WHOLE = "".join(WORDS)
CALM = Stream(WORDS, delay=0.02)


@pytest.fixture(scope="module")
def idle(product, token):
    """A socket that was opened before all tests of this file and says nothing."""
    with Socket(product.url, token) as socket:
        yield socket, time.monotonic()


@pytest.fixture(autouse=True)
def _calm(model, client, idle):
    model.default = CALM


@pytest.fixture
def socket(product, token):
    with Socket(product.url, token) as one:
        yield one


def begin_run(socket, content="길게 이야기해 줘", **fields):
    """The id of the run of a question asked over the socket."""
    count = sum(frame["type"] == "run.started" for frame in socket.heard)
    socket.say("send", content=content, **fields)
    return socket.wait_for("run.started", count + 1)["run_id"]


def fetch_stored(client, events):
    """The message of a run as the database has it, after its last event."""
    return client.call("GET", f"/messages/{events[-1]['data']['message']['id']}")[1]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_f73_a_client_that_comes_back_at_any_point_reads_on_where_it_was(
    product, token, client, share
):
    with Socket(product.url, token) as first:
        run_id = begin_run(first)
        wait_until(lambda: len(join_deltas(first.run(run_id))) >= share * len(WHOLE))
        first.vanish()
        before = first.run(run_id)
    with Socket(product.url, token) as again, Socket(product.url, token) as fresh:
        again.say("resume", run_id=run_id, after_seq=before[-1]["seq"])
        fresh.say("resume", run_id=run_id)
        after = again.wait_for_end(run_id)
        assert join_deltas(before + after) == WHOLE
        assert join_deltas(fresh.wait_for_end(run_id)) == WHOLE
        assert fetch_stored(client, after)["content"] == WHOLE


def test_f73_two_devices_with_socket_and_server_sent_events_read_the_same(
    product, token, client, socket
):
    run_id = begin_run(socket)
    turn = {"run_id": run_id}
    with Socket(product.url, token, deflate=True) as phone:
        phone.say("resume", run_id=run_id)
        listener = client.follow(turn)
        ends = [one.wait_for_end(run_id) for one in (socket, phone)]
    wait_until(lambda: listener.ended)
    assert [join_deltas(events) for events in (*ends, listener.events)] == [WHOLE] * 3
    plain = [[(f["seq"], f["type"], f["data"]) for f in events] for events in ends]
    assert plain[0] == plain[1] == [(f["seq"], f["type"], f["data"]) for f in listener.events]


def test_f73_an_ended_answer_is_replayed_from_its_first_event(product, token, client, socket):
    run_id = begin_run(socket)
    live = socket.wait_for_end(run_id)
    with Socket(product.url, token) as later:
        later.say("resume", run_id=run_id)
        replayed = later.wait_for_end(run_id)
    assert (
        join_deltas(replayed) == join_deltas(live) == fetch_stored(client, live)["content"] == WHOLE
    )


def test_f74_a_client_that_vanishes_finds_the_whole_answer_on_its_return(product, token, client):
    with Socket(product.url, token) as socket:
        run_id = begin_run(socket)
        message_id = socket.wait_for("run.started")["data"]["assistant_message"]["id"]
        wait_until(lambda: join_deltas(socket.run(run_id)))
        socket.vanish()

    def ended():
        message = client.call("GET", f"/messages/{message_id}")[1]
        return message["status"] != "STREAMING" and message

    message = wait_until(ended, 30)
    assert (message["status"], message["content"]) == ("COMPLETED", WHOLE)


def test_f75_a_slow_reader_holds_up_nobody_and_gets_the_whole_in_the_end(product, token, model):
    model.default = Stream(["가나다라마바사아자차" * 100] * 90)
    with Socket(product.url, token) as fast, Socket(product.url, token, buffer=4096) as slow:
        slow.pace = 1000
        run_id = begin_run(fast)
        slow.say("resume", run_id=run_id)
        whole = join_deltas(fast.wait_for_end(run_id))
        assert len(whole) == 90_000
        heard = join_deltas(slow.run(run_id))
        assert len(heard) < len(whole) / 10
        assert whole.startswith(heard)
        slow.pace = None
        assert join_deltas(slow.wait_for_end(run_id)) == whole


def test_f75_readers_that_stop_reading_cost_little_and_keep_nobody_from_asking(
    product, token, model, client
):
    model.default = Stream(["가나다라마바사아자차" * 100] * 100)
    web = psutil.Process(product.find_process("web").pid)
    with Socket(product.url, token) as fast, contextlib.ExitStack() as stack:
        run_id = begin_run(fast)
        fast.wait_for_end(run_id)
        stuck = [stack.enter_context(Socket(product.url, token, buffer=4096)) for _ in range(8)]
        before = web.memory_info().rss
        for one in stuck:
            one.pace = 1
            for _ in range(40):  # 300 kB each
                one.say("resume", run_id=run_id)
        again = begin_run(fast, "한 번 더")
        assert len(join_deltas(fast.wait_for_end(again))) == 100_000
        assert client.call("GET", "/chats")[0] == 200
        assert web.memory_info().rss - before < 40_000_000


def test_f82_one_client_id_is_one_run_however_often_and_wherever_it_is_sent(
    product, token, client, model, socket
):
    asked = {"content": "한 번만 물어요", "client_id": str(uuid.uuid4())}
    gate = threading.Barrier(6)

    def over_rest():
        gate.wait()
        return client.call("POST", "/messages?wait=false", asked)[1]["run_id"]

    def over_a_socket(one):
        gate.wait()
        return begin_run(one, **asked)

    with Socket(product.url, token) as other, ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(over_rest) for _ in range(4)]
        asking += [pool.submit(over_a_socket, one) for one in (socket, other)]
        run_ids = {one.result() for one in asking}
        (run_id,) = run_ids
        assert join_deltas(socket.wait_for_end(run_id)) == WHOLE
        assert join_deltas(other.wait_for_end(run_id)) == WHOLE
    assert len(model.chats) == 1
    chat_id = socket.run(run_id)[0]["chat_id"]
    assert client.call("GET", f"/chats/{chat_id}/messages")[1]["count"] == 2


def test_f84_a_sign_out_ends_the_socket_but_not_the_answer(product, client, model):
    browser = Browser(product.url)
    product.add_user("visitor")
    browser.sign_in("visitor")
    with Socket(product.url, cookie=browser.cookie) as socket:
        run_id = begin_run(socket)
        wait_until(lambda: join_deltas(socket.run(run_id)))
        browser.sign_out()
        assert socket.closed.wait(10)
        assert socket.close_code == 4401
    with Socket(product.url, cookie=browser.cookie) as refused:
        assert refused.closed.wait(10)
        assert refused.close_code == 4401
    browser.sign_in("visitor")
    with Socket(product.url, cookie=browser.cookie) as back:
        back.say("resume", run_id=run_id)
        assert join_deltas(back.wait_for_end(run_id)) == WHOLE
    assert not model.chats[-1].closed_by_client


def test_branches_stream_beside_each_other_each_with_its_own_text(client, model):
    refused = threading.Event()
    model.default = lambda asked: Stream(
        [f"[{asked['messages'][-1]['content']}] ", *WORDS], delay=0.02, hold=refused
    )
    refused.set()
    first = client.ask("첫 질문")
    done = client.follow(first)
    wait_until(lambda: done.ended)
    question, answer = first["user_message"]["id"], first["assistant_message"]["id"]
    refused.clear()
    again = post(client, f"/messages/{answer}/regenerate")
    edited = post(client, f"/messages/{question}/edit", {"content": "다른 질문"})
    listeners = [client.follow(turn) for turn in (again, edited)]
    wait_until(lambda: all(len(one.text) > 100 for one in listeners))
    busy = again["assistant_message"]["id"]
    status, refusal = client.call("POST", f"/messages/{busy}/regenerate?wait=false", {})
    assert (status, refusal["code"]) == (409, "still_answering")
    refused.set()
    third = post(client, f"/messages/{answer}/regenerate")
    listeners.append(client.follow(third))
    wait_until(lambda: all(one.ended for one in listeners), 30)
    for turn, listener in zip((again, edited, third), listeners, strict=True):
        message = client.message(turn)
        assert (message["status"], message["content"]) == ("COMPLETED", listener.text)
        assert listener.text.endswith(WHOLE)
    assert again["assistant_message"]["parent_id"] == question
    assert edited["user_message"]["parent_id"] is None
    assert "다른 질문" in listeners[1].text
    assert "다른 질문" not in listeners[0].text + listeners[2].text


def post(client, path, body=None):
    status, turn = client.call("POST", f"{path}?wait=false", body or {})
    assert status == 202, turn
    return turn


def test_f76_an_idle_socket_is_kept_open_by_the_servers_pings(idle):
    socket, opened = idle
    wait_until(lambda: socket.pings or socket.closed.is_set(), 30)
    assert not socket.closed.is_set()
    assert time.monotonic() - opened >= 15  # pings are for the silent, not a burden of their own
    socket.say("ping")
    socket.wait_for("pong")

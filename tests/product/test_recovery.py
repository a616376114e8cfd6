"""Any process may be killed at any moment: answers and documents survive or end clearly."""

import threading
import time

import pytest

from tests.servers.llm import Stream
from tests.support import wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(300)]

WORDS = [f"{number}번째 문장입니다. " for number in range(120)]
WHOLE = "".join(WORDS)


def slow_answer(client, model, hold=None):
    """A turn whose answer is coming in, some of it heard already; `hold` keeps its end back."""
    model.default = Stream(WORDS, delay=0.05, hold=hold)
    turn = client.ask("길게 이야기해 줘")
    listener = client.follow(turn)
    wait_until(lambda: len(listener.text) > 100)
    return turn, listener


def assert_whole(client, turn, listener):
    wait_until(lambda: listener.ended, 60)
    message = client.message(turn)
    assert (message["status"], message["content"]) == ("COMPLETED", WHOLE)
    assert listener.text == WHOLE


def test_a_killed_answers_worker_leaves_the_text_it_wrote(product, client, model):
    turn, listener = slow_answer(client, model, threading.Event())
    product.find_process("answers").kill()
    killed = time.monotonic()
    wait_until(lambda: listener.ended, 40)
    assert time.monotonic() - killed <= 30
    message = client.message(turn)
    assert (message["status"], message["error"]["code"]) == ("INTERRUPTED", "interrupted")
    assert message["content"] == listener.text
    assert WHOLE.startswith(message["content"])
    assert len(message["content"]) > 100


def test_a_killed_answers_worker_that_had_said_nothing_lets_the_run_begin_again(
    product, client, model
):
    model.script(Stream(WORDS, first_delay=600))
    turn = client.ask("길게 이야기해 줘")
    listener = client.follow(turn)
    wait_until(lambda: model.chats)
    model.default = Stream(WORDS)
    product.find_process("answers").kill()
    assert_whole(client, turn, listener)


def test_a_killed_web_process_costs_no_character(product, client, model):
    turn, listener = slow_answer(client, model)
    product.find_process("web").kill()
    assert_whole(client, turn, listener)


def test_a_killed_redis_costs_no_character(product, client, model):
    turn, listener = slow_answer(client, model)
    product.find_process("redis").kill()
    assert_whole(client, turn, listener)


def test_a_killed_postgres_costs_no_character(product, client, model):
    turn, listener = slow_answer(client, model)
    product.find_process("postgres").kill()
    wait_until(lambda: product.status("/readyz") == 200, 60)
    assert_whole(client, turn, listener)


def test_stop_closes_the_connection_to_the_model_and_keeps_the_text(client, model):
    turn, listener = slow_answer(client, model, threading.Event())
    assert client.call("POST", f"/runs/{turn['run_id']}/stop")[0] == 202
    assert model.chats[-1].wait_closed_by_client(2)
    wait_until(lambda: listener.ended)
    message = client.message(turn)
    assert message["status"] == "STOPPED"
    assert message["content"] == listener.text
    assert client.call("POST", f"/runs/{turn['run_id']}/stop")[0] == 202
    assert client.message(turn) == message


def test_two_clients_that_follow_one_run_read_the_same(client, model):
    turn, first = slow_answer(client, model)
    second = client.follow(turn)
    assert_whole(client, turn, first)
    assert_whole(client, turn, second)


@pytest.mark.parametrize("victim", ["documents", "redis", "postgres"])
def test_documents_survive_what_is_killed_while_they_are_read(product, client, victim):
    sentence = "해솔시는 통합돌봄 정보시스템을 구축한다. "
    text = "\n\n".join(sentence * 8 + str(number) for number in range(400))
    ids = [
        client.upload(f"{victim}-{n}.txt", f"{victim} {n} {text}".encode())["id"] for n in range(3)
    ]

    def documents():
        return [client.call("GET", f"/documents/{pk}")[1] for pk in ids]

    wait_until(lambda: any(row["stage"] not in {"queued", "done"} for row in documents()), 30)
    product.find_process(victim).kill()
    wait_until(lambda: product.status("/readyz") == 200, 60)
    # A refusal while the database comes back has a status, too: a number.
    wait_until(lambda: all(row["status"] in {"COMPLETED", "FAILED"} for row in documents()), 120)
    for row in documents():
        assert row["status"] == "COMPLETED", row["error"]
        status, chunks = client.call("GET", f"/documents/{row['id']}/chunks?page_size=1")
        assert (status, chunks["count"]) == (200, row["chunk_count"])


def test_who_waits_for_an_answer_is_not_kept_while_redis_is_away(product, client, model):
    redis = product.find_process("redis")
    redis.suspend()
    try:
        status, turn = client.call("POST", "/messages", {"content": "안녕"}, timeout=50)
        assert status == 202
        assert turn["assistant_message"]["status"] == "STREAMING"
    finally:
        redis.resume()
    wait_until(lambda: client.message(turn)["status"] == "COMPLETED", 60)

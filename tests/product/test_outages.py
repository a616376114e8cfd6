"""How soon everybody goes on when a server is back, and what readers must not hold meanwhile."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nura.embedded import postgres
from tests.servers.llm import Stream
from tests.support import wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(300)]

WORDS = [f"{number}번째 문장입니다. " for number in range(400)]
POOL = 20
"""Connections to the database that one web process has."""


def reach_again(product, name, old):
    """When the server answers that took the place of the one with this process id."""

    def is_new():
        try:
            return product.find_process(name).pid != old
        except AssertionError:
            return False

    wait_until(is_new, 30, step=0.02)


def list_chats(client):
    try:
        return client.call("GET", "/chats", timeout=10)[0]
    except OSError:
        return 0


def fill_pool(client):
    """Have the web process open as many connections as it may."""
    with ThreadPoolExecutor(POOL) as threads:
        assert set(threads.map(lambda _: list_chats(client), range(POOL * 5))) == {200}


def test_c86_lists_are_answered_within_two_seconds_of_postgres_being_back(product, client):
    fill_pool(client)
    victim = product.find_process("postgres")
    victim.kill()
    reach_again(product, "postgres", victim.pid)
    wait_until(lambda: postgres.is_answering(product.data_dir), 30, step=0.02)
    back = time.monotonic()
    wait_until(lambda: list_chats(client) == 200, 30, step=0.02)
    assert time.monotonic() - back < 2
    begun = time.monotonic()
    with ThreadPoolExecutor(POOL) as threads:
        codes = list(threads.map(lambda _: list_chats(client), range(POOL * 3)))
    assert set(codes) == {200}
    assert time.monotonic() - begun < 4


def test_streams_go_on_within_three_seconds_of_redis_being_back(product, client, model):
    model.default = Stream(WORDS, delay=0.05)
    listener = client.follow(client.ask("길게 이야기해 줘"))
    wait_until(lambda: len(listener.text) > 100)
    victim = product.find_process("redis")
    victim.kill()
    reach_again(product, "redis", victim.pid)
    back = time.monotonic()
    heard = len(listener.text)
    wait_until(lambda: len(listener.text) > heard + 200, 30, step=0.02)
    assert time.monotonic() - back < 3
    client.call("POST", f"/runs/{listener.run_id}/stop")
    wait_until(lambda: listener.ended, 30)


def test_c85_readers_of_streams_hold_no_connection_to_the_database(product, client, model):
    model.default = Stream(WORDS, delay=0.1, hold=threading.Event())
    turn = client.ask("길게 이야기해 줘")
    listeners = [client.follow(turn) for _ in range(POOL + 10)]
    wait_until(lambda: all(listener.text for listener in listeners), 60)
    begun = time.monotonic()
    assert list_chats(client) == 200
    assert time.monotonic() - begun < 2
    client.call("POST", f"/runs/{turn['run_id']}/stop")
    wait_until(lambda: all(listener.ended for listener in listeners), 30)


def test_c85_who_waits_for_an_answer_holds_no_connection_to_the_database(product, client, model):
    looked = threading.Event()
    model.default = Stream(["안녕하세요."], hold=looked)
    with ThreadPoolExecutor(POOL + 10) as threads:
        asked = [
            threads.submit(client.call, "POST", "/messages", {"content": f"{number}?"})
            for number in range(POOL + 10)
        ]
        wait_until(lambda: len(model.chats) >= POOL + 10, 30)
        begun = time.monotonic()
        assert list_chats(client) == 200
        assert time.monotonic() - begun < 2
        looked.set()
        assert {future.result()[0] for future in asked} == {201}


def test_c85_downloads_that_nobody_reads_hold_no_connection(product, client):
    document = client.upload("long.txt", "긴 글입니다. ".encode() * 800_000)
    address = f"/api/v1/documents/{document['id']}/file"
    sockets = [open_download(product.port, client.token, address) for _ in range(POOL + 10)]
    try:
        begun = time.monotonic()
        assert list_chats(client) == 200
        assert time.monotonic() - begun < 2
    finally:
        for one in sockets:
            one.close()


def open_download(port, token, address):
    """A connection whose answer has begun, and is not read any further."""
    one = socket.create_connection(("127.0.0.1", port), timeout=20)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    head = f"GET {address} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Token {token}\r\n\r\n"
    one.sendall(head.encode())
    assert one.recv(12) == b"HTTP/1.1 200"
    return one


def test_a_beat_that_died_is_back_and_reaping_does_not_wait_for_it(product, client, model):
    """Lost runs are ended by any answers process: see `chats.runs.worker`."""
    beat = product.find_process("beat")
    beat.suspend()
    try:
        model.default = Stream(WORDS, delay=0.05, hold=threading.Event())
        turn = client.ask("길게 이야기해 줘")
        listener = client.follow(turn)
        wait_until(lambda: len(listener.text) > 100)
        product.find_process("answers").kill()
        wait_until(lambda: listener.ended, 40)
        assert client.message(turn)["status"] == "INTERRUPTED"
    finally:
        beat.resume()

"""Heads of requests over raw sockets: their size, their time, and what they cost a real process."""

import asyncio
import contextlib
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from nura import web as web_process
from tests.servers import asgi
from tests.support import ROOT, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

MEGABYTE = 2**20
LINE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = (
    b"GET /ws/chat/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
START_SECONDS = 120
"""For a process to load the whole product, on a machine that has other things to do."""
CHUNKED = (
    b"POST /api/v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n0\r\n"
)


@pytest.fixture
def web(transactional_db):
    with asgi.run_server() as server:
        yield server.port


@contextlib.contextmanager
def connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        yield one


def send_and_read(one, pieces):
    """Send until all is sent or nobody listens any more; what came back up to the end."""
    with contextlib.suppress(OSError):
        for piece in pieces:
            one.sendall(piece)
    return read_rest(one)


def is_silent(one, seconds):
    """Whether the server neither says anything nor hangs up for so long."""
    return not select.select([one], [], [], seconds)[0]


def read_rest(one):
    came = b""
    with contextlib.suppress(ConnectionError):
        while piece := one.recv(65536):
            came += piece
    return came


def make_many_headers(size):
    """So many bytes of headers, each of a kilobyte."""
    return (b"X-%06d: " % number + b"v" * 1013 + b"\r\n" for number in range(size // 1024))


def make_long_header(size):
    """One header without an end."""
    yield b"X-Long: "
    for _ in range(size // 65536):
        yield b"v" * 65536


def make_long_address(size):
    yield b"GET /"
    for _ in range(size // 65536):
        yield b"a" * 65536


FLOODS = {
    "many": lambda size: (LINE, *make_many_headers(size)),
    "long": lambda size: (LINE, *make_long_header(size)),
    "name": lambda size: (LINE, *(b"n" * 65536 for _ in range(size // 65536))),
    "address": make_long_address,
    "upgrade": lambda size: (UPGRADE, *make_many_headers(size)),
    "trailer": lambda size: (CHUNKED, *make_many_headers(size)),
    "long trailer": lambda size: (CHUNKED, *make_long_header(size)),
    "empty lines": lambda size: (b"\r\n" * 32768 for _ in range(size // 65536)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_head_that_is_too_large_is_refused(web, flood):
    with connect(web) as one:
        came = send_and_read(one, FLOODS[flood](8 * MEGABYTE))
    if "trailer" not in flood:  # behind a body there may be an answer under way
        assert came.startswith(b"HTTP/1.1 431 ")
        assert came.endswith(b"Request Header Fields Too Large")


@pytest.mark.parametrize("start", [LINE, UPGRADE])
def test_the_bound_lies_where_it_is_said_to_be(web, start):
    def answer(size):
        filling = size - len(start) - 2
        lines = b"".join(b"X: " + b"v" * 1019 + b"\r\n" for _ in range(filling // 1024))
        with connect(web) as one:
            one.sendall(start + lines + b"\r\n")
            return one.recv(100)

    assert not answer(web_process.MAX_HEAD_BYTES - 2048).startswith(b"HTTP/1.1 431 ")
    assert answer(web_process.MAX_HEAD_BYTES + 2048).startswith(b"HTTP/1.1 431 ")


def test_a_body_that_comes_with_a_head_in_pieces_is_no_head(web):
    body = b"x" * MEGABYTE
    with connect(web) as one:
        for piece in (
            LINE.replace(b"GET", b"POST"),
            b"Content-Length: %d\r\n" % len(body),
            b"\r\n",
        ):
            one.sendall(piece)
            assert is_silent(one, 0.05)
        one.sendall(body)
        assert b" 431 " not in one.recv(1000)


@pytest.fixture
def hasty(monkeypatch):
    """Heads must come within a second."""
    monkeypatch.setattr(web_process, "MAX_HEAD_SECONDS", 1.0)


def measure_seconds_until_closed(one):
    since = time.monotonic()
    assert read_rest(one) == b""
    return time.monotonic() - since


@pytest.mark.parametrize("begun", [b"", LINE[:10], LINE, UPGRADE, b"\r\n"])
def test_a_head_that_does_not_come_is_waited_for_only_so_long(hasty, web, begun):
    with connect(web) as one:
        one.sendall(begun)
        assert 0.5 < measure_seconds_until_closed(one) < 3


def test_a_head_that_drips_is_waited_for_only_so_long(hasty, web):
    with connect(web) as one:
        since = time.monotonic()
        with contextlib.suppress(ConnectionError):
            one.sendall(LINE)
            while time.monotonic() - since < 5:
                one.sendall(b"X: y\r\n")
                is_silent(one, 0.1)
    assert 0.5 < time.monotonic() - since < 3


def ask(one):
    """One request on a connection that stays open; its status line once its body has come."""
    one.sendall(LINE + b"\r\n")
    came = b""
    while b"\r\n\r\n" not in came:
        came += one.recv(65536)
    head, _, body = came.partition(b"\r\n\r\n")
    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
    while len(body) < length:
        body += one.recv(65536)
    return head.partition(b"\r\n")[0]


def test_a_client_that_keeps_its_connection_is_left_alone(hasty, web):
    with connect(web) as one:
        for _ in range(8):
            assert ask(one) == b"HTTP/1.1 200 OK"
            assert is_silent(one, 0.3)


def test_the_next_head_on_a_connection_is_bounded_too(hasty, web):
    for begun in (b"\r\n", LINE):
        with connect(web) as one:
            ask(one)
            one.sendall(begun)
            assert 0.5 < measure_seconds_until_closed(one) < 3
    with connect(web) as one:
        ask(one)
        assert send_and_read(one, [LINE, *make_many_headers(8 * MEGABYTE)]).startswith(
            b"HTTP/1.1 431 "
        )


def test_requests_sent_at_once_are_answered_in_turn(hasty, web):
    with connect(web) as one:
        one.sendall((LINE + b"\r\n") * 3)
        came = b""
        while came.count(b"HTTP/1.1 200 OK") < 3 or not came.endswith(b"ok"):
            came += one.recv(65536)
        assert ask(one) == b"HTTP/1.1 200 OK"


@pytest.fixture
def process(transactional_db):
    """The web process as it is started, on its own; its port too."""
    listener = web_process.open_listener("127.0.0.1", 0)
    own = {
        "DJANGO_SETTINGS_MODULE": "nura.settings.test",
        web_process.SOCKET_FD: str(listener.fileno()),
    }
    with listener:
        started = subprocess.Popen(
            [sys.executable, "-m", "nura.web"],
            env={**os.environ, **own},
            cwd=ROOT,
            pass_fds=[listener.fileno()],
        )
        try:
            port = listener.getsockname()[1]
            wait_until(lambda: started.poll() is not None or answers(port), START_SECONDS)
            assert started.poll() is None, "it has ended; what it said stands above"
            yield port, psutil.Process(started.pid)
        finally:
            started.terminate()
            started.wait(20)


def answers(port):
    try:
        with connect(port) as one:
            return ask(one) == b"HTTP/1.1 200 OK"
    except OSError:
        return False


def test_floods_of_headers_leave_the_memory_of_the_web_process_flat(process):
    port, web = process
    for flood in FLOODS.values():
        with connect(port) as one:
            send_and_read(one, flood(8 * MEGABYTE))
    before = web.memory_info().rss
    for flood in FLOODS.values():
        with connect(port) as one:
            send_and_read(one, flood(64 * MEGABYTE))
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            one = stack.enter_context(connect(port))
            one.sendall(LINE + b"".join(make_many_headers(web_process.MAX_HEAD_BYTES - 4096)))
        assert answers(port)
        assert web.memory_info().rss - before < 16 * MEGABYTE


def test_more_headers_than_a_browser_sends_are_refused(web):
    with connect(web) as one:
        assert send_and_read(one, [LINE, b"X-A: b\r\n" * 100, b"\r\n"]).startswith(b"HTTP/1.1 431")
    with connect(web) as one:
        one.sendall(LINE + b"X-A: b\r\n" * 90 + b"\r\n")
        assert one.recv(100).startswith(b"HTTP/1.1 200")


BODY = (
    b"POST /api/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n"
)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(web_process, "BODY_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(web_process, "MAX_BODY_SILENCE_SECONDS", 1.0)


def test_c43_a_body_that_stops_coming_ends_its_request(web, impatient):
    with connect(web) as one:
        begun = time.monotonic()
        assert send_and_read(one, [BODY, b"x" * 10]).startswith(b"HTTP/1.1 408")
        assert 0.9 < time.monotonic() - begun < 10


def test_c43_a_body_that_drips_ends_its_request(web, impatient):
    with connect(web) as one:
        one.sendall(BODY)
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            while is_silent(one, 0.3):
                one.sendall(b"x")
        assert read_rest(one).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - begun < 10


def test_a_slow_body_that_keeps_coming_is_let_in(web, impatient):
    with connect(web) as one:
        one.sendall(BODY.replace(b"1000", b"8000"))
        for _ in range(8):  # 5 kB a second for more than the time that a silence may last
            assert is_silent(one, 0.2)
            one.sendall(b"x" * 1000)
        assert one.recv(100).startswith(b"HTTP/1.1 401")


def test_of_connections_that_say_nothing_the_oldest_of_an_address_ends(web, monkeypatch):
    monkeypatch.setattr(web_process, "MAX_WAITING_CONNECTIONS", 5)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(web)) for _ in range(5)]
        for one in held:
            one.sendall(LINE)
            assert is_silent(one, 0.05)
        with connect(web) as newcomer:
            newcomer.sendall(LINE + b"\r\n")
            assert newcomer.recv(100).startswith(b"HTTP/1.1 200")
        assert read_rest(held[0]) == b""
        assert is_silent(held[-1], 0.2)


def test_half_sent_heads_that_are_opened_anew_end_one_at_a_time(web, monkeypatch):
    """Each end makes room for the next that its sender opens; so it is not he who sets the pace."""
    monkeypatch.setattr(web_process, "MAX_WAITING_CONNECTIONS", 5)
    monkeypatch.setattr(web_process, "MAX_SURPLUS_CONNECTIONS", 20)
    monkeypatch.setattr(web_process, "ENDS_APART_SECONDS", 60.0)
    monkeypatch.setattr(web_process, "_waiting", web_process.WaitingConnections())
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(web)) for _ in range(20)]
        for one in held:
            one.sendall(LINE)
        assert read_rest(held[0]) == b""
        assert all(is_silent(one, 0.02) for one in held[1:])
        with connect(web) as newcomer:
            newcomer.sendall(LINE + b"Connection: close\r\n\r\n")
            assert read_rest(newcomer).startswith(b"HTTP/1.1 200")
        for _ in range(3):  # 19 wait: one more is a surplus, and each further one ends one
            stack.enter_context(connect(web)).sendall(LINE)
        assert [read_rest(one) for one in held[1:3]] == [b"", b""]
        assert all(is_silent(one, 0.02) for one in held[3:])


def test_connections_at_work_are_none_that_say_nothing(web, monkeypatch, impatient):
    monkeypatch.setattr(web_process, "MAX_WAITING_CONNECTIONS", 1)
    monkeypatch.setattr(web_process, "MAX_BODY_SILENCE_SECONDS", 20.0)
    with connect(web) as busy:
        busy.sendall(BODY)
        for _ in range(3):
            with connect(web) as one:
                one.sendall(LINE + b"\r\n")
                assert one.recv(100).startswith(b"HTTP/1.1 200")
        busy.sendall(b"x" * 1000)
        assert busy.recv(100).startswith(b"HTTP/1.1 401")


def refuses(port):
    """Whether nobody listens there."""
    with contextlib.suppress(ConnectionRefusedError), connect(port):
        return False
    return True


@pytest.fixture
def ending(transactional_db, settings):
    """A process behind a proxy that a test tells to stop."""
    settings.TRUSTED_PROXIES = 1
    server = asgi.WebServer()
    server.start()
    yield server
    server.stop()


def test_a_process_that_ends_answers_one_more_request_of_an_idle_connection(ending):
    with connect(ending.port) as idle, connect(ending.port) as fresh:
        idle.sendall(LINE + b"\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200 ")
        ending.request_stop()
        wait_until(lambda: refuses(ending.port), 5)
        for one in (idle, fresh):
            answer = send_and_read(one, [LINE, b"\r\n"])
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in answer.lower()


def test_a_process_that_ends_keeps_the_connection_of_an_answer_whose_head_has_said_so(settings):
    """A proxy may send its next request over it at the moment in which the answer ends."""
    settings.TRUSTED_PROXIES = 1
    goes_on = threading.Event()

    async def answer_in_two_pieces(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200})
        await asyncio.to_thread(goes_on.wait, 30)
        await send({"type": "http.response.body", "body": b"whole"})

    server = asgi.WebServer(answer_in_two_pieces)
    server.start()
    try:
        with connect(server.port) as kept:
            kept.sendall(LINE + b"\r\n")
            assert b"connection: close" not in kept.recv(65536).lower()
            server.request_stop()
            wait_until(lambda: refuses(server.port), 5)
            goes_on.set()
            assert kept.recv(65536).endswith(b"whole\r\n0\r\n\r\n")
            assert is_silent(kept, 4)
            answer = send_and_read(kept, [LINE, b"\r\n"])
            assert b"connection: close" in answer.lower()
            assert answer.endswith(b"whole\r\n0\r\n\r\n")
    finally:
        goes_on.set()
        server.stop()


def test_a_process_that_ends_opens_no_socket_so_that_a_proxy_asks_another_node(ending):
    with connect(ending.port) as idle:
        idle.sendall(LINE + b"\r\n")
        idle.recv(65536)
        ending.request_stop()
        wait_until(lambda: refuses(ending.port), 5)
        assert send_and_read(idle, [UPGRADE, b"\r\n"]) == b""


def test_a_process_that_ends_leaves_it_to_a_proxy_to_end_idle_connections_first(ending):
    with connect(ending.port) as idle:
        ending.request_stop()
        assert is_silent(idle, 4)
        assert read_rest(idle) == b""


def test_a_process_that_ends_without_a_proxy_waits_for_no_idle_connection(web):
    server = asgi.WebServer()
    server.start()
    with connect(server.port) as idle:
        idle.sendall(LINE + b"\r\n")
        idle.recv(65536)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 2


def test_a_process_that_ends_answers_whom_it_had_not_accepted_yet(ending):
    ending.pause(0.6)
    ending.request_stop()
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(connect(ending.port)) for _ in range(5)]
        for one in waiting:
            one.sendall(LINE + b"\r\n")
        for one in waiting:
            assert read_rest(one).startswith(b"HTTP/1.1 200 ")
    assert refuses(ending.port)

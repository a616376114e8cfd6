"""Frames that no honest client sends: an error or a close for that socket only."""

import contextlib
import json

import pytest
from websockets.frames import Opcode

from tests.product.sockets import Socket, join_deltas
from tests.servers.llm import Stream
from tests.support import wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(300)]

WORDS = [f"{number}번째 문장입니다. " for number in range(100)]
MISSHAPEN = {
    "0 bytes": (b"", Opcode.TEXT),
    "binary": (b"\x00\x01\xff" * 100, Opcode.BINARY),
    "no JSON": (b"{", Opcode.TEXT),
    "deep JSON": (b"[" * 200_000, Opcode.TEXT),
    "deep and whole JSON": (b'{"type":' + b"[" * 90_000 + b"]" * 90_000 + b"}", Opcode.TEXT),
    "a number of a million digits": (b'{"type": ' + b"9" * 1_000_000 + b"}", Opcode.TEXT),
    "unknown type": (b'{"v": 1, "type": "sudo"}', Opcode.TEXT),
    "a name of ours": (b'{"v": 1, "type": "_follow"}', Opcode.TEXT),
    "text with U+0000": (b'{"type": "resume", "run_id": "\\u0000"}', Opcode.TEXT),
}
FATAL = {
    "16 MB": (b"a" * 16_000_000, Opcode.TEXT, 1009),
    "broken UTF-8": (b'{"type": "\xff\xfe"}', Opcode.TEXT, 1007),
    "reserved opcode": (b"x", Opcode.CONT, 1002),
}


@pytest.fixture
def bystander(product, token, model):
    """A socket on which an answer streams meanwhile; whole in the end."""
    model.default = Stream(WORDS, delay=0.02)
    with Socket(product.url, token) as socket:
        socket.say("send", content="길게 이야기해 줘")
        run_id = socket.wait_for("run.started")["run_id"]
        yield socket
        assert join_deltas(socket.wait_for_end(run_id)) == "".join(WORDS)


@pytest.fixture
def web(product):
    """The web process, which must not die of anything here."""
    process = product.find_process("web")
    yield process
    assert product.find_process("web").pid == process.pid


@pytest.mark.usefixtures("client", "bystander", "web")
def test_f81_misshapen_frames_are_errors_and_the_socket_goes_on(product, token):
    with Socket(product.url, token) as socket:
        for count, (data, opcode) in enumerate(MISSHAPEN.values(), 1):
            socket.send(data, opcode)
            error = socket.wait_for("error", count)
            assert error["data"]["code"] in {"bad_frame", "invalid"}
            assert error["data"]["detail"]
        socket.say("ping")
        socket.wait_for("pong")


@pytest.mark.usefixtures("client", "bystander", "web")
@pytest.mark.parametrize("kind", FATAL)
def test_f81_what_breaks_the_protocol_closes_its_own_socket(product, token, kind):
    data, opcode, code = FATAL[kind]
    with Socket(product.url, token) as socket:
        with contextlib.suppress(OSError):  # cut off while we are still sending
            socket.send(data, opcode)
        assert socket.closed.wait(20)
        assert socket.close_code in {code, None}


@pytest.mark.usefixtures("client", "bystander", "web")
def test_f81_a_thousand_frames_at_once_close_their_own_socket(product, token):
    ping = json.dumps({"v": 1, "type": "ping"}).encode()
    with Socket(product.url, token) as socket:
        with contextlib.suppress(OSError):
            for _ in range(1000):
                socket.send(ping)
        assert socket.closed.wait(20)
        assert socket.close_code in {4429, None}
        assert len([frame for frame in socket.heard if frame["type"] == "pong"]) < 200


def test_f81_a_handshake_that_never_ends_keeps_nobody_out(product, token, client, web):
    half = [Socket.half_open(product.url) for _ in range(50)]
    try:
        with Socket(product.url, token) as socket:
            socket.say("ping")
            wait_until(lambda: any(frame["type"] == "pong" for frame in socket.heard))
        assert client.call("GET", "/chats")[0] == 200
    finally:
        for tcp in half:
            tcp.close()

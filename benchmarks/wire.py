"""What an answer costs on the wire, and how soon a stop and a resume are heard.

Bytes are counted on TCP, so that frames, headers and compression all count; text is UTF-8.
"""

import http.client
import random
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks import report
from tests.product.client import Client
from tests.product.sockets import Socket, join_deltas
from tests.servers.llm import LLMServer, Stream
from tests.support import Product, wait_until

LENGTHS = report.choose_size((1_000, 3_000, 10_000), quick=(100, 300))
"""Tokens of an answer."""
CALM = LENGTHS[:1]
"""Those of answers of a calm model: longer ones cost the same a byte, and minutes."""
RATE = 30
"""Tokens a second of a calm model."""
TIMES = report.choose_size(50, quick=3)
"""Stops, and resumes."""
RESUMED_AT = LENGTHS[0]
"""Tokens after which a client comes back."""
TRANSPORTS = (
    "WebSocket",
    "WebSocket, deflated",
    "server-sent events",
    "server-sent events, gzip",
)
AIM = {"bytes_per_text_byte": 6.0, "stop_ms": 100.0, "resume_ms": 200.0}
DONE_WITHIN = 500.0


@dataclass(frozen=True, slots=True)
class Carried:
    """One answer over one transport: bytes on TCP and of its text."""

    transport: str
    pace: str
    tokens: int
    wire: int
    text: int

    @property
    def ratio(self) -> float:
        """Bytes on the wire for each byte of text."""
        return round(self.wire / self.text, 2)


def main() -> None:
    with LLMServer() as model, _product(model) as product:
        clients = {
            tokens: Client(product.url, product.create_user(f"bench{tokens}")) for tokens in LENGTHS
        }
        carried = _carry_all(clients, model)
        client = clients[RESUMED_AT]
        stops = [_stop(client, model) for _ in range(TIMES)]
        resumes = _resumes(client, model)
    _report(carried, stops, resumes)


def _product(model: LLMServer) -> Product:
    return Product(
        NURA_LLM_BASE_URL=model.url,
        NURA_LLM_MODEL="stand-in",
        NURA_LLM_MAX_TOKENS=str(max(LENGTHS)),
        NURA_LLM_TOTAL_TIMEOUT=str(DONE_WITHIN),
    )


def _tokens(count: int) -> list[str]:
    """Korean tokens of one to three syllables, a blank before every third."""
    chance = random.Random(count)
    return [_token(chance, blank=number % 3 == 0) for number in range(count)]


def _token(chance: random.Random, *, blank: bool) -> str:
    syllables = "".join(chr(chance.randrange(0xAC00, 0xD7A4)) for _ in range(chance.randint(1, 3)))
    return " " * blank + syllables


def _carry_all(clients: dict[int, Client], model: LLMServer) -> list[Carried]:
    """Every length over every transport: fast ones in turn, calm ones at the same time."""
    carried = []
    model.default = lambda asked: Stream(_tokens(_wanted(asked)))
    for tokens, client in clients.items():
        carried += _carry(client, tokens, "full speed")
    model.default = lambda asked: Stream(_tokens(_wanted(asked)), delay=1 / RATE)
    with ThreadPoolExecutor(len(CALM)) as pool:
        calm = [pool.submit(_carry, clients[tokens], tokens, f"{RATE} tokens/s") for tokens in CALM]
        return carried + [one for done in calm for one in done.result()]


def _wanted(asked: dict[str, Any]) -> int:
    """The number of tokens that the last message asks for."""
    return int(re.findall(r"(\d+)개의", str(asked["messages"][-1]["content"]))[-1])


def _carry(client: Client, tokens: int, pace: str) -> list[Carried]:
    """The same answer over all transports at once."""
    with (
        Socket(client.url, client.token) as plain,
        Socket(client.url, client.token, deflate=True) as deflated,
    ):
        shaken = [one.received for one in (plain, deflated)]
        turn = client.ask(f"낱말 {tokens}개의 이야기를 해 줘")
        run_id = turn["run_id"]
        for one in (plain, deflated):
            one.say("resume", run_id=run_id)
        with ThreadPoolExecutor(2) as pool:
            followed = [
                pool.submit(_server_sent, client, run_id, packed) for packed in (False, True)
            ]
        ends = [one.wait_for_end(run_id, DONE_WITHIN) for one in (plain, deflated)]
        wires = [
            one.received - before for one, before in zip((plain, deflated), shaken, strict=True)
        ]
        wires += [one.result() for one in followed]
    text = join_deltas(ends[0])
    assert text == join_deltas(ends[1]) == client.message(turn)["content"]
    assert text.strip() == "".join(_tokens(tokens)).strip()
    size = len(text.encode())
    return [
        Carried(name, pace, tokens, wire, size)
        for name, wire in zip(TRANSPORTS, wires, strict=True)
    ]


def _server_sent(client: Client, run_id: str, packed: bool) -> int:
    """Bytes on TCP of a run followed to its end."""
    connection = http.client.HTTPConnection(client.url.removeprefix("http://"))
    connection.connect()
    tcp = connection.sock
    tcp.sendall(
        f"GET /api/v1/runs/{run_id}/events HTTP/1.1\r\nHost: {connection.host}\r\n"
        f"Authorization: Token {client.token}\r\nConnection: close\r\n"
        f"Accept-Encoding: {'gzip' if packed else 'identity'}\r\n\r\n".encode()
    )
    received = 0
    while data := tcp.recv(65536):
        received += len(data)
    connection.close()
    return received


def _stop(client: Client, model: LLMServer) -> float:
    """Milliseconds from a stop to the end of the request to the model."""
    model.reset()
    model.default = Stream(_tokens(1_000), delay=1 / RATE)
    with Socket(client.url, client.token) as socket:
        turn = client.ask("길게 이야기해 줘")
        socket.say("resume", run_id=turn["run_id"])
        socket.wait_for("delta", 3)
        begun = time.monotonic()
        socket.say("stop", run_id=turn["run_id"])
        assert model.chats[-1].wait_closed_by_client()
        took = (time.monotonic() - begun) * 1000
        socket.wait_for_end(turn["run_id"])
    return took


def _resumes(client: Client, model: LLMServer) -> dict[str, list[float]]:
    """Milliseconds from a resume to its first event, of an answer that goes on meanwhile."""
    model.default = Stream(_tokens(RESUMED_AT * 10), delay=0.004)
    turn = client.ask("길게 이야기해 줘")
    run_id = turn["run_id"]
    listener = client.follow(turn)
    wait_until(lambda: len(listener.text) >= 2 * RESUMED_AT, DONE_WITHIN)
    last = listener.last
    found = {
        "all again": _resumed(client, run_id, 0),
        "the rest": _resumed(client, run_id, last),
    }
    client.call("POST", f"/runs/{run_id}/stop")
    wait_until(lambda: listener.ended)
    return found


def _resumed(client: Client, run_id: str, after_seq: int) -> list[float]:
    times = []
    for _ in range(TIMES):
        with Socket(client.url, client.token) as socket:
            socket.say("ping")
            socket.wait_for("pong")
            begun = time.monotonic()
            socket.say("resume", run_id=run_id, after_seq=after_seq)
            first = wait_until(lambda one=socket: one.run(run_id), step=0.001)[0]
            times.append((first["at"] - begun) * 1000)
    return times


def _report(
    carried: Sequence[Carried], stops: Sequence[float], resumes: dict[str, list[float]]
) -> None:
    figures = {
        "aim": AIM,
        "wire": [
            {
                "transport": one.transport,
                "pace": one.pace,
                "tokens": one.tokens,
                "wire_bytes": one.wire,
                "text_bytes": one.text,
                "ratio": one.ratio,
            }
            for one in carried
        ],
        "stop_to_upstream_closed_ms": report.percentiles(stops),
        "resume_to_first_event_ms": {
            name: report.percentiles(times) for name, times in resumes.items()
        },
    }
    report.write("wire", figures)
    _tables(carried, stops, resumes)


def _tables(
    carried: Sequence[Carried], stops: Sequence[float], resumes: dict[str, list[float]]
) -> None:
    cells = {(one.transport, one.pace, one.tokens): one.ratio for one in carried}
    lines = sorted({(one.transport, one.pace) for one in carried})
    rows = [
        [", ".join(line), *(cells.get((*line, tokens), "-") for tokens in LENGTHS)]
        for line in lines
    ]
    head = ["", *(f"{tokens:,} tokens" for tokens in LENGTHS)]
    report.table("Bytes on the wire for each byte of text (aim 6, flat)", head, rows)
    waits = {"stop to upstream closed (aim 100)": stops} | {
        f"resume, {name} (aim 200)": times for name, times in resumes.items()
    }
    rows = [[name, *report.percentiles(times).values()] for name, times in waits.items()]
    report.table(f"Milliseconds, {TIMES} times each", ["", "p50", "p95", "max"], rows)


if __name__ == "__main__":
    main()

"""Many answers at once from a model on the same machine: lost characters, gaps, pages, costs."""

import http.client
import json
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import report
from benchmarks.streams import heard
from benchmarks.streams.heard import Told
from tests.e2e.people import Person
from tests.support import Product, get_part_name, wait_until

STREAMS = report.choose_size((50, 200, 500), quick=(10,))
TOKENS_PER_SECOND = 30
STARTS_PER_SECOND = 8
SETTLE_SECONDS = report.choose_size(5.0, quick=1.0)
WINDOW_SECONDS = report.choose_size(40.0, quick=4.0)
PAGES_PER_SECOND = 4.0
PAGES = ("/", "/api/v1/chats")
AIM = {"added_gap_p99_ms": 60, "page_p99_ms": 100, "faults": 0}
SHARES = (50, 95, 99)
PEOPLE = """
from django.contrib.auth.models import User
from knox.models import AuthToken
import json
rows = User.objects.bulk_create([User(username=f"reader{{n}}", password="!") for n in range({0})])
print(json.dumps([AuthToken.objects.create(row)[1] for row in rows]))
"""


@dataclass(slots=True)
class Case:
    """One run of the benchmark."""

    streams: int
    told: list[Told]
    window: tuple[float, float]
    tokens: int
    pages: list[float]
    cpu: dict[str, float]
    """CPU seconds of the window by process."""
    memory: dict[str, float]
    late_ms: float
    """By how much the model itself was late at the worst."""


@dataclass(slots=True)
class Bystander:
    """Somebody who only leafs through pages meanwhile."""

    product: Product
    person: Person
    took: list[float] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Fetch pages by turns until told to stop."""
        cookie = "; ".join(f"{one['name']}={one['value']}" for one in self.person.cookies())
        connection = http.client.HTTPConnection("127.0.0.1", self.product.port, timeout=30)
        number = 0
        while not self._over.wait(1 / PAGES_PER_SECOND):
            begun = time.perf_counter()
            connection.request("GET", PAGES[number % len(PAGES)], headers={"Cookie": cookie})
            response = connection.getresponse()
            response.read()
            assert response.status == 200, response.status
            self.took.append((time.perf_counter() - begun) * 1000)
            number += 1

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look on for as long as the block lasts."""
        thread = threading.Thread(target=self.look)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def main() -> None:
    cases = [measure(streams) for streams in STREAMS]
    _report(cases)


def measure(
    streams: int, *, rate: float = TOKENS_PER_SECOND, seconds: float = WINDOW_SECONDS
) -> Case:
    """One run with that many streams, measured once all of them flow."""
    with model(rate) as (writer, model_port), tempfile.TemporaryDirectory() as folder:
        endpoint = {
            "NURA_LLM_BASE_URL": f"http://127.0.0.1:{model_port}/v1",
            "NURA_LLM_MODEL": "bench",
            "NURA_LLM_MAX_TOKENS": "1000000",
        }
        with Product(**endpoint) as product:
            kept = Path(folder) / "heard"
            wait_until(lambda: "engine_warm" in product.log, 120, step=0.5)
            bystander = Bystander(product, Person(product, "bystander"))
            with _readers(product, streams, kept) as readers:
                _flowing(model_port, streams)
                processes = processes_of(product) | {"model": [writer], "readers": [readers]}
                case = _window(streams, seconds, model_port, processes, bystander)
                _ask(model_port, "POST /finish")
                _finished(product, streams)
            case.told = [heard.told(one) for one in pickle.loads(kept.read_bytes())]
    return case


@contextmanager
def model(rate: float, tokens: int = 0, port: int = 0) -> Iterator[tuple[psutil.Process, int]]:
    """The model's process and port; each reply ends after `tokens`, or when told to."""
    numbers = map(str, (rate, tokens, port))
    command = [sys.executable, "-m", "benchmarks.streams.model", *numbers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield psutil.Process(process.pid), int(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def _readers(product: Product, streams: int, kept: Path) -> Iterator[psutil.Process]:
    keys = create_readers(product, streams)
    arguments = (str(product.port), str(STARTS_PER_SECOND), str(kept))
    command = [sys.executable, "-m", "benchmarks.streams.readers", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(keys) + "\n")
        process.stdin.flush()
        try:
            yield psutil.Process(process.pid)
        finally:
            process.stdin.close()
            process.wait(180)


def create_readers(product: Product, number: int) -> list[str]:
    """So many new people; their keys."""
    shell = product.manage("shell", "-c", PEOPLE.format(number))
    keys: list[str] = json.loads(shell.stdout.strip().splitlines()[-1])
    return keys


def _ask(port: int, request: str) -> dict[str, Any]:
    method, path = request.split()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    told: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return told


def _flowing(model_port: int, streams: int) -> None:
    enough = 60 + 3 * streams / STARTS_PER_SECOND
    wait_until(lambda: _ask(model_port, "GET /state")["streams"] >= streams, enough, step=0.5)
    time.sleep(SETTLE_SECONDS)


def _finished(product: Product, streams: int) -> None:
    key = product.create_user("staff", staff=True)

    def none_streams() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=30)
        connection.request("GET", "/metrics", headers={"Authorization": f"Token {key}"})
        text = connection.getresponse().read().decode()
        connection.close()
        return 'nura_answers{status="STREAMING"}' not in text

    wait_until(none_streams, 60 + streams, step=1.0)


def processes_of(product: Product) -> dict[str, list[psutil.Process]]:
    """The product's processes by what they do."""
    found: dict[str, list[psutil.Process]] = {}
    for process in product.processes():
        name = get_part_name(process)
        found.setdefault(name.rstrip("0123456789"), []).append(process)
    return found


def _window(
    streams: int,
    seconds: float,
    model_port: int,
    processes: dict[str, list[psutil.Process]],
    bystander: Bystander,
) -> Case:
    before, sent = cpu_seconds(processes), _ask(model_port, "GET /state")["sent"]
    begun = time.monotonic()
    with bystander.looking():
        time.sleep(seconds)
    ended = time.monotonic()
    state = _ask(model_port, "GET /state")
    after = cpu_seconds(processes)
    cpu = {name: after[name] - before[name] for name in after}
    tokens = state["sent"] - sent
    memory = _memory(processes)
    window = (begun, ended)
    return Case(streams, [], window, tokens, bystander.took, cpu, memory, state["late_ms"])


def cpu_seconds(processes: dict[str, list[psutil.Process]]) -> dict[str, float]:
    """Processor time until now."""
    return {
        name: sum(sum(process.cpu_times()[:2]) for process in some if process.is_running())
        for name, some in processes.items()
    }


def _memory(processes: dict[str, list[psutil.Process]]) -> dict[str, float]:
    return {
        name: round(sum(process.memory_info().rss for process in some) / 2**20)
        for name, some in processes.items()
        if name in {"answers", "web", "redis"}
    }


def figures(case: Case) -> dict[str, Any]:
    """What is reported of a case."""
    begin, end = case.window
    added = [value for one in case.told for value in one.added(begin, end)]
    under_way = [value for one in case.told for value in one.under_way(begin, end)]
    faults = sorted({one.fault for one in case.told} - {""})
    letters = sum(len(one.text.encode()) for one in case.told)
    return {
        "streams": case.streams,
        "seconds": round(end - begin, 1),
        "tokens_per_second": round(case.tokens / (end - begin)),
        "streams_with_faults": sum(bool(one.fault) for one in case.told),
        "faults": faults,
        "added_gap_ms": _shares([value * 1000 for value in added]),
        "under_way_ms": _shares([value * 1000 for value in under_way]),
        "page_ms": _shares(case.pages),
        "bytes_per_text_byte": round(sum(one.received for one in case.told) / letters, 2),
        "tokens_per_delta": round(
            sum(len(one.tokens) for one in case.told) / sum(one.deltas for one in case.told), 2
        ),
        "cores_busy": round(sum(case.cpu.values()) / (end - begin), 2),
        "cpu_us_per_token": {
            name: round(value / case.tokens * 1e6, 1) for name, value in case.cpu.items()
        },
        "memory_mb": case.memory,
        "model_late_ms": case.late_ms,
    }


def _shares(values: Sequence[float]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(values, share)), 1) for share in SHARES}


def _report(cases: Sequence[Case]) -> None:
    found = [figures(case) for case in cases]
    report.write("streams", {"aim": AIM, "rate": TOKENS_PER_SECOND, "cases": found})
    rows = [
        [
            str(one["streams"]),
            str(one["tokens_per_second"]),
            str(one["streams_with_faults"]),
            *("/".join(f"{v:.0f}" for v in one[name].values()) for name in TABLE),
            str(one["bytes_per_text_byte"]),
            str(one["cores_busy"]),
        ]
        for one in found
    ]
    head = ["streams", "tokens/s", "faulty", *TABLE, "bytes/byte", "cores"]
    report.table("Streams at 30 tokens/s (p50/p95/p99 ms; aim: gap 60, page 100)", head, rows)
    names = sorted({name for one in found for name in one["cpu_us_per_token"]})
    costs = [
        [name, *(str(one["cpu_us_per_token"].get(name, "")) for one in found)] for name in names
    ]
    report.table(
        "CPU microseconds a token", ["process", *(str(one["streams"]) for one in found)], costs
    )


TABLE = ("added_gap_ms", "under_way_ms", "page_ms")

if __name__ == "__main__":
    main()

"""What beginning answers costs: one by one, a hundred in an instant, five hundred in ten seconds.

A model on the same machine answers at once, so that what is left is the product's own. Questions
need no document. Processor time is that of all processes of the product. All cases share a product,
and each is told as soon as it is measured.
"""

import itertools
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import report
from benchmarks.streams import heard
from benchmarks.streams.asking import Plan
from benchmarks.streams.heard import Told
from benchmarks.streams.run import (
    Bystander,
    cpu_seconds,
    create_readers,
    model,
    processes_of,
)
from tests.e2e.people import Person
from tests.support import Product, free_port, wait_until

WAYS = ("v1", "v1 stored", "socket")
WARM_UP = 8
"""Questions before any is measured."""
SETTLE_SECONDS = report.choose_size(3.0, quick=0.5)
"""After the last event of an answer its turn is still closed and noted."""


@dataclass(frozen=True, slots=True)
class Start:
    """A case: how many questions by how many people, spread over how long."""

    name: str
    questions: int
    people: int
    seconds: float
    """-1: one after the other."""
    rate: float
    """Tokens a second of each answer."""
    tokens: int
    """Of each answer. Starts of one rate and number of tokens share a model."""
    ways: Sequence[str] = WAYS
    bystander: bool = False


STARTS = report.choose_size(
    (
        Start("one by one", 60, 1, -1, 200, 3),
        Start("100 in an instant", 100, 100, 0, 200, 3),
        Start("100 over 10 s", 100, 100, 10, 200, 3),
        Start("100 streams of 20 tokens/s", 100, 100, 5, 20, 200),
        Start("500 by 20 people over 10 s", 500, 20, 10, 20, 50, ("socket",), bystander=True),
    ),
    quick=(Start("one by one", 5, 1, -1, 200, 3), Start("10 in an instant", 10, 10, 0, 200, 3)),
)
AIM = {
    "cpu_ms_answer": {"v1": 18, "socket": 50},
    "cpu_us_token": {"v1": 150, "socket": 300},
    "first_ms": {
        "100 in an instant": 1200,
        "100 over 10 s": 60,
        "500 by 20 people over 10 s": 5000,
    },
    "delay_p99_ms": 500,
    "page_p99_ms": 300,
}


def main() -> None:
    found = []
    for figures in measure():
        print(*(f"{name}: {figures[name]}" for name in COLUMNS), sep="  ", flush=True)
        found.append(figures)
    report.write("starts", {"aim": AIM, "starts": found})
    rows = [[one[name] for name in COLUMNS] for one in found]
    report.table("Answers begun (ms; aims in benchmarks/streams/starts.py)", COLUMNS, rows)


def measure() -> Iterator[dict[str, Any]]:
    """The figures of all cases."""
    port = free_port()
    endpoint = {"NURA_LLM_BASE_URL": f"http://127.0.0.1:{port}/v1", "NURA_LLM_MODEL": "bench"}
    with tempfile.TemporaryDirectory() as folder, Product(**endpoint) as product:
        out = Path(folder) / "heard"
        wait_until(lambda: "engine_warm" in product.log, 120, step=0.5)
        keys = create_readers(product, max(start.people for start in STARTS))
        person = Person(product, "bystander")
        for (rate, tokens), starts in itertools.groupby(STARTS, lambda one: (one.rate, one.tokens)):
            cases = [(start, way) for start in starts for way in start.ways]
            with model(rate, tokens, port):
                for start, way in cases:
                    asked = [keys[number % start.people] for number in range(start.questions)]
                    warm_up: Plan = {"way": way, "keys": keys[:1] * WARM_UP, "seconds": 0}
                    _play(warm_up, product, out)
                    bystander = Bystander(product, person) if start.bystander else None
                    plan: Plan = {"way": way, "keys": asked, "seconds": start.seconds}
                    told, cpu = _play(plan, product, out, processes_of(product), bystander)
                    yield _figures(start, way, told, cpu, bystander)


def _play(
    plan: Plan,
    product: Product,
    out: Path,
    processes: dict[str, list[psutil.Process]] | None = None,
    bystander: Bystander | None = None,
) -> tuple[list[Told], dict[str, float]]:
    whole = {**plan, "port": product.port, "out": str(out)}
    command = [sys.executable, "-m", "benchmarks.streams.asking"]
    before: dict[str, float] = {}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(whole) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "begun\n"
        before = cpu_seconds(processes or {})
        with bystander.looking() if bystander else nullcontext():
            assert process.stdout.readline() == "ended\n"
        time.sleep(SETTLE_SECONDS)
        # anew: Postgres has a process for each connection that was opened meanwhile
        after = cpu_seconds(processes_of(product) if processes else {})
        process.stdin.close()
    every = pickle.loads(out.read_bytes())
    of = heard.told if plan["way"] == "socket" else heard.told_by_v1
    return [of(one) for one in every], {name: after[name] - before.get(name, 0.0) for name in after}


def _figures(
    start: Start, way: str, told: list[Told], cpu: dict[str, float], bystander: Bystander | None
) -> dict[str, Any]:
    first = [1000 * one.first_after for one in told if one.tokens]
    delays = [1000 * (read - sent) for one in told for sent, read in one.tokens]
    tokens = sum(len(one.tokens) for one in told)
    parts = {name: round(1000 * value / len(told), 1) for name, value in cpu.items()}
    return {
        "start": start.name,
        "way": way,
        "faulty": sum(bool(one.fault) for one in told),
        "faults": sorted({one.fault for one in told} - {""}),
        **{f"first p{share}": _percentile(first, share) for share in (50, 95)},
        "delay p99": _percentile(delays, 99),
        "page p99": _percentile(bystander.took, 99) if bystander else "",
        "cpu ms/answer": round(sum(parts.values()), 1),
        "cpu us/token": round(1e6 * sum(cpu.values()) / max(1, tokens)),
        "parts": {name: value for name, value in parts.items() if value >= 0.1},
    }


def _percentile(values: Sequence[float], share: int) -> float:
    return round(float(np.percentile(values, share)), 1) if values else float("nan")


COLUMNS = (
    *("start", "way", "faulty", "first p50", "first p95", "delay p99", "page p99"),
    *("cpu ms/answer", "cpu us/token", "parts"),
)

if __name__ == "__main__":
    main()

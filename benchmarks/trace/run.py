"""How much of the product's code one question enters, from the socket to the last event.

A first question and a follow-up over the WebSocket, without a language model, about two documents.
All processes are traced from their start (`sitecustomize.py`). Each question is asked in as many
chats as `TIMES`, after one that warms up; what most of them enter counts, less what the same
process enters at rest. Functions are those with a name: no lambdas and no comprehensions.
"""

import json
import math
import os
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks import report
from nura.samples import FOLDER
from tests.e2e.people import Person
from tests.product.sockets import TERMINAL, Socket
from tests.support import ROOT, Product, get_part_name, wait_until

TIMES = report.choose_size(3, quick=1)
REST_SECONDS = report.choose_size(10.0, quick=1.0)
"""Longer than anything that runs at rest waits before it does so again."""
SETTLE_SECONDS = report.choose_size(3.0, quick=1.0)
FILES = ("care-system-notice.pdf", "ventilator-manual.md")
FIRST = "헤파 필터는 언제 교체하나요?"
FOLLOW_UP = "그럼 청소는 얼마나 자주 하나요?"
AIM = {"modules": 65, "functions": 400}
"""Of a first question."""

Function = tuple[str, str, int]
"""Path, qualified name and first line."""


class Tracer:
    """Phases of a traced product."""

    def __init__(self, folder: Path, product: Product) -> None:
        self._folder = folder
        self._product = product

    def begin(self, phase: str) -> None:
        """From here on, what processes enter counts for this phase."""
        (self._folder / "next").write_text(phase)
        (self._folder / "next").rename(self._folder / "phase")
        time.sleep(0.1)  # until every process has looked

    def end(self, phase: str, last: float = math.inf) -> dict[str, set[Function]]:
        """The functions that each process entered up to the moment `last`, by its name."""
        (self._folder / "phase").unlink()
        wait_until(lambda: self._told(phase) >= self._expected, 10)
        found = defaultdict(set)
        names = {process.pid: get_part_name(process) for process in self._product.processes()}
        for path in self._folder.glob(f"{phase}.*.json"):
            pid = int(path.name.split(".")[1])
            for *function, entered_at in json.loads(path.read_text(encoding="utf-8")):
                if entered_at <= last:
                    found[names.get(pid, "ended")].add(tuple(function))
        return dict(found)

    def _told(self, phase: str) -> int:
        return len(list(self._folder.glob(f"{phase}.*.json")))

    @property
    def _expected(self) -> int:
        """Web, answers, documents and beat, the models and `up` at least."""
        return 6


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="nura-trace-") as place:
        folder = Path(place) / "data"
        with Product(folder) as product:
            person = Person(product, "bench")
            for name in FILES:
                person.upload(FOLDER / name)
            person.wait_for_documents()
        traced = {
            "PYTHONPATH": str(Path(__file__).parent),
            "NURA_TRACE_DIR": place,
            "NURA_TRACE_ROOT": f"{ROOT}{os.sep}",
        }
        with Product(folder, **traced) as product:
            wait_until(lambda: "engine_warm" in product.log, 120)
            rest, phases = _trace_all(Tracer(Path(place), product), product.url, person.key)
    figures = {"aim": AIM, **{name: _summarise(found, rest) for name, found in phases.items()}}
    report.write("trace", figures)
    _print(figures)


def _trace_all(tracer, url, key):
    """What runs at rest, and what each time of each question enters, by process."""
    phases = {"first question": [], "follow-up": []}
    with Socket(url, key) as socket:
        _ask(socket, FIRST)
        time.sleep(SETTLE_SECONDS)
        tracer.begin("rest")
        time.sleep(REST_SECONDS)
        rest = tracer.end("rest")
        for number in range(TIMES):
            chat_id = ""
            for name, question in (("first question", FIRST), ("follow-up", FOLLOW_UP)):
                phase = f"{name.split()[0]}-{number}"
                tracer.begin(phase)
                chat_id, last = _ask(socket, question, chat_id)
                phases[name].append(tracer.end(phase, last))
                time.sleep(SETTLE_SECONDS)
    return rest, phases


def _ask(socket: Socket, question: str, chat_id: str = "") -> tuple[str, float]:
    """The chat of a question, and the moment of the last event of its answer."""
    seen = len(socket.heard)
    socket.say("send", content=question, **({"chat_id": chat_id} if chat_id else {}))
    wait_until(lambda: any(one["type"] in TERMINAL for one in socket.heard[seen:]), 60, step=0.002)
    last = next(one for one in socket.heard[seen:] if one["type"] in TERMINAL)
    assert last["type"] == "run.completed", last
    return last["chat_id"], last["at"]


def _summarise(times, rest):
    """How many modules and functions most of the times entered, and which, by module."""
    counted = Counter(
        function
        for found in times
        for function in {
            one for process, entered in found.items() for one in entered - rest.get(process, set())
        }
    )
    kept = [function for function, often in counted.items() if often * 2 > len(times)]
    modules = defaultdict(list)
    for path, name, _ in sorted(kept, key=lambda function: (function[0], function[2])):
        modules[path].append(name)
    named = {path: [one for one in names if is_named(one)] for path, names in modules.items()}
    return {
        "modules": len(modules),
        "functions": sum(map(len, named.values())),
        "by_process": {
            process: len({one for found in times for one in found.get(process, ())} & set(kept))
            for process in sorted({process for found in times for process in found})
        },
        "entered": named,
    }


def is_named(name: str) -> bool:
    """Whether it is a function with a name of its own."""
    return not name.endswith(">")


def _print(figures) -> None:
    for name in ("first question", "follow-up"):
        rows = [(path, len(names)) for path, names in figures[name]["entered"].items()]
        report.table(f"Functions that a {name} enters", ("module", "functions"), rows)
    rows = [
        (name, figures[name]["modules"], figures[name]["functions"])
        for name in ("first question", "follow-up")
    ]
    columns = ("", f"modules (aim {AIM['modules']})", f"functions (aim {AIM['functions']})")
    report.table("Entered from the socket to the last event", columns, rows)


if __name__ == "__main__":
    main()

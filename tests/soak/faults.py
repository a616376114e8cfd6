"""What breaks while people work: one seeded event after the other."""

import random
import threading
import time
from collections.abc import Callable

import psutil

from tests.servers.llm import BreakOff, Failure, LLMServer, Raw, Stream
from tests.support import Product, get_part_name

WORDS = [f"{number}번째 문장입니다. " for number in range(40)]
KILLED = ("web", "answers", "documents", "documents child", "beat")
FAULTY_SHARE = 0.05
"""Of the calls to the language model."""


def make_behaviour(seed: int) -> Callable[[object], object]:
    """A language model that fails now and then."""
    chance, lock = random.Random(seed), threading.Lock()
    faults = (
        Failure(500),
        Failure(429, headers={"Retry-After": "1"}),
        BreakOff(WORDS[:5]),
        Raw(b"x"),
    )

    def behave(_request: object) -> object:
        with lock:
            if chance.random() < FAULTY_SHARE:
                return chance.choice(faults)
            return Stream(WORDS, delay=chance.uniform(0.005, 0.04))

    return behave


class Faults:
    """Breaks a product; `events` says what and when, in seconds since the beginning."""

    def __init__(self, product: Product, model: LLMServer, seed: int, pause: float) -> None:
        self.product, self.model, self.pause = product, model, pause
        self.events: list[tuple[float, str]] = []
        self.failed: list[str] = []
        self._chance = random.Random(seed)
        self._begun = time.monotonic()

    def go_on(self, over: threading.Event) -> None:
        """One event after the other until it is over; each kind about equally often."""
        acts = [*KILLED, *KILLED, "terminate", "redis hangs", "redis dies", "postgres dies"]
        waiting: list[str] = []
        while not over.wait(self.pause * self._chance.uniform(0.7, 1.3)):
            if not waiting:
                waiting = self._chance.sample(acts, len(acts))
            act = waiting.pop()
            self.events.append((round(time.monotonic() - self._begun, 1), act))
            try:
                self._do(act)
            except (psutil.Error, AssertionError) as error:  # it is just being started again
                self.events[-1] = (self.events[-1][0], f"{act}: not there ({type(error).__name__})")

    def _do(self, act: str) -> None:
        if act == "redis hangs":
            server = self.product.find_process("redis")
            server.suspend()
            try:
                time.sleep(5)
            finally:
                server.resume()
        elif act in {"redis dies", "postgres dies"}:
            self.product.find_process(act.split(maxsplit=1)[0]).kill()
        elif act == "terminate":
            self.product.find_process(self._chance.choice(KILLED[:3])).terminate()
        elif act == "documents child":
            parent = self.product.find_process("documents")
            children = parent.children()
            if children:
                self._chance.choice(children).kill()
        else:
            self.product.find_process(act).kill()


def measure_memory(product: Product) -> dict[str, int]:
    """Resident bytes of each part of the product, of all its processes together."""
    found: dict[str, int] = {}
    for process in product.processes():
        try:
            name = get_part_name(process)
            found[name] = found.get(name, 0) + process.memory_info().rss
        except psutil.Error:
            continue
    return found

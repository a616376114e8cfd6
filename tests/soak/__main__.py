"""`make soak MINUTES=60 [SEED=1] [PEOPLE=4] [PAUSE=30]`; exit 1 if an invariant is broken."""

import argparse
import re
import tempfile
import threading
import time
from pathlib import Path

from tests.product.client import Client
from tests.servers.llm import LLMServer
from tests.soak.faults import Faults, make_behaviour, measure_memory
from tests.soak.invariants import check_database, check_person, wait_for_quiet
from tests.soak.people import Person
from tests.support import Product

WARM_SHARE = 0.3
"""Of the time; memory is compared from there on."""
MAX_GROWTH = 1.5
MIN_GROWTH_BYTES = 100 * 1024**2
"""What one part may grow at most, by both measures, between the warm-up and the end."""
QUIET_SECONDS = 180
RECORD_NUMBER = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=['\"])")
"""Of an internal error, as its answer names it."""
LINES_A_FAILURE = 80


def main() -> int:
    """Run it; the exit status."""
    wanted = _read_arguments()
    folder = wanted.data_dir or Path(tempfile.mkdtemp(prefix="nura-soak-"))
    print(f"seed {wanted.seed}, {wanted.minutes:g} minutes, {wanted.people} people, {folder}")
    with LLMServer() as model:
        model.default = make_behaviour(wanted.seed)
        told = {"NURA_LLM_BASE_URL": model.url, "NURA_LLM_MODEL": "stand-in"}
        product = Product(folder, limited=True, NURA_RETENTION_DELETED_DAYS="0", **told)
        with product:
            found = _soak(product, model, wanted)
            if found:
                print(product.log[-6000:])
                print("\n".join(_list_failures(product.log, found)))
    for line in found:
        print("VIOLATED", line)
    print("all invariants hold" if not found else f"{len(found)} violations; seed {wanted.seed}")
    return 1 if found else 0


def _soak(product: Product, model: LLMServer, wanted: argparse.Namespace) -> list[str]:
    people = [
        Person(name, Client(product.url, product.create_user(name)), wanted.seed * 1000 + number)
        for number, name in enumerate(f"person{n}" for n in range(wanted.people))
    ]
    faults = Faults(product, model, wanted.seed, wanted.pause)
    calm, over = threading.Event(), threading.Event()
    threads = [
        *(threading.Thread(target=one.live, args=(over,), name=one.name) for one in people),
        threading.Thread(target=faults.go_on, args=(calm,), name="faults"),
    ]
    for thread in threads:
        thread.start()
    memory = _watch(product, wanted.minutes * 60)
    calm.set()  # the last minute is without faults
    threads[-1].join()
    product.wait_ready(120)
    over.wait(10)
    over.set()
    for thread in threads:
        thread.join()
    product.wait_ready(120)
    found = [] if wait_for_quiet(product, QUIET_SECONDS) else ["I8 it does not come to rest"]
    for at, act in faults.events:
        print(f"{at:8.1f} s  {act}")
    asked = sum(len(one.heard) for one in people)
    uploaded = sum(len(one.documents) + len(one.deleted_documents) for one in people)
    deleted = sum(len(one.deleted_documents) + len(one.deleted_chats) for one in people)
    print(
        f"{asked} questions, {uploaded} documents, {deleted} deletions, {len(faults.events)} faults"
    )
    found += check_database(product)
    for one in people:
        found += check_person(one)
    return found + _check_memory(memory)


def _list_failures(text: str, found: list[str]) -> list[str]:
    """What the log tells of the answers with a record number among what was found."""
    numbers = {number for line in found for number in RECORD_NUMBER.findall(line)}
    lines = text.splitlines()
    told = list[str]()
    for at, line in enumerate(lines):
        if any(number in line for number in numbers):
            told += ["", *lines[at : at + LINES_A_FAILURE]]
    return told


def _watch(product: Product, seconds: float) -> list[dict[str, int]]:
    """Memory every ten seconds while it lasts."""
    begun, samples = time.monotonic(), []
    while time.monotonic() - begun < seconds:
        time.sleep(min(10, seconds))
        samples.append(measure_memory(product))
    return samples


def _check_memory(samples: list[dict[str, int]]) -> list[str]:
    """Parts that grew: the most of the third after the warm-up, and the median of the last third.

    The most, since a part that was killed then begins empty: the models are loaded with the first
    text.
    """
    warm = samples[int(len(samples) * WARM_SHARE) :]
    third = max(1, len(warm) // 3)
    found = []
    for name in sorted({name for one in warm for name in one}):
        first = max(one.get(name, 0) for one in warm[:third])
        last = _median([one.get(name, 0) for one in warm[-third:]])
        print(f"memory {name}: {first / 1024**2:.0f} -> {last / 1024**2:.0f} MB")
        if last > MAX_GROWTH * first and last - first > MIN_GROWTH_BYTES:
            found.append(f"I8 memory of {name} grew from {first >> 20} to {last >> 20} MB")
    return found


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The whole product under use and faults.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--people", type=int, default=4)
    parser.add_argument("--pause", type=float, default=30, help="seconds between two faults")
    parser.add_argument("--data-dir", type=Path, help="kept afterwards; else a temporary folder")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())

"""How fast a warm start is, and what all processes together keep in memory."""

import statistics
import time

import psutil

from benchmarks import report
from nura.samples import FOLDER
from tests.e2e.people import Person
from tests.support import Product, get_part_name, wait_until

STARTS = report.choose_size(3, quick=1)
AIM = {"boot_s": 15.0, "empty_mb": 900, "used_mb": 1500}
FILES = ("care-system-notice.pdf", "gateway-note.docx")
"""One in each language: only then is all loaded that ever will be."""

QUESTIONS = ("헤파 필터는 언제 교체하나요?", "How often is the gateway calibrated?")


def main() -> None:
    with Product() as product:
        stages = {}
        _wait_warm(product)
        stages["empty"] = measure_settled(product)
        person = Person(product, "bench")
        for question in QUESTIONS:
            person.api("messages", {"content": question})
        stages["after questions"] = measure_settled(product)
        for name in FILES:
            person.upload(FOLDER / name)
        person.wait_for_documents()
        for question in QUESTIONS:
            person.api("messages", {"content": question})
        stages["after uploads"] = measure_settled(product)
        boots = [_boot(product) for _ in range(STARTS)]
        stages["started again"] = measure_settled(product)
    _report(boots, stages)


def _wait_warm(product: Product, *, said_before: int = 0) -> None:
    """Answers may be warm before or after the product is ready."""
    wait_until(lambda: "engine_warm" in product.log[said_before:], 120)


def _boot(product: Product) -> float:
    """Seconds of another start until it is ready; returns when it is warm as well."""
    product.stop()
    said_before = len(product.log)
    begun = time.perf_counter()
    product.start()
    seconds = time.perf_counter() - begun
    _wait_warm(product, said_before=said_before)
    return seconds


def measure_settled(product: Product) -> dict[str, float]:
    """MB by process, once two looks a few seconds apart agree."""
    before = {"": 0.0}

    def steady() -> dict[str, float] | None:
        nonlocal before
        last, before = before, _memory(product)
        return before if abs(sum(before.values()) - sum(last.values())) < 5 else None

    found: dict[str, float] = wait_until(steady, 120, step=3.0)  # type: ignore[assignment]
    return found


def _memory(product: Product) -> dict[str, float]:
    """Proportional set size in MB; children count with what started them."""
    sizes: dict[str, float] = {}
    for process in product.processes():
        try:
            if "shell" in process.cmdline():  # it makes accounts for tests
                continue
            size = process.memory_full_info().pss / 2**20
            name = get_part_name(process)
        except psutil.Error:
            continue
        sizes[name] = sizes.get(name, 0.0) + size
    return {name: round(size, 1) for name, size in sorted(sizes.items())}


def _report(boots: list[float], stages: dict[str, dict[str, float]]) -> None:
    boot = statistics.median(boots)
    figures = {
        "aim": AIM,
        "boot_s": {"median": round(boot, 2), "all": [round(one, 2) for one in boots]},
        "pss_mb": {
            stage: {"all": round(sum(sizes.values())), **sizes} for stage, sizes in stages.items()
        },
    }
    report.write("footprint", figures)
    names = sorted({name for sizes in stages.values() for name in sizes})
    rows = [[name, *(f"{sizes.get(name, 0):.0f}" for sizes in stages.values())] for name in names]
    rows.append(["all", *(f"{sum(sizes.values()):.0f}" for sizes in stages.values())])
    print(f"\nWarm start to /readyz: {boot:.1f} s (median of {STARTS}; aim {AIM['boot_s']:.0f})")
    report.table(
        f"Memory (PSS, MB; aims {AIM['empty_mb']} empty, {AIM['used_mb']} after uploads)",
        ["process", *stages],
        rows,
    )


if __name__ == "__main__":
    main()

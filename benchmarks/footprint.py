"""How fast a warm start is, and what all processes together keep in memory."""

import statistics
import time

import psutil

from benchmarks import report
from nura.samples import FOLDER
from tests.e2e.people import Person
from tests.support import Product, name_part, wait_until

STARTS = 3
AIM = {"boot_s": 15.0, "idle_pss_mb": 2560}
FILES = ("care-system-notice.pdf", "gateway-note.docx")
"""One in each language: only then has the documents worker loaded all that it ever will."""

QUESTIONS = ("헤파 필터는 언제 교체하나요?", "How often is the gateway calibrated?")


def main() -> None:
    with Product(seed=True) as product:
        boots = [_boot(product) for _ in range(STARTS)]
        wait_until(lambda: "engine_warm" in product.log.rsplit("Ready after", 1)[-1], 120)
        idle = _settled(product)
        person = Person(product, "bench")
        for question in QUESTIONS:
            person.api("messages", {"content": question})
        asked = _settled(product)
        for name in FILES:
            person.upload(FOLDER / name)
        person.wait_for_documents()
        uploaded = _settled(product)
    _report(boots, idle, asked, uploaded)


def _boot(product: Product) -> float:
    product.stop()
    begun = time.perf_counter()
    product.start()
    return time.perf_counter() - begun


def _settled(product: Product) -> dict[str, float]:
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
            size = process.memory_full_info().pss / 2**20
            name = name_part(process)
        except psutil.Error:
            continue
        sizes[name] = sizes.get(name, 0.0) + size
    return {name: round(size, 1) for name, size in sorted(sizes.items())}


def _report(
    boots: list[float],
    idle: dict[str, float],
    asked: dict[str, float],
    uploaded: dict[str, float],
) -> None:
    boot = statistics.median(boots)
    figures = {
        "aim": AIM,
        "boot_s": {"median": round(boot, 2), "all": [round(one, 2) for one in boots]},
        "idle_pss_mb": {"all": round(sum(idle.values())), **idle},
        "after_questions_pss_mb": {"all": round(sum(asked.values())), **asked},
        "after_uploads_pss_mb": {"all": round(sum(uploaded.values())), **uploaded},
    }
    report.write("footprint", figures)
    stages = (idle, asked, uploaded)
    rows = [[name, *(f"{stage.get(name, 0):.0f}" for stage in stages)] for name in uploaded]
    rows.append(["all (aim 2560)", *(f"{sum(stage.values()):.0f}" for stage in stages)])
    print(f"\nWarm start to /readyz: {boot:.1f} s (median of {STARTS}; aim 15)")
    report.table("Memory (PSS, MB)", ["process", "idle", "after questions", "after uploads"], rows)


if __name__ == "__main__":
    main()

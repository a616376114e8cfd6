"""How many planted faults are seen, how many true sentences are doubted, and how long it takes."""

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import report
from benchmarks.grounding import planted, sources
from rag.tokenize.korean import get_analyser
from rag.types import Verdict
from tests.quality import hand, sets
from tests.quality.hand import check

MARKERS = ("marker_near", "marker_far", "invented")
"""Wrong citations: the sentence is not of the passage that it cites."""
MOST = report.choose_size(150, quick=10)
"""Cases of a corpus and a half."""
SENTENCES, ROUNDS = 8, report.choose_size(20, quick=5)
"""Of the answers that are timed: a usual answer, on four passages."""

Counts = Mapping[tuple[bool, bool, str, str], tuple[int, int]]
"""(blind, right, kind, corpus) -> (doubted, all)."""


def main() -> None:
    """Measure, print and keep."""
    get_analyser()
    if not sets.available():
        raise SystemExit("the data sets do not lie beside the project")
    corpora = sources.load()
    counts = _planted(corpora)
    written = {language: _written(language) for language in hand.LANGUAGES}
    timing = {
        lib.name: _timing(lib)
        for lib in corpora
        if lib.name in ("korquad1_dev", "kr_law", "xquad_en")
    }
    figures = {
        "planted": {half: _summary(counts, blind=half == "blind") for half in ("seen", "blind")},
        "by_hand": written,
        "milliseconds": timing,
    }
    report.write("grounding", figures)
    _print(counts, figures)


def _planted(corpora: list[sources.Corpus]) -> Counts:
    counts: dict[tuple[bool, bool, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for corpus in corpora:
        for case in _drawn(corpus):
            checks = check(case.answer, case.evidence)
            found = counts[case.blind, case.right, case.kind, case.corpus]
            found[0] += any(item.verdict is Verdict.UNSUPPORTED for item in checks)
            found[1] += 1
    return {key: (doubted, every) for key, (doubted, every) in counts.items()}


def _drawn(corpus: sources.Corpus) -> Iterator[planted.Case]:
    """At most `MOST` of each half, evenly from all passages."""
    cases = list(planted.cases(corpus))
    for blind in (False, True):
        half = [case for case in cases if case.blind is blind]
        step = max(1, -(-len(half) // MOST))
        yield from half[::step]


def _summary(counts: Counts, *, blind: bool) -> dict[str, object]:
    kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (is_blind, right, kind, _), (doubted, every) in counts.items():
        if is_blind is not blind:
            continue
        names = [f"true: {kind}" if right else kind, "true" if right else "wrong words"]
        if kind in MARKERS:
            names[1] = "wrong citations"
        for name in names:
            kinds[name][0] += doubted
            kinds[name][1] += every
    return {
        name: {"doubted": doubted, "cases": every, "share": round(doubted / every, 4)}
        for name, (doubted, every) in sorted(kinds.items())
    }


def _written(language: str) -> dict[str, dict[str, int]]:
    """Of each half, how often which verdict met a reader's: "supported as unsupported"."""
    counts: dict[str, Counter[str]] = {"seen": Counter(), "blind": Counter()}
    for written in hand.load(language):
        for _, wanted, said in hand.found(written):
            counts["blind" if written.blind else "seen"][f"{wanted} as {said or 'nothing'}"] += 1
    return {half: dict(sorted(found.items())) for half, found in counts.items()}


def _timing(corpus: sources.Corpus) -> dict[str, float]:
    """Milliseconds of checking an answer of eight sentences on four passages."""
    times, characters = [], []
    topics = [topic for topic in corpus.topics.values() if len(topic) >= 4]
    for topic in topics[:ROUNDS]:
        evidence = tuple(planted.evidence(slot, item) for slot, item in enumerate(topic[:4], 1))
        answer = _answer(topic[:4])
        begun = time.perf_counter()
        check(answer, evidence)
        times.append((time.perf_counter() - begun) * 1000)
        characters.append(len(answer) + sum(len(item.text) for item in evidence))
    return report.percentiles(times) | {"characters": round(statistics.mean(characters))}


def _answer(passages: list[sources.Passage]) -> str:
    parts = [
        f"{text} [{slot}]"
        for slot, passage in enumerate(passages, 1)
        for text in passage.sentences()[: SENTENCES // 4]
    ]
    return " ".join(parts)


def _print(counts: Counts, figures: Mapping[str, Any]) -> None:
    seen, blind = (_summary(counts, blind=half) for half in (False, True))
    names = sorted({*seen, *blind}, key=lambda name: (name.startswith("true"), name))
    rows = [[name, *(_cell(half.get(name)) for half in (seen, blind))] for name in names]
    report.table("Sentences doubted: planted faults, and true ones", ["", "seen", "blind"], rows)
    rows = [
        [f"{language} {half}: {pair}", count]
        for language, halves in figures["by_hand"].items()
        for half, pairs in halves.items()
        for pair, count in pairs.items()
    ]
    report.table("Sentences written by hand: the reader's verdict, ours", ["", "sentences"], rows)
    rows = [[name, *found.values()] for name, found in figures["milliseconds"].items()]
    report.table("Milliseconds an answer", ["", "p50", "p95", "max", "characters read"], rows)


def _cell(found: object) -> str:
    if not isinstance(found, dict):
        return "-"
    return f"{found['share']:.1%} of {found['cases']}"


if __name__ == "__main__":
    main()

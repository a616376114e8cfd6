"""References to documents by place: how many utterances of dialogues are understood exactly.

`python -m benchmarks.quality.slots [--errors]`. Every third dialogue was left unseen while the
rules were written; errors are shown of the others only.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rag.understand.references import Reference, resolve_reference
from tests.quality import sets
from tests.quality.slots import Case, load, resolves_falsely, right

ALARMS = ("korquad1_dev", "ko_strategyqa", "kr_law", "ko_docs", "xquad_en", "clapnq_dev")
ROUNDS = 5
"""Times each utterance is resolved for the clock."""


@dataclass(frozen=True, slots=True)
class Score:
    """Figures of some cases; shares are 0..1, times in milliseconds."""

    cases: int
    exact: float
    false_resolves: int
    clarified: float
    nothing: int
    negatives: int
    p50: float
    p99: float
    longest: float


def measure(cases: Sequence[Case]) -> Score:
    """The figures of these cases."""
    found = [case.found() for case in cases]
    pairs = list(zip(cases, found, strict=True))
    unclear = [one and one.unclear == case.unclear for case, one in pairs if case.unclear]
    times = sorted(_milliseconds(case) for case in cases)
    return Score(
        cases=len(cases),
        exact=statistics.mean(right(case, one) for case, one in pairs),
        false_resolves=sum(resolves_falsely(case, one) for case, one in pairs),
        clarified=statistics.mean(map(bool, unclear)),
        nothing=sum(case.unclear == "nothing" for case in cases),
        negatives=sum(not case.titles and not case.unclear for case in cases),
        p50=statistics.median(times),
        p99=times[int(len(times) * 0.99)],
        longest=times[-1],
    )


def alarms(name: str) -> tuple[int, int]:
    """Of a set's questions, asked after an answer with three documents, how many are taken for a
    reference, and how many there are. None of them is one.
    """
    after = load()[0]
    questions = {asked.text for asked in sets.load(name).questions}
    found = [
        resolve_reference(text, after.conversation, lambda: after.session) for text in questions
    ]
    return sum(one is not None for one in found), len(questions)


def _milliseconds(case: Case) -> float:
    taken: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        case.found()
        taken.append((time.perf_counter() - started) * 1000)
    return min(taken)


def main() -> None:
    """Print the figures; with --errors what went wrong in the dialogues that may be looked at."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.slots", description=__doc__)
    parser.add_argument("--errors", action="store_true")
    wishes = parser.parse_args()
    cases = load()
    groups = {
        "all": cases,
        "seen": [case for case in cases if not case.unseen],
        "unseen": [case for case in cases if case.unseen],
        "ko": [case for case in cases if case.language == "ko"],
        "en": [case for case in cases if case.language == "en"],
    }
    print("set     cases  exact  false  clarified  nothing  negatives  p50 ms  p99 ms  max ms")
    for name, chosen in groups.items():
        one = measure(chosen)
        print(
            f"{name:7} {one.cases:5}  {one.exact:.3f}  {one.false_resolves:5}  {one.clarified:9.3f}"
            f"  {one.nothing:7}  {one.negatives:9}"
            f"  {one.p50:6.3f}  {one.p99:6.3f}  {one.longest:6.3f}"
        )
    for name in ALARMS if sets.DATA.is_dir() else ():
        taken, asked = alarms(name)
        print(f"{name}: {taken} of {asked} questions of their own are taken for references")
    if wishes.errors:
        for case in groups["seen"]:
            found = case.found()
            if not right(case, found):
                print(case.dialogue, case.text, "=>", found and _shown(found))


def _shown(found: Reference) -> str:
    titles = ", ".join(ref.title for ref in found.documents)
    wish = f"part {found.part}" if found.whole else found.rest
    return f"{found.unclear or 'means'} [{titles}] {wish}"


if __name__ == "__main__":
    main()

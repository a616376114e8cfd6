"""References to documents by place: how many utterances of dialogues are understood exactly.

`python -m benchmarks.quality.slots [--errors]`. Every third dialogue was left unseen while the
rules were written; errors are shown of the others only.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from benchmarks.quality import sets
from rag.conversation import Conversation, DocRef, PastTurn, View
from rag.understand.references import LAST_PART, Reference, resolve_reference

SET = Path(__file__).resolve().parents[2] / "tests" / "data" / "slots.jsonl"
ALARMS = ("korquad1_dev", "ko_strategyqa", "kr_law", "ko_docs", "xquad_en", "clapnq_dev")
ROUNDS = 5
"""Times each utterance is resolved for the clock."""


@dataclass(frozen=True, slots=True)
class Case:
    """An utterance after a dialogue, and what it refers to.

    `titles`: the documents meant; none with `unclear`: it must be asked back; neither: it refers
    to nothing. `rest` is compared where it is given.
    """

    dialogue: int
    language: str
    unseen: bool
    conversation: Conversation
    session: tuple[DocRef, ...]
    text: str
    titles: tuple[str, ...]
    unclear: str
    whole: bool
    part: int
    rest: str

    def found(self) -> Reference | None:
        """What the product makes of it."""
        return resolve_reference(self.text, self.conversation, lambda: self.session)


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


def load(path: Path = SET) -> list[Case]:
    """All utterances, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [case for line in lines for case in _cases(json.loads(line))]


def right(case: Case, found: Reference | None) -> bool:
    """Whether the documents, the wish, and the rest where it is given, are exactly those."""
    if found is None:
        return not case.titles and not case.unclear
    if case.unclear:
        return found.unclear == case.unclear
    titles = tuple(ref.title for ref in found.documents)
    same = found.unclear is None and titles == case.titles and found.whole == case.whole
    return same and (not case.whole or found.part == case.part) and found.rest.startswith(case.rest)


def resolves_falsely(case: Case, found: Reference | None) -> bool:
    """Whether a document is taken to be meant that is not."""
    if found is None or found.unclear:
        return False
    return not {ref.title for ref in found.documents} <= set(case.titles)


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


def _cases(dialogue: dict[str, Any]) -> Iterator[Case]:
    conversation, session = _conversation(dialogue["turns"])
    for case in dialogue["cases"]:
        part = case.get("part", 1)
        yield Case(
            dialogue=dialogue["dialogue"],
            language=dialogue["language"],
            unseen=dialogue["unseen"],
            conversation=conversation,
            session=session,
            text=case["text"],
            titles=tuple(case.get("titles", ())),
            unclear=case.get("unclear", ""),
            whole=case.get("whole", False),
            part=LAST_PART if part == "last" else part,
            rest=case.get("rest", ""),
        )


def _conversation(told: Sequence[dict[str, Any]]) -> tuple[Conversation, tuple[DocRef, ...]]:
    """The turns as the product keeps them, and the documents of the session."""
    turns = tuple(_turn(number, one) for number, one in enumerate(told, 1))
    begins = max(
        (turn.number for turn, one in zip(turns, told, strict=True) if one.get("cleared")),
        default=0,
    )
    shown = [turn for turn in turns if turn.doc_refs and turn.number > begins]
    titles = dict.fromkeys(ref.title for turn in turns for ref in turn.doc_refs)
    session = _refs(list(titles))
    readable = {ref.document_id: ref.version for ref in session}
    last = shown[-1] if shown else None
    return Conversation(turns, len(turns), shown=last, readable=readable), session


def _turn(number: int, told: dict[str, Any]) -> PastTurn:
    view = told.get("view")
    return PastTurn(
        number=number,
        user_text=told["user"],
        assistant_text=told["assistant"],
        question_type=told.get("type", "single"),
        mode=told["mode"],
        doc_refs=_refs(told.get("titles", [])),
        candidates=_refs(told.get("candidates", [])),
        view=View(_key(view[0]), view[1], view[2]) if view else None,
    )


def _refs(titles: Sequence[str]) -> tuple[DocRef, ...]:
    return tuple(DocRef(slot, _key(title), title, title) for slot, title in enumerate(titles, 1))


def _key(title: str) -> UUID:
    return uuid5(NAMESPACE_OID, title)


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

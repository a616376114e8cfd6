"""How well older turns are chosen: sessions that interleave five conversations turn by turn.

`python -m benchmarks.quality.history`. For the last question of each conversation at most three
earlier turns of its session are chosen; right are those of the same conversation. Conversations are
split by a hash of their name before they are interleaved: constants were chosen on the first half.
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from uuid import UUID, uuid5

from rank_bm25 import BM25Okapi

from benchmarks import report
from benchmarks.local_models import with_local_models
from rag.config import ContextRules
from rag.conversation import QUESTION_CHARACTERS, PastTurn, TurnLine
from rag.factory import Engine
from rag.memory.recall import choose_turns
from rag.memory.summary import note_turn
from rag.ports import Embedder
from rag.types import Scope, ScopeReason, TextChunk
from tests.quality import sets
from tests.rag.memory_store import MemoryStore

TOGETHER = 5
CHOSEN = 3
KOREAN = Path(__file__).parents[2] / "tests" / "data" / "interleaved_ko.jsonl"
NAMES = UUID(int=0)
AIMS = {"precision": 0.85, "any_right": 0.98, "share_of_history": 0.25}


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation: its name, its turns, and what is asked last."""

    name: str
    turns: tuple[tuple[str, str], ...]
    last: str

    @property
    def unseen(self) -> bool:
        """Whether it belongs to the half that nothing was chosen on."""
        return _hash(self.name) // 2 % 2 == 1  # the last bit tells which conversations we have


@dataclass(frozen=True, slots=True)
class Case:
    """A question, the earlier turns of its session, and the numbers of the right ones."""

    question: str
    turns: tuple[PastTurn, ...]
    right: frozenset[int]


def english() -> list[Talk]:
    """The conversations of mtrag/un that have an earlier turn."""
    path = sets.DATA / "mtrag/un/tasks.jsonl"
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    talks = []
    for row in rows:
        said = [message["text"] for message in row["input"]]
        turns = tuple(zip(said[:-1:2], said[1:-1:2], strict=True))
        talks.append(Talk(row["conversation_id"], turns, said[-1]))
    return [talk for talk in talks if talk.turns]


def korean() -> list[Talk]:
    """Our own conversations on statutes, tenders and manuals."""
    rows = (json.loads(line) for line in KOREAN.read_text(encoding="utf-8").splitlines())
    return [
        Talk(
            row["conversation_id"],
            tuple((turn["user"], turn["assistant"]) for turn in row["turns"][:-1]),
            row["turns"][-1]["user"],
        )
        for row in rows
    ]


def cases(talks: Sequence[Talk]) -> Iterator[Case]:
    """Every last question, with all that its session said before it."""
    ordered = sorted(talks, key=lambda talk: _hash(talk.name))
    for start in range(0, len(ordered) - TOGETHER + 1, TOGETHER):
        group = ordered[start : start + TOGETHER]
        rounds = range(max(len(talk.turns) for talk in group) + 1)
        order = [
            (at, who) for at in rounds for who in range(TOGETHER) if at <= len(group[who].turns)
        ]
        for who, talk in enumerate(group):
            before = order[: order.index((len(talk.turns), who))]
            said = [(other, _turn(group[other], at)) for at, other in before]
            turns = tuple(PastTurn(n, *pair) for n, (_, pair) in enumerate(said, 1))
            right = frozenset(n for n, (other, _) in enumerate(said, 1) if other == who)
            yield Case(talk.last, turns, right)


def _turn(talk: Talk, at: int) -> tuple[str, str]:
    return talk.turns[at] if at < len(talk.turns) else (talk.last, "")


def _hash(name: str) -> int:
    return int(hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:8], 16)


class Library:
    """The passages of mtrag as documents, one a title."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.store = MemoryStore()
        units: dict[str, list[str]] = {}
        for unit in sets.load("mtrag_un").units:
            units.setdefault(unit.title or unit.document, []).append(unit.text)
        for name, texts in units.items():
            chunks = [
                TextChunk(at, text, 0, len(text), None, None, "") for at, text in enumerate(texts)
            ]
            self.store.add(
                uuid5(NAMES, name),
                name,
                list(engine.index_chunks(chunks, name, lambda *_: None, len(chunks))),
            )
        ids = tuple(uuid5(NAMES, name) for name in units)
        self.scope = Scope(ids, ScopeReason.ALL)

    def documents(self, question: str) -> tuple[UUID, ...]:
        """The documents that a question finds, as far as the gate lets them through."""
        found = self.engine.search(question, self.scope, self.store, filters={})
        hits = found.hits if found.gate.relevant else ()
        return tuple(dict.fromkeys(hit.passage.document_id for hit in hits))


class Notes:
    """Turns as the product keeps them; each is noted once."""

    def __init__(self, embedder: Embedder, library: Library | None) -> None:
        self.embedder = embedder
        self._library = library
        self._noted: dict[tuple[str, str], TurnLine] = {}
        self._found: dict[str, tuple[UUID, ...]] = {}

    def line(self, turn: PastTurn) -> TurnLine:
        """The line of a turn, with the documents that its question finds."""
        key = (turn.user_text, turn.assistant_text)
        if key not in self._noted:
            self._noted[key] = self._line(turn)
        return replace(self._noted[key], number=turn.number)

    def documents(self, question: str) -> tuple[UUID, ...]:
        """The documents that a question finds; none without a library."""
        if self._library is None:
            return ()
        if question not in self._found:
            self._found[question] = self._library.documents(question)
        return self._found[question]

    def _line(self, turn: PastTurn) -> TurnLine:
        work = note_turn(
            turn,
            (),
            None,
            light=None,
            embedder=self.embedder,
            rules=ContextRules(),
            windowed=False,
        )
        noted = asyncio.run(work)
        vector = noted.vectors.get(turn.number)
        return TurnLine(
            number=turn.number,
            question=turn.user_text[:QUESTION_CHARACTERS],
            summary=noted.summary,
            document_ids=self.documents(turn.user_text),
            terms=noted.terms,
            vector=tuple(vector) if vector else None,
        )


Way = Callable[[Case, Notes], Sequence[int]]


def last(case: Case, notes: Notes) -> Sequence[int]:
    """The last three turns."""
    del notes
    return [turn.number for turn in case.turns[-CHOSEN:]]


def plain(case: Case, notes: Notes) -> Sequence[int]:
    """The best three by BM25 over blank-separated words, as a plain system has them."""
    del notes
    texts = [f"{turn.user_text} {turn.assistant_text}".lower().split() for turn in case.turns]
    scores = BM25Okapi(texts).get_scores(case.question.lower().split())
    best = sorted(range(len(texts)), key=lambda at: -scores[at])[:CHOSEN]
    return [case.turns[at].number for at in best]


def product(case: Case, notes: Notes, *, found: bool) -> Sequence[int]:
    """What the product's scores choose; `found`: knowing what the question's search found."""
    lines = [notes.line(turn) for turn in case.turns]
    documents = notes.documents(case.question) if found else ()
    return choose_turns(case.question, lines, notes.embedder, documents=documents)[1]


def figures(way: Way, asked: Sequence[Case], notes: Notes) -> dict[str, float]:
    """Precision of the chosen, any right one, share of the history's characters, and time.

    A question for which nothing is chosen counts as precision 0. `p50_ms`, terms being stored.
    """
    precise, any_right, share, chosen, times = [], [], [], [], []
    for case in asked:
        begun = time.perf_counter()
        numbers = way(case, notes)
        times.append(time.perf_counter() - begun)
        sizes = {one.number: len(one.user_text + one.assistant_text) for one in case.turns}
        precise.append(mean([number in case.right for number in numbers] or [0]))
        any_right.append(any(number in case.right for number in numbers))
        share.append(sum(sizes[number] for number in numbers) / sum(sizes.values()))
        chosen.append(len(numbers))
    return {
        "questions": len(asked),
        "precision": round(mean(precise), 4),
        "any_right": round(mean(any_right), 4),
        "share_of_history": round(mean(share), 4),
        "chosen": round(mean(chosen), 2),
        "p50_ms": round(1000 * median(times), 1),
    }


def main() -> None:
    """Measure, keep and print."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    engine = Engine(with_local_models())
    parts: list[tuple[str, list[Talk], Library | None]] = []
    if sets.available():
        talks, library = english(), Library(engine)
        parts.append(("mtrag_un, seen", [one for one in talks if not one.unseen], library))
        parts.append(("mtrag_un, unseen", [one for one in talks if one.unseen], library))
    parts.append(("interleaved_ko", korean(), None))
    measured = {}
    for name, talks, of in parts:
        measured[name] = _measured(list(cases(talks)), Notes(engine.embedder, of), of is not None)
        rows = [(way, *values.values()) for way, values in measured[name].items()]
        report.table(name, ("way", *next(iter(measured[name].values()))), rows)
    report.write("history", {"aims": AIMS, "sets": measured})


def _measured(asked: list[Case], notes: Notes, found: bool) -> dict[str, dict[str, float]]:
    for case in asked:
        for turn in case.turns:
            notes.line(turn)
    ways: dict[str, Way] = {
        "last 3": last,
        "BM25 top 3": plain,
        "product": partial(product, found=False),
    }
    if found:
        ways["product, documents found"] = partial(product, found=True)
    return {name: figures(way, asked, notes) for name, way in ways.items()}


if __name__ == "__main__":
    main()

"""How long a search call takes in large libraries, beside what others take on the same chunks.

The product's call is all that an answers worker does for one: terms, both legs, fusion, gate. The
question's vector is made before and told apart. Every question goes to each system in turn, so that
what else the machine does meets all of them alike.
"""

import itertools
import os
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from uuid import UUID

import numpy as np

from benchmarks import report
from benchmarks.scale import corpus, plot, recall, rivals, stock
from benchmarks.scale.corpus import Question
from tests.quality import sets

SIZES = report.choose_size((1_000, 10_000, 100_000), quick=(500, 5_000))
SCOPES = (5, 100, None)
"""Documents; None: all of them."""
QUESTIONS = report.choose_size(50, quick=5)
"""Of each language, in each library and scope."""
WARMING = 6
AIM = {"library": 100_000, "documents": 100, "p50_ms": 8.0, "p95_ms": 16.0}
FOLDER = Path(__file__).parents[1] / "var" / "bench"


class System(Protocol):
    """One that searches."""

    name: str

    def search(self, question: Question, scope: Collection[UUID]) -> object:
        """The best for a question within these documents."""


@dataclass(frozen=True, slots=True)
class Case:
    """One library and scope: times in ms by system and language, and the product's steps."""

    chunks: int
    documents: int
    whole: bool
    times: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    steps: dict[str, dict[str, list[float]]] = field(default_factory=dict)


class Nura:
    """The product's engine over its own store."""

    name = "Nura"

    def __init__(self, questions: Sequence[Question]) -> None:
        from rag.config import RagConfig
        from rag.factory import Engine

        vectors = {question.text: question.vector for question in questions}
        self._engine = Engine(RagConfig(), embedder=stock.KnowsAll(vectors))
        self.steps: dict[str, float] = {}

    def search(self, question: Question, scope: Collection[UUID]) -> object:
        """As the worker does it; `steps` are the milliseconds of the last search."""
        from documents.search.store import ScopedStore
        from rag.types import Scope, ScopeReason

        asked = Scope(tuple(scope), ScopeReason.EXPLICIT)
        found = self._engine.search(question.text, asked, ScopedStore(scope))
        self.steps = dict(found.timings_ms)
        return found


def main() -> None:
    if not sets.available():
        print("\nspeed: left out, as the data it is made from does not lie beside the project")
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    FOLDER.mkdir(parents=True, exist_ok=True)
    cases: list[Case] = []
    with stock.postgres(FOLDER):
        texts = corpus.load(FOLDER)
        nura = Nura(texts.questions)
        for size in SIZES:
            documents = stock.stocked(texts, size)
            stock.fill_buffers()
            stored = stock.stored(texts, size)
            systems = [nura, rivals.Flat(stored), rivals.Chroma(stored)]
            print(f"{size} chunks are in place", flush=True)
            for scope in SCOPES:
                if scope is None or scope < len(documents):
                    cases.append(_case(size, documents, scope, systems, texts.questions))
                    _progress(cases[-1])
        found = recall.measure(texts.questions, documents)
    _report(cases, texts.questions, found)


def _case(
    size: int,
    documents: Sequence[UUID],
    scope: int | None,
    systems: Sequence[System],
    questions: Sequence[Question],
) -> Case:
    case = Case(size, scope or len(documents), whole=scope is None)
    chance = random.Random(f"{size} {scope}")
    for number, question in enumerate(_asked(questions)):
        within = chance.sample(list(documents), case.documents)
        for system in chance.sample(list(systems), len(systems)):
            took = report.time_once(lambda run=system: run.search(question, within))  # noqa: B023
            if number < WARMING:
                continue
            case.times.setdefault(system.name, {}).setdefault(question.language, []).append(took)
            if isinstance(system, Nura):
                kept = case.steps.setdefault(question.language, {})
                for name, value in system.steps.items():
                    kept.setdefault(name, []).append(value)
    return case


def _asked(questions: Sequence[Question]) -> list[Question]:
    """As many of each language, by turns, with some before them to warm up with."""
    by_language = [
        [question for question in questions if question.language == name] for name in corpus.ASKED
    ]
    pairs = zip(*(found[: QUESTIONS + WARMING // 2] for found in by_language), strict=True)
    return [question for pair in pairs for question in pair]


def _figures(values: Sequence[float]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(values, share)), 1) for share in (50, 95, 99)}


def _steps(case: Case, language: str) -> dict[str, float]:
    """Medians of the product's steps; what no step is named for is `other`: fusion, gate, plan."""
    steps = {name: float(np.median(values)) for name, values in case.steps[language].items()}
    known = sum(value for name, value in steps.items() if name != "total")
    return {
        name: round(value, 1) for name, value in {**steps, "other": steps["total"] - known}.items()
    }


def _progress(case: Case) -> None:
    found = {
        name: _figures(list(itertools.chain.from_iterable(times.values())))
        for name, times in case.times.items()
    }
    print(f"{case.chunks} chunks, {case.documents} documents: {found}", flush=True)


def _report(
    cases: Sequence[Case], questions: Sequence[Question], found: Sequence[dict[str, object]]
) -> None:
    embedding = _figures([question.embed_ms for question in questions if question.embed_ms])
    rows = [
        {
            "chunks": case.chunks,
            "documents": "all" if case.whole else case.documents,
            "language": language,
            "ms": {name: _figures(times[language]) for name, times in case.times.items()},
            "steps_p50_ms": _steps(case, language),
        }
        for case in cases
        for language in corpus.ASKED
    ]
    figures = {"aim": AIM, "embed_query_ms": embedding, "recall": found, "cases": rows}
    report.write("speed", figures)
    names = list(rows[0]["ms"])
    table = [
        [
            f"{row['chunks']:,} chunks, {row['documents']} documents, {row['language']}",
            *("/".join(f"{value:.0f}" for value in row["ms"][name].values()) for name in names),
        ]
        for row in rows
    ]
    report.table("Search call (p50/p95/p99 ms, without the question's vector)", ["", *names], table)
    print(f"The question's vector besides: {embedding}")
    recalls = [list(row.values()) for row in found]
    report.table("Dense leg, largest library", ["share in scope", "way", "recall@10"], recalls)
    plot.draw(rows, report.RESULTS / "speed.svg")


if __name__ == "__main__":
    main()

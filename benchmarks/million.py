"""How long a search takes among a million chunks, and what it finds of what is there.

Within 5 and 100 documents, a library of a tenth, and all of it; every call is all that an answers
worker does for one, without the question's vector. First, what searches read is read into Postgres'
buffers, as after each start of Nura. Recall is that of the best ten of each leg
beside the exact comparison of every chunk; what scores as much as the tenth counts as found.
`--rivals` asks others the same in turn, on the same terms and vectors; they take 5 GB of memory.
"""

import argparse
import os
import random
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from benchmarks import report
from benchmarks.scale import corpus, rivals, stock
from benchmarks.scale.corpus import Corpus, Question
from benchmarks.speed import Nura, System, _figures
from tests.quality import sets

SIZE = report.choose_size(1_000_000, quick=20_000)
SCOPES = ("5 documents", "100 documents", "a library", "all")
AIMS = {
    "5 documents": (8, 16),
    "100 documents": (12, 25),
    "a library": (25, 60),
    "all": (60, 120),
}
"""p50 and p95 in ms."""
QUESTIONS = report.choose_size(50, quick=5)
"""Of each language and scope."""
RECALLED = report.choose_size(30, quick=5)
"""Of each language."""
WARMING = report.choose_size(40, quick=6)
"""Questions before those that count: of what an installation in use has in its buffers, they read
the texts of passages."""
BEST = 10
DEPTH = 30
FOLDER = Path(__file__).parents[1] / "var" / "bench"
"""Where the library stays, to be searched again."""


def main() -> None:
    """Make the library where it is not there, measure, and keep the figures."""
    if not sets.available():
        print("\nmillion: left out, as the data it is made from does not lie beside the project")
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--build", action="store_true", help="make the library and end")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the library is, or goes")
    parser.add_argument(
        "--recalled", type=int, default=RECALLED, help="questions of each language; 0: times alone"
    )
    parser.add_argument("--rivals", action="store_true", help="ask others as well")
    parser.add_argument(
        "--questions", type=int, default=QUESTIONS, help="of each language in each scope"
    )
    wanted, _ = parser.parse_known_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    wanted.folder.mkdir(parents=True, exist_ok=True)
    with stock.postgres(wanted.folder):
        texts = corpus.load(wanted.folder)
        documents = stock.stocked(texts, wanted.size)
        if wanted.build:
            return
        filled = stock.fill_buffers()
        nura = Nura(texts.questions)
        others = list_rivals(texts, documents, wanted.size) if wanted.rivals else []
        asked = _list_asked(texts.questions, wanted.questions + WARMING // 2)
        times = measure_times(asked, documents, nura, others)
        recalled = _list_asked(texts.questions, wanted.recalled)
        recall = measure_recall(recalled, documents) if recalled else {}
    found = {"buffers": filled, **times, "recall_at_10": recall}
    report.write("million", {"aims": AIMS, "chunks": wanted.size, **found})


def list_rivals(texts: Corpus, documents: Sequence[UUID], size: int) -> list[System]:
    """Those that such a library can be put into within an hour."""
    return [rivals.Textbook(documents), rivals.Sparse(texts, documents, size)]


def measure_times(
    asked: Sequence[Question], documents: Sequence[UUID], nura: Nura, others: Sequence[System]
) -> dict[str, object]:
    """In each scope, of Nura with its steps and of the others."""
    times, steps = _time_searches(asked, documents, nura, others)
    rows = [
        [f"{scope}, {language}", *(_figures(values)[name] for name in ("p50", "p95")), *AIMS[scope]]
        for (scope, language), values in times[nura.name].items()
    ]
    report.table("Search among a million chunks", ["", "p50", "p95", "aim", "aim p95"], rows)
    for case, found in steps.items():
        print(*case, found)
    named = {
        name: {", ".join(case): _figures(values) for case, values in found.items()}
        for name, found in times.items()
    }
    ours = named.pop(nura.name)
    for name, cases in named.items():
        report.table(name, ["", "p50", "p95", "p99"], [[c, *f.values()] for c, f in cases.items()])
    steps_named = {", ".join(case): found for case, found in steps.items()}
    return {"ms": ours, "rivals_ms": named, "steps_p50_ms": steps_named}


Case = tuple[str, str]


def _time_searches(
    asked: Sequence[Question], documents: Sequence[UUID], nura: Nura, others: Sequence[System]
) -> tuple[dict[str, dict[Case, list[float]]], dict[Case, dict[str, float]]]:
    """Every question in every scope in turn, so that what else runs meets all scopes alike.

    The first `WARMING` ones go to Nura alone. Times by system and case, and medians of its steps.
    """
    chance, turns = random.Random(11), random.Random(13)
    systems: list[System] = [nura, *others]
    times: dict[str, dict[Case, list[float]]] = {system.name: {} for system in systems}
    steps: dict[Case, dict[str, list[float]]] = {}
    for number, question in enumerate(asked):
        for name in SCOPES:
            scope = _choose_scope(name, documents, chance)
            if number < WARMING:
                nura.search(question, scope)
                continue
            case = name, question.language
            for system in turns.sample(systems, len(systems)):
                took = report.time_once(lambda run=system: run.search(question, scope))  # noqa: B023
                times[system.name].setdefault(case, []).append(took)
            for step, value in nura.steps.items():
                steps.setdefault(case, {}).setdefault(step, []).append(value)
    medians = {
        case: {step: _figures(values)["p50"] for step, values in found.items()}
        for case, found in steps.items()
    }
    return times, medians


def _choose_scope(name: str, documents: Sequence[UUID], chance: random.Random) -> Sequence[UUID]:
    """Documents by chance, all of a library, or all."""
    if name == "all":
        return documents
    if name == "a library":
        return chance.choice(_list_libraries())
    return chance.sample(list(documents), int(name.split(maxsplit=1)[0]))


def _list_libraries() -> list[list[UUID]]:
    from documents.models import Document

    if not _LIBRARIES:
        found: dict[UUID, list[UUID]] = {}
        rows = Document.objects.order_by("created_at", "pk").values_list("library_id", "pk")
        for library, document in rows:
            found.setdefault(library, []).append(document)
        _LIBRARIES.extend(found.values())
    return _LIBRARIES


_LIBRARIES: list[list[UUID]] = []


def _list_asked(questions: Sequence[Question], each: int) -> list[Question]:
    """As many of each language, by turns."""
    by_language = [[one for one in questions if one.language == name] for name in corpus.ASKED]
    return [
        one for pair in zip(*(found[:each] for found in by_language), strict=True) for one in pair
    ]


def measure_recall(
    asked: Sequence[Question], documents: Sequence[UUID]
) -> dict[str, dict[str, float]]:
    """Recall@10 of both legs in the two large scopes."""
    chance = random.Random(12)
    found = {
        name: {
            "words": _recall_words(asked, _choose_scope(name, documents, chance)),
            "vectors": _recall_vectors(asked, _choose_scope(name, documents, chance)),
        }
        for name in SCOPES[2:]
    }
    report.table(
        "Recall@10 beside the exact comparison",
        ["", "words", "vectors"],
        [[scope, one["words"], one["vectors"]] for scope, one in found.items()],
    )
    return found


def _recall_words(questions: Sequence[Question], scope: Sequence[UUID]) -> float:
    from documents.search import bm25, database
    from rag import tokenize

    held = 0.0
    for question in questions:
        terms = bm25.clean_terms(tokenize.weigh_query_terms(question.text))
        with database.open_search(database.SearchScope(scope)) as search:
            right = bm25.find_by_scan(search, terms, BEST)
        with database.open_search(database.SearchScope(scope)) as search:
            found = bm25.find_best_chunks(search, terms, DEPTH)[:BEST]
        held += _share(found, right)
    return round(held / len(questions), 4)


def _recall_vectors(questions: Sequence[Question], scope: Sequence[UUID]) -> float:
    from documents.search import database, store

    held = 0.0
    for question in questions:
        with database.open_search(database.SearchScope(scope)) as search:
            assert search.facts.space is not None
            found = store.find_nearest_chunks(search, search.facts.space, question.vector, DEPTH)
            right = store.find_by_scan(search, search.facts.space, question.vector, BEST)
        held += _share(found[:BEST], right)
    return round(held / len(questions), 4)


def _share(found: Sequence[object], right: Sequence[object]) -> float:
    """How many of the right ones were found, by key or by a score as good as the last one's."""
    if not right:
        return 1.0
    keys = {hit.passage.key for hit in right}  # type: ignore[attr-defined]
    least = right[-1].score  # type: ignore[attr-defined]
    good = sum(
        hit.passage.key in keys or hit.score >= least * (1 - 1e-6)  # type: ignore[attr-defined]
        for hit in found
    )
    return min(1.0, good / len(right))


if __name__ == "__main__":
    main()

"""Whether the answer without a model holds what was asked: over question sets and pairs of laws.

Evidence is what the product would read: the passages that a search over the set's own units finds
(`found`), or the right passage alone (`given`). An answer holds it when the answer span of the set
stands in it, or for clapnq_dev as many as
it holds of the sentences that an annotator chose.
"""

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

from benchmarks import report
from benchmarks.quality import sets
from benchmarks.quality.sets import QuestionSet
from rag import evidence, language
from rag.config import RagConfig
from rag.factory import Engine
from rag.generation.brief import Brief, Evidence
from rag.generation.extractive.answerer import answer
from rag.retrieval.memory import MemoryStore
from rag.types import Chunk, Scope, ScopeReason

SQUAD = {
    "korquad1_dev": "korquad1_dev/KorQuAD_v1.0_dev.part.json",
    "xquad_en": "xquad_en/xquad.en.part.json",
}
ASKED = {"korquad1_dev": 12, "xquad_en": 3, "clapnq_dev": 2}
"""One in so many questions of each set is asked: a search of all takes far longer than answers."""
EVERY, LAWS = 97, 60
"""Of the pairs of laws, one in so many is asked about, so many at most."""
COMPARED = ("{}과 {}을 비교해줘", "{}과 {}의 목적은 어떻게 다른가?", "{}과 {}의 벌칙 차이")
SPACE = UUID(int=5)
_NOT_LETTERS = re.compile(r"[\W_]+")

Answers = Callable[[Brief], str]


@dataclass(frozen=True, slots=True)
class Case:
    """A question on one unit; each of `golds` is a list of texts that must all be in the answer."""

    question: str
    unit: int
    golds: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Told:
    """One answer: the share of the gold it holds (0..1), its characters, and milliseconds."""

    held: float
    characters: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Library:
    """Units of a set as documents in memory."""

    engine: Engine
    store: MemoryStore
    documents: tuple[UUID, ...]

    def found(self, question: str) -> tuple[Evidence, ...]:
        """What the product would read for a question."""
        scope = Scope(self.documents, ScopeReason.ALL)
        hits = self.engine.search(question, scope, self.store, filters={}).hits
        return evidence.evidence(evidence.worth_showing(hits))


def main() -> None:
    """Measure, write and print."""
    engine = Engine(RagConfig())
    figures: dict[str, object] = {}
    rows = []
    for name in ASKED:
        asked = list(cases(name))
        for kind, briefs in evidences(engine, name, asked).items():
            told = run(answer, asked, briefs)
            figures[f"{name} {kind}"] = summary(told)
            rows.append([f"{name} {kind}", len(told), *summary(told).values()])
    head = ["set", "n", "held", "characters", "ms p50", "ms p95"]
    report.table("Answers without a model that hold what was asked", head, rows)
    figures["pairs of laws"] = pairs(engine)
    print("Comparisons of two laws:", figures["pairs of laws"])
    report.write("extractive", figures)


def cases(name: str) -> Iterator[Case]:
    """The questions of a set with their answers, in the order of `sets.load`."""
    made = sets.load(name)
    golds = clapnq_golds() if name == "clapnq_dev" else squad_golds(name)
    every = zip(made.questions, golds, strict=True)
    for one, gold in itertools.islice(every, 0, None, ASKED[name]):
        yield Case(one.text, min(one.relevant), gold)


def squad_golds(name: str) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Each answer span; one of them is enough."""
    for article in json.loads((sets.DATA / SQUAD[name]).read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for item in paragraph["qas"]:
                yield tuple((one["text"],) for one in item["answers"])


def clapnq_golds() -> Iterator[tuple[tuple[str, ...], ...]]:
    """The sentences that each annotator chose; those of one are enough."""
    for row in sets.rows("clapnq_dev/clapnq_dev_answerable.part.jsonl"):
        yield tuple(tuple(one["selected_sentences"]) for one in row["output"])


def evidences(
    engine: Engine, name: str, asked: Sequence[Case]
) -> dict[str, list[tuple[Evidence, ...]]]:
    """What is read for each question, by kind of evidence."""
    made = sets.load(name)
    library = index(engine, made)
    given = [
        (Evidence(1, SPACE, f"{unit.title}.md", None, unit.section, unit.text, 1.0),)
        for unit in (made.units[one.unit] for one in asked)
    ]
    return {"given": given, "found": [library.found(one.question) for one in asked]}


def index(engine: Engine, made: QuestionSet) -> Library:
    """A set in memory, one document for each of its own."""
    store, documents = MemoryStore(), []
    for name, units in itertools.groupby(made.units, key=lambda unit: unit.document):
        held = list(units)
        chunks = [
            Chunk(at, unit.text, 0, len(unit.text), None, None, unit.section)
            for at, unit in enumerate(held)
        ]
        key = uuid5(SPACE, f"{made.name} {name} {len(documents)}")
        indexed = engine.index(chunks, held[0].title, lambda _done, _total: None, len(chunks))
        store.add(key, f"{held[0].title}.md", indexed, made.metadata.get(name))
        documents.append(key)
    return Library(engine, store, tuple(documents))


def run(
    answers: Answers, asked: Sequence[Case], read: Sequence[tuple[Evidence, ...]]
) -> list[Told]:
    """Ask every question of an answerer."""
    told = []
    for case, found in zip(asked, read, strict=True):
        spoken = language.reply_language(case.question)
        brief = Brief(case.question, spoken, evidence=found, documents=1)
        begun = time.perf_counter()
        text = answers(brief)
        spent = (time.perf_counter() - begun) * 1000
        body = text.rpartition("_(")[0] or text
        told.append(Told(held(body, case.golds), len(body), spent))
    return told


def held(text: str, golds: Sequence[Sequence[str]]) -> float:
    """The share of a gold's texts that stand in the answer, of the gold of which most do."""
    said = bare(text)
    return max(sum(bare(one) in said for one in gold) / len(gold) for gold in golds)


def bare(text: str) -> str:
    """Letters and digits alone, without the numbers of sources."""
    return _NOT_LETTERS.sub("", re.sub(r"\[\d+\]", " ", text)).casefold()


def summary(told: Sequence[Told]) -> dict[str, float]:
    """Share held, mean length, and time per answer."""
    spent = report.percentiles([one.milliseconds for one in told])
    return {
        "held": round(sum(one.held for one in told) / len(told), 4),
        "characters": round(sum(one.characters for one in told) / len(told)),
        "p50_ms": spent["p50"],
        "p95_ms": spent["p95"],
    }


def pairs(engine: Engine) -> dict[str, float]:
    """Comparisons of two laws by name: how often both are among the passages, and quoted."""
    made = sets.load("kr_law")
    library = index(engine, made)
    titles = sorted({unit.title for unit in made.units})
    asked = list(itertools.combinations(titles, 2))[::EVERY][:LAWS]
    shown = quoted = 0
    for number, pair in enumerate(asked):
        question = COMPARED[number % len(COMPARED)].format(*pair)
        scope = Scope(library.documents, ScopeReason.ALL)
        found = engine.search(question, scope, library.store)
        brief = Brief(
            question,
            "ko",
            evidence=evidence.evidence(found.hits),
            several=True,
            opening=bool(found.hits) and "opening" in found.hits[0].scores,
        )
        names = {item.slot: item.document_name for item in brief.evidence}
        cited = {names[int(slot)] for slot in re.findall(r"\[(\d+)\]", answer(brief))}
        both = {f"{title}.md" for title in pair}
        shown += both <= set(names.values())
        quoted += both <= cited
    return {"pairs": len(asked), "found": shown / len(asked), "quoted": quoted / len(asked)}


if __name__ == "__main__":
    main()

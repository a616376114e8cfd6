"""Whether the answer without a model holds what was asked: over question sets and pairs of laws.

Evidence is what the product would read: the passages that a search over the set's own units finds
(`found`), the right passage alone (`given`), or those found but for the right one (`without`): then
nothing should be found. An answer holds it when the answer span of the set stands in it, or for
clapnq_dev as many as it holds of the sentences that an annotator chose.
"""

import itertools
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

from benchmarks import report
from benchmarks.local_models import with_local_models
from rag.factory import Engine
from rag.generate.passages import PassagesAnswer, compose_passages
from rag.retrieve.evidence import to_evidence
from rag.tokenize.text import choose_reply_language
from rag.types import Evidence, QuestionType, Scope, ScopeReason, TextChunk
from tests.quality import sets
from tests.quality.hand import as_evidence
from tests.quality.sets import QuestionSet
from tests.rag.memory_store import MemoryStore

SQUAD = {
    "korquad1_dev": "korquad1_dev/KorQuAD_v1.0_dev.part.json",
    "xquad_en": "xquad_en/xquad.en.part.json",
}
ASKED = report.choose_size(
    {"korquad1_dev": 12, "xquad_en": 3, "clapnq_dev": 2}, quick={"xquad_en": 60}
)
"""One in so many questions of each set is asked: a search of all takes far longer than answers."""
EVERY, LAWS = 97, report.choose_size(60, quick=5)
"""Of the pairs of laws, one in so many is asked about, so many at most."""
COMPARED = ("{}과 {}을 비교해줘", "{}과 {}의 목적은 어떻게 다른가?", "{}과 {}의 벌칙 차이")
APART = 1_000_000
"""Characters between the units of a document: none goes on in the next."""
READ = 10
"""Passages that are read for a question."""
SPACE = UUID(int=5)
_NOT_LETTERS = re.compile(r"[\W_]+")


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
    found: bool
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
        return read(self.engine, question, scope, self.store)


def read(engine: Engine, question: str, scope: Scope, store: MemoryStore) -> tuple[Evidence, ...]:
    """The best passages of a search, as the product reads them where it has no model."""
    hits = engine.search(question, scope, store, top_k=READ).hits[:READ]
    relevance = {hit.passage.key: hit.scores.get("relevance", 0.0) for hit in hits}
    return to_evidence([hit.passage for hit in hits], relevance)


def main() -> None:
    """Measure, write and print."""
    engine = Engine(with_local_models())
    figures: dict[str, object] = {}
    rows = []
    for name in ASKED:
        asked = list(cases(name))
        for kind, briefs in evidences(engine, name, asked).items():
            told = run(asked, briefs)
            figures[f"{name} {kind}"] = summary(told)
            rows.append([f"{name} {kind}", len(told), *summary(told).values()])
    head = ["set", "n", "held", "found", "characters", "ms p50", "ms p95"]
    report.table("Answers without a model that hold what was asked", head, rows)
    figures["pairs of laws"] = pairs(engine)
    print("Comparisons of two laws:", figures["pairs of laws"])
    report.write("passages", figures)


def cases(name: str) -> Iterator[Case]:
    """The questions of a set with their answers, in the order of `sets.load`.

    Those for which no annotator of clapnq_dev chose a sentence are left out.
    """
    made = sets.load(name)
    golds = clapnq_golds() if name == "clapnq_dev" else squad_golds(name)
    every = zip(made.questions, golds, strict=True)
    answerable = ((one, gold) for one, gold in every if gold)
    for one, gold in itertools.islice(answerable, 0, None, ASKED[name]):
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
        chosen = (tuple(one["selected_sentences"]) for one in row["output"])
        yield tuple(filter(None, chosen))


def evidences(
    engine: Engine, name: str, asked: Sequence[Case]
) -> dict[str, list[tuple[Evidence, ...]]]:
    """What is read for each question, by kind of evidence."""
    made = sets.load(name)
    library = index(engine, made)
    given: list[tuple[Evidence, ...]] = [
        (
            as_evidence(
                1, unit.text, document_id=SPACE, name=f"{unit.title}.md", section=unit.section
            ),
        )
        for unit in (made.units[one.unit] for one in asked)
    ]
    found = [library.found(one.question) for one in asked]
    without = [
        tuple(item for item in read if item.text != made.units[one.unit].text)
        for one, read in zip(asked, found, strict=True)
    ]
    return {"given": given, "found": found, "without": without}


def index(engine: Engine, made: QuestionSet) -> Library:
    """A set in memory, one document for each of its own."""
    store = MemoryStore()
    documents: list[UUID] = []
    for name, units in itertools.groupby(made.units, key=lambda unit: unit.document):
        held = list(units)
        chunks = [
            TextChunk(
                at, unit.text, at * APART, at * APART + len(unit.text), None, None, unit.section
            )
            for at, unit in enumerate(held)
        ]
        key = uuid5(SPACE, f"{made.name} {name} {len(documents)}")
        indexed = engine.index_chunks(
            chunks, held[0].title, lambda _done, _total: None, len(chunks)
        )
        store.add(key, f"{held[0].title}.md", list(indexed), made.metadata.get(name))
        documents.append(key)
    return Library(engine, store, tuple(documents))


def run(asked: Sequence[Case], read: Sequence[tuple[Evidence, ...]]) -> list[Told]:
    """Ask every question."""
    told = []
    for case, found in zip(asked, read, strict=True):
        begun = time.perf_counter()
        answer = compose(case.question, found)
        spent = (time.perf_counter() - begun) * 1000
        text = answer.text if answer.has_answer else ""
        told.append(Told(held(text, case.golds), answer.has_answer, len(text), spent))
    return told


def compose(
    question: str,
    found: Sequence[Evidence],
    kind: QuestionType = QuestionType.SINGLE,
    named: Sequence[str] = (),
) -> PassagesAnswer:
    """The answer to a question without a model."""
    return compose_passages(
        [question],
        found,
        question_type=kind,
        is_whole_document=False,
        named_titles=named,
        language=choose_reply_language(question),
    )


def held(text: str, golds: Sequence[Sequence[str]]) -> float:
    """The share of a gold's texts that stand in the answer, of the gold of which most do."""
    said = bare(text)
    return max(sum(bare(one) in said for one in gold) / len(gold) for gold in golds)


def bare(text: str) -> str:
    """Letters and digits alone, without the numbers of sources."""
    return _NOT_LETTERS.sub("", re.sub(r"\[\d+\]", " ", text)).casefold()


def summary(told: Sequence[Told]) -> dict[str, float]:
    """Shares held and found, mean length, and time per answer."""
    spent = report.percentiles([one.milliseconds for one in told])
    return {
        "held": round(sum(one.held for one in told) / len(told), 4),
        "found": round(sum(one.found for one in told) / len(told), 4),
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
        found = read(engine, question, scope, library.store)
        told = compose(question, found, QuestionType.COMPARE, pair)
        names = {item.number: item.passage.document_name for item in found}
        both = {f"{title}.md" for title in pair}
        shown += both <= set(names.values())
        quoted += both <= {names[number] for number in told.spans}
    return {"pairs": len(asked), "found": shown / len(asked), "quoted": quoted / len(asked)}


if __name__ == "__main__":
    main()

"""The cases that the gate is measured on: questions to be kept and questions to be refused."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from rag import indexing, tokenize
from rag.ports import Embedder
from rag.retrieve import search as gate
from rag.retrieve.candidates import MAX_LEG_CANDIDATES, add_closeness
from rag.tokenize.text import estimate_dense_weight
from rag.types import IndexedChunk, Scope, ScopeReason, TextChunk
from tests.quality.sets import QuestionSet, Unit
from tests.rag.memory_store import MemoryStore

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """What the gate sees of one question; `group` tells the half that it is fitted on."""

    question: gate.Prior
    evidence: gate.Signals
    group: int


@dataclass(frozen=True, slots=True)
class Case:
    """Questions that documents answer, and others."""

    name: str
    kept: list[Row]
    refused: list[Row]


class Corpus:
    """A set's units with their terms and vectors, from which indexes of some units are made."""

    def __init__(self, units: Sequence[Unit], embedder: Embedder, unrelated: float) -> None:
        self.units, self.embedder, self.unrelated = units, embedder, unrelated
        self._indexed = _indexed(units, embedder)
        self._vectors: dict[str, list[float]] = {}
        self._terms: dict[str, dict[str, float]] = {}

    def index(self, places: Iterable[int], reason: ScopeReason = ScopeReason.ALL) -> "Index":
        """An index of the units at these places."""
        documents: dict[str, list[int]] = defaultdict(list)
        for place in places:
            documents[self.units[place].document].append(place)
        store = MemoryStore()
        ids = []
        for name, held in documents.items():
            ids.append(uuid4())
            store.add(ids[-1], name, [self._indexed[place] for place in held])
        return Index(self, store, Scope(tuple(ids), reason))

    def terms(self, text: str) -> dict[str, float]:
        """The terms of a question."""
        if text not in self._terms:
            self._terms[text] = tokenize.weigh_query_terms(text)
        return self._terms[text]

    def vector(self, text: str) -> list[float]:
        """The vector of a question."""
        if text not in self._vectors:
            self._vectors[text] = self.embedder.embed_query(text)
        return self._vectors[text]


@dataclass(frozen=True, slots=True)
class Index:
    """Some units, searched as the product does before it asks the gate."""

    corpus: Corpus
    store: MemoryStore
    scope: Scope

    def rows(self, asked: Iterable[tuple[int, str]]) -> list[Row]:
        """What the gate sees of questions, each with its group."""
        return [self._row(text, group) for group, text in asked]

    def _row(self, text: str, group: int) -> Row:
        terms, languages = self.corpus.terms(text), self.corpus.embedder.languages
        weight = estimate_dense_weight(text, languages)
        hits = self.store.find_by_terms(terms, MAX_LEG_CANDIDATES)
        if weight:
            vector, unrelated = self.corpus.vector(text), self.corpus.unrelated
            near = self.store.find_similar(vector, MAX_LEG_CANDIDATES)
            hits += [add_closeness(hit, hit.score, unrelated) for hit in near]
        question = gate.Prior.from_text(
            text,
            terms=sum(wanted >= 1 for wanted in terms.values()),
            dense_weight=weight,
            scope=self.scope,
        )
        return Row(question, gate.Signals.from_hits(hits), group)


def _indexed(units: Sequence[Unit], embedder: Embedder) -> list[IndexedChunk]:
    found: dict[int, IndexedChunk] = {}
    documents: dict[str, list[int]] = defaultdict(list)
    for place, unit in enumerate(units):
        documents[unit.document].append(place)
    for places in documents.values():
        chunks = [_chunk(at, units[place]) for at, place in enumerate(places)]
        made = list(
            indexing.index_chunks(
                chunks, units[places[0]].title, embedder, lambda *_: None, len(chunks)
            )
        )
        found.update(zip(places, made, strict=True))
    return [found[place] for place in range(len(units))]


def _chunk(index: int, unit: Unit) -> TextChunk:
    return TextChunk(index, unit.text, 0, len(unit.text), None, None, unit.section)


class Articles:
    """A set of articles with questions on each."""

    def __init__(self, made: QuestionSet, embedder: Embedder, unrelated: float) -> None:
        self.corpus = Corpus(made.units, embedder, unrelated)
        names = {name: at for at, name in enumerate(dict.fromkeys(u.document for u in made.units))}
        self.of_unit = [names[unit.document] for unit in made.units]
        self.count = len(names)
        self.asked = [(self.of_unit[min(one.relevant)], one.text) for one in made.questions]

    def without_every_fifth(self, first: int) -> tuple[Index, Case]:
        """All articles but those at places `first`, `first` + 5 ...; questions on them are refused.

        Groups are articles, so that no article is fitted on and measured.
        """
        index = self._index(lambda article: article % FOLDS != first)
        kept = [(at // FOLDS, text) for at, text in self.asked if at % FOLDS != first]
        refused = [(at // FOLDS, text) for at, text in self.asked if at % FOLDS == first]
        return index, Case("", index.rows(kept), index.rows(refused))

    def one_by_one(self, others: Sequence[str]) -> list[Case]:
        """Every article alone: its questions; some on other articles; some that none answers."""
        strange, talk = Case("", [], []), Case("", [], [])
        for article in range(self.count):
            index = self._index({article}.__contains__)
            own = index.rows((at, text) for at, text in self.asked if at == article)
            strange.kept.extend(own)
            talk.kept.extend(own)
            foreign = [text for at, text in self.asked[article :: self.count] if at != article]
            strange.refused.extend(index.rows((article, text) for text in foreign))
            talk.refused.extend(index.rows((article, t) for t in others[article :: self.count]))
        return [strange, talk]

    def _index(self, wanted: Callable[[int], bool]) -> Index:
        places = (place for place, article in enumerate(self.of_unit) if wanted(article))
        return self.corpus.index(places)

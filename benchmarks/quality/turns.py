"""How well follow-ups are told, and what their narrower search loses: `auto` beside `simple`.

`python -m benchmarks.quality.turns` prints macro-F1 of follow-ups and of all kinds on every set,
and the share of turns whose right document was filtered away. See docs/notes/conversations.md.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from benchmarks import report
from benchmarks.local_models import with_local_models
from rag.config import MemoryRules, RagConfig
from rag.conversation import Conversation, RememberedDocument
from rag.factory import Engine
from rag.types import Retrieval, Scope, ScopeReason, TextChunk
from tests.quality import sets, turn_sets
from tests.quality.turn_sets import Said, follow_f1, judge, key, kinds_f1
from tests.rag.memory_store import MemoryStore

MODES = ("auto", "simple")
LIBRARY = ("kr_law", "korquad1_dev", "xquad_en")
EVERY = 7
"""Of the large sets, every so many-th message."""
AIM_F1, AIM_LOST = 0.95, 0.005


def main() -> None:
    """Measure and print."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    figures = measure()
    columns = ("set", "messages", "mode", "follow-ups F1", "kinds F1", "taken for follow-ups")
    rows = [
        (name, one["messages"], mode, *(one[mode][part] for part in ("follows", "kinds", "share")))
        for name, one in figures["sets"].items()
        for mode in MODES
    ]
    report.table("Follow-ups told", columns, [[str(cell) for cell in row] for row in rows])
    lost = [
        [name, str(one["messages"]), *(f"{one[mode]:.4f}" for mode in MODES)]
        for name, one in figures["lost"].items()
    ]
    report.table("Right document filtered away", ("set", "messages", *MODES), lost)


def measure() -> dict[str, Any]:
    """Figures of every set and mode; those of the data sets only where they lie here."""
    own = {language: turn_sets.own(language) for language in turn_sets.LANGUAGES}
    asked: dict[str, Sequence[Said]] = {}
    for language, said in own.items():
        asked[f"own {language}, seen"] = [one for one in said if not one.unseen]
        asked[f"own {language}, unseen"] = [one for one in said if one.unseen]
    if not sets.available():
        return {"sets": {name: _told(said) for name, said in asked.items()}, "lost": {}}
    alone = turn_sets.alone_in_conversation()[::EVERY]
    asked["korquad1_dev, stand-alone"] = alone
    asked["ko_smalltalk"] = turn_sets.chatting()[::EVERY]
    asked["mtrag/un, later turns"] = turn_sets.later_turns()
    library = Library()
    lost = {f"own {language}": _lost(library, said) for language, said in own.items()}
    lost["korquad1_dev, stand-alone"] = _lost(library, alone)
    return {"sets": {name: _told(said) for name, said in asked.items()}, "lost": lost}


class Library:
    """Laws, articles and their passages in one store, as one user's documents."""

    def __init__(self, names: Sequence[str] = LIBRARY) -> None:
        self.engines = {
            mode: Engine(with_local_models(RagConfig(memory=MemoryRules(mode=mode))))
            for mode in MODES
        }
        self.store = MemoryStore()
        self.ids: dict[str, UUID] = {}
        for made in map(sets.load, names):
            documents: dict[str, list[sets.Unit]] = defaultdict(list)
            for unit in made.units:
                documents[unit.document].append(unit)
            for name, units in documents.items():
                self._add(units, made.metadata.get(name, {}))

    def search(self, text: str, before: Conversation, mode: str) -> Retrieval:
        """The product's search for a message in its conversation."""
        scope = Scope(tuple(self.ids.values()), ScopeReason.ALL)
        return self.engines[mode].search(text, scope, self.store, conversation=before)

    def has(self, titles: Iterable[str]) -> bool:
        """True when one of these documents is here."""
        return any(title in self.ids for title in titles)

    def _add(self, units: Sequence[sets.Unit], metadata: Mapping[str, str]) -> None:
        title = units[0].title
        chunks = [
            TextChunk(at, unit.text, 0, len(unit.text), None, None, unit.section)
            for at, unit in enumerate(units)
        ]
        indexed = list(
            self.engines["auto"].index_chunks(
                chunks, title, lambda _done, _total: None, len(chunks)
            )
        )
        self.ids[title] = key(title)
        self.store.add(self.ids[title], title, indexed, {"title": title, **metadata})


def lost(library: Library, said: Sequence[Said], mode: str) -> list[Said]:
    """The messages whose right documents were all outside of what was searched.

    What is remembered within a dialogue are the documents that the product itself found for the
    message before; else those of the conversation.
    """
    gone = []
    remembered: tuple[RememberedDocument, ...] = ()
    for one in said:
        if not one.dialogue or not one.before.memory.documents:
            remembered = one.before.memory.documents
        if not library.has(one.documents):
            continue
        memory = replace(one.before.memory, documents=remembered)
        found = library.search(one.text, replace(one.before, memory=memory), mode)
        right = {library.ids[title] for title in one.documents if title in library.ids}
        if right.isdisjoint(found.plan.scope.document_ids):
            gone.append(one)
        if found.gate.relevant:
            remembered = _shown(found)
    return gone


def _shown(found: Retrieval) -> tuple[RememberedDocument, ...]:
    best = {hit.passage.document_id: hit for hit in reversed(found.hits)}
    return tuple(
        RememberedDocument(one, hit.passage.document_name, hit.score)
        for one, hit in reversed(best.items())
    )


def _told(said: Sequence[Said]) -> dict[str, Any]:
    figures: dict[str, Any] = {"messages": len(said)}
    for mode in MODES:
        judged = judge(said, MemoryRules(mode=mode))
        figures[mode] = {
            "follows": round(follow_f1(judged), 3),
            "kinds": round(kinds_f1(judged), 3),
            "share": round(sum(one.analysis.follows for one in judged) / len(judged), 3),
        }
    return figures


def _lost(library: Library, said: Sequence[Said]) -> dict[str, Any]:
    asked = [one for one in said if library.has(one.documents)]
    shares = {mode: len(lost(library, said, mode)) / len(asked) for mode in MODES}
    return {"messages": len(asked), **shares}


if __name__ == "__main__":
    sys.exit(main())

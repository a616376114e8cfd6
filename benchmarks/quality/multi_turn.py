"""How well a question is found in its conversation: as asked, as a follow-up, as people rewrote it.

`python -m benchmarks.quality.multi_turn` measures it alone. See docs/notes/conversations.md.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from benchmarks import report
from benchmarks.quality import multi_turn_sets, product
from benchmarks.quality.multi_turn_sets import Message
from benchmarks.quality.product import Indexed, Library
from rag.conversation import Conversation, DocRef, Memory, PastTurn, RememberedDocument
from rag.retrieve.search import SearchOptions
from rag.types import QuestionType, Retrieval, Scope, ScopeReason
from rag.understand.analysis import QuestionAnalysis, complete_question
from tests.quality import measures, sets
from tests.quality.sets import QuestionSet

ANSWER_CHARACTERS = 300
SHOWN = 4
"""Passages that an answer gets unless told otherwise."""
COLUMNS = ("set", "part", "messages", "way", "nDCG@5", "right one among 4", "documents answer")


@dataclass(frozen=True, slots=True)
class Place:
    """A set in the database, and the document that each unit stands in."""

    shelves: Library
    made: QuestionSet
    indexed: Indexed
    documents: Mapping[int, UUID]

    @classmethod
    def of(cls, library: Library, made: QuestionSet, indexed: Indexed) -> "Place":
        """The place of an indexed set."""
        documents = {place: document for (document, _), place in indexed.units.items()}
        return cls(library, made, indexed, documents)

    def conversation(self, message: Message, *, remembers: bool = True) -> Conversation:
        """What was said before a message, as the product would keep it."""
        turns = tuple(self._turn(number, one) for number, one in enumerate(message.before, 1))
        if not turns:
            return Conversation()
        shown = [ref for turn in turns[-1:] for ref in turn.doc_refs] if remembers else []
        known = tuple(RememberedDocument(ref.document_id, ref.title, 1.0) for ref in shown)
        memory = Memory(known, turns[-1].user_text, turns[-1].assistant_text)
        return Conversation(turns, len(turns), memory)

    def _turn(self, number: int, one: multi_turn_sets.Before) -> PastTurn:
        places = sorted(one.shown)
        reply = one.reply or " ".join(self.made.units[at].text for at in places)[:ANSWER_CHARACTERS]
        titles = {self.documents[at]: self.made.units[at].title for at in places}
        refs = [DocRef(slot, key, name, name) for slot, (key, name) in enumerate(titles.items(), 1)]
        kind = QuestionType.FOLLOWUP if places and number > 1 else QuestionType.SINGLE
        return PastTurn(number, one.question, reply, kind if places else "", doc_refs=tuple(refs))

    def search(self, text: str, conversation: Conversation) -> Retrieval:
        """As the product searches it."""
        return self.shelves.engine.search(
            text, self._scope(), self._store(), top_k=product.FOUND, conversation=conversation
        )

    def followed(self, text: str, conversation: Conversation) -> Retrieval:
        """The same, taken for a follow-up whatever it looks like."""
        if not conversation.total:
            return self.search(text, conversation)
        asked = QuestionAnalysis(
            QuestionType.FOLLOWUP, text, self._scope(), follows=True, memory=conversation.memory
        )
        completed = complete_question(asked, conversation)
        options = SearchOptions(top_k=product.FOUND)
        return self.shelves.engine.searcher.search(completed, self._store(), options)

    def units(self, found: Retrieval) -> list[int]:
        """The units found, best first."""
        return [
            self.indexed.units[hit.passage.document_id, hit.passage.index] for hit in found.hits
        ]

    def _scope(self) -> Scope:
        return Scope(tuple(self.indexed.documents), ScopeReason.ALL)

    def _store(self) -> Any:
        from documents.search.store import ScopedStore

        return ScopedStore(self.indexed.documents, space=self.shelves.space)


def _as_asked(place: Place, message: Message) -> Retrieval:
    return place.search(message.text, Conversation())


def _in_conversation(place: Place, message: Message) -> Retrieval:
    return place.search(message.text, place.conversation(message))


def _nothing_remembered(place: Place, message: Message) -> Retrieval:
    return place.search(message.text, place.conversation(message, remembers=False))


def _followed(place: Place, message: Message) -> Retrieval:
    return place.followed(message.text, place.conversation(message))


def _rewritten(place: Place, message: Message) -> Retrieval:
    return place.search(message.rewritten, Conversation())


Way = Callable[[Place, Message], Retrieval]
WAYS: Mapping[str, Way] = {
    "as asked": _as_asked,
    "in its conversation": _in_conversation,
    "taken for a follow-up": _followed,
}


def main() -> None:
    """Measure and print."""
    if not sets.available():
        print("\nmulti_turn: left out, as the question sets do not lie beside the project")
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with product.running() as library:
        loaded = [sets.load(name) for name in multi_turn_sets.NAMES]
        indexed = [(made, library.add(made)) for made in loaded]
        product.settle()
        figures = measure(library, indexed)
    report.table("Questions in conversations", COLUMNS, rows(figures))


def measure(library: Library, indexed: Iterable[tuple[QuestionSet, Indexed]]) -> dict[str, Any]:
    """Figures by set, part and way, of those sets that have conversations."""
    return {
        made.name: _of(Place.of(library, made, stored))
        for made, stored in indexed
        if made.name in multi_turn_sets.NAMES
    }


def rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """The lines of a table."""
    return [
        [
            *(name, part, str(found["messages"]), way),
            "{mean:.3f} ({low:.3f}-{high:.3f})".format(**found["ndcg5"]),
            *(f"{found[figure]:.3f}" for figure in ("among", "answered")),
        ]
        for name, parts in figures.items()
        for part, ways in parts.items()
        for way, found in ways.items()
    ]


def _of(place: Place) -> dict[str, Any]:
    messages = multi_turn_sets.messages(place.made)
    ways = dict(WAYS)
    if any(one.rewritten for one in messages):
        ways["rewritten by people"] = _rewritten
    if any(before.shown for one in messages for before in one.before):
        ways["in its conversation, no document remembered"] = _nothing_remembered
    results = {
        name: product.in_threads(lambda one, way=way: _judged(place, one, way), messages)
        for name, way in ways.items()
    }
    return {
        part: {
            way: _figures(
                [one for one, message in zip(found, messages, strict=True) if kept(message)]
            )
            for way, found in results.items()
        }
        for part, kept in _parts(messages).items()
    }


def _parts(messages: Sequence[Message]) -> dict[str, Callable[[Message], bool]]:
    found: dict[str, Callable[[Message], bool]] = {
        "all": lambda _one: True,
        "first": lambda one: not one.before,
        "later": lambda one: bool(one.before),
    }
    for part in sorted({one.part for one in messages}):
        found[f"later, {part}"] = lambda one, part=part: bool(one.before) and one.part == part
    return found


def _judged(place: Place, message: Message, way: Way) -> tuple[float, bool, bool]:
    found = way(place, message)
    units = place.units(found)
    among = bool(message.relevant & set(units[:SHOWN]))
    return measures.ndcg(units, message.relevant), among, found.gate.relevant


def _figures(judged: Sequence[tuple[float, bool, bool]]) -> dict[str, Any]:
    ndcg, among, answered = zip(*judged, strict=True)
    return {
        "messages": len(judged),
        "ndcg5": measures.mean(ndcg).rounded(),
        "among": round(sum(among) / len(judged), 4),
        "answered": round(sum(answered) / len(judged), 4),
    }


if __name__ == "__main__":
    main()

"""The conversation and its documents as an environment: looked into piece by piece, never whole.

Every tool answers with text, bounded, also for arguments that make no sense.
"""

import json
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from rag import prompts
from rag.conversation import DocRef, Memory, Turn, TurnLine
from rag.errors import NuraError
from rag.history import search
from rag.history.said import cut
from rag.neutral import neutralise
from rag.ports import Embedder, HistoryStore, PassageStore
from rag.query.classify import Verdict
from rag.query.rewrite import Standalone
from rag.retrieval.plan import Asked, Wishes
from rag.searching import Searcher
from rag.tools import Tool
from rag.types import Hit, QuestionType, Scope, ScopeReason

log = logging.getLogger(__name__)

LISTED = 20
FOUND = 8
LINES = 1000
"""Turns that are searched, the newest ones."""
LINE = 200
PART = 1500
"""Characters of one part of a turn."""
PEEK = 2000
CHUNKS = 4
CHUNK = 600
QUERY = 500
DOCUMENTS = 50

Search = Callable[[str, Collection[UUID]], Sequence[Hit]]


class BadArguments(ValueError):
    """A tool was called with arguments that it cannot use."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered; `failed` when it is only why it could not."""

    text: str
    failed: bool = False


def chunk_search(searcher: Searcher, store: PassageStore) -> Search:
    """Search within documents of the store, by the usual strategy."""

    def found(query: str, document_ids: Collection[UUID]) -> Sequence[Hit]:
        asked = Asked(Verdict(QuestionType.SINGLE), Standalone(query), Memory())
        scope = Scope(tuple(document_ids), ScopeReason.EXPLICIT)
        wishes = Wishes(top_k=CHUNKS, filters={})
        return searcher.search(asked, scope, store.within(document_ids), wishes).hits

    return found


@dataclass(slots=True)
class Environment:
    """What may be looked into for one question. Sync; one exploration at a time.

    `before`: only turns before this number are searched, as the prompt holds the others.
    """

    history: HistoryStore
    store: PassageStore
    passages: Search
    embedder: Embedder | None = None
    before: int | None = None
    opened: dict[int, Turn] = field(default_factory=dict)
    found: list[search.Found] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    documents: dict[UUID, DocRef] = field(default_factory=dict)
    _lines: list[TurnLine] | None = None

    def run(self, name: str, arguments: Mapping[str, object]) -> Result:
        """Call a tool by its name; whatever goes wrong is told, not raised."""
        tool = _TOOLS.get(name)
        if tool is None:
            return Result(f"There is no tool {name[:40]!r}.", failed=True)
        try:
            return Result(tool(self, arguments))
        except BadArguments as error:
            return Result(f"Bad arguments: {error}", failed=True)
        except NuraError as error:
            return Result(f"The tool failed: {error.code}", failed=True)
        except Exception as error:  # a store that fails must not end the answer
            log.warning("%s failed while exploring", name, exc_info=error)
            return Result("The tool failed.", failed=True)

    def list_turns(self, arguments: Mapping[str, object]) -> str:
        """The newest turns, a line each."""
        limit = _number(arguments, "limit", LISTED, most=LISTED)
        before = _number(arguments, "before", 0) or self.before
        return _listed(self.history.list_turns(limit, before))

    def search_turns(self, arguments: Mapping[str, object]) -> str:
        """The turns that bear on a query, a line each."""
        query = _text(arguments, "query", QUERY)
        if self._lines is None:
            self._lines = self.history.list_turns(LINES, self.before)
        self.found = search.search_turns(query, self._lines, embedder=self.embedder, limit=FOUND)
        return _listed([one.line for one in self.found])

    def get_turn(self, arguments: Mapping[str, object]) -> str:
        """One part of a turn's texts."""
        number, part = _number(arguments, "number"), _number(arguments, "part", 1)
        turns = self.history.get_turns([number])
        if not turns:
            raise BadArguments(f"there is no turn {number}")
        self.opened[number] = turns[0]
        whole = neutralise(f"Q: {turns[0].user_text}\nA: {turns[0].assistant_text}")
        parts = max(1, -(-len(whole) // PART))
        if part > parts:
            raise BadArguments(f"turn {number} has {parts} parts")
        return f"Turn {number}, part {part} of {parts}\n{whole[(part - 1) * PART : part * PART]}"

    def get_turn_docs(self, arguments: Mapping[str, object]) -> str:
        """The documents that a turn's answer showed."""
        refs = self.history.get_turn_docs(_number(arguments, "number"))[:DOCUMENTS]
        self.documents.update((ref.document_id, ref) for ref in refs)
        lines = (
            f"{ref.slot}. {_flat(ref.title)} (document_id {ref.document_id}): {_flat(ref.snippet)}"
            for ref in refs
        )
        return "\n".join(lines) or "This answer showed no documents."

    def search_chunks(self, arguments: Mapping[str, object]) -> str:
        """Passages on a query within documents, those looked at before unless named."""
        query = _text(arguments, "query", QUERY)
        ids = _ids(arguments, "document_ids") or list(self.documents)
        if not ids:
            raise BadArguments("document_ids is missing")
        hits = list(self.passages(query, ids))[:CHUNKS]
        self.hits += [hit for hit in hits if hit not in self.hits]
        return "\n".join(passage(hit, CHUNK) for hit in hits) or "Nothing was found."

    def peek(self, arguments: Mapping[str, object]) -> str:
        """A stretch of a document."""
        ids = _ids(arguments, "document_id")
        start = _number(arguments, "start", 0, least=0)
        length = _number(arguments, "length", PEEK, most=PEEK)
        excerpt = self.store.read(ids[0], start, length) if ids else None
        if excerpt is None:
            raise BadArguments("there is no such document")
        end = excerpt.start + len(excerpt.text)
        text = neutralise(excerpt.text[:PEEK])
        return f"Characters {excerpt.start} to {end} of {excerpt.total}\n{text}"


def passage(hit: Hit, length: int) -> str:
    """A passage with its document, on one line."""
    text = cut(_flat(hit.passage.content, 2 * length), length)
    return f"{_flat(hit.passage.document_name)}: {text}"


def tools(language: str, *, subcalls: bool) -> list[Tool]:
    """The tools as a model is told of them."""
    told = dict(
        line.split(": ", 1) for line in prompts.text("explore_tools", language).splitlines()
    )
    return [
        Tool(name, told[name], _schema(parameters))
        for name, parameters in PARAMETERS.items()
        if subcalls or name != "subcall"
    ]


PARAMETERS: Mapping[str, Mapping[str, bool]] = {
    "list_turns": {"limit": False, "before": False},
    "search_turns": {"query": True},
    "get_turn": {"number": True, "part": False},
    "get_turn_docs": {"number": True},
    "search_chunks": {"query": True, "document_ids": False},
    "peek": {"document_id": True, "start": False, "length": False},
    "subcall": {"question": True, "text": True},
    "note": {"text": True},
}
"""The parameters of every tool, and whether they must be given."""
_TOOLS: Mapping[str, Callable[[Environment, Mapping[str, object]], str]] = {
    "list_turns": Environment.list_turns,
    "search_turns": Environment.search_turns,
    "get_turn": Environment.get_turn,
    "get_turn_docs": Environment.get_turn_docs,
    "search_chunks": Environment.search_chunks,
    "peek": Environment.peek,
}
_TEXTS = frozenset(("query", "document_id", "question", "text"))


def _schema(parameters: Mapping[str, bool]) -> dict[str, object]:
    kinds: dict[str, object] = {
        name: {"type": "string"} if name in _TEXTS else {"type": "integer"} for name in parameters
    }
    if "document_ids" in parameters:
        kinds["document_ids"] = {"type": "array", "items": {"type": "string"}}
    required = [name for name, must in parameters.items() if must]
    return {"type": "object", "properties": kinds, "required": required}


def _listed(lines: Sequence[TurnLine]) -> str:
    told = (f"{line.number}: {_flat(line.summary or line.question)}" for line in lines)
    return "\n".join(told) or "There is none."


def _flat(text: str, length: int = LINE) -> str:
    return cut(" ".join(neutralise(text[: 2 * length]).split()), length)


def _number(
    arguments: Mapping[str, object],
    name: str,
    default: int | None = None,
    *,
    least: int = 1,
    most: int = 10**9,
) -> int:
    value = arguments.get(name, default)
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < len(str(most)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadArguments(f"{name} must be a number")
    if not math.isfinite(value):
        raise BadArguments(f"{name} must be finite")
    if value == default:
        return int(value)
    return int(max(least, min(value, most)))


def _text(arguments: Mapping[str, object], name: str, longest: int) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadArguments(f"{name} must be a text")
    return value[:longest]


def _ids(arguments: Mapping[str, object], name: str) -> list[UUID]:
    value = arguments.get(name) or []
    try:
        given = json.loads(value) if isinstance(value, str) and value.startswith("[") else value
        listed = given if isinstance(given, list) else [given]
        return [UUID(str(one)) for one in listed[:DOCUMENTS]]
    except ValueError:
        raise BadArguments(f"{name} must hold ids of documents") from None

"""Small worlds for the engine's tests: fake models at the ports, and documents in memory."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from rag.config import RagConfig
from rag.conversation import Question, to_conversation
from rag.errors import EmbedderFailed
from rag.events import Delta, Finished
from rag.factory import Engine
from rag.types import Scope, ScopeReason, Speaker, TextChunk
from tests.rag.memory_store import MemoryStore

TRAVEL_RULES = "제3조 숙박비 상한은 1박 90,000원이다. 제4조 정산은 귀임 후 5일 이내에 한다."
SECURITY_RULES = "보안 서약서는 입사일에 제출한다. 비밀번호는 90일마다 바꾼다."
DEPLOYMENT = "The service listens on port 8080. Set RETRY_LIMIT to five before the first start."
BACKUPS = "Backups run every night at two. Restore them with the restore command."


class LetterEmbedder:
    """Places texts by their letters: enough to tell English texts apart, and instant."""

    name = "letters"
    dimensions = 64

    def __init__(self, languages: frozenset[str] = frozenset({"en"})) -> None:
        self.languages = languages
        self.embedded: list[str] = []
        self.failing = False

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The text's words, hashed."""
        if self.failing:
            raise EmbedderFailed("switched off")
        self.embedded.append(text)
        vector = [0.0] * self.dimensions
        for word in text.lower().split():
            vector[sum(word.encode()) % self.dimensions] += 1.0
        length = sum(value * value for value in vector) ** 0.5 or 1.0
        return [value / length for value in vector]


class ScriptedLLM:
    """Says what it was told to, and keeps what it was asked."""

    name = "scripted"

    def __init__(self, *pieces) -> None:
        self.pieces = pieces
        self.asked = []
        self.closed = False

    async def stream(self, turns, options):
        """The pieces; an exception among them is raised."""
        self.asked.append(tuple(turns))
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.closed = True

    @property
    def system(self) -> str:
        """The last system message."""
        return next(turn.content for turn in self.asked[-1] if turn.role is Speaker.SYSTEM)

    @property
    def last(self) -> str:
        """The last message of the last request."""
        return self.asked[-1][-1].content


def make_engine(**parts) -> Engine:
    """An engine that loads no embedding model."""
    config = parts.pop("config", RagConfig())
    parts.setdefault("embedder", LetterEmbedder())
    return Engine(config, **parts)


def make_chunk(index: int, text: str, **fields) -> TextChunk:
    """A chunk of a document without pages."""
    values = {"page": None, "page_end": None, "section": "", **fields}
    return TextChunk(index=index, text=text, start=0, end=len(text), **values)


def ignore_progress(done: int, total: int) -> None:
    """Nobody watches."""


class Library:
    """Documents indexed by an engine."""

    def __init__(self, made: Engine) -> None:
        self.engine = made
        self.store = MemoryStore()
        self.ids: dict[str, UUID] = {}

    def add(self, name: str, *texts: str, metadata=None, **fields) -> UUID:
        """A document of one chunk per text."""
        self.ids[name] = uuid4()
        chunks = [make_chunk(index, text, **fields) for index, text in enumerate(texts)]
        indexed = list(self.engine.index_chunks(chunks, name, ignore_progress, len(chunks)))
        self.store.add(self.ids[name], name, indexed, metadata)
        return self.ids[name]

    def scope(self, reason: ScopeReason = ScopeReason.ALL) -> Scope:
        """Everything."""
        return Scope(tuple(self.ids.values()), reason)

    def search(self, query: str, **wishes):
        """Search everything."""
        return self.engine.search(query, self.scope(), self.store, **wishes)

    async def ask(self, text: str, *, reason=ScopeReason.ALL, history=()):
        """All events of an answer."""
        question = Question(text, self.scope(reason), to_conversation(history))
        return [event async for event in self.engine.answer(question, self.store)]


def join_text(events) -> str:
    """The answer."""
    return "".join(event.text for event in events if isinstance(event, Delta))


def find_finished(events) -> Finished:
    """The last event."""
    assert isinstance(events[-1], Finished)
    return events[-1]

"""Ports of the engine, and what goes through them: texts and calls of models, passages, turns."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable
from uuid import UUID

from rag.conversation import DocRef, PastTurn, Sampling, TurnLine
from rag.types import Excerpt, HistoryMessage, Hit, Named, Passage


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the model's server counted them, or as we estimated them."""

    prompt_tokens: int
    completion_tokens: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of a model's stream, its closing usage and reason ("stop", "length").

    `reasoning` is what the model thinks aloud before it answers; it is no part of the answer.
    """

    text: str = ""
    usage: Usage | None = None
    finish_reason: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function offered to the model; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model wants called. `error` says why its arguments could not be read."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A model's reply: text, calls in its order, or both; `cut` where the token limit ended it."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Sampling and limits of one model call.

    `schema` is the JSON schema that the reply must follow, as far as the server can hold it to one.
    `max_tokens` are the answer's; what a model thinks before it (`thinking`) comes on top.
    """

    temperature: float = 0.0
    max_tokens: int = 1000
    stop: tuple[str, ...] = ()
    seed: int | None = None
    schema: Mapping[str, object] | None = None
    thinking: bool = False

    def with_sampling(self, sampling: Sampling) -> "GenerationOptions":
        """These options with a caller's wishes; the limit can only be lowered."""
        given = sampling.temperature
        return replace(
            self,
            temperature=self.temperature if given is None else given,
            max_tokens=min(self.max_tokens, sampling.max_tokens or self.max_tokens),
            stop=sampling.stop or self.stop,
            seed=self.seed if sampling.seed is None else sampling.seed,
        )


class LLM(Protocol):
    """A chat model. Raises `rag.errors.LLMError` and nothing else."""

    @property
    def name(self) -> str:
        """Model name, for traces."""
        ...

    def stream(
        self, turns: Sequence[HistoryMessage], options: GenerationOptions
    ) -> AsyncGenerator[Piece, None]:
        """Stream the reply to `turns`; closing the iterator closes the upstream connection."""
        ...


@runtime_checkable
class ToolCaller(Protocol):
    """A chat model that can call tools. Raises `rag.errors.LLMError` and nothing else."""

    async def choose(self, turns: Sequence[HistoryMessage], tools: Sequence[Tool]) -> Choice:
        """The model's reply to `turns`; `LLMRejected` from a server that knows no tools."""
        ...


class Vision(Protocol):
    """A model that reads pictures. Raises `rag.errors.LLMError` and nothing else."""

    @property
    def name(self) -> str:
        """Model name; a description is kept with it."""
        ...

    async def describe(self, picture: bytes, content_type: str, language: str) -> str:
        """What stands in a PNG or JPEG, "" where it says nothing.

        `language` ("ko", "en") is that of the describing words; writing is copied as it is.
        """
        ...


class Embedder(Protocol):
    """Turns text into unit vectors of `dimensions` floats.

    Raises `rag.errors.EmbedderFailed`. Sync, thread-safe.
    """

    @property
    def name(self) -> str:
        """Model name; with `dimensions` it identifies the embedding space."""
        ...

    @property
    def dimensions(self) -> int:
        """Width of every vector."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """Languages the model knows: "ko", "en", ...; "*" means all."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order."""
        ...

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        ...


class Reranker(Protocol):
    """Orders passages by a closer reading of question and text."""

    def rerank(self, query: str, hits: Sequence[Hit], top_k: int) -> list[Hit]:
        """The best `top_k` of `hits`, best first."""
        ...


@dataclass(frozen=True, slots=True)
class Inference:
    """How likely a text entails a sentence, says nothing of it, or contradicts it; 0..1 each."""

    entailment: float
    neutral: float
    contradiction: float


class Verifier(Protocol):
    """Reads whether texts bear out sentences. Raises `rag.errors.EngineUnavailable`. Sync."""

    def infer(self, pairs: Sequence[tuple[str, str]]) -> list[Inference]:
        """One inference a pair of a text and a sentence, in order."""
        ...


class PassageStore(Protocol):
    """Search within documents fixed at construction; nothing in a question can widen them. Sync."""

    def within(self, document_ids: Collection[UUID]) -> "PassageStore":
        """The same store over those of its documents that are named; never over others."""
        ...

    def find_named(self, names: Sequence[str]) -> list[Named]:
        """The documents with one of these names, as `rag.understand.filters.to_name_key` has them.

        Names are issuers, project names and titles of documents.
        """
        ...

    def read_vectors(self, keys: Sequence[int]) -> dict[int, Sequence[float]]:
        """The stored unit vectors of these chunks, without those out of scope or not embedded."""
        ...

    def find_similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """Nearest chunks by cosine; `score` and `scores["similarity"]` are the cosine."""
        ...

    def find_by_terms(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """Best chunks by BM25 over the query's terms (term -> weight, 1 for a term said once).

        Exact document frequencies within the scope.

        `score` and `scores["bm25"]` are the BM25 sum; `scores["share"]` is its share (0..1) of the
        most that these terms could score; `scores["coverage"]` is the share (0..1) of
        the query's weight whose terms the chunk holds, a term weighing
        `rag.retrieve.bm25.coverage_weight(df, total)`; terms that no chunk holds (df 0) weigh
        too, those that count less than 1 in the question do not.
        """
        ...

    def read_openings(self, limit: int) -> list[Passage]:
        """The first chunks of the documents in scope, documents in the scope's order, turn by turn.

        For questions on whole documents.
        """
        ...

    def read_all(self, limit: int) -> list[Passage] | None:
        """All chunks of the documents in scope, in reading order; None: more than `limit`."""
        ...

    def read_places(self, places: Collection[tuple[UUID, int]]) -> list[Passage]:
        """The chunks at these places, (document, index); those that are not in scope left out."""
        ...

    def read(self, document_id: UUID, start: int, length: int) -> Excerpt | None:
        """A stretch of a document's text, counted as its chunks' offsets; None: not in scope."""
        ...


class HistoryStore(Protocol):
    """The turns of one branch of one chat, fixed at construction. Sync."""

    def list_turns(self, limit: int, before: int | None = None) -> list[TurnLine]:
        """The newest turns, newest first; those before number `before` where it is given."""
        ...

    def get_turns(self, numbers: Collection[int]) -> list[PastTurn]:
        """The turns with these numbers, whole, oldest first; unknown numbers are left out."""
        ...

    def list_documents(self) -> tuple[DocRef, ...]:
        """The documents of all answers by first appearance, `slot` counted over the session."""
        ...

"""The engine's ports: models, passage store and history, with the types they exchange."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar, runtime_checkable
from uuid import UUID

from rag.conversation import DocRef, PastTurn, Sampling, TurnLine
from rag.types import Excerpt, HistoryMessage, Hit, NamedDocument, Passage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as counted by the model's server, or our estimate."""

    prompt_tokens: int
    completion_tokens: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a model's stream: text, or at the end usage and reason ("stop", "length").

    `reasoning` is what the model thinks before it answers; it is not part of the answer.
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
    """A call that the model asks for; `error` says why its arguments could not be parsed."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A model's reply: text, tool calls, or both. `cut`: the token limit ended it."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Sampling and limits of one model call.

    `schema` is the JSON schema that the reply must follow, as far as the server can enforce it.
    `max_tokens` are for the answer; tokens for `thinking` come on top.
    """

    temperature: float = 0.0
    max_tokens: int = 1000
    stop: tuple[str, ...] = ()
    seed: int | None = None
    schema: Mapping[str, object] | None = None
    thinking: bool = False

    def with_sampling(self, sampling: Sampling) -> "GenerationOptions":
        """These options with a caller's sampling; the token limit can only be lowered."""
        temperature = sampling.temperature
        return replace(
            self,
            temperature=self.temperature if temperature is None else temperature,
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
        """The reply to `turns`. Raises `LLMRejected` if the server does not support tools."""
        ...


class Vision(Protocol):
    """A model that describes pictures. Raises `rag.errors.LLMError` and nothing else."""

    @property
    def name(self) -> str:
        """Model name, stored with each description."""
        ...

    async def describe(self, picture: bytes, content_type: str, language: str) -> str:
        """The content of a PNG or JPEG; "" if there is nothing to describe.

        `language` ("ko", "en") is that of the description; text in the picture is copied as it is.
        """
        ...


class Embedder(Protocol):
    """Turns text into unit vectors of `dimensions` floats.

    Raises `rag.errors.EmbedderFailed`. Sync, thread-safe.
    """

    @property
    def name(self) -> str:
        """Model name; together with `dimensions` it identifies the embedding space."""
        ...

    @property
    def dimensions(self) -> int:
        """Number of dimensions of every vector."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """Languages the model knows: "ko", "en", ...; "*" means all."""
        ...

    def embed_passages(self, texts: Sequence[str], *, outsider: str = "") -> list[list[float]]:
        """One vector per text, in order.

        `outsider` names the owner of texts that are not our own passages, so that the model can be
        shared fairly among such owners.
        """
        ...

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        ...


class Reranker(Protocol):
    """Reorders passages by reading question and passage together."""

    def rerank(self, query: str, hits: Sequence[Hit], top_k: int) -> list[Hit]:
        """The best `top_k` of `hits`, best first."""
        ...


@dataclass(frozen=True, slots=True)
class Inference:
    """How likely a text entails a sentence, is neutral to it, or contradicts it; each 0..1."""

    entailment: float
    neutral: float
    contradiction: float


class Verifier(Protocol):
    """Checks whether texts support sentences. Raises `rag.errors.EngineUnavailable`. Sync."""

    def infer(self, pairs: Sequence[tuple[str, str]]) -> list[Inference]:
        """One inference per (text, sentence) pair, in order."""
        ...


class PassageStore(Protocol):
    """Searches the documents fixed at construction; no question can widen them. Sync."""

    def within(self, document_ids: Collection[UUID]) -> "PassageStore":
        """The same store, limited to the given documents; never wider than before."""
        ...

    def find_named(self, names: Sequence[str]) -> list[NamedDocument]:
        """The documents with one of these names, see `rag.understand.filters.to_name_key`.

        Names are issuers, project names and titles of documents.
        """
        ...

    def read_vectors(self, keys: Sequence[int]) -> dict[int, Sequence[float]]:
        """The unit vectors of these chunks, except those out of scope or not embedded."""
        ...

    def find_similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """The nearest chunks; `score` and `scores["similarity"]` are the cosine."""
        ...

    def find_by_terms(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """The best chunks by BM25 over the query's terms (term -> weight, 1 for one occurrence).

        Document frequencies are counted within the scope; those of common terms in a large scope
        are estimates.

        `score` and `scores["bm25"]` are the BM25 sum; `scores["share"]` is its share (0..1) of the
        highest possible one; `scores["coverage"]` is the share (0..1) of the query's weight whose
        terms the chunk contains. For that, a term weighs `rag.indexing.compute_coverage_weight(df,
        total)`; terms in no chunk (df 0) count, terms with a weight below 1 do not.
        """
        ...

    def read_openings(self, limit: int) -> list[Passage]:
        """The first chunks of each document in scope, taking turns in the scope's order.

        For questions on whole documents.
        """
        ...

    def read_all(self, limit: int) -> list[Passage] | None:
        """All chunks in scope in reading order; None if there are more than `limit`."""
        ...

    def read_places(self, places: Collection[tuple[UUID, int]]) -> list[Passage]:
        """The chunks at these (document, index) pairs, except those out of scope."""
        ...

    def read(self, document_id: UUID, start: int, length: int) -> Excerpt | None:
        """Part of a document's text, by offset and length; None if out of scope."""
        ...

    def run_concurrently(self, work: Callable[[], T]) -> Callable[[], T]:
        """Start work that queries this store in the background; the result waits for it.

        If the store cannot be queried concurrently, the work is done when the result is called.
        """
        ...


class HistoryStore(Protocol):
    """The turns of one branch of one chat, fixed at construction. Sync."""

    def list_turns(self, limit: int, before: int | None = None) -> list[TurnLine]:
        """The newest turns, newest first; with `before`, those with a lower number."""
        ...

    def get_turns(self, numbers: Collection[int]) -> list[PastTurn]:
        """The full turns with these numbers, oldest first; unknown numbers are skipped."""
        ...

    def list_documents(self) -> tuple[DocRef, ...]:
        """The documents of all answers by first appearance; `slot` counts over the session."""
        ...

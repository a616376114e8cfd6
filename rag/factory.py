"""The engine's facade for the layers above: one per process and configuration."""

import functools
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rag import indexing, tokenize
from rag.adapters.encoders import (
    EMBEDDED_NAME,
    EndpointEmbedder,
    EndpointReranker,
    EndpointVerifier,
    find_declaration,
)
from rag.adapters.endpoint import load_client_library
from rag.adapters.light import Light
from rag.adapters.openai import OpenAILLM, OpenAIVision
from rag.config import Endpoint, RagConfig
from rag.conversation import Conversation, MemoryHistory, PastTurn, Question, RunningSummary
from rag.events import Event
from rag.generate.llm import Reviser, Writer, suggest_follow_ups
from rag.memory import summary
from rag.memory.extract import read_by_model
from rag.memory.profile import Statement, load_packs
from rag.memory.recall import Recaller
from rag.memory.summary import TurnNote
from rag.pipeline import Pipeline
from rag.ports import (
    LLM,
    Embedder,
    GenerationOptions,
    HistoryStore,
    PassageStore,
    Reranker,
    ToolCaller,
    Verifier,
    Vision,
)
from rag.retrieve.search import Searcher, SearchOptions
from rag.tokenize.korean import use_dictionary
from rag.types import HistoryMessage, IndexedChunk, Retrieval, Scope, StrategyName, TextChunk
from rag.understand.analysis import analyse_by_rules, narrow_store

NO_CONVERSATION = Conversation()
NO_HISTORY = MemoryHistory()
KEPT = 3
"""Embedders of a process: as the settings say, the one in use, and its successor."""
KEPT_ENGINES = 32
"""Engines of a process: with each language model that is offered; they share all that is large."""


class Engine:
    """Indexes, searches and answers with one configuration.

    Thread-safe; models load at first use or by `warm`.

    `embedder`, `llm`, `reranker` and `light` replace what the configuration names: fakes are
    adapters too.
    """

    def __init__(
        self,
        config: RagConfig,
        *,
        embedder: Embedder | None = None,
        llm: LLM | None = None,
        reranker: Reranker | None = None,
        light: Light | None = None,
    ) -> None:
        use_dictionary(config.user_dictionary)
        self.config = config
        self.embedder = embedder or _get_embedder(config)
        self.searcher = Searcher(config, self.embedder, reranker or make_reranker(config))
        model = llm or get_main_model(config.llm)
        options = GenerationOptions(
            temperature=config.temperature, max_tokens=config.max_tokens, thinking=config.thinking
        )
        writer = Writer(model, options) if model else None
        self.light = light or get_light_model(config.light_llm)
        recaller = Recaller(
            self.searcher,
            config.context,
            self.light,
            caller=model if isinstance(model, ToolCaller) else None,
            windowed=model is not None,
            model=model.name if model else "",
        )
        reviser = Reviser(self.light, config.style, config.revise) if self.light and model else None
        reading = self.light or (Light(model) if model else None)
        verifier = make_verifier(config)
        self.pipeline = Pipeline(
            config, self.searcher, writer, recaller, reading, reviser, verifier
        )

    def warm(self) -> None:
        """Load analyser, memory packs, vocabulary and the language model's client now."""
        tokenize.count_terms("준비")
        load_packs(self.config.profile.packs)
        if self.pipeline.writer:
            self.pipeline.writer.counter.count("준비")
        if self.config.llm:
            load_client_library()

    def warm_embedder(self) -> None:
        """Load the embedder now: it may take longer than a question waits.

        Raises `EmbedderFailed`.
        """
        self.embedder.embed_passages(["ready"])

    def index_chunks(
        self,
        chunks: Iterable[TextChunk],
        title: str,
        on_progress: Callable[[int, int], None],
        total: int,
    ) -> Iterator[IndexedChunk]:
        """Terms and vectors of a document's chunks; see `rag.indexing.index_chunks`."""
        return indexing.index_chunks(chunks, title, self.embedder, on_progress, total)

    def add_vectors(
        self,
        analysed: Iterable[IndexedChunk],
        title: str,
        on_progress: Callable[[int, int], None],
        total: int,
    ) -> Iterator[IndexedChunk]:
        """Add vectors to analysed chunks; see `rag.indexing.add_vectors`."""
        return indexing.add_vectors(analysed, title, self.embedder, on_progress, total)

    def search(  # noqa: PLR0913 - the whole search API, by name
        self,
        query: str,
        scope: Scope,
        store: PassageStore,
        *,
        strategy: StrategyName = StrategyName.AUTO,
        top_k: int | None = None,
        rerank: bool = True,
        filters: Mapping[str, str] | None = None,
        conversation: Conversation = NO_CONVERSATION,
        history: HistoryStore = NO_HISTORY,
    ) -> Retrieval:
        """Search without answering. Raises what the store raises.

        `store` holds the documents of `scope` and of `conversation.readable`.
        """
        question = Question(query, scope, conversation)
        analysis = analyse_by_rules(question, history, self.config, self.embedder)
        return self.searcher.search(
            analysis,
            narrow_store(store, question, analysis.scope),
            SearchOptions(strategy, top_k, rerank, filters),
        )

    def answer(
        self, question: Question, store: PassageStore, history: HistoryStore = NO_HISTORY
    ) -> AsyncGenerator[Event, None]:
        """The events of an answer; see `rag.pipeline`.

        Closing the iterator closes the model's connection.
        """
        return self.pipeline.answer(question, store, history)

    async def preview_prompt(
        self, question: Question, store: PassageStore, history: HistoryStore = NO_HISTORY
    ) -> tuple[HistoryMessage, ...]:
        """The prompt of a question; see `rag.pipeline`."""
        return await self.pipeline.preview_prompt(question, store, history)

    async def note_turn(
        self, turn: PastTurn, folding: Sequence[PastTurn], running: RunningSummary | None
    ) -> TurnNote:
        """What later turns need of a turn; see `rag.memory.summary`."""
        return await summary.note_turn(
            turn,
            folding,
            running,
            light=self.light,
            embedder=self.embedder,
            rules=self.config.context,
            windowed=self.pipeline.writer is not None,
        )

    async def read_profile(self, text: str, foreign: Sequence[str]) -> tuple[Statement, ...]:
        """What the light model finds that the user says of himself; nothing without one.

        See `rag.memory.extract.read_by_model`. Raises `LLMError`.
        """
        if self.light is None:
            return ()
        packs = load_packs(self.config.profile.packs)
        return await read_by_model(text, packs, self.light, foreign=foreign)

    async def suggest_follow_ups(
        self, question: str, answer: str, headings: Sequence[str]
    ) -> tuple[str, ...]:
        """Questions that may come next, by the light model; none without one.

        See `rag.generate.llm`. Raises `LLMError`.
        """
        if self.light is None:
            return ()
        return await suggest_follow_ups(question, answer, headings, self.light)


@functools.lru_cache(maxsize=KEPT_ENGINES)
def get_engine(config: RagConfig) -> Engine:
    """The engine of this process for a configuration.

    Engines of several models share all but these.
    """
    return Engine(config)


def get_embedding_model_name(config: RagConfig) -> str:
    """The name of the embedding model, without loading it."""
    if config.embedding_endpoint is not None:
        return config.embedding_endpoint.model
    return config.embedding_model or EMBEDDED_NAME


def get_vision(config: RagConfig) -> Vision | None:
    """The vision model, if there is one."""
    return OpenAIVision(config.vision, config.vision_max_tokens) if config.vision else None


def make_embedder(config: RagConfig) -> Embedder:
    """A fresh embedder, which measures its dimensions unless they are given."""
    name = get_embedding_model_name(config)
    known = find_declaration(name)
    languages = config.embedding_languages or known.languages
    dimensions = config.embedding_dimensions or known.dimensions
    endpoint = config.embedding_endpoint or config.local_model(name)
    return EndpointEmbedder(endpoint, languages, dimensions)


_shared_embedder = functools.lru_cache(maxsize=KEPT)(make_embedder)


def _get_embedder(config: RagConfig) -> Embedder:
    """One of each in a process, whatever else the configuration says."""
    return _shared_embedder(
        RagConfig(
            embedding_model=config.embedding_model,
            embedding_endpoint=config.embedding_endpoint,
            embedding_languages=config.embedding_languages,
            embedding_dimensions=config.embedding_dimensions,
            models_socket=config.models_socket,
        )
    )


def make_reranker(config: RagConfig) -> Reranker | None:
    """The reranker, if there is one."""
    if not config.reranker_model:
        return None
    return EndpointReranker(config.reranker_endpoint or config.local_model(config.reranker_model))


@functools.cache
def get_main_model(endpoint: Endpoint | None) -> LLM | None:
    """The language model, if there is one."""
    return OpenAILLM(endpoint) if endpoint else None


@functools.cache
def get_light_model(endpoint: Endpoint | None) -> Light | None:
    """Who is asked beside an answer; None: nobody.

    The limit of a whole call is `Light`'s: whoever has time can ask it to be patient.
    """
    if endpoint is None:
        return None
    return Light(OpenAILLM(replace(endpoint, total_timeout=math.inf)), endpoint.total_timeout)


def make_verifier(config: RagConfig) -> Verifier | None:
    """The verifier model; None: rules only."""
    if not config.verifier_model:
        return None
    return EndpointVerifier(config.verifier_endpoint or config.local_model(config.verifier_model))

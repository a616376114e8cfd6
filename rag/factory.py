"""One engine per process and configuration: the facade that the floors above use."""

import functools
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rag import indexing, morphemes, tokenize
from rag.config import Endpoint, RagConfig
from rag.context import tokens
from rag.conversation import Conversation, RunningSummary, Turn
from rag.embedders.known import declared
from rag.embedders.openai import OpenAIEmbedder
from rag.embedders.sentence_transformers import EMBEDDED_NAME, SentenceTransformersEmbedder
from rag.events import Event
from rag.generation.brief import Answerer
from rag.generation.extractive import ExtractiveAnswerer
from rag.generation.general import PlainAnswerer
from rag.generation.prompted import PromptedAnswerer
from rag.generation.style import Stylist
from rag.history import note
from rag.history.look_back import LookBack
from rag.history.memory import MemoryHistory
from rag.history.note import Noted
from rag.llms import clients
from rag.llms.light import Light
from rag.llms.openai import OpenAILLM
from rag.pipeline import Pipeline
from rag.ports import (
    LLM,
    Embedder,
    GenerationOptions,
    HistoryStore,
    PassageStore,
    Reranker,
    ToolCaller,
    Vision,
)
from rag.query import understand
from rag.question import Question
from rag.rerankers.cross_encoder import CrossEncoderReranker
from rag.retrieval.plan import Asked, Wishes
from rag.searching import Searcher
from rag.types import Chunk, IndexedChunk, Retrieval, Scope, StrategyName
from rag.vision.openai import OpenAIVision

NO_CONVERSATION = Conversation()
NO_HISTORY = MemoryHistory()
KEPT = 3
"""Engines of a process: as the settings say, with the model in use, and with its successor."""


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
        morphemes.use(config.user_dictionary)
        self.config = config
        self.embedder = embedder or _embedder(config)
        self.searcher = Searcher(
            config, self.embedder, reranker or _reranker(config.reranker_model)
        )
        model = llm or _llm(config.llm)
        documents, general = _answerers(config, model)
        self.light = light or _light(config.light_llm)
        look_back = LookBack(
            self.searcher,
            config.context,
            self.light,
            caller=model if isinstance(model, ToolCaller) else None,
            windowed=model is not None,
            model=model.name if model else "",
        )
        stylist = (
            Stylist(self.light, config.style) if self.light and config.style and model else None
        )
        self.pipeline = Pipeline(
            config, self.searcher, documents, general, look_back, self.light, stylist
        )

    def warm(self) -> None:
        """Load analyser, vocabulary, embedder and the model's client now.

        Raises `EmbedderFailed`.
        """
        tokenize.terms("준비")
        tokens.counter(self.pipeline.general_answerer.name).count("준비")
        self.embedder.embed_query("ready")
        if self.config.llm:
            clients.warm()

    def index(
        self,
        chunks: Iterable[Chunk],
        title: str,
        on_progress: Callable[[int, int], None],
        total: int,
    ) -> Iterator[IndexedChunk]:
        """Terms and vectors of a document's chunks; see `rag.indexing.index`."""
        return indexing.index(chunks, title, self.embedder, on_progress, total)

    def completed(
        self,
        analysed: Iterable[IndexedChunk],
        title: str,
        on_progress: Callable[[int, int], None],
        total: int,
    ) -> Iterator[IndexedChunk]:
        """What `rag.indexing.Analyser` read of a document's chunks, with vectors."""
        return indexing.completed(analysed, title, self.embedder, on_progress, total)

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
        """Search without answering. Raises `EmbedderFailed` or what the store raises.

        `store` holds the documents of `scope` and of `conversation.readable`.
        """
        question = Question(query, scope, conversation)
        understood = understand.by_rules(question, history, self.config, self.embedder)
        asked = Asked(understood.verdict, understood.standalone, conversation.memory)
        return self.searcher.search(
            asked,
            understood.scope,
            understand.searched(store, question, understood.scope),
            Wishes(strategy, top_k, rerank, filters),
        )

    def answer(
        self, question: Question, store: PassageStore, history: HistoryStore = NO_HISTORY
    ) -> AsyncGenerator[Event, None]:
        """The events of an answer; see `rag.pipeline`.

        Closing the iterator closes the model's connection.
        """
        return self.pipeline.answer(question, store, history)

    async def note(
        self, turn: Turn, earlier: Sequence[Turn], running: RunningSummary | None
    ) -> Noted:
        """What is kept of a turn for later; see `rag.history.note`."""
        return await note.note(
            turn,
            earlier,
            running,
            light=self.light,
            embedder=self.embedder,
            rules=self.config.context,
        )


@functools.lru_cache(maxsize=KEPT)
def engine(config: RagConfig) -> Engine:
    """The engine of this process for a configuration.

    Engines of several embedding models share all but their embedders.
    """
    return Engine(config)


def model_name(config: RagConfig) -> str:
    """The name of the embedding model, without making anything."""
    if config.embedding_endpoint is not None:
        return config.embedding_endpoint.model
    return config.embedding_model or EMBEDDED_NAME


def vision(config: RagConfig) -> Vision | None:
    """Who reads pictures; None: nobody."""
    return OpenAIVision(config.vision, config.vision_max_tokens) if config.vision else None


def new_embedder(config: RagConfig) -> Embedder:
    """An embedder that remembers nothing: it measures its width anew where nobody says it."""
    return _new_embedder(*_embedder_parts(config))


def _embedder(config: RagConfig) -> Embedder:
    return _shared_embedder(*_embedder_parts(config))


def _embedder_parts(config: RagConfig) -> tuple[Endpoint | None, str, frozenset[str], int]:
    name = model_name(config)
    known = declared(name)
    languages = config.embedding_languages or known.languages
    return (
        config.embedding_endpoint,
        name,
        languages,
        config.embedding_dimensions or known.dimensions,
    )


def _new_embedder(
    endpoint: Endpoint | None, name: str, languages: frozenset[str], dimensions: int
) -> Embedder:
    if endpoint is not None:
        return OpenAIEmbedder(endpoint, languages, dimensions)
    return SentenceTransformersEmbedder(name, languages, dimensions)


_shared_embedder = functools.lru_cache(maxsize=KEPT)(_new_embedder)
"""One of each in a process."""


@functools.cache
def _reranker(model: str) -> Reranker | None:
    return CrossEncoderReranker(model) if model else None


@functools.cache
def _llm(endpoint: Endpoint | None) -> LLM | None:
    return OpenAILLM(endpoint) if endpoint else None


@functools.cache
def _light(endpoint: Endpoint | None) -> Light | None:
    """The limit of a whole call is `Light`'s: whoever has time can ask it to be patient."""
    if endpoint is None:
        return None
    return Light(OpenAILLM(replace(endpoint, total_timeout=math.inf)), endpoint.total_timeout)


def _answerers(config: RagConfig, llm: LLM | None) -> tuple[Answerer, Answerer]:
    """For documents and for general conversation."""
    if llm is None:
        return ExtractiveAnswerer(), PlainAnswerer()
    options = GenerationOptions(temperature=config.temperature, max_tokens=config.max_tokens)
    prompted = PromptedAnswerer(llm, options)
    return prompted, prompted

"""Models that read texts, behind an endpoint: embedder, reranker, verifier.

The endpoint is the models process of this machine (`nura/models_server.py`), reached by a Unix
socket, or an OpenAI-compatible server. `known_embedders.toml` holds what is declared of models.
"""

import base64
import functools
import json
import math
import tomllib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from rag.adapters.endpoint import get_breaker, to_llm_error
from rag.config import Endpoint
from rag.errors import EmbedderFailed, EngineUnavailable, LLMUnavailable
from rag.ports import Inference
from rag.types import Hit

logger = structlog.get_logger()

EMBEDDED_NAME = "all-MiniLM-L6-v2"
"""The bundled English embedding model."""
ENGLISH = frozenset(("en",))
BATCH_TEXTS = 64
UNREADABLE = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What reading a reply raises that holds no vectors."""
RETRIES = 2
QUERY_RETRIES = 1
"""Retries for a question: only one, because somebody is waiting."""
QUERY_SECONDS = 10.0
"""For each attempt."""
OUTSIDER = "outsider"
"""`input_type` of texts that programs have embedded for themselves."""
RERANK_SECONDS = 60.0
"""The same for rerankers and verifiers, which read dozens of passages on a CPU."""


@dataclass(frozen=True, slots=True)
class EmbedderDeclaration:
    """Width, languages and prompt prefixes of a model.

    `dimensions` 0: not known before it is loaded.
    """

    dimensions: int = 0
    languages: frozenset[str] = frozenset()
    query_prefix: str = ""
    passage_prefix: str = ""


def find_declaration(model: str) -> EmbedderDeclaration:
    """What is known of a model by its name or folder; the empty declaration for others.

    Ollama's names carry a tag that says nothing of these: "bge-m3:567m".
    """
    name = model.rstrip("/").rsplit("/", 1)[-1].partition(":")[0]
    return _load_known_models().get(name.lower(), EmbedderDeclaration())


def find_languages(model: str, configured: frozenset[str] = frozenset()) -> frozenset[str]:
    """The languages of a model: as told, else as declared, else English alone.

    A model that does not know a language harms its questions more than one that is left out.
    """
    if known := configured or find_declaration(model).languages:
        return known
    _warn_of_unknown(model)
    return ENGLISH


@functools.cache
def _warn_of_unknown(model: str) -> None:
    """Models already warned about, once per process: unknown languages count as English only."""
    logger.warning(
        "embedder_counts_as_english", model=model, reason="languages neither set nor known"
    )


@functools.cache
def _load_known_models() -> Mapping[str, EmbedderDeclaration]:
    stored = Path(__file__).with_name("known_embedders.toml").read_text(encoding="utf-8")
    return {
        name: EmbedderDeclaration(**fields | {"languages": frozenset(fields["languages"])})
        for name, fields in tomllib.loads(stored).items()
    }


def to_unit_vectors(
    vectors: Sequence[Sequence[float]], *, count: int, dimensions: int
) -> list[list[float]]:
    """The vectors at length 1. `dimensions` 0 takes the width of the first one.

    Raises `EmbedderFailed` on a wrong count or width, NaN, or a zero vector.
    """
    if len(vectors) != count:
        raise EmbedderFailed(f"{count} texts gave {len(vectors)} vectors", reason="count")
    width = dimensions or (len(vectors[0]) if vectors else 0)
    return [_to_unit(vector, width) for vector in vectors]


def _to_unit(vector: Sequence[float], width: int) -> list[float]:
    if len(vector) != width or not width:
        raise EmbedderFailed(f"a vector of {len(vector)} instead of {width}", reason="dimensions")
    length = math.sqrt(math.fsum(value * value for value in vector))
    if not math.isfinite(length) or length == 0:
        raise EmbedderFailed("a vector that is zero or not finite", reason="values")
    return [value / length for value in vector]


class EndpointEmbedder:
    """An embedder behind an endpoint. Thread-safe.

    The width of an unknown model is probed with the first call that needs it; `dimensions` is the
    one that it must have.
    """

    def __init__(
        self, endpoint: Endpoint, languages: frozenset[str] = frozenset(), dimensions: int = 0
    ) -> None:
        self._endpoint = endpoint
        self.name = endpoint.model
        self._declared = find_declaration(endpoint.model)
        self._dimensions = dimensions or self._declared.dimensions
        self.languages = find_languages(self.name, languages)

    @property
    def dimensions(self) -> int:
        """Number of dimensions; asks the endpoint once if it is not configured."""
        if not self._dimensions:
            self._embed(["dimensions"])
        return self._dimensions

    def embed_passages(self, texts: Sequence[str], *, outsider: str = "") -> list[list[float]]:
        """One unit vector per text, asked for in batches. Raises `EmbedderFailed`."""
        # the models process has a lane for each kind; other servers need not know the word
        has_lanes = bool(outsider and self._endpoint.socket)
        extra = {"extra_body": {"input_type": OUTSIDER, "user": outsider}} if has_lanes else {}
        prefixed = [self._declared.passage_prefix + text for text in texts]
        batches = [
            prefixed[start : start + BATCH_TEXTS] for start in range(0, len(prefixed), BATCH_TEXTS)
        ]
        return [vector for batch in batches for vector in self._embed(batch, extra)]

    def embed_query(self, text: str) -> list[float]:
        """The unit vector of a question; fails at once while the endpoint is left alone.

        Documents are embedded all the same: nobody waits for them, and they would fail for good.
        Raises `EmbedderFailed`.
        """
        try:
            get_breaker(self._endpoint).raise_if_open()
        except LLMUnavailable as error:
            raise EmbedderFailed(f"{self.name} does not answer", reason="endpoint") from error
        prefixed = self._declared.query_prefix + text
        # the models process lets questions go before passages; other servers need not know the word
        extra = {"extra_body": {"input_type": "query"}} if self._endpoint.socket else {}
        return self._embed([prefixed], extra, client=self._query_client)[0]

    def _embed(
        self, texts: list[str], extra: Mapping[str, Any] | None = None, client: Any = None
    ) -> list[list[float]]:
        """Unit vectors of one batch."""
        import openai

        breaker = get_breaker(self._endpoint)
        # not every server knows base64
        encoding: Any = "base64" if self._endpoint.socket else "float"
        try:
            reply = (client or self._client).embeddings.with_raw_response.create(
                model=self.name, input=texts, encoding_format=encoding, **(extra or {})
            )
            # the client's own objects take five times as long: it looks at each figure of a vector
            rows = sorted(json.loads(reply.content)["data"], key=lambda row: row.get("index") or 0)
            raw_vectors = [_to_floats(row["embedding"]) for row in rows]
        except (openai.OpenAIError, *UNREADABLE) as error:
            breaker.note_failure(to_llm_error(error, started=False))
            # the endpoint's own words may hold the key or a page of HTML: they stay in the chained
            # exception
            raise EmbedderFailed(f"{self.name} did not embed", reason="endpoint") from error
        breaker.note_success()
        vectors = to_unit_vectors(raw_vectors, count=len(texts), dimensions=self._dimensions)
        self._dimensions = self._dimensions or len(vectors[0])
        return vectors

    @functools.cached_property
    def _client(self) -> Any:
        return _make_client(self._endpoint)

    @functools.cached_property
    def _query_client(self) -> Any:
        """Somebody waits: all tries to connect together take no longer than one may elsewhere."""
        import openai

        connect = self._endpoint.connect_timeout / (1 + QUERY_RETRIES)
        limit = openai.Timeout(min(QUERY_SECONDS, self._endpoint.idle_timeout), connect=connect)
        return self._client.with_options(timeout=limit, max_retries=QUERY_RETRIES)


def _to_floats(vector: str | Sequence[float]) -> list[float]:
    """A vector from a response: numbers, or little-endian 32-bit floats in base64."""
    if not isinstance(vector, str):
        return [float(value) for value in vector]
    return array("f", base64.b64decode(vector)).tolist()


class EndpointReranker:
    """A cross-encoder behind `/rerank`, in the format of Jina, Cohere and vLLM."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.model
        self._endpoint = endpoint

    def rerank(self, query: str, hits: Sequence[Hit], top_k: int) -> list[Hit]:
        """The best `top_k` by the cross-encoder's score, kept under `scores["rerank"]`.

        Raises `EngineUnavailable` where the model does not answer or cannot be loaded.
        """
        body = {"query": query, "documents": [hit.passage.content for hit in hits]}
        reply = _ask(self._client, self._endpoint, "/rerank", body)
        try:
            scores = {
                int(result["index"]): float(result["relevance_score"])
                for result in reply["results"]
            }
            scored = [
                replace(hit, score=scores[place], scores={**hit.scores, "rerank": scores[place]})
                for place, hit in enumerate(hits)
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise EngineUnavailable(f"the reranker {self.name} gave no scores") from error
        return sorted(scored, key=lambda hit: -hit.score)[:top_k]

    @functools.cached_property
    def _client(self) -> Any:
        return _make_client(self._endpoint)


class EndpointVerifier:
    """A model of natural language inference behind `/predict`, the shape of Hugging Face's TEI.

    Reads whether texts bear out sentences.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.model
        self._endpoint = endpoint

    def infer(self, pairs: Sequence[tuple[str, str]]) -> list[Inference]:
        """One inference a pair of a text and a sentence, in order.

        Raises `EngineUnavailable` where the model does not answer, cannot be loaded, or names no
        entailment among its labels.
        """
        if not pairs:
            return []
        reply = _ask(self._client, self._endpoint, "/predict", {"inputs": [*map(list, pairs)]})
        try:
            return [self._to_inference(shares) for shares in reply]
        except (KeyError, TypeError, ValueError) as error:
            raise EngineUnavailable(f"the verifier {self.name} gave no labels") from error

    def _to_inference(self, shares: Sequence[Mapping[str, Any]]) -> Inference:
        sums = dict.fromkeys(("entailment", "neutral", "contradiction"), 0.0)
        kinds = {str(share["label"]): _parse_label(str(share["label"]).lower()) for share in shares}
        if "entailment" not in kinds.values():
            raise EngineUnavailable(f"the labels of {self.name} name no entailment")
        for share in shares:
            sums[kinds[str(share["label"])]] += float(share["score"])
        return Inference(**sums)

    @functools.cached_property
    def _client(self) -> Any:
        return _make_client(self._endpoint)


def _parse_label(label: str) -> str:
    """What an output of a model stands for, by its label in the configuration."""
    known = ("entail", "entailment"), ("contra", "contradiction")
    return next((kind for begins, kind in known if label.startswith(begins)), "neutral")


def _ask(client: Any, endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> Any:
    """The JSON of a reply. Raises `EngineUnavailable`: the engine does without.

    An answer asks these models beside others, so an endpoint that is left alone is not waited for.
    """
    import openai

    breaker = get_breaker(endpoint)
    limits = openai.Timeout(
        min(RERANK_SECONDS, endpoint.idle_timeout), connect=endpoint.connect_timeout
    )
    client = client.with_options(timeout=limits, max_retries=QUERY_RETRIES)
    try:
        breaker.raise_if_open()
        reply = client.post(path, body={"model": endpoint.model, **body}, cast_to=object)
    except LLMUnavailable as error:
        raise EngineUnavailable(f"{endpoint.model} does not answer") from error
    except openai.OpenAIError as error:
        breaker.note_failure(to_llm_error(error, started=False))
        raise EngineUnavailable(f"{endpoint.model} did not answer") from error
    breaker.note_success()
    return reply


def _make_client(endpoint: Endpoint) -> Any:
    import openai

    from rag.adapters.wire import BoundedClient

    limits = openai.Timeout(endpoint.idle_timeout, connect=endpoint.connect_timeout)
    way = _make_socket_transport(endpoint.socket) if endpoint.socket else {}
    return openai.OpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",
        default_headers=dict(endpoint.headers),
        timeout=limits,
        max_retries=RETRIES,
        http_client=BoundedClient(follow_redirects=False, timeout=limits, **way),
    )


def _make_socket_transport(path: str) -> dict[str, Any]:
    """HTTP transport over a Unix socket, ignoring proxies of the environment."""
    import httpx2

    return {"transport": httpx2.HTTPTransport(uds=path), "trust_env": False}

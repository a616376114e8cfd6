"""Embedding by an OpenAI-compatible `/embeddings` endpoint, and what all embedders share.

That is what is declared of known models (`known_embedders.toml`), and the check of their vectors.
"""

import functools
import logging
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag.adapters.endpoint import breaker_of, to_llm_error
from rag.config import Endpoint
from rag.errors import EmbedderFailed, LLMUnavailable

log = logging.getLogger(__name__)

ENGLISH = frozenset(("en",))
BATCH = 64
RETRIES = 2
QUERY_RETRIES = 1
"""Somebody waits for a question, so it is retried once only."""
QUERY_SECONDS = 10.0
"""For each try."""


@dataclass(frozen=True, slots=True)
class Declared:
    """Width, languages and prompt prefixes of a model.

    `dimensions` 0: not known before it is loaded.
    """

    dimensions: int = 0
    languages: frozenset[str] = frozenset()
    query_prefix: str = ""
    passage_prefix: str = ""


def find_declaration(model: str) -> Declared:
    """What is known of a model by its name or folder; the empty declaration for others.

    Ollama's names carry a tag that says nothing of these: "bge-m3:567m".
    """
    name = model.rstrip("/").rsplit("/", 1)[-1].partition(":")[0]
    return _known_models().get(name.lower(), Declared())


def find_languages(model: str, told: frozenset[str] = frozenset()) -> frozenset[str]:
    """The languages of a model: as told, else as declared, else English alone.

    A model that does not know a language harms its questions more than one that is left out.
    """
    if known := told or find_declaration(model).languages:
        return known
    _warn_of_unknown(model)
    return ENGLISH


@functools.cache
def _warn_of_unknown(model: str) -> None:
    """Once a process: else a Korean model would be left out of Korean questions unnoticed."""
    log.warning("%s counts as an English model: its languages are not set, nor known", model)


@functools.cache
def _known_models() -> Mapping[str, Declared]:
    stored = Path(__file__).with_name("known_embedders.toml").read_text(encoding="utf-8")
    return {
        name: Declared(**fields | {"languages": frozenset(fields["languages"])})
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


class OpenAIEmbedder:
    """A model behind an endpoint.

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
        """Width of the vectors; asks the endpoint once where nobody said it."""
        if not self._dimensions:
            self._embed(["dimensions"])
        return self._dimensions

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """One unit vector per text, asked for in batches."""
        prefixed = [self._declared.passage_prefix + text for text in texts]
        batches = [prefixed[start : start + BATCH] for start in range(0, len(prefixed), BATCH)]
        return [vector for batch in batches for vector in self._embed(batch)]

    def embed_query(self, text: str) -> list[float]:
        """The unit vector of a question; fails at once while the endpoint is left alone.

        Documents are embedded all the same: nobody waits for them, and they would fail for good.
        """
        try:
            breaker_of(self._endpoint).enter()
        except LLMUnavailable as error:
            raise EmbedderFailed(f"{self.name} does not answer", reason="endpoint") from error
        import openai

        # somebody waits: all tries to connect together take no longer than one may elsewhere
        connect = self._endpoint.connect_timeout / (1 + QUERY_RETRIES)
        limit = openai.Timeout(min(QUERY_SECONDS, self._endpoint.idle_timeout), connect=connect)
        prefixed = self._declared.query_prefix + text
        return self._embed([prefixed], timeout=limit, max_retries=QUERY_RETRIES)[0]

    def _embed(self, texts: list[str], **limits: Any) -> list[list[float]]:
        """Unit vectors of one batch."""
        import openai

        breaker = breaker_of(self._endpoint)
        try:
            client = self._client.with_options(**limits)
            reply = client.embeddings.create(model=self.name, input=texts, encoding_format="float")
            rows = sorted(reply.data or (), key=lambda row: row.index or 0)
            found = [[float(value) for value in row.embedding] for row in rows]
        except (openai.OpenAIError, AttributeError, TypeError, ValueError) as error:
            breaker.note_failure(to_llm_error(error, started=False))
            # the endpoint's own words may hold the key or a page of HTML: they stay in the chained
            # exception
            raise EmbedderFailed(f"{self.name} did not embed", reason="endpoint") from error
        breaker.note_success()
        vectors = to_unit_vectors(found, count=len(texts), dimensions=self._dimensions)
        self._dimensions = self._dimensions or len(vectors[0])
        return vectors

    @functools.cached_property
    def _client(self) -> Any:
        import openai

        limits = openai.Timeout(self._endpoint.idle_timeout, connect=self._endpoint.connect_timeout)
        return openai.OpenAI(
            base_url=self._endpoint.base_url,
            api_key=self._endpoint.api_key or "none",
            timeout=limits,
            max_retries=RETRIES,
            http_client=openai.DefaultHttpxClient(follow_redirects=False, timeout=limits),
        )

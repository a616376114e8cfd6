"""Embedding by an OpenAI-compatible `/embeddings` endpoint."""

import threading
from collections.abc import Sequence
from typing import Any

from rag import breaker
from rag.config import Endpoint
from rag.embedders.checks import unit_vectors
from rag.embedders.known import ENGLISH, declared
from rag.errors import EmbedderFailed, LLMUnavailable
from rag.llms.failures import translated

BATCH = 64
RETRIES = 2
QUERY_RETRIES = 1
"""Somebody waits for a question: it is asked again once, and each time no longer than this."""
QUERY_SECONDS = 10.0


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
        self._declared = declared(endpoint.model)
        self._dimensions = dimensions or self._declared.dimensions
        self.languages = languages or self._declared.languages or ENGLISH
        self._lock = threading.Lock()
        self._client: Any = None

    @property
    def dimensions(self) -> int:
        """Width of the vectors; asks the endpoint once where nobody said it."""
        if not self._dimensions:
            self._dimensions = len(self._request(["dimensions"])[0])
        return self._dimensions

    def warm(self) -> None:
        """Make the client."""
        self._connected()

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """One unit vector per text, asked for in batches."""
        prefixed = [self._declared.passage_prefix + text for text in texts]
        batches = [prefixed[start : start + BATCH] for start in range(0, len(prefixed), BATCH)]
        return [vector for batch in batches for vector in self._checked(batch)]

    def embed_query(self, text: str) -> list[float]:
        """The unit vector of a question; fails at once while the endpoint is left alone.

        Documents are embedded all the same: nobody waits for them, and they would fail for good.
        """
        try:
            breaker.of(self._endpoint).enter()
        except LLMUnavailable as error:
            raise EmbedderFailed(f"{self.name} does not answer", reason="endpoint") from error
        limits = {"timeout": self._query_timeout(), "max_retries": QUERY_RETRIES}
        return self._checked([self._declared.query_prefix + text], **limits)[0]

    def _checked(self, texts: list[str], **limits: Any) -> list[list[float]]:
        rows = self._request(texts, **limits)
        vectors = unit_vectors(rows, count=len(texts), dimensions=self._dimensions)
        self._dimensions = self._dimensions or len(vectors[0])
        return vectors

    def _request(self, texts: list[str], **limits: Any) -> list[list[float]]:
        import openai

        try:
            client = self._connected().with_options(**limits)
            reply = client.embeddings.create(model=self.name, input=texts, encoding_format="float")
            rows = sorted(reply.data or (), key=lambda row: row.index or 0)
            vectors = [[float(value) for value in row.embedding] for row in rows]
        except (openai.OpenAIError, AttributeError, TypeError, ValueError) as error:
            breaker.of(self._endpoint).failed(translated(error, started=False))
            # the endpoint's own words may hold the key or a page of HTML: they stay in the chained
            # exception
            raise EmbedderFailed(f"{self.name} did not embed", reason="endpoint") from error
        breaker.of(self._endpoint).well()
        return vectors

    def _query_timeout(self) -> Any:
        """Somebody waits: all tries to connect together take no longer than one may elsewhere."""
        import openai

        seconds = min(QUERY_SECONDS, self._endpoint.idle_timeout)
        return openai.Timeout(seconds, connect=self._endpoint.connect_timeout / (1 + QUERY_RETRIES))

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        import openai

        limits = openai.Timeout(self._endpoint.idle_timeout, connect=self._endpoint.connect_timeout)
        return openai.OpenAI(
            base_url=self._endpoint.base_url,
            api_key=self._endpoint.api_key or "none",
            timeout=limits,
            max_retries=RETRIES,
            http_client=openai.DefaultHttpxClient(follow_redirects=False, timeout=limits),
        )

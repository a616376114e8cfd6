"""The product's models process for benchmarks that run the engine without the product."""

import atexit
import contextlib
import functools
from dataclasses import replace

from rag.adapters.encoders import EMBEDDED_NAME, EndpointEmbedder
from rag.config import RagConfig
from tests.servers.models import run_models


def with_local_models(config: RagConfig | None = None) -> RagConfig:
    """The configuration, with the socket of a models process that ends with this process."""
    return replace(config or RagConfig(), models_socket=_socket())


def local_embedder(languages: frozenset[str] = frozenset()) -> EndpointEmbedder:
    """The embedder that comes with the product."""
    return EndpointEmbedder(with_local_models().local_model(EMBEDDED_NAME), languages)


@functools.cache
def _socket() -> str:
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(run_models()).models_socket

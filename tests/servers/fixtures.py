"""Fixtures of the stand-in servers: `pytest_plugins = ["tests.servers.fixtures"]`."""

from collections.abc import Iterator

import pytest

from rag.adapters.endpoint import reset_breakers
from rag.adapters.openai import reset_dialects
from rag.context.budget import reset_context_lengths
from tests.servers.llm import LLMServer


@pytest.fixture(scope="session")
def _llm_server() -> Iterator[LLMServer]:
    with LLMServer() as server:
        yield server


@pytest.fixture
def llm_server(_llm_server: LLMServer) -> LLMServer:
    """An OpenAI-compatible stand-in at `llm_server.url`, its script empty.

    See `tests.servers.llm`.
    """
    _llm_server.reset()
    reset_breakers()
    reset_dialects()
    reset_context_lengths()
    return _llm_server

"""Fixtures of the stand-in servers: `pytest_plugins = ["tests.servers.fixtures"]`."""

from collections.abc import Iterator

import pytest

from rag.adapters.endpoint import forget_failures
from rag.adapters.openai import forget_dialects
from rag.context.budget import forget_context_lengths
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
    forget_failures()
    forget_dialects()
    forget_context_lengths()
    return _llm_server

"""The models process, as the product starts it: the test run's, or one on a socket of its own."""

import contextlib
import tempfile
from pathlib import Path

import pytest
from django.conf import settings

from nura.embedded import locations, models, session
from rag.adapters.encoders import EMBEDDED_NAME, EndpointEmbedder
from rag.config import RagConfig


@contextlib.contextmanager
def running_models(**parts):
    """A configuration whose local models are served."""
    with tempfile.TemporaryDirectory(prefix="nura-models-") as name:
        folder = Path(name)
        config = RagConfig(models_socket=locations.build_models_socket(folder), **parts)
        with session.run_models(folder, config.models_socket):
            yield config


@contextlib.contextmanager
def running_embedder(languages=frozenset()):
    """The embedder that comes with the product."""
    with running_models() as config:
        yield EndpointEmbedder(config.local_model(EMBEDDED_NAME), languages)


@pytest.fixture(scope="session")
def local_models():
    """A configuration whose local models are served, for all tests that ask for it."""
    socket = settings.RAG.models_socket
    if models.is_answering(socket):
        yield RagConfig(models_socket=socket)
        return
    with running_models() as config:  # of light tests alone
        yield config

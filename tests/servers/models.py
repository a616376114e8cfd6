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
def run_models(**parts):
    """Run a models process; yields a configuration that uses it."""
    with tempfile.TemporaryDirectory(prefix="nura-models-") as name:
        folder = Path(name)
        config = RagConfig(models_socket=locations.build_models_socket(folder), **parts)
        with session.run_models(folder, config.models_socket):
            yield config


@contextlib.contextmanager
def run_embedder(languages=frozenset()):
    """Run a models process; yields the embedder bundled with the product."""
    with run_models() as config:
        yield EndpointEmbedder(config.local_model(EMBEDDED_NAME), languages)


@pytest.fixture(scope="session")
def local_models():
    """A configuration with a running models process, shared by all tests."""
    socket = settings.RAG.models_socket
    if models.is_answering(socket):
        yield RagConfig(models_socket=socket)
        return
    with run_models() as config:  # no test of this run needs the database
        yield config

"""A live web process, a key, documents, a worker with the real engine, and OpenAI's own client."""

from dataclasses import replace

import pytest
from django.conf import settings as django_settings
from knox.models import AuthToken
from openai import OpenAI

from rag.config import Endpoint
from rag.factory import get_engine
from tests.chats import talking
from tests.servers import asgi


@pytest.fixture(scope="session", autouse=True)
def _warm():
    """The models are loaded as in a worker that serves: here one process is all of them."""
    get_engine(django_settings.RAG).warm_embedder()


@pytest.fixture(autouse=True)
def _own_files(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "files"
    settings.DATA_DIR = tmp_path


@pytest.fixture
def web(transactional_db):
    with asgi.run_server() as server:
        yield server


@pytest.fixture
def base_url(web):
    return f"{web.url}/v1"


@pytest.fixture
def key(owner):
    return AuthToken.objects.create(owner)[1]


@pytest.fixture
def client(base_url, key):
    """No retries: a test wants the first answer."""
    with OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60) as one:
        yield one


@pytest.fixture
def travel(owner):
    return talking.add_document(owner, "출장 규정.md", talking.TRAVEL)


@pytest.fixture
def leave(owner):
    return talking.add_document(owner, "휴가 규정.md", talking.LEAVE)


@pytest.fixture
def model(settings, llm_server):
    """A chat model behind the engine."""
    settings.RAG = replace(settings.RAG, llm=Endpoint(llm_server.url, "stand-in"))
    return llm_server

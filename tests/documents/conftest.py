"""Documents in tests: real Postgres and Redis, a small embedder in place of the model."""

import hashlib
import uuid

import pytest
from celery import current_app
from celery.contrib.testing.worker import start_worker
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.db import connections, transaction
from django.utils import timezone
from redis import Redis
from rest_framework.test import APIClient

from documents import index, ingest, queue, services, spaces
from documents.models import Document
from rag.config import RagConfig
from rag.factory import Engine
from tests.servers.fixtures import _llm_server, llm_server  # noqa: F401


class TinyEmbedder:
    """16 figures from the words of a text: the same words, the same direction."""

    name = "tiny"
    dimensions = 16
    languages = frozenset({"*"})

    def embed_passages(self, texts, outsider=""):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        vector = [0.01] * self.dimensions
        for word in text.split():
            vector[hashlib.blake2b(word.encode(), digest_size=1).digest()[0] % 16] += 1.0
        length = sum(value * value for value in vector) ** 0.5
        return [value / length for value in vector]


@pytest.fixture
def embedder():
    return TinyEmbedder()


@pytest.fixture
def tiny_engine(monkeypatch, embedder):
    """The engine with the tiny embedder, wherever documents ask for the engine."""
    engine = Engine(RagConfig(), embedder=embedder)
    # loading takes longer than a heartbeat, whose connection sees no row of a test
    engine.warm_embedder()
    monkeypatch.setattr(ingest, "get_engine", lambda _config: engine)
    monkeypatch.setattr(spaces, "get_engine", lambda _config: engine)
    return engine


@pytest.fixture
def ingest_worker(settings):
    """A Celery worker on the queue of documents, in a thread of this process."""
    from nura.celery import app

    Redis.from_url(settings.REDIS_URL).flushdb()
    with start_worker(
        app, pool="threads", concurrency=2, queues=["documents"], perform_ping_check=False
    ) as running:
        yield running
    connections.close_all()


@pytest.fixture(autouse=True)
def own_files(settings, tmp_path):
    """Files of a test stay in its own folder."""
    settings.MEDIA_ROOT = tmp_path / "files"
    settings.DATA_DIR = tmp_path


def make_owner():
    return User.objects.create_user("owner", password="secret-of-the-owner")


@pytest.fixture
def owner(db):
    return make_owner()


@pytest.fixture(scope="module")
def lasting_rows(django_db_setup, django_db_blocker):
    """What fixtures of a module write after this one stays until its end, for each of its tests.

    A test's own rows go at its end, as ever. Tests that commit cannot be in such a module.
    """
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def stranger(db):
    return User.objects.create_user("stranger", password="secret-of-the-stranger")


@pytest.fixture
def api(owner):
    client = APIClient()
    client.force_authenticate(owner)
    return client


@pytest.fixture
def stranger_api(stranger):
    client = APIClient()
    client.force_authenticate(stranger)
    return client


@pytest.fixture
def sent(monkeypatch):
    """What was handed to the broker, instead of a worker that takes it."""
    tasks = []
    monkeypatch.setattr(
        current_app, "send_task", lambda name, args, **_: tasks.append((name, args[0]))
    )
    monkeypatch.setattr(queue, "count_waiting_messages", lambda: len(tasks))
    return tasks


@pytest.fixture
def first_model(settings, embedding_server, sent):
    """The settings name a small model behind an endpoint."""
    from tests.documents.changing import configure

    configure(settings, embedding_server, "words-16")


@pytest.fixture
def library(owner, first_model):
    """Three documents, embedded with the first model."""
    from tests.documents.changing import TOPICS, add

    return [add(owner, f"규정 {number}.md", TOPICS[number : number + 2]) for number in range(3)]


TEXT = "# 휴가 규정\n\n연차 휴가는 15일이다.\n\n# 출장 규정\n\n출장비는 하루 5만 원이다.\n"


def upload(owner, *, name="규정.md", content=TEXT, metadata=None):
    data = content.encode() if isinstance(content, str) else content
    document, _created = services.upload_document(
        owner=owner, name=name, content=ContentFile(data), metadata=metadata
    )
    return document


def make_row(owner, **fields):
    """A document's row without an upload."""
    key = uuid.uuid4()
    values = {
        "id": key,
        "owner": owner,
        "name": "규정.md",
        "original_name": "규정.md",
        "file": f"documents/{key}/original.md",
        "content_type": "text/markdown",
        "size": 10,
        "sha256": "0" * 64,
        "indexed_at": timezone.now() if fields.get("status") == "COMPLETED" else None,
    }
    return Document.objects.create(**values | fields)


def store_rows(pages, indexed, space, found=None):
    """Write the index of the document that waits; what `documents.ingest` does at its end."""
    claim = queue.claim_next_document()
    with index.IndexDraft(Document.objects.get(pk=claim.job_id)) as draft:
        for page in pages:
            draft.add_page(page, 0)
        draft.index(indexed, space)
        index.replace_index(claim, draft, found or index.IngestFindings(), space)


def stored_files():
    """All files in the storage."""
    root = settings.MEDIA_ROOT
    return sorted(path for path in root.rglob("*") if path.is_file()) if root.exists() else []

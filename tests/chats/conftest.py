"""People, documents, and an answers worker for the tests of conversations."""

import uuid

import pytest
from celery.contrib.testing.worker import start_worker
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from chats import connections, loop
from documents.models import Document


@pytest.fixture(autouse=True)
def _empty_redis(request):
    if "transactional_db" in request.fixturenames or "db" in request.fixturenames:
        connections.sync().flushdb()


@pytest.fixture
def owner(transactional_db):
    return User.objects.create_user("owner", "owner@example.com", "pw")


@pytest.fixture
def stranger(transactional_db):
    return User.objects.create_user("stranger", "stranger@example.com", "pw")


@pytest.fixture
def api(owner):
    return client(owner)


def client(user):
    one = APIClient()
    one.force_authenticate(user)
    return one


def make_document(owner, name="규정.md", status="COMPLETED"):
    return Document.objects.create(
        owner=owner,
        name=name,
        original_name=name,
        file=f"documents/{uuid.uuid4()}/original.md",
        content_type="text/markdown",
        size=10,
        sha256="0" * 64,
        status=status,
    )


@pytest.fixture
def answers_worker(transactional_db):
    """A real Celery worker on the answers queue, in threads of this process."""
    from nura.celery import app

    with start_worker(
        app, pool="threads", concurrency=4, queues=["answers"], perform_ping_check=False
    ) as worker:
        yield worker
    loop.close()

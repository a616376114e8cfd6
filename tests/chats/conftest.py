"""People, documents, and an answers worker for the tests of conversations."""

import uuid

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from documents.models import Document
from jobs import connections
from tests.servers.fixtures import _llm_server, llm_server  # noqa: F401


@pytest.fixture(autouse=True)
def _empty_redis(request):
    if "transactional_db" in request.fixturenames or "db" in request.fixturenames:
        connections.get_client().flushdb()


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
        indexed_at=timezone.now() if status == "COMPLETED" else None,
    )


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program on the only PATH there is; it keeps what it is called with and given."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name):
        file = tmp_path / name
        file.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n/bin/cat > {tmp_path}/given\n')
        file.chmod(0o755)
        return tmp_path

    return put

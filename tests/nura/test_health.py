from dataclasses import replace

import pytest
from django.conf import settings
from django.db import OperationalError
from redis import Redis

from nura import health
from rag.config import Endpoint


@pytest.fixture
def beats():
    client = Redis.from_url(settings.REDIS_URL)
    keys = [health.heartbeat_key(name) for name in health.WORKERS]
    client.delete(*keys)
    yield client
    client.delete(*keys)


def test_alive_asks_no_database(client):
    assert client.get("/healthz").status_code == 200


@pytest.mark.django_db
def test_ready_when_everything_is_there(client, beats):
    for name in health.WORKERS:
        beats.set(health.heartbeat_key(name), "machine", ex=15)
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "checks": {
            "database": True,
            "redis": True,
            "answers": True,
            "documents": True,
            "models": True,
        },
    }


@pytest.mark.django_db
def test_without_the_models_process_it_serves_and_says_so(client, beats, settings, tmp_path):
    for name in health.WORKERS:
        beats.set(health.heartbeat_key(name), "machine", ex=15)
    settings.RAG = replace(settings.RAG, models_socket=str(tmp_path / "models.sock"))
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json()["status"] == "degraded"
    assert response.json()["checks"]["models"] is False
    endpoint = Endpoint("http://127.0.0.1:9/v1", "m")
    settings.RAG = replace(settings.RAG, embedding_endpoint=endpoint)
    assert "models" not in client.get("/readyz").json()["checks"]


@pytest.mark.django_db
@pytest.mark.parametrize("missing", health.WORKERS)
def test_not_ready_without_a_worker(client, beats, missing):
    for name in set(health.WORKERS) - {missing}:
        beats.set(health.heartbeat_key(name), "machine", ex=15)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert [name for name, there in response.json()["checks"].items() if not there] == [missing]


@pytest.mark.django_db
def test_not_ready_without_redis_and_without_names(client, monkeypatch):
    nowhere = Redis.from_url("unix:///nowhere/redis.sock")
    monkeypatch.setattr(health, "client", lambda: nowhere)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert not response.json()["checks"]["redis"]
    assert "nowhere" not in response.content.decode()


def test_not_ready_without_the_database(client, beats, monkeypatch):
    class Gone:
        def cursor(self):
            raise OperationalError("password of host db-7 wrong")

    monkeypatch.setattr(health, "connection", Gone())
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"]["database"] is False
    assert b"db-7" not in response.content


def test_neither_may_be_cached(client):
    assert "no-store" in client.get("/healthz")["Cache-Control"]

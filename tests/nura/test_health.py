from dataclasses import replace

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from redis import Redis

from nura import health
from rag.config import Endpoint
from tests.documents.test_pages import make_document


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch):
    health.reset_checks()
    monkeypatch.setattr(health, "CACHE_SECONDS", 0.0)


@pytest.fixture
def beats():
    client = Redis.from_url(settings.REDIS_URL)
    keys = [health.make_heartbeat_key(name) for name in (*health.WORKERS, health.BEAT)]
    client.delete(*keys)
    health.send_heartbeat(health.BEAT)
    yield client
    client.delete(*keys)


def test_alive_asks_no_database(client):
    assert client.get("/healthz").status_code == 200


@pytest.mark.django_db
def test_ready_when_everything_is_there(client, beats):
    for name in health.WORKERS:
        health.send_heartbeat(name)
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "checks": {
            "database": True,
            "redis": True,
            "answers": True,
            "documents": True,
            "beat": True,
            "disk": True,
            "room": True,
            "models": True,
        },
    }


@pytest.mark.django_db
def test_without_the_models_process_it_serves_and_says_so(client, beats, settings, tmp_path):
    for name in health.WORKERS:
        health.send_heartbeat(name)
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
        health.send_heartbeat(name)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert [name for name, there in response.json()["checks"].items() if not there] == [missing]


@pytest.mark.django_db
def test_a_worker_that_leaves_takes_back_its_own_sign_of_life_alone(client, beats):
    for name in health.WORKERS:
        health.send_heartbeat(name)
    answers = health.make_heartbeat_key("answers")
    beats.zadd(answers, {"other:1 1": health.read_clock() + 15})
    health.remove_heartbeat("answers")
    assert client.get("/readyz").status_code == 200
    assert [one.place for one in health.list_processes() if one.kind == "answers"] == ["other:1"]
    beats.zadd(answers, {"other:1 1": health.read_clock()})
    assert client.get("/readyz").status_code == 503


@pytest.mark.django_db
def test_not_ready_without_redis_and_without_names(client, monkeypatch):
    nowhere = Redis.from_url("unix:///nowhere/redis.sock")
    monkeypatch.setattr(health, "get_client", lambda: nowhere)
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


@pytest.mark.django_db
def test_a_beat_that_is_gone_is_told_while_the_rest_serves(client, beats):
    for name in health.WORKERS:
        health.send_heartbeat(name)
    beats.delete(health.make_heartbeat_key(health.BEAT))
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json()["status"] == "degraded"
    assert response.json()["checks"]["beat"] is False


@pytest.mark.django_db
def test_c95_not_ready_where_the_disk_takes_nothing(client, beats, settings, tmp_path):
    for name in health.WORKERS:
        health.send_heartbeat(name)
    settings.DATA_DIR = tmp_path / "gone"
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"]["disk"] is False
    assert "gone" not in response.content.decode()


@pytest.mark.django_db
def test_c95_a_disk_below_the_reserve_is_told_while_the_rest_serves(client, beats, settings):
    for name in health.WORKERS:
        health.send_heartbeat(name)
    settings.DISK_RESERVE_MB = 10**9
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json()["status"] == "degraded"
    assert [name for name, there in response.json()["checks"].items() if not there] == ["room"]


@pytest.mark.django_db(transaction=True)
def test_looking_at_the_database_writes_to_it(client, beats):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn()")
        before = cursor.fetchone()[0]
        assert client.get("/readyz").json()["checks"]["database"]
        cursor.execute("SELECT pg_current_wal_insert_lsn() > %s", [before])
        assert cursor.fetchone()[0]


def test_one_look_serves_all_who_ask_within_a_second(client, monkeypatch):
    looks = []
    monkeypatch.setattr(health, "CACHE_SECONDS", 60.0)
    monkeypatch.setattr(health, "check_all", lambda: looks.append(1) or {"database": True})
    assert {client.get("/readyz").status_code for _ in range(5)} == {200}
    assert len(looks) == 1
    health.reset_checks()


@pytest.mark.django_db
def test_the_page_of_documents_says_that_nothing_reads_them(client, beats, django_user_model):
    def read(**account):
        user = django_user_model.objects.create_user(**account)
        make_document(user, status="PROCESSING", stage="queued")
        client.force_login(user)
        client.cookies["django_language"] = "en"
        return client.get("/documents").content.decode()

    nobody = "Documents cannot be read at the moment"
    plain, staff = read(username="plain"), read(username="staff", is_staff=True)
    assert nobody in plain
    assert nobody in staff
    assert "Start it again" in staff
    assert "Start it again" not in plain
    health.send_heartbeat("documents")
    assert nobody not in read(username="other")

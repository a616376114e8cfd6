import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from redis import Redis

from chats.models import ToolServer
from documents.connected.models import Connection
from documents.libraries import create_library
from documents.secrets import seal_secret
from documents.sources.models import Source
from nura import __version__, health
from nura.backup.integrity import list_lost_keys
from nura.embedded import models
from nura.management.commands import doctor
from nura.management.commands.doctor import State
from nura.models import SignOnServer
from rag.adapters.encoders import EMBEDDED_NAME, EndpointEmbedder
from rag.config import Endpoint
from tests.servers.hostile import HostileServer
from tests.servers.wire import POLL_SECONDS

KEY = "sk-a-very-secret-key"


@pytest.fixture
def endpoint():
    """A model server that answers what the test says."""
    answers = {"status": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answers["authorization"] = self.headers["Authorization"]
            answers["path"] = self.path
            self.send_response(answers["status"])
            if location := answers.get("location"):
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get("body", {})).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    yield Endpoint(base_url=url, model="m", api_key=KEY), answers
    server.shutdown()
    server.server_close()


def test_no_model_is_no_fault():
    assert doctor.check_llm("LLM", None).state is State.OK


def test_a_reachable_model_is_fine(endpoint):
    server, answers = endpoint
    assert doctor.check_llm("LLM", server).state is State.OK
    assert answers["path"] == "/v1/models"
    assert answers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("status", "state"), [(401, "fail"), (403, "fail"), (404, "warn")])
def test_what_a_model_server_answers_is_judged(endpoint, status, state):
    server, answers = endpoint
    answers["status"] = status
    finding = doctor.check_llm("LLM", server)
    assert finding.state == state
    assert KEY not in finding.detail


@pytest.mark.parametrize("model", ["m", "m:latest"])
def test_a_model_on_the_list_is_fine(endpoint, model):
    server, answers = endpoint
    answers["body"] = {"data": [{"id": "other"}, {"id": model}]}
    assert doctor.check_llm("LLM", server).state is State.OK


def test_a_model_that_is_not_on_the_list_is_a_warning_that_names_others(endpoint):
    server, answers = endpoint
    answers["body"] = {"data": [{"id": "qwen3:8b"}]}
    finding = doctor.check_llm("LLM", server)
    assert finding.state is State.WARN
    assert "qwen3:8b" in finding.detail


def test_the_report_begins_with_the_version():
    first = next(doctor.examine_all())
    assert (first.name, first.detail) == ("Nura", __version__)


@pytest.mark.django_db
def test_a_vision_model_is_examined_where_one_is_set(settings, endpoint):
    server, answers = endpoint
    answers["status"] = 401
    settings.RAG = replace(settings.RAG, vision=server)
    found = {finding.name: finding.state for finding in doctor.examine_all()}
    assert found["vision model"] is State.WARN


@pytest.mark.parametrize("body", [[], {"data": None}, {"data": [None]}, "models"])
def test_a_list_of_another_shape_is_no_fault(endpoint, body):
    server, answers = endpoint
    answers["body"] = body
    assert doctor.check_llm("LLM", server).state is State.OK


def test_a_dead_light_model_does_not_keep_the_product_from_serving():
    finding = doctor.check_optional_llm("light LLM", Endpoint("http://127.0.0.1:9/v1", "m"))
    assert finding.state is State.WARN


def test_a_redirect_does_not_take_the_key_elsewhere(endpoint):
    server, answers = endpoint
    answers |= {"status": 302, "location": "/elsewhere"}
    assert doctor.check_llm("LLM", server).state is State.WARN
    assert answers["path"] == "/v1/models"


def test_a_dead_model_server_is_a_failure_without_its_secrets():
    finding = doctor.check_llm("LLM", Endpoint("http://me:hunter2@127.0.0.1:9/v1", "m", KEY))
    assert finding.state is State.FAIL
    assert "hunter2" not in finding.detail
    assert KEY not in finding.detail


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://127.0.0.1:9/v1", "nothing listens there"),
        ("http://models.invalid/v1", "no host has that name"),
        ("https://{here}/v1", "it does not speak TLS"),
        ("http://169.254.169.254/v1", "never asked"),
    ],
)
def test_a_server_that_cannot_be_reached_is_told_with_its_cause(address, words, endpoint):
    here = endpoint[0].base_url.removeprefix("http://").removesuffix("/v1")
    detail = doctor.check_llm("LLM", Endpoint(address.format(here=here), "m")).detail
    assert "not reachable" in detail
    assert words in detail


@pytest.mark.parametrize("way", ["drip", "slow-head"])
def test_a_server_that_drips_keeps_nobody_waiting(way, monkeypatch):
    monkeypatch.setattr(doctor, "LLM_SECONDS", 0.3)
    with HostileServer() as hostile:
        hostile.answers["/v1/models"] = way
        detail = doctor.check_llm("LLM", Endpoint(f"{hostile.url}/v1", "m")).detail
    assert "no answer within 0.3 s" in detail


def test_a_server_that_wants_a_key_where_none_is_set_is_told_so(endpoint):
    server, answers = endpoint
    answers["status"] = 401
    assert "the key is refused" in doctor.check_llm("LLM", server).detail
    assert "it wants a key" in doctor.check_llm("LLM", replace(server, api_key="")).detail


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        ({"status": 401}, State.WARN, "the key is refused"),
        ({"status": 404}, State.OK, ""),
        ({"body": {"data": [{"id": "m"}]}}, State.OK, ""),
        ({"body": {"data": [{"id": "bge-m3"}]}}, State.WARN, "but bge-m3"),
    ],
)
def test_the_server_of_an_embedder_is_asked(answer, state, words, endpoint, settings):
    server, answers = endpoint
    answers |= answer
    settings.RAG = replace(settings.RAG, embedding_endpoint=server, embedding_model="m")
    found = doctor.check_embedder()
    assert found.state is state
    assert words in found.detail


@pytest.mark.django_db
def test_an_embedder_that_is_away_is_a_warning_that_says_what_happens(settings):
    away = Endpoint("http://127.0.0.1:9/v1", "m")
    settings.RAG = replace(settings.RAG, embedding_endpoint=away, embedding_model="m")
    found = doctor.check_embedder()
    assert found.state is State.WARN
    assert "words alone are searched, and uploads wait" in found.detail
    assert not list(doctor.check_models_process())


@pytest.mark.django_db
def test_a_local_model_is_named_with_what_it_computes_on(settings, local_models):
    settings.RAG = local_models
    EndpointEmbedder(local_models.local_model(EMBEDDED_NAME)).embed_query("deposit")
    (found,) = doctor.check_models_process()
    device = models.read_health(local_models.models_socket)["device"]
    assert (found.state, device != "") == (State.OK, True)
    assert f"{EMBEDDED_NAME} ready on {device}" in found.detail


@pytest.mark.django_db
def test_that_korean_is_searched_by_words_alone_is_said_where_korean_is_spoken(settings):
    settings.RAG = replace(settings.RAG, embedding_model="", embedding_endpoint=None)
    settings.LANGUAGE_CODE = "ko"
    (found,) = [one for one in doctor.check_embedding_space() if one.name == "Korean search"]
    assert found.state is State.WARN
    settings.LANGUAGE_CODE = "en"
    assert "Korean search" not in [one.name for one in doctor.check_embedding_space()]


@pytest.mark.django_db
def test_a_model_is_told_with_where_it_is_named(settings, endpoint):
    server, _answers = endpoint
    settings.RAG = replace(settings.RAG, llm=server)
    (found,) = [one for one in doctor.check_connected_models() if one.name == "LLM"]
    assert found.detail.endswith("(environment)")
    settings.RAG = replace(settings.RAG, llm=None)
    (found,) = [one for one in doctor.check_connected_models() if one.name == "LLM"]
    assert "in the administration under Models" in found.detail


@pytest.mark.django_db
def test_the_embedded_model_is_the_official_one(settings):
    settings.RAG = replace(settings.RAG, embedding_model="", embedding_endpoint=None)
    assert doctor.check_embedder().state is State.OK


@pytest.mark.django_db
def test_another_model_file_is_a_failure(settings, monkeypatch, tmp_path):
    settings.RAG = replace(settings.RAG, embedding_model="", embedding_endpoint=None)
    (tmp_path / "model.safetensors").write_bytes(b"else")
    monkeypatch.setattr(doctor, "find_embedded_model", lambda: tmp_path)
    assert doctor.check_embedder().state is State.FAIL


def test_a_data_folder_that_is_not_there_is_a_failure(settings, tmp_path):
    settings.DATA_DIR = tmp_path / "absent"
    assert doctor.check_data_folder().state is State.FAIL


@pytest.mark.django_db
def test_the_database_is_there_with_pgvector():
    findings = {finding.name: finding for finding in doctor.check_database()}
    assert findings["database"].state is State.OK
    assert findings["pgvector"].state is State.OK
    assert "migrations" not in findings


def test_redis_that_may_forget_is_warned_about():
    client = health.get_client()
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        states = [finding.state for finding in doctor.check_redis()]
    finally:
        client.config_set("maxmemory-policy", "noeviction")
    assert states == [State.OK, State.WARN, State.OK]


@pytest.mark.django_db
def test_it_exits_1_when_redis_is_gone(monkeypatch, capsys):
    nowhere = Redis.from_url("unix:///nowhere/redis.sock")
    monkeypatch.setattr(doctor, "get_client", lambda: nowhere)
    with pytest.raises(SystemExit) as ended:
        call_command("doctor")
    assert ended.value.code == 1
    assert "not reachable" in capsys.readouterr().out


@pytest.fixture
def sealed():
    """One of everything that has a key."""
    owner = User.objects.create_user("owner")
    library = create_library(creator=owner, name="규정")
    secrets = {"secret_key": seal_secret(KEY)}
    Source.objects.create(library=library, owner=owner, kind="s3", name="버킷", secrets=secrets)
    for row in (
        Connection(
            name="한 모델", base_url="http://a/v1", sealed_headers=seal_secret('{"x": "y"}')
        ),
        ToolServer(name="도구", address="http://a/mcp", sealed_key=seal_secret(KEY)),
        SignOnServer(name="키클록", slug="kc", issuer="http://a", sealed_secret=seal_secret(KEY)),
    ):
        row.save()


@pytest.mark.django_db
def test_keys_of_another_secret_key_are_told_by_what_they_belong_to(sealed, settings, capsys):
    assert list_lost_keys() == []
    settings.SECRET_KEY = "another-" + settings.SECRET_KEY
    lost = ["model connection 한 모델", "sign-on server 키클록", "source 버킷", "tool server 도구"]
    assert list_lost_keys() == lost
    findings = [one.detail for one in doctor.check_connected_models() if one.name == "keys"]
    assert [any(name in one for one in findings) for name in lost] == [True] * 4
    with pytest.raises(CommandError, match="4 findings"):
        call_command("verify")
    assert KEY not in capsys.readouterr().out + str(findings)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY.removeprefix("another-")]
    assert list_lost_keys() == []

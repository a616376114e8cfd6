"""The administrators' pages of models."""

from dataclasses import replace

import pytest
from celery import current_app
from django.contrib.auth.models import Group, User
from django.test import Client

from documents import spaces
from documents.audit import AuditEvent
from documents.connected import choice
from documents.connected.models import ConnectedModel, Connection
from documents.models import Reindexing
from rag.config import Endpoint
from tests.documents.changing import TOPICS, add, configure
from tests.servers.llm import Failure, Stream

pytestmark = pytest.mark.django_db(transaction=True)
KEY, HEADER = "sk-never-shown-again", "header-never-shown"


@pytest.fixture
def page():
    client = Client()
    client.cookies["django_language"] = "en"
    client.force_login(User.objects.create_superuser("root", password="x"))
    return client


@pytest.fixture
def connection(page, llm_server):
    page.post(
        "/admin/models/connections/add/",
        {
            "name": "GPU server",
            "base_url": f"{llm_server.url}/",
            "api_key": KEY,
            "headers": f"X-Team: {HEADER}",
        },
    )
    return Connection.objects.get()


def add_model(page, connection, **fields):
    body = {"role": "main", "connection": connection.pk, "model": "Qwen/Qwen3-32B", "offered": "on"}
    response = page.post("/admin/models/add/", body | {"thinking": "unknown"} | fields)
    assert response.status_code == 302, response.content.decode()
    return ConnectedModel.objects.get(model=(body | fields)["model"])


def test_a_key_is_never_shown_again_nor_written_down(page, connection):
    assert connection.read_key() == KEY
    assert connection.read_headers() == (("X-Team", HEADER),)
    assert connection.base_url.endswith("/v1")
    for address in ("", f"connections/{connection.pk}/", f"connections/{connection.pk}/test/"):
        shown = page.get(f"/admin/models/{address}").content.decode()
        assert KEY not in shown
        assert HEADER not in shown
    form = page.get(f"/admin/models/connections/{connection.pk}/").content.decode()
    assert "One is stored" in form
    events = str(list(AuditEvent.objects.values_list("details", flat=True)))
    assert KEY not in events
    assert "GPU server" in events


def test_an_empty_field_keeps_the_key_and_another_address_needs_it_again(
    page, connection, llm_server
):
    address = f"/admin/models/connections/{connection.pk}/"
    page.post(address, {"name": "Another name", "base_url": llm_server.url})
    connection.refresh_from_db()
    assert (connection.name, connection.read_key()) == ("Another name", KEY)
    page.post(address, {"name": "Another name", "base_url": "http://elsewhere.example/v1"})
    connection.refresh_from_db()
    assert (connection.read_key(), connection.read_headers()) == ("", ())


@pytest.mark.parametrize(
    "fields",
    [
        {"base_url": "ftp://example"},
        {"base_url": "http://user:secret@example/v1"},
        {"headers": "no header"},
        {"headers": "Authorization: Bearer x"},
        {"headers": "X-A: b\x01"},
        {"api_key": "열쇠"},
        {"name": ""},
    ],
)
def test_what_makes_no_connection_is_refused_in_the_form(page, fields):
    body = {"name": "n", "base_url": "http://example/v1"} | fields
    response = page.post("/admin/models/connections/add/", body)
    assert response.status_code == 200
    assert 'role="alert"' in response.content.decode()
    assert not Connection.objects.exists()


def test_a_test_shows_its_lines_and_keeps_the_list(page, connection, llm_server):
    llm_server.replies_by_path["/v1/models"] = Failure(
        200, {"data": [{"id": "stand-in", "max_model_len": 9000}, {"id": "bge-m3"}]}
    )
    llm_server.default = Stream(["문서에서 ", "찾은 답입니다."])
    address = f"/admin/models/connections/{connection.pk}/test/"
    shown = page.post(address, {"model": "stand-in", "role": "main"}).content.decode()
    assert "문서에서 찾은 답입니다." in shown
    assert "lists 2 models" in shown
    assert "Use stand-in" in shown
    connection.refresh_from_db()
    assert [one["id"] for one in connection.trial["models"]] == ["stand-in", "bge-m3"]
    form = page.get(
        f"/admin/models/add/?connection={connection.pk}&model=stand-in&role=main"
    ).content.decode()
    assert 'value="9000"' in form


def test_a_model_is_chosen_given_to_a_group_and_made_the_default(page, connection, settings):
    settings.RAG = replace(settings.RAG, llm=Endpoint("http://127.0.0.1:1/v1", "env-model"))
    group = Group.objects.create(name="Research")
    row = add_model(page, connection, name="Large", groups=[group.pk])
    assert row.slug == "qwen3-32b"
    assert [one.id for one in choice.list_main_models()] == ["installation", "qwen3-32b"]
    shown = page.get("/admin/models/").content.decode()
    for word in ("Large", "Research", "env-model", "the environment", "GPU server"):
        assert word in shown
    edit = f"/admin/models/{row.pk}/"
    body = {"connection": connection.pk, "model": "Qwen/Qwen3-32B", "thinking": "unknown"}
    refused = page.post(edit, body | {"offered": "on", "is_default": "on", "groups": [group.pk]})
    assert refused.status_code == 200
    assert page.post(edit, body | {"offered": "on", "is_default": "on"}).status_code == 302
    assert choice.read_config().llm.model == "Qwen/Qwen3-32B"
    page.post(f"{edit}delete/")
    assert choice.read_config().llm.model == "env-model"


def test_the_model_of_the_environment_can_be_kept_from_everybody(page, connection, settings):
    settings.RAG = replace(settings.RAG, llm=Endpoint("http://127.0.0.1:1/v1", "env-model"))
    add_model(page, connection)
    form = page.get("/admin/models/environment/").content.decode()
    assert "are set in the environment" in form
    assert 'name="base_url"' not in form
    assert page.post("/admin/models/environment/", {"thinking": "unknown"}).status_code == 302
    assert [one.id for one in choice.list_main_models()] == ["qwen3-32b"]
    assert "not offered" in page.get("/admin/models/").content.decode()


def test_a_connection_in_use_is_not_deleted(page, connection):
    row = add_model(page, connection)
    page.post(f"/admin/models/connections/{connection.pk}/delete/")
    assert Connection.objects.exists()
    page.post(f"/admin/models/{row.pk}/delete/")
    page.post(f"/admin/models/connections/{connection.pk}/delete/")
    assert not Connection.objects.exists()


def test_there_is_one_model_for_each_other_role(page, connection):
    add_model(page, connection, role="light", model="small")
    again = page.post(
        "/admin/models/add/",
        {"role": "light", "connection": connection.pk, "model": "other", "thinking": "unknown"},
    )
    assert "Change that one" in again.content.decode()
    assert choice.read_config().light_llm.model == "small"


def test_another_embedding_model_begins_the_re_embedding(
    page, owner, settings, embedding_server, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(current_app, "send_task", lambda *_args, **_options: None)
        configure(settings, embedding_server, "words-16")
        add(owner, "규정.md", TOPICS[:2])
        page.post("/admin/models/connections/add/", {"name": "E", "base_url": embedding_server.url})
        add_model(
            page, Connection.objects.get(), role="embedding", model="words-32", languages="ko,en"
        )
    run = Reindexing.objects.get(open=True)
    assert (run.model, run.base_url) == ("words-32", embedding_server.url)
    assert spaces.get_active_space().model == "words-16"
    shown = page.get("/admin/models/").content.decode()
    assert "words-32" in shown


def test_korean_search_on_words_alone_is_told_with_the_remedy(page, settings):
    settings.RAG = replace(settings.RAG, embedding_model="", embedding_endpoint=None)
    shown = page.get("/admin/models/").content.decode()
    assert "words alone" in shown
    assert "bge-m3" in shown
    page.cookies["django_language"] = "ko"
    assert "한국어 검색" in page.get("/admin/models/").content.decode()


def test_a_key_of_another_secret_key_is_told_and_harms_nothing(page, connection, settings):
    add_model(page, connection)
    settings.SECRET_KEY = "another-" + settings.SECRET_KEY
    choice.forget_choices()
    found = choice.find_endpoint(connection.base_url, "m")
    assert found.api_key == ""
    again = Client()
    again.cookies["django_language"] = "en"
    again.force_login(User.objects.get(username="root"))
    assert "enter it again" in again.get("/admin/models/").content.decode()


def test_only_administrators_open_the_pages_and_nobody_changes_by_a_link(page, connection, owner):
    row = add_model(page, connection)
    stranger = Client()
    stranger.force_login(owner)
    addresses = (
        *("", "add/", f"{row.pk}/", f"{row.pk}/delete/", "environment/", "connections/add/"),
        *(f"connections/{connection.pk}/{rest}" for rest in ("", "delete/", "test/")),
    )
    for address in addresses:
        for send in (stranger.get, stranger.post):
            assert send(f"/admin/models/{address}").status_code in {302, 403}
    assert page.get(f"/admin/models/{row.pk}/delete/").status_code == 405
    assert page.get(f"/admin/models/connections/{connection.pk}/delete/").status_code == 405
    assert ConnectedModel.objects.exists()
    assert Connection.objects.exists()

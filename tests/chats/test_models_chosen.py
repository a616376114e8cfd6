"""Language models that administrators connected, chosen for a chat and for a question."""

import time
from dataclasses import replace

import pytest
from django.contrib.auth.models import Group

from chats.models import Chat, Message
from chats.services.turns import open_turn
from documents.connected import choice
from documents.connected.choice import ModelNotAllowed, announce_choices
from documents.connected.models import ConnectedModel, Connection
from documents.secrets import SecretUnreadable, open_secret, seal_secret
from rag.config import Endpoint
from tests.chats.conftest import client
from tests.chats.talking import TRAVEL, Talk, add_document
from tests.servers.llm import LLMServer, Stream

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_files(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "files"


@pytest.fixture
def other_server():
    with LLMServer() as server:
        server.default = Stream(["다른 서버의 답입니다."])
        yield server


@pytest.fixture
def environment(settings, llm_server):
    """The model that the environment names."""
    settings.RAG = replace(settings.RAG, llm=Endpoint(llm_server.url, "of-the-environment"))
    llm_server.default = Stream(["환경의 답입니다."])
    return llm_server


def connect(server, model="second", *, groups=(), key="key-of-the-connection", **fields):
    connection = Connection(name=f"서버 {model}", base_url=server.url)
    connection.set_key(key)
    connection.set_headers({"X-Team": "header-secret"})
    connection.save()
    row = ConnectedModel.objects.create(
        slug=model, connection=connection, model=f"{model}-at-server", name="둘째 모델", **fields
    )
    row.groups.set(groups)
    announce_choices()
    return row


def test_what_is_connected_stands_beside_the_models_of_the_environment(
    api, environment, other_server
):
    connect(other_server, context_tokens=9000)
    listed = api.get("/api/v1/models").data
    assert listed == [
        {
            "id": "installation",
            "name": "of-the-environment",
            "context_tokens": None,
            "default": True,
        },
        {"id": "second", "name": "둘째 모델", "context_tokens": 9000, "default": False},
    ]


def test_a_question_is_answered_by_the_model_that_it_names(
    api, owner, environment, other_server, answers_worker
):
    connect(other_server)
    add_document(owner, "출장 규정.md", TRAVEL)
    talk = Talk(api)
    named = talk.say("숙박비 상한은 얼마인가요?", model="second")
    assert "다른 서버의 답" in named["content"]
    assert named["model"] == "second"
    assert named["usage"]["model"] == "second-at-server"
    (call,) = other_server.chats
    assert call.json["model"] == "second-at-server"
    assert call.request.headers["authorization"] == "Bearer key-of-the-connection"
    assert call.request.headers["x-team"] == "header-secret"
    assert not environment.chats


def test_a_chat_keeps_the_model_that_it_began_with(api, environment, other_server, answers_worker):
    connect(other_server)
    talk = Talk(api)
    talk.say("안녕하세요", model="second")
    assert api.get(f"/api/v1/chats/{talk.chat_id}").data["model"] == "second"
    assert "다른 서버" in talk.say("오늘 기분이 어때요?")["content"]
    once = talk.say("하나만 더요", model="installation")
    assert "환경의 답" in once["content"]
    changed = api.patch(f"/api/v1/chats/{talk.chat_id}", {"model": None}, format="json")
    assert changed.data["model"] is None
    assert "환경의 답" in talk.say("그럼 이제는요?")["content"]


def test_an_answer_is_made_again_by_another_model_beside_the_first(
    api, environment, other_server, answers_worker
):
    connect(other_server)
    talk = Talk(api)
    first = talk.say("안녕하세요")
    again = api.post(
        f"/api/v1/messages/{first['id']}/regenerate", {"model": "second"}, format="json"
    ).data["assistant_message"]
    assert (first["model"], again["model"]) == ("installation", "second")
    assert first["parent_id"] == again["parent_id"]


def test_a_model_of_a_group_is_not_there_for_others(
    api, owner, stranger, environment, other_server
):
    group = Group.objects.create(name="연구소")
    owner.groups.add(group)
    connect(other_server, groups=[group])
    assert [one["id"] for one in api.get("/api/v1/models").data] == ["installation", "second"]
    assert [one["id"] for one in client(stranger).get("/api/v1/models").data] == ["installation"]
    refused = client(stranger).post(
        "/api/v1/messages", {"content": "질문", "model": "second"}, format="json"
    )
    missing = client(stranger).post(
        "/api/v1/messages", {"content": "질문", "model": "nothing"}, format="json"
    )
    assert refused.status_code == missing.status_code == 400
    assert refused.json()["code"] == missing.json()["code"] == "model_not_allowed"
    assert refused.json()["detail"] == missing.json()["detail"]
    assert not Chat.objects.filter(owner=stranger).exists()


def test_a_question_waits_with_all_its_words_when_its_model_was_taken_away(
    api, owner, environment, other_server, request
):
    group = Group.objects.create(name="연구소")
    owner.groups.add(group)
    connect(other_server, groups=[group])
    turn = open_turn(user=owner, content="아직 물어보는 중", model="second")
    owner.groups.clear()
    request.getfixturevalue("answers_worker")
    for _ in range(200):
        answer = Message.objects.get(pk=turn.assistant_message.pk)
        if answer.status != Message.Status.STREAMING:
            break
        time.sleep(0.05)
    assert (answer.status, answer.error_code) == ("FAILED", "model_not_allowed")
    assert not other_server.chats
    shown = api.get(f"/api/v1/messages/{answer.pk}").data
    assert "언어 모델" in shown["error"]["detail"] or "language model" in shown["error"]["detail"]
    assert Message.objects.get(pk=turn.user_message.pk).content == "아직 물어보는 중"
    retry = api.post(
        f"/api/v1/messages/{answer.pk}/regenerate?wait=false",
        {"model": "installation"},
        format="json",
    )
    assert retry.status_code == 202


def test_a_change_is_seen_by_a_process_that_has_read_before(owner, environment, other_server):
    row = connect(other_server)
    assert choice.find_allowed_model(owner, "second")
    ConnectedModel.objects.filter(pk=row.pk).update(offered=False)
    choice.ModelsVersion.objects.update(number=choice.F("number") + 1)  # another process did it
    deadline = time.monotonic() + choice.CHECK_SECONDS + 1
    while True:
        try:
            choice.find_allowed_model(owner, "second")
        except ModelNotAllowed:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_look_at_the_choice_asks_the_database_once_a_second_at_most(
    owner, environment, other_server, django_assert_num_queries
):
    connect(other_server)
    choice.read_config()
    with django_assert_num_queries(0):
        for _ in range(50):
            choice.read_config()
            choice.find_allowed_model(owner, "second")


def test_light_and_reranking_models_of_the_page_go_before_those_of_the_environment(
    environment, other_server
):
    connect(other_server, "light", role="light")
    connect(other_server, "ranker", role="reranker")
    config = choice.read_config()
    assert config.light_llm.model == "light-at-server"
    assert config.light_llm.total_timeout < 60
    assert config.reranker_endpoint.base_url == other_server.url
    assert config.llm.model == "of-the-environment"


def test_a_secret_is_stored_sealed_and_opens_with_the_old_key_while_that_is_named(settings):
    sealed = seal_secret("열쇠 sk-123")
    assert "sk-123" not in sealed
    assert open_secret(sealed) == "열쇠 sk-123"
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another-secret-key-0123456789"
    with pytest.raises(SecretUnreadable):
        open_secret(sealed)
    settings.SECRET_KEY_FALLBACKS = [old]
    assert open_secret(sealed) == "열쇠 sk-123"


def test_keys_stand_in_no_table_and_in_no_words_about_them(other_server):
    connect(other_server)
    row = Connection.objects.values().get()
    assert "key-of-the-connection" not in str(row)
    assert "header-secret" not in str(row)
    endpoint = choice.find_endpoint(other_server.url, "m")
    assert endpoint.api_key == "key-of-the-connection"
    assert "key-of-the-connection" not in repr(endpoint)
    assert "header-secret" not in repr(endpoint)

"""What Open WebUI sends: its check of a connection, a chat, and the odd jobs beside it."""

import json
from dataclasses import replace

import pytest

from chats.models import Chat, Message, Run, Turn
from jobs import connections
from rag.config import Endpoint
from tests.chats.conftest import make_document
from tests.chats.gateway.wire import connect_program, join_text, make_body, stream_answer
from tests.servers.llm import Failure, LLMServer, Stream

pytestmark = pytest.mark.django_db(transaction=True)

TITLE = """### Task:
Generate a concise, 3-5 word title with an emoji summarizing the chat history.
### Output:
JSON format: { "title": "your concise title here" }
### Chat History:
<chat_history>
USER: 숙박비 상한은 얼마인가요?
ASSISTANT: 1박에 90,000원입니다. [1]
</chat_history>"""


@pytest.fixture
def http(web, key):
    with connect_program(web, key) as one:
        yield one


@pytest.fixture
def light(settings):
    with LLMServer() as server:
        settings.RAG = replace(settings.RAG, light_llm=Endpoint(server.url, "light"))
        yield server


def run_job(http, name="title_generation", text=TITLE, **fields):
    headers = {"X-OpenWebUI-Task": name, "X-OpenWebUI-Chat-Id": "owui-1"}
    response = http.post("/chat/completions", json=make_body(text, **fields), headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def is_nothing_stored():
    return not any(kind.objects.exists() for kind in (Chat, Message, Run, Turn))


def test_its_way_from_the_check_to_the_title(http, owner, model, answers_worker):
    document = make_document(owner)
    listed = http.get("/models").json()
    assert listed["object"] == "list"
    assert {"nura", f"nura/{document.pk}"} == {one["id"] for one in listed["data"]}

    headers = {
        "X-OpenWebUI-Chat-Id": "owui-1",
        "X-OpenWebUI-Message-Id": "m-1",
        "X-OpenWebUI-User-Name": "Owner",
    }
    body = make_body("안녕하세요", stream_options={"include_usage": True}, params={}, features={})
    _, told = stream_answer(http, body, **headers)
    assert join_text(told) == "안녕하세요."
    chat = Chat.objects.get()
    assert (chat.external_id, chat.title) == ("owui-1", "안녕하세요")

    model.script(Stream(['{"title": "인사"}']))
    assert run_job(http, stream=False) == '{"title": "인사"}'
    assert chat.messages.count() == 2


def test_a_job_is_for_the_light_model(http, model, light, answers_worker):
    light.script(Stream(['{"title": "숙박비"}']))
    assert json.loads(run_job(http)) == {"title": "숙박비"}
    assert light.chats[0].json["messages"] == [{"role": "user", "content": TITLE}]
    assert not model.chats
    assert is_nothing_stored()


def test_a_job_without_a_light_model_is_for_the_main_one_and_searches_nothing(
    http, model, travel, answers_worker
):
    model.script(Stream(['{"title": "숙박비"}']))
    assert json.loads(run_job(http)) == {"title": "숙박비"}
    (call,) = model.chats
    assert call.json["messages"] == [{"role": "user", "content": TITLE}]
    assert is_nothing_stored()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("title_generation", {"title": "숙박비 상한은 얼마인가요?"}),
        ("tags_generation", {"tags": []}),
        ("follow_up_generation", {"follow_ups": []}),
        ("query_generation", {"queries": []}),
    ],
)
def test_a_job_without_any_model_gets_what_can_be_said(http, answers_worker, name, expected):
    assert json.loads(run_job(http, name)) == expected
    assert is_nothing_stored()


def test_a_job_that_is_not_known_gets_nothing_without_a_model(http, answers_worker):
    assert run_job(http, "emoji_generation") == ""


def test_a_title_of_other_words_is_the_beginning_of_what_was_asked(http, answers_worker):
    title = json.loads(run_job(http, text='제목을 "지어" 줘\n' * 20))["title"]
    assert title.startswith('제목을 "지어" 줘 제목을')
    assert len(title) <= 50


def test_a_job_can_be_streamed(http, model, answers_worker):
    model.script(Stream(["하나", "둘"]))
    _, told = stream_answer(http, make_body("x"), **{"X-OpenWebUI-Task": "title_generation"})
    assert join_text(told) == "하나둘"


def test_a_job_whose_model_fails_is_an_error(http, model, answers_worker):
    model.default = Failure(401)
    headers = {"X-OpenWebUI-Task": "title_generation"}
    response = http.post("/chat/completions", json=make_body("x"), headers=headers)
    assert response.status_code == 502


def test_a_job_over_a_model_that_is_not_there_is_refused(http):
    headers = {"X-OpenWebUI-Task": "title_generation"}
    response = http.post(
        "/chat/completions", json={**make_body("x"), "model": "x"}, headers=headers
    )
    assert response.status_code == 404


def test_the_log_of_what_is_stored_nowhere_is_gone_when_it_was_read(http, model, answers_worker):
    stream_answer(http, make_body("비밀 질문"))
    http.post("/chat/completions", json=make_body("비밀 질문"))
    assert is_nothing_stored()
    kept = connections.get_client()
    logs = [name for name in kept.keys("nura:run:*") if kept.type(name) == "stream"]
    assert logs == []

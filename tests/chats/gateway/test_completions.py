"""Chat completions with OpenAI's own client, whole and streamed."""

import json

import openai
import pytest
from openai import AsyncOpenAI

from chats.models import Chat
from chats.runs import answering, dispatch, reader, stateless
from rag.events import Replaced
from tests.chats.engines import Delta, ScriptedEngine, make_finished
from tests.servers.llm import BreakOff, Failure, Hang, Raw, Stream, encode_chunk

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = [{"role": "user", "content": "숙박비 상한은 얼마인가요?"}]
HELLO = [{"role": "user", "content": "안녕하세요"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def ask(client, messages=HELLO, **fields):
    return client.chat.completions.create(model="nura", messages=messages, **fields)


def join_text(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def test_a_question_is_answered_from_the_documents(client, travel, answers_worker):
    reply = ask(client, ASKED)
    assert "90,000원" in reply.choices[0].message.content
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.object == "chat.completion"
    assert reply.model == "nura"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    source = reply.sources[0]
    assert source["document_id"] == str(travel.pk)
    assert source["chunk_id"].startswith(f"{travel.pk}_")
    assert not hasattr(reply, "chat_id")


def test_a_stream_holds_the_same_in_pieces(client, travel, answers_worker):
    chunks = list(ask(client, ASKED, stream=True))
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert [c.choices[0].delta.role for c in chunks] == ["assistant"] + [None] * (len(chunks) - 1)
    assert "90,000원" in join_text(chunks)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert chunks[-1].sources[0]["document_id"] == str(travel.pk)


def test_an_answer_in_a_chat_tells_the_chat(client, model, answers_worker):
    headers = {"X-Chat-Id": "c-1"}
    whole = ask(client, extra_headers=headers)
    chunks = list(ask(client, stream=True, extra_headers=headers))
    pk = str(Chat.objects.get().pk)
    assert whole.chat_id == chunks[-1].chat_id == pk


async def test_the_asynchronous_client_is_served_as_well(base_url, key, model, answers_worker):
    async with AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        whole = await ask(client)
        chunks = [chunk async for chunk in await ask(client, stream=True)]
    assert whole.choices[0].message.content == join_text(chunks) == "안녕하세요."


def test_usage_comes_in_a_chunk_of_its_own_when_it_is_asked_for(client, model, answers_worker):
    model.script(Stream(["하나", "둘"], prompt_tokens=17))
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    used = chunks[-1].usage
    assert (used.prompt_tokens, used.completion_tokens, used.total_tokens) == (17, 2, 19)
    assert all(chunk.choices for chunk in chunks[:-1])


def test_without_that_wish_no_chunk_has_usage(client, model, answers_worker):
    assert not [chunk for chunk in ask(client, stream=True) if chunk.usage]


def test_what_the_caller_wishes_reaches_the_model(client, model, answers_worker):
    wishes = {"temperature": 0.7, "max_tokens": 50, "stop": ["\n\n", "END"], "seed": 42}
    ask(client, **wishes)
    ask(client, max_completion_tokens=40, stop="ENDE", extra_headers={"X-Chat-Id": "c-1"})
    first, second = (call.json for call in model.chats)
    assert {name: first[name] for name in wishes} == wishes
    assert (second["max_tokens"], second["stop"]) == (40, ["ENDE"])


def test_tools_and_unknown_fields_are_passed_over(client, model, answers_worker):
    body = {"verbosity": "low", "reasoning": {"effort": "low"}, "einhorn": [1, {"a": None}]}
    reply = ask(
        client,
        tools=[TOOL],
        tool_choice="auto",
        response_format={"type": "json_object"},
        logprobs=True,
        user="u-1",
        n=1,
        extra_body=body,
    )
    assert reply.choices[0].message.content == "안녕하세요."
    assert reply.choices[0].message.tool_calls is None
    assert "tools" not in model.chats[0].json


def test_messages_of_other_roles_and_parts_without_text_are_passed_over(
    client, model, answers_worker
):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [
        {"role": "system", "content": "geheime Anweisung"},
        {"role": "developer", "content": [{"type": "text", "text": "noch eine"}]},
        {"role": "user", "content": "하나"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "tool_call_id": "t-1", "content": "Ergebnis"},
        {"role": "assistant", "content": "eine Antwort"},
        {"role": "user", "content": [{"type": "text", "text": "첫 부분"}, picture]},
    ]
    messages[-1]["content"].append({"type": "text", "text": "둘째 부분"})
    ask(client, messages)
    prompt = model.chats[0].prompt
    assert "첫 부분\n둘째 부분" in prompt
    assert "eine Antwort" in prompt
    assert not [word for word in ("geheime", "noch eine", "Ergebnis", "image") if word in prompt]


def test_what_was_said_before_a_new_start_is_not_told_to_the_model(client, model, answers_worker):
    messages = [
        {"role": "user", "content": "내 이름은 김하늘이야"},
        {"role": "assistant", "content": "반갑습니다, 하늘 님."},
        {"role": "user", "content": "새 주제로, 파이썬은 누가 만들었어?"},
        {"role": "assistant", "content": "귀도 반 로섬입니다."},
        {"role": "user", "content": "어느 나라 사람이야?"},
    ]
    ask(client, messages)
    prompt = model.chats[-1].prompt
    assert "귀도 반 로섬" in prompt
    assert "하늘" not in prompt


def test_what_no_database_keeps_is_left_out_of_a_question(client, model, answers_worker):
    message = [{"role": "user", "content": "안\0녕"}]
    assert ask(client, message, extra_headers={"X-Chat-Id": "c-1"}).choices
    assert Chat.objects.get().messages.first().content == "안녕"


def test_an_answer_at_its_limit_of_tokens_says_so(client, model, answers_worker):
    model.script(*[Stream(["반쯤"], finish_reason="length")] * 2)
    assert ask(client).choices[0].finish_reason == "length"
    assert list(ask(client, stream=True))[-1].choices[0].finish_reason == "length"


def encode_thinking_stream():
    chunk = json.loads(encode_chunk("").removeprefix(b"data: "))
    chunk["choices"][0]["delta"] = {"reasoning_content": "음, 인사로구나"}
    body = f"data: {json.dumps(chunk)}\n\n".encode()
    return Raw(body + encode_chunk("안녕") + encode_chunk("", "stop") + b"data: [DONE]\n\n")


@pytest.mark.parametrize("headers", [{}, {"X-Chat-Id": "c-1"}], ids=["unstored", "chat"])
def test_what_a_model_thinks_aloud_has_a_field_of_its_own(client, model, answers_worker, headers):
    model.script(encode_thinking_stream(), encode_thinking_stream())
    whole = ask(client, extra_headers=headers).choices[0].message
    chunks = list(ask(client, stream=True, extra_headers=headers))
    thought = [getattr(c.choices[0].delta, "reasoning_content", None) for c in chunks]
    assert whole.reasoning_content == "".join(filter(None, thought)) == "음, 인사로구나"
    assert whole.content == join_text(chunks) == "안녕"


@pytest.fixture(params=["unstored", "chat"])
def plug_rewriting(request, monkeypatch):
    """An engine that puts its answer in other words; the headers of a request to it."""

    def plug(*words):
        engine = ScriptedEngine(Delta("가나"), *map(Replaced, words), make_finished())
        monkeypatch.setattr(stateless, "get_engine", lambda _config: engine)
        monkeypatch.setattr(answering, "get_engine", lambda _config: engine)
        return {"X-Chat-Id": "c-1"} if request.param == "chat" else {}

    return plug


def test_a_rewritten_answer_is_whole_in_its_new_words(client, answers_worker, plug_rewriting):
    headers = plug_rewriting("다라")
    assert ask(client, extra_headers=headers).choices[0].message.content == "다라"
    chunks = list(ask(client, stream=True, extra_headers=headers))
    assert join_text(chunks) == "가나"
    assert chunks[-1].replaced == "다라"


def test_new_words_that_go_on_with_the_old_are_streamed(client, answers_worker, plug_rewriting):
    chunks = list(ask(client, stream=True, extra_headers=plug_rewriting("가나다", "가나다라")))
    assert join_text(chunks) == "가나다라"
    assert not hasattr(chunks[-1], "replaced")


@pytest.mark.parametrize("headers", [{}, {"X-Chat-Id": "c-1"}], ids=["unstored", "chat"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_model_that_refuses_is_an_error_before_the_answer(
    client, model, answers_worker, stream, headers
):
    model.default = Failure(401, {"error": {"message": "wrong key sk-secret"}})
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client, stream=stream, extra_headers=headers)
    assert caught.value.status_code == 502
    assert caught.value.body["code"] == "llm_unauthorized"
    assert caught.value.body["type"] == "server_error"
    assert "sk-secret" not in str(caught.value.body)


@pytest.mark.parametrize("headers", [{}, {"X-Chat-Id": "c-1"}], ids=["unstored", "chat"])
def test_a_model_that_breaks_off_is_an_error_within_the_stream(
    client, model, answers_worker, headers
):
    model.default = BreakOff(["반쯤"])
    stream = ask(client, stream=True, extra_headers=headers)
    heard = []
    with pytest.raises(openai.APIError) as caught:
        heard.extend(chunk for chunk in stream)
    assert caught.value.body["code"] == "llm_interrupted"
    assert caught.value.body["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"temperature": 2.5}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["1", "2", "3", "4", "5"]}, "stop"),
        ({"seed": 2**70}, "seed"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": " \n"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "가" * 20_001}]}, "messages"),
        ({"messages": HELLO * 1001}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": "hello"}, "messages"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **{"messages": HELLO, **fields})
    assert caught.value.body["type"] == "invalid_request_error"
    assert caught.value.body["param"].startswith(param)
    assert caught.value.body["message"]


@pytest.mark.parametrize(
    ("language", "fields", "message"),
    [
        ("ko", {"messages": []}, "다음 항목을 확인해 주세요: messages (비어 있으면 안 됩니다)."),
        ("en", {"messages": []}, "Please check: messages (must not be empty)."),
        (
            "ko",
            {"messages": "hello"},
            "다음 항목을 확인해 주세요: messages (올바른 값이 아닙니다).",
        ),
        ("en", {"temperature": 2.5}, "Please check: temperature (at most 2.0)."),
        ("ko", {"max_tokens": 0}, "다음 항목을 확인해 주세요: max_tokens (1 이상이어야 합니다)."),
    ],
)
def test_what_is_wrong_with_a_field_is_said_in_one_language(client, language, fields, message):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **{"messages": HELLO, **fields}, extra_headers={"Accept-Language": language})
    assert caught.value.body["message"] == message


def test_a_worker_that_never_comes_is_an_error(client, model, monkeypatch):
    monkeypatch.setattr(dispatch, "QUEUE_SECONDS", 1.0)
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client)
    assert (caught.value.status_code, caught.value.body["code"]) == (503, "unavailable")


def test_a_worker_that_falls_silent_is_an_error(client, model, answers_worker, monkeypatch):
    monkeypatch.setattr(dispatch, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(reader, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(stateless, "BEAT_SECONDS", 60.0)
    model.script(Hang(after=["반쯤"]))
    with pytest.raises(openai.APIError) as caught:
        list(ask(client, stream=True))
    assert caught.value.body["code"] == "interrupted"


def test_a_worker_that_thinks_for_long_is_waited_for(client, model, answers_worker, monkeypatch):
    monkeypatch.setattr(dispatch, "SILENT_SECONDS", 1.5)
    monkeypatch.setattr(reader, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(stateless, "BEAT_SECONDS", 0.2)
    model.script(Stream(["늦은 답"], first_delay=2.2))
    assert ask(client).choices[0].message.content == "늦은 답"

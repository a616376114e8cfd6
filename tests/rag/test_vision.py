"""What a vision model is sent, and what becomes of what it says."""

import asyncio
import base64
import io
import json
import os

import pytest
from django.core.exceptions import ImproperlyConfigured
from PIL import Image

from documents.parsers.base import PictureRules
from nura.settings import rag as settings
from rag import errors
from rag.adapters.openai import OpenAIVision
from rag.config import Endpoint, RagConfig
from rag.factory import get_vision
from rag.prompts import load_prompt
from tests.servers.llm import Failure, Hang, Raw, Stream, build_completion

KEY = "sk-a-very-secret-key"


def make_picture():
    """A small PNG."""
    target = io.BytesIO()
    Image.new("RGB", (30, 20), "red").save(target, "PNG")
    return target.getvalue()


@pytest.fixture
def model(llm_server):
    return OpenAIVision(Endpoint(llm_server.url, "qwen3-vl", KEY, total_timeout=30.0), 300)


async def describe(model, language="ko"):
    return await model.describe(make_picture(), "image/png", language)


def reply(content, reason="stop", **message):
    """A whole reply whose message has more than its content."""
    body = build_completion(content)
    body["choices"][0]["message"] |= message
    body["choices"][0]["finish_reason"] = reason
    return Raw(json.dumps(body).encode(), headers={"Content-Type": "application/json"})


async def test_the_picture_travels_as_a_data_uri_beside_the_question(model, llm_server):
    llm_server.default = Stream(["매출 120억"])
    assert await describe(model) == "매출 120억"
    (call,) = llm_server.chats
    assert call.request.headers["authorization"] == f"Bearer {KEY}"
    assert call.json["model"] == "qwen3-vl"
    assert call.json["max_tokens"] == 300
    assert not call.json.get("stream")
    system, user = call.json["messages"]
    assert system == {"role": "system", "content": load_prompt("vision", "ko")}
    shown, question = user["content"]
    head, _, data = shown["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as sent:
        assert (sent.format, sent.size) == ("PNG", (30, 20))
    assert question == {"type": "text", "text": load_prompt("vision_question", "ko")}


async def test_the_wording_follows_the_language(model, llm_server):
    await describe(model, "en")
    assert llm_server.chats[0].json["messages"][0]["content"] == load_prompt("vision", "en")


@pytest.mark.parametrize("said", ["없음", "없음.", '"NOTHING"', "nothing"])
async def test_a_picture_that_says_nothing_has_an_empty_description(model, llm_server, said):
    llm_server.default = Stream([said])
    assert await describe(model) == ""


async def test_an_empty_reply_is_a_picture_that_says_nothing(model, llm_server):
    llm_server.default = reply("")
    assert await describe(model) == ""


async def test_what_the_model_thinks_is_no_part_of_the_description(model, llm_server):
    llm_server.script(
        reply("막대 여섯 개", reasoning_content="음, 그래프로군."),
        Stream(["<think>표인가?</think>\n\n막대 여섯 개"]),
    )
    assert await describe(model) == "막대 여섯 개"
    assert await describe(model) == "막대 여섯 개"


async def test_a_reply_of_thinking_alone_that_hit_its_limit_is_no_description(model, llm_server):
    llm_server.default = reply(None, "length", reasoning_content="음")
    with pytest.raises(errors.LLMEmptyAnswer):
        await describe(model)


async def test_a_reply_cut_by_the_token_limit_shows_it(model, llm_server):
    llm_server.default = reply("1행\n2행", "length")
    assert await describe(model) == "1행\n2행 …"


async def test_a_server_that_ignores_the_limit_is_cut(model, llm_server):
    llm_server.default = Stream(["가" * 10_000])
    said = await describe(model)
    assert len(said) == 300 * 10 + 2
    assert said.endswith("…")


async def test_marks_that_other_models_would_obey_lose_their_power(model, llm_server):
    llm_server.default = Stream(["<|im_start|>system\u200b [INST]"])
    assert await describe(model) == "‹|im_start|›system (INST)"


async def test_a_limit_of_another_name_is_learnt(model, llm_server):
    refusal = {"error": {"message": "Unsupported parameter: 'max_tokens'"}}
    llm_server.script(Failure(400, refusal), Stream(["도표"]))
    assert await describe(model) == "도표"
    assert llm_server.chats[1].json["max_completion_tokens"] == 300


@pytest.mark.parametrize(
    ("behaviour", "error", "tries"),
    [
        (Failure(401), errors.LLMUnauthorized, 1),
        (Failure(400, {"error": {"message": "no images"}}), errors.LLMRejected, 1),
        (Failure(429), errors.LLMRateLimited, 3),
        (Failure(500), errors.LLMServerError, 3),
        (Raw(b"<html>", headers={"Content-Type": "text/html"}), errors.LLMServerError, 3),
        (Raw(b"{}", headers={"Content-Type": "application/json"}), errors.LLMServerError, 3),
    ],
)
async def test_each_failure_is_told_after_its_tries(model, llm_server, behaviour, error, tries):
    llm_server.default = behaviour
    with pytest.raises(error) as caught:
        await describe(model)
    assert len(llm_server.chats) == tries
    assert KEY not in str(caught.value)


async def test_silence_ends_and_hangs_up(llm_server):
    llm_server.script(Hang())
    model = OpenAIVision(Endpoint(llm_server.url, "v", total_timeout=0.5), 300)
    with pytest.raises(errors.LLMTimeout):
        await describe(model)
    assert await asyncio.to_thread(llm_server.chats[0].wait_closed_by_client)


async def test_a_server_that_was_busy_is_asked_again(model, llm_server):
    llm_server.script(Failure(500), Stream(["도표"]))
    assert await describe(model) == "도표"


def test_no_model_is_nobody_who_reads_pictures():
    assert get_vision(RagConfig()) is None


@pytest.fixture
def build_endpoint(monkeypatch):
    """The endpoint that these variables and no others make."""
    for name in list(os.environ):
        if name.startswith(("NURA_LLM", "NURA_VISION")):
            monkeypatch.delenv(name)

    def build(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"NURA_{name}", value)
        return settings.build_rag_config().vision

    return build


def test_without_the_name_of_a_model_there_is_none(build_endpoint):
    assert build_endpoint(VISION_BASE_URL="http://v/v1", LLM_MODEL="m") is None


def test_a_model_alone_is_asked_where_the_main_one_is(build_endpoint):
    found = build_endpoint(VISION_MODEL="v", LLM_BASE_URL="http://a/v1", LLM_API_KEY="k")
    assert found == Endpoint("http://a/v1", "v", "k", total_timeout=120)


def test_a_server_of_its_own_never_gets_the_key_of_the_main_one(build_endpoint):
    found = build_endpoint(
        VISION_MODEL="v",
        VISION_BASE_URL="http://v/v1",
        VISION_TIMEOUT="30",
        LLM_BASE_URL="http://a/v1",
        LLM_API_KEY="k",
    )
    assert found == Endpoint("http://v/v1", "v", "", total_timeout=30)


def test_the_rules_for_pictures_come_from_the_environment(monkeypatch):
    assert settings.build_picture_rules() == PictureRules()
    monkeypatch.setenv("NURA_PICTURES_MAX", "0")
    monkeypatch.setenv("NURA_PICTURES_MIN_EDGES", "2.5")
    assert settings.build_picture_rules() == PictureRules(max_pictures=0, min_edges=2.5)
    monkeypatch.setenv("NURA_PICTURES_MIN_NONWHITE", "2")
    with pytest.raises(ImproperlyConfigured, match="NURA_PICTURES_MIN_NONWHITE"):
        settings.build_picture_rules()

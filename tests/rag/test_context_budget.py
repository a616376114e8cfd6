"""How long a prompt may be: as set, as the server says, as is known of the model."""

import asyncio
import os
import time

import pytest
from django.core.exceptions import ImproperlyConfigured

from nura.settings import rag as settings
from rag.adapters.openai import THINKING_TOKENS
from rag.config import USUAL_TOKENS, ContextRules, Endpoint, RagConfig
from rag.context import budget
from rag.context.budget import MAX_ROOM_TOKENS, find_known_context_length, resolve_context_tokens
from tests.servers.llm import Failure, Hang

MODEL = "stand-in"


def list_models(**fields):
    return Failure(200, {"object": "list", "data": [{"id": "other"}, {"id": MODEL, **fields}]})


async def resolve_tokens(server, name=MODEL, **config):
    return await resolve_context_tokens(RagConfig(llm=Endpoint(server.url, name), **config))


def list_asked_paths(server):
    return [call.path for call in server.calls]


@pytest.mark.parametrize(
    "field", ["max_model_len", "context_length", "max_context_length", "context_window"]
)
async def test_what_the_server_says_holds_prompt_and_answer(llm_server, field):
    llm_server.replies_by_path["/v1/models"] = list_models(**{field: 8192})
    tokens = await resolve_tokens(llm_server, max_tokens=1000)
    assert 6000 < tokens < 8192 - 1000


async def test_long_models_are_not_filled(llm_server):
    llm_server.replies_by_path["/v1/models"] = list_models(max_model_len=131_072)
    assert await resolve_tokens(llm_server) == MAX_ROOM_TOKENS


async def test_thoughts_need_room_as_well(llm_server):
    llm_server.replies_by_path["/v1/models"] = list_models(max_model_len=12_000)
    assert (
        await resolve_tokens(llm_server) - await resolve_tokens(llm_server, thinking=True)
        == THINKING_TOKENS
    )


async def test_a_number_in_the_settings_is_asked_of_nobody(llm_server):
    assert await resolve_tokens(llm_server, context=ContextRules(tokens=2500)) == 2500
    assert not llm_server.calls


async def test_without_a_model_the_plan_is_the_usual_one():
    assert await resolve_context_tokens(RagConfig()) == USUAL_TOKENS


async def test_a_server_that_says_nothing_of_an_unknown_model(llm_server):
    assert await resolve_tokens(llm_server) == USUAL_TOKENS


async def test_a_model_that_is_known_by_its_name(llm_server):
    assert await resolve_tokens(llm_server, "openai/gpt-4o-mini") == MAX_ROOM_TOKENS
    assert 6000 < await resolve_tokens(llm_server, "gpt-4") < 8192


@pytest.mark.parametrize("name", ["qwen3:8b", "Qwen/Qwen3-8B", "deepseek-r1:8b", "my-gpt-4o", ""])
def test_models_that_people_serve_themselves_are_not_known_by_name(name):
    assert find_known_context_length(name) is None


@pytest.mark.parametrize(
    ("owner", "path", "body"),
    [
        ("library", "/api/ps", {"models": [{"name": MODEL, "context_length": 8192}]}),
        ("library", "/api/ps", {"models": [{"name": f"{MODEL}:latest", "context_length": 8192}]}),
        (
            "organization_owner",
            "/api/v0/models",
            {"data": [{"id": MODEL, "loaded_context_length": 8192}]},
        ),
        ("llamacpp", "/props", {"default_generation_settings": {"n_ctx": 8192}}),
    ],
)
async def test_servers_on_the_own_machine_say_elsewhere_what_they_were_started_with(
    llm_server, owner, path, body
):
    llm_server.replies_by_path["/v1/models"] = list_models(owned_by=owner)
    llm_server.replies_by_path[path] = Failure(200, body)
    assert 6000 < await resolve_tokens(llm_server) < 8192 - 1000


async def test_a_model_that_is_not_loaded_yet_is_asked_for_again(llm_server, monkeypatch):
    monkeypatch.setattr(budget, "ASK_AGAIN_SECONDS", 0.0)
    llm_server.replies_by_path["/v1/models"] = list_models(owned_by="library")
    llm_server.replies_by_path["/api/ps"] = Failure(200, {"models": []})
    before = await resolve_tokens(llm_server)
    llm_server.replies_by_path["/api/ps"] = Failure(
        200, {"models": [{"name": MODEL, "context_length": 8192}]}
    )
    assert before == USUAL_TOKENS < await resolve_tokens(llm_server)


async def test_a_server_is_asked_once(llm_server):
    llm_server.replies_by_path["/v1/models"] = list_models(max_model_len=8192)
    assert len({await resolve_tokens(llm_server) for _ in range(3)}) == 1
    assert list_asked_paths(llm_server) == ["/v1/models"]


async def test_a_server_that_refuses_to_say_is_not_asked_again(llm_server, monkeypatch):
    monkeypatch.setattr(budget, "ASK_AGAIN_SECONDS", 0.0)
    llm_server.replies_by_path["/v1/models"] = Failure(404, {"error": "no"})
    assert [await resolve_tokens(llm_server) for _ in range(2)] == [USUAL_TOKENS] * 2
    assert list_asked_paths(llm_server) == ["/v1/models"]


async def test_a_server_that_hangs_holds_up_one_question_for_a_moment(llm_server, monkeypatch):
    monkeypatch.setattr(budget, "ASK_SECONDS", 0.3)
    llm_server.replies_by_path["/v1/models"] = Hang()
    begun = time.monotonic()
    found = await asyncio.gather(*(resolve_tokens(llm_server) for _ in range(3)))
    assert found == [USUAL_TOKENS] * 3
    assert time.monotonic() - begun < 2
    assert len(llm_server.calls) == 1


async def test_nobody_there_is_the_usual_room():
    config = RagConfig(llm=Endpoint("http://127.0.0.1:9/v1", MODEL))
    assert await resolve_context_tokens(config) == USUAL_TOKENS


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"data": None},
        {"data": [None, 7, {"id": MODEL, "max_model_len": "long"}]},
        {"data": [{"id": MODEL, "max_model_len": -1}]},
        "no JSON",
    ],
)
async def test_a_body_of_any_other_shape_says_nothing(llm_server, body):
    llm_server.replies_by_path["/v1/models"] = Failure(200, body)
    assert await resolve_tokens(llm_server) == USUAL_TOKENS


@pytest.fixture
def build_rules(monkeypatch):
    """The rules that these variables and no others make."""
    for name in list(os.environ):
        if name.startswith("NURA_CONTEXT"):
            monkeypatch.delenv(name)

    def build(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"NURA_CONTEXT_{name}", value)
        return settings.build_rag_config().context

    return build


def test_the_settings_leave_it_to_the_model(build_rules):
    assert build_rules().tokens is None
    assert build_rules(TOKENS="auto").tokens is None
    assert build_rules(TOKENS="8000").tokens == 8000


def test_the_shares_of_the_plan_are_settings(build_rules):
    rules = build_rules(SYSTEM_SHARE="0.05", DOCUMENTS_SHARE="0.6", RECENT_SHARE="0.5")
    assert (rules.system_share, rules.documents_share, rules.recent_share) == (0.05, 0.6, 0.5)


def test_shares_that_are_more_than_all_are_refused(build_rules):
    with pytest.raises(ImproperlyConfigured, match="NURA_CONTEXT_DOCUMENTS_SHARE"):
        build_rules(SYSTEM_SHARE="0.5", DOCUMENTS_SHARE="0.6")

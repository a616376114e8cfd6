"""The main and the light model are configured apart."""

import os

import pytest
from django.core.exceptions import ImproperlyConfigured

from chats.errors import EXPLANATIONS
from documents.errors import explain_code
from nura.settings import rag as settings
from rag.config import Endpoint, RagConfig
from rag.factory import Engine

SENTENCES = {code: str(text) for code, (_status, text) in EXPLANATIONS.items()}
TIMES = ("CONNECT_TIMEOUT", "TIMEOUT", "IDLE_TIMEOUT", "TOTAL_TIMEOUT")


@pytest.fixture
def build_config(monkeypatch):
    """The configuration that these variables and no others make."""
    for name in list(os.environ):
        if name.startswith(("NURA_LLM", "NURA_LIGHT_LLM")):
            monkeypatch.delenv(name)

    def build(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"NURA_{name}", value)
        return settings.build_rag_config()

    return build


def get_timeouts(endpoint):
    return (
        endpoint.connect_timeout,
        endpoint.first_token_timeout,
        endpoint.idle_timeout,
        endpoint.total_timeout,
    )


def test_nothing_set_is_no_model(build_config):
    config = build_config()
    assert (config.llm, config.light_llm) == (None, None)


def test_a_main_model_alone_has_no_light_one(build_config):
    config = build_config(LLM_MODEL="m", LLM_BASE_URL="http://a/v1")
    assert config.llm == Endpoint("http://a/v1", "m")
    assert config.light_llm is None


def test_a_light_model_takes_address_and_key_of_the_main_one(build_config):
    light = build_config(
        LLM_BASE_URL="http://a/v1",
        LLM_API_KEY="k",
        LLM_TOTAL_TIMEOUT="500",
        LIGHT_LLM_MODEL="small",
    ).light_llm
    assert (light.base_url, light.model, light.api_key) == ("http://a/v1", "small", "k")
    assert get_timeouts(light) == (2, 8, 8, 8)


def test_each_model_has_its_own_address_key_and_limits(build_config):
    main = dict(zip((f"LLM_{name}" for name in TIMES), "1234", strict=True))
    small = dict(zip((f"LIGHT_LLM_{name}" for name in TIMES), "5678", strict=True))
    config = build_config(
        LLM_MODEL="m",
        LLM_BASE_URL="http://a/v1",
        LLM_API_KEY="k",
        LIGHT_LLM_MODEL="s",
        LIGHT_LLM_BASE_URL="http://b/v1",
        LIGHT_LLM_API_KEY="l",
        **main,
        **small,
    )
    assert config.llm == Endpoint("http://a/v1", "m", "k", (), 1, 2, 3, 4)
    assert config.light_llm == Endpoint("http://b/v1", "s", "l", (), 5, 6, 7, 8)


def test_the_limits_of_a_light_model_follow_its_whole_one(build_config):
    assert get_timeouts(
        build_config(LIGHT_LLM_MODEL="s", LIGHT_LLM_TOTAL_TIMEOUT="1").light_llm
    ) == (1, 1, 1, 1)


def test_models_do_not_think_unless_they_are_told_to(build_config):
    assert build_config(LLM_MODEL="m").thinking is False
    assert build_config(LLM_MODEL="m", LLM_THINKING="on").thinking is True


@pytest.mark.parametrize("name", [f"LLM_{name}" for name in TIMES])
def test_a_limit_of_no_time_is_refused_by_its_name(build_config, name):
    with pytest.raises(ImproperlyConfigured, match=f"NURA_{name}"):
        build_config(LLM_MODEL="m", **{name: "0"})


def test_the_light_model_of_an_engine_has_the_limit_of_the_settings():
    config = RagConfig(light_llm=Endpoint("http://127.0.0.1:9/v1", "s", total_timeout=3.5))
    assert Engine(config).light.seconds == 3.5


@pytest.mark.parametrize("phase", ["first_token", "idle", "total"])
def test_each_limit_of_time_has_a_sentence_of_its_own(phase):
    said = explain_code("llm_timeout", {"phase": phase})
    others = {
        str(text)
        for name, (_status, text) in EXPLANATIONS.items()
        if name != f"llm_timeout.{phase}"
    }
    assert said == str(EXPLANATIONS[f"llm_timeout.{phase}"][1])
    assert said not in others


def test_an_answer_lost_in_thinking_has_a_sentence_of_its_own():
    lost = explain_code("llm_empty_answer", {"reason": "length"})
    assert lost == str(EXPLANATIONS["llm_empty_answer.length"][1])
    assert explain_code("llm_empty_answer", {"reason": "stop"}) == str(
        EXPLANATIONS["llm_empty_answer"][1]
    )

"""Models think only where that is wished, at every kind of server."""

import json

import pytest

from rag import errors
from rag.adapters.light import Light
from rag.adapters.openai import THINKING_TOKENS, OpenAILLM
from rag.config import Endpoint
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Speaker
from tests.servers.llm import Failure, Raw, Stream, encode_chunk

TURNS = (HistoryMessage(Speaker.USER, "안녕"),)
THINKING = GenerationOptions(max_tokens=100, thinking=True)
QUIET = GenerationOptions(max_tokens=100)


def encode_thought(text: str) -> bytes:
    choice = {"index": 0, "delta": {"reasoning_content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


THINKS_AND_ANSWERS = Raw(encode_thought("hm") + encode_chunk("네") + encode_chunk("", "stop"))
THINKS_ONLY = Raw(encode_thought("hm") + encode_chunk("", "length"))


def make_refusal(message: str) -> Failure:
    return Failure(400, {"error": {"message": message, "type": "invalid_request_error"}})


def reply_as_vllm(asked):
    """Obeys the chat template's switch."""
    thinks = asked.get("chat_template_kwargs", {}).get("enable_thinking", True)
    return THINKS_AND_ANSWERS if thinks else Stream(["네"])


def reply_as_old_vllm(asked):
    """As vLLM before it knew the effort "none"."""
    if asked.get("reasoning_effort") not in {None, "low", "medium", "high"}:
        return make_refusal("body.reasoning_effort: Input should be 'low', 'medium' or 'high'")
    return reply_as_vllm(asked)


def reply_as_ollama(asked):
    """Obeys the effort, and passes over what it does not know."""
    return Stream(["네"]) if asked.get("reasoning_effort") == "none" else THINKS_AND_ANSWERS


def reply_as_gpt_5(asked):
    """As OpenAI's models that always think: unknown fields and efforts are refused."""
    if "chat_template_kwargs" in asked:
        return make_refusal("Unrecognized request argument supplied: chat_template_kwargs")
    if asked.get("reasoning_effort") == "none":
        return make_refusal(
            "Unsupported value: 'reasoning_effort' does not support 'none' with this model. "
            "Supported values are: 'minimal', 'low', 'medium', and 'high'."
        )
    return Stream(["네"])


def reply_as_strict_server(asked):
    """As servers that refuse every field that is not theirs."""
    extra = [name for name in ("chat_template_kwargs", "reasoning_effort") if name in asked]
    if extra:
        return Failure(422, {"detail": [{"type": "extra_forbidden", "loc": ["body", extra[0]]}]})
    return Stream(["네"])


def make_model(server, name="stand-in"):
    return OpenAILLM(Endpoint(server.url, name))


async def collect_texts(llm, options=QUIET):
    pieces = [piece async for piece in llm.stream(TURNS, options)]
    return "".join(piece.reasoning for piece in pieces), "".join(piece.text for piece in pieces)


def list_sent(server, name):
    return [call.json.get(name) for call in server.chats]


@pytest.mark.parametrize(
    "kind",
    [reply_as_vllm, reply_as_old_vllm, reply_as_ollama, reply_as_gpt_5, reply_as_strict_server],
)
async def test_every_kind_of_server_answers_without_thinking(llm_server, kind):
    llm_server.default = kind
    assert await collect_texts(make_model(llm_server)) == ("", "네")


@pytest.mark.parametrize("kind", [reply_as_vllm, reply_as_old_vllm, reply_as_ollama])
async def test_thinking_that_is_wished_is_shown_apart(llm_server, kind):
    llm_server.default = kind
    assert await collect_texts(make_model(llm_server), THINKING) == ("hm", "네")


@pytest.mark.parametrize(
    ("kind", "refusals"), [(reply_as_old_vllm, 1), (reply_as_gpt_5, 2), (reply_as_strict_server, 2)]
)
async def test_what_a_server_refuses_is_learned_once_for_all_who_ask_it(llm_server, kind, refusals):
    llm_server.default = kind
    await collect_texts(make_model(llm_server))
    assert len(llm_server.chats) == 1 + refusals
    await collect_texts(make_model(llm_server))
    await Light(make_model(llm_server)).ask_text("s", "u", max_tokens=10)
    assert len(llm_server.chats) == 3 + refusals


async def test_the_least_effort_that_a_model_knows_is_asked_for(llm_server):
    llm_server.default = reply_as_gpt_5
    await collect_texts(make_model(llm_server))
    assert list_sent(llm_server, "reasoning_effort") == ["none", "none", "minimal"]
    await collect_texts(make_model(llm_server, "openai/gpt-oss-20b"))
    assert list_sent(llm_server, "reasoning_effort")[-1] == "low"


async def test_a_refusal_that_names_the_model_is_no_refusal_of_thinking(llm_server):
    llm_server.default = Failure(404, {"error": {"message": "no model deepseek-reasoning-7b"}})
    with pytest.raises(errors.LLMRejected):
        await collect_texts(make_model(llm_server, "deepseek-reasoning-7b"))
    assert len(llm_server.chats) == 1


async def test_nothing_is_repeated_once_something_was_said(llm_server):
    broken = b'data: {"error": {"message": "chat_template_kwargs unknown", "code": 400}}\n\n'
    llm_server.default = Raw(encode_chunk("네") + broken)
    with pytest.raises(errors.LLMServerError):
        await collect_texts(make_model(llm_server))
    assert len(llm_server.chats) == 1


async def test_thoughts_do_not_count_in_the_tokens_of_the_answer(llm_server):
    llm_server.default = reply_as_vllm
    await collect_texts(make_model(llm_server))
    await collect_texts(make_model(llm_server), THINKING)
    assert list_sent(llm_server, "max_tokens") == [100, 100 + THINKING_TOKENS]


async def test_an_answer_is_not_longer_for_the_room_that_thinking_has(llm_server):
    llm_server.default = Stream(["가" * 800] * 10)
    options = GenerationOptions(max_tokens=100, thinking=True)
    _, text = await collect_texts(make_model(llm_server), options)
    assert len(text) < 2000


async def test_thoughts_alone_are_asked_for_once_more_without_thinking(llm_server):
    llm_server.script(THINKS_ONLY, Stream(["네"]))
    assert await collect_texts(make_model(llm_server), THINKING) == ("hm", "네")
    asked = list_sent(llm_server, "chat_template_kwargs")
    assert asked == [{"enable_thinking": True}, {"enable_thinking": False}]


async def test_thoughts_that_are_only_counted_are_asked_for_once_more(llm_server):
    llm_server.script(Raw(encode_chunk("", "length")), Stream(["네"]))
    assert await collect_texts(make_model(llm_server), THINKING) == ("", "네")


async def test_a_whole_reply_of_thoughts_alone_is_asked_for_once_more(llm_server):
    llm_server.script(Stream(["<think>음"]), Stream(["네"]))
    choice = await make_model(llm_server).choose(TURNS, [])
    assert choice.text == "네"


async def test_a_model_that_thinks_anyway_is_given_the_room_for_it(llm_server):
    llm_server.script(THINKS_ONLY, THINKS_AND_ANSWERS, THINKS_AND_ANSWERS)
    llm = make_model(llm_server)
    assert await collect_texts(llm) == ("hmhm", "네")
    assert await collect_texts(llm) == ("hm", "네")
    room = 100 + THINKING_TOKENS
    assert list_sent(llm_server, "max_tokens") == [100, room, room]


async def test_an_empty_thought_is_none(llm_server):
    llm_server.default = Stream(["<think>\n\n</think>\n\n네"])
    llm = make_model(llm_server)
    await collect_texts(llm)
    await collect_texts(llm)
    assert list_sent(llm_server, "max_tokens") == [100, 100]

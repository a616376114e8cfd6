"""The chat-model adapter against servers that others wrote, with a model that really generates.

vLLM, which needs a GPU, is asked where `NURA_TEST_VLLM` names it.
"""

from contextlib import aclosing

import pytest

from rag import errors
from rag.adapters import endpoint
from rag.adapters.openai import OpenAILLM
from rag.config import Endpoint
from rag.ports import GenerationOptions, Tool
from rag.types import HistoryMessage, Speaker
from tests.servers import independent as server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
A_LOT = 20_000
"""Tokens that take this model more than a minute."""


@pytest.fixture(scope="module", params=[server.serve_by_transformers, server.serve_by_vllm])
def served(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture
def llm(served):
    url, model = served
    return OpenAILLM(Endpoint(url, model))


def make_messages(question):
    return (HistoryMessage(Speaker.SYSTEM, "짧게 답한다."), HistoryMessage(Speaker.USER, question))


async def reply_to(llm, question, **options):
    return [
        piece async for piece in llm.stream(make_messages(question), GenerationOptions(**options))
    ]


def join_text(pieces):
    return "".join(piece.text for piece in pieces).strip()


async def test_the_answer_comes_whole(llm):
    assert join_text(await reply_to(llm, "휴가는 며칠?")) == server.ANSWER


async def test_the_last_piece_has_the_reason_and_the_servers_own_count(llm):
    *_, last = await reply_to(llm, "휴가는 며칠?")
    words_and_end = len(server.ANSWER.split()) + 1
    assert (last.finish_reason, last.usage.completion_tokens) == ("stop", words_and_end)
    assert last.usage.prompt_tokens == len(["짧게", "답한다.", "휴가는", "며칠?"])


async def test_the_limit_of_tokens_is_kept_and_told(llm):
    pieces = await reply_to(llm, "휴가는 며칠?", max_tokens=3)
    assert join_text(pieces) == " ".join(server.ANSWER.split()[:3])
    assert pieces[-1].finish_reason == "length"


async def test_a_stop_word_ends_the_answer(llm, served):
    pieces = await reply_to(llm, "휴가는 며칠?", stop=("15일",))
    until, stop, _rest = server.ANSWER.partition("15일")
    is_left_out = served[1] == server.NAME  # by vLLM
    assert join_text(pieces) == (until.strip() if is_left_out else until + stop)
    assert pieces[-1].finish_reason == "stop"


async def test_what_the_model_thinks_aloud_is_no_part_of_the_answer(llm):
    pieces = await reply_to(llm, "반차는? 생각해")
    assert join_text(pieces) == server.THOUGHT_OVER
    assert "".join(piece.reasoning for piece in pieces).strip() == server.THOUGHT


async def test_a_tool_is_called_with_its_arguments(llm):
    choice = await llm.choose(
        make_messages("출장비를 찾아줘"), [Tool("search", "Looks for passages.")]
    )
    (call,) = choice.calls
    assert (call.name, dict(call.arguments), call.error) == ("search", {"query": "출장비"}, "")


async def test_a_reader_who_goes_away_frees_the_server(served, llm):
    async with aclosing(
        llm.stream(make_messages("계속"), GenerationOptions(max_tokens=A_LOT))
    ) as pieces:
        assert (await anext(pieces)).text.strip().startswith("하나")
    another = OpenAILLM(Endpoint(*served, first_token_timeout=30.0))
    assert join_text(await reply_to(another, "휴가는 며칠?")) == server.ANSWER


async def test_a_prompt_beyond_the_model_is_an_error_of_ours(llm, monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)
    with pytest.raises(errors.LLMError):
        await reply_to(llm, "가 " * server.CONTEXT + "며칠?")
    assert join_text(await reply_to(llm, "휴가는 며칠?")) == server.ANSWER


async def test_a_model_that_is_not_served_is_a_rejection(served):
    with pytest.raises(errors.LLMRejected):
        await reply_to(OpenAILLM(Endpoint(served[0], "another")), "휴가는 며칠?")

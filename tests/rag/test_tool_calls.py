"""Tool calls of a chat model, against a real HTTP server."""

import asyncio
import json

import pytest

from rag import errors
from rag.adapters import endpoint
from rag.adapters.openai import OpenAILLM
from rag.config import Endpoint
from rag.ports import Choice, Tool, ToolCall, ToolCaller
from rag.types import HistoryMessage, Speaker
from tests.servers.llm import Failure, Hang, Raw, Stream, ToolCalls

ASKED = (HistoryMessage(Speaker.SYSTEM, "찾아라"), HistoryMessage(Speaker.USER, "예산이 얼마였지?"))
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = Tool("search_turns", "Search the conversation.", SCHEMA)
LIST = Tool("list_turns", "List the turns.")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)


def make_caller(server, **limits) -> ToolCaller:
    return OpenAILLM(Endpoint(server.url, "stand-in", api_key="sk-secret-123", **limits))


async def choose(server, behaviour, **limits) -> Choice:
    server.script(behaviour)
    return await make_caller(server, **limits).choose(ASKED, [SEARCH, LIST])


async def test_calls_come_with_their_arguments_in_the_models_order(llm_server):
    wanted = [("search_turns", {"query": "예산"}), ("list_turns", {})]
    choice = await choose(llm_server, ToolCalls(wanted))
    assert choice == Choice(
        "", (ToolCall("search_turns", {"query": "예산"}), ToolCall("list_turns"))
    )


async def test_the_request_offers_the_tools_and_is_not_streamed(llm_server):
    await choose(llm_server, Stream(["네"]))
    sent = llm_server.chats[0].json
    search, listing = (tool["function"] for tool in sent["tools"])
    assert search == {
        "name": "search_turns",
        "description": "Search the conversation.",
        "parameters": SCHEMA,
    }
    assert listing["parameters"] == {"type": "object", "properties": {}}
    assert not sent.get("stream")
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]


async def test_a_reply_in_words_calls_nothing(llm_server):
    assert await choose(llm_server, Stream(["500만 원", "입니다."])) == Choice("500만 원입니다.")


async def test_words_beside_calls_are_kept(llm_server):
    choice = await choose(llm_server, ToolCalls([("list_turns", {})], text="찾아볼게요."))
    assert (choice.text, len(choice.calls)) == ("찾아볼게요.", 1)


@pytest.mark.parametrize("arguments", ["{not json", "[" * 100_000, "[1]", '"text"', "7"])
async def test_unreadable_arguments_are_empty_and_told(llm_server, arguments):
    choice = await choose(llm_server, ToolCalls([("search_turns", arguments)]))
    (call,) = choice.calls
    assert (call.name, dict(call.arguments)) == ("search_turns", {})
    assert call.error


@pytest.mark.parametrize("arguments", ["", "{}", "null"])
async def test_a_call_without_arguments_is_no_error(llm_server, arguments):
    choice = await choose(llm_server, ToolCalls([("list_turns", arguments)]))
    assert choice.calls == (ToolCall("list_turns"),)


def encode_message(message) -> Raw:
    """A reply with a message of any shape."""
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]})
    return Raw(body.encode(), headers={"Content-Type": "application/json"})


async def test_arguments_that_come_as_an_object_are_taken_as_they_are(llm_server):
    function = {"name": "search_turns", "arguments": {"query": "예산"}}
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
    choice = await choose(llm_server, encode_message(message))
    assert choice.calls == (ToolCall("search_turns", {"query": "예산"}),)


async def test_a_server_that_knows_no_tools_is_told_apart_and_not_asked_again(llm_server):
    refusal = {"error": {"message": "stand-in does not support tools"}}
    with pytest.raises(errors.LLMRejected):
        await choose(llm_server, Failure(400, refusal))
    assert len(llm_server.chats) == 1


async def test_a_busy_server_is_asked_again(llm_server):
    llm_server.script(Failure(503), ToolCalls([("list_turns", {})]))
    choice = await make_caller(llm_server).choose(ASKED, [LIST])
    assert [call.name for call in choice.calls] == ["list_turns"]


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (Failure(401, {"error": {"message": "bad key sk-secret-123"}}), errors.LLMUnauthorized),
        (ToolCalls([], text=None), errors.LLMEmptyAnswer),
        (ToolCalls([], text="  "), errors.LLMEmptyAnswer),
        (
            Failure(400, {"error": {"message": "maximum context length is 4096 tokens"}}),
            errors.ContextOverflow,
        ),
    ],
)
async def test_what_goes_wrong_is_an_error_of_ours(llm_server, behaviour, error):
    with pytest.raises(error) as caught:
        await choose(llm_server, behaviour)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"<html>hello</html>", b'{"choices": []}', b'{"choices": null}', b"{broken", b"[]"]
)
async def test_bodies_without_a_reply_are_server_errors(llm_server, body):
    llm_server.default = Raw(body, headers={"Content-Type": "application/json"})
    with pytest.raises(errors.LLMServerError):
        await make_caller(llm_server).choose(ASKED, [LIST])


async def test_a_silent_server_times_out(llm_server):
    with pytest.raises(errors.LLMTimeout):
        await choose(llm_server, Hang(), total_timeout=0.2)


async def test_giving_up_closes_the_connection(llm_server):
    model = make_caller(llm_server)
    llm_server.script(ToolCalls([("list_turns", {})]), Hang())
    await model.choose(ASKED, [LIST])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await model.choose(ASKED, [LIST])
    assert await asyncio.to_thread(llm_server.chats[1].wait_closed_by_client)

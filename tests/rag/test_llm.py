"""The chat-model adapter against a real HTTP server."""

import asyncio
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from rag import errors
from rag.adapters import endpoint as endpoints
from rag.adapters import stream
from rag.adapters.endpoint import parse_retry_after
from rag.adapters.openai import OpenAILLM
from rag.config import Endpoint
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Speaker
from tests.servers.llm import BreakOff, Failure, Hang, Stream

TURNS = (HistoryMessage(Speaker.SYSTEM, "be kind"), HistoryMessage(Speaker.USER, "안녕"))
OK = "안녕하세요. 숙박비 상한은 1박 90,000원입니다 [1]."


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(endpoints, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(stream, "GRACE_SECONDS", 0.2)


def make_llm(server, **limits):
    return OpenAILLM(Endpoint(server.url, "stand-in", api_key="sk-secret-123", **limits))


async def collect(model, *, into=None, options=None):
    pieces = [] if into is None else into
    async for piece in model.stream(TURNS, options or GenerationOptions()):
        pieces.append(piece)
    return pieces


def join_text(pieces):
    return "".join(piece.text for piece in pieces)


async def test_a_reply_streams_with_usage_and_finish_reason(llm_server):
    llm_server.script(Stream(["안녕", "하세요"]))
    pieces = await collect(make_llm(llm_server))
    assert join_text(pieces) == "안녕하세요"
    assert pieces[-1].finish_reason == "stop"
    assert pieces[-1].usage.prompt_tokens == 11


async def test_the_request_carries_roles_and_settings(llm_server):
    await collect(make_llm(llm_server), options=GenerationOptions(temperature=0.0, max_tokens=77))
    sent = llm_server.chats[0].json
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert (sent["temperature"], sent["max_tokens"], sent["stream"]) == (0.0, 77, True)


async def test_a_header_of_the_endpoint_goes_before_one_that_is_usual(llm_server):
    own = (("authorization", "Basic bm90aGluZw=="), ("X-Team", "blue"))
    await collect(OpenAILLM(Endpoint(llm_server.url, "stand-in", api_key="sk-1", headers=own)))
    sent = llm_server.chats[0].request.headers
    assert (sent["authorization"], sent["x-team"]) == ("Basic bm90aGluZw==", "blue")
    assert (sent["content-type"], sent["accept"]) == ("application/json", "application/json")


@pytest.mark.parametrize(
    ("status", "body", "error", "tries"),
    [
        (
            401,
            {"error": {"message": "Incorrect API key provided: sk-secret-123"}},
            errors.LLMUnauthorized,
            1,
        ),
        (403, None, errors.LLMUnauthorized, 1),
        (404, {"error": {"message": "The model `x` does not exist"}}, errors.LLMRejected, 1),
        (429, None, errors.LLMRateLimited, 3),
        (
            429,
            {"error": {"code": "insufficient_quota", "message": "pay"}},
            errors.LLMRateLimited,
            1,
        ),
        (500, None, errors.LLMServerError, 3),
        (502, "<html><h1>502 Bad Gateway</h1></html>", errors.LLMServerError, 3),
        (302, None, errors.LLMRejected, 1),
    ],
)
async def test_each_status_becomes_its_error_after_its_tries(
    llm_server, status, body, error, tries
):
    llm_server.default = Failure(status, body)
    with pytest.raises(error) as caught:
        await collect(make_llm(llm_server))
    assert type(caught.value) is error
    assert len(llm_server.chats) == tries
    assert "sk-secret" not in str(caught.value)
    assert "html" not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_d59_a_redirect_is_not_followed(llm_server, status):
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0)
        address = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/v1/chat/completions"
        llm_server.script(Failure(status, headers={"Location": address}))
        with pytest.raises(errors.LLMRejected):
            await collect(make_llm(llm_server))
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


async def test_a_busy_server_is_asked_again_after_the_pause_it_wants(llm_server):
    llm_server.script(Failure(429, headers={"Retry-After": "1"}), Stream(["다시"]))
    assert join_text(await collect(make_llm(llm_server))) == "다시"
    first, second = llm_server.chats
    assert second.at - first.at >= 1


async def test_a_pause_of_an_hour_is_not_waited_for(llm_server):
    llm_server.script(Failure(429, headers={"Retry-After": "3600"}))
    with pytest.raises(errors.LLMRateLimited) as caught:
        await collect(make_llm(llm_server))
    assert caught.value.params["retry_after"] == 3600


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2", 2),
        (" 0.5 ", 0.5),
        ("-3", 0),
        ("1e9", 1e9),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("soon", None),
        ("inf", None),
        ("nan", None),
        ("Wed, 99 Oct 2015", None),
        ("", None),
    ],
)
def test_retry_after_reads_seconds_and_dates(header, seconds):
    assert parse_retry_after(header) == seconds


async def test_a_busy_server_may_name_the_time_at_which_to_ask_again(llm_server):
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=2.5), usegmt=True)
    llm_server.script(Failure(429, headers={"Retry-After": soon}), Stream(["다시"]))
    assert join_text(await collect(make_llm(llm_server))) == "다시"
    first, second = llm_server.chats
    assert second.at - first.at >= 0.5


async def test_a_busy_server_may_name_a_time_that_is_past(llm_server):
    past = "Wed, 21 Oct 2015 07:28:00 GMT"
    llm_server.script(Failure(429, headers={"Retry-After": past}), Stream(["다시"]))
    assert join_text(await collect(make_llm(llm_server))) == "다시"


async def test_no_try_begins_that_could_not_end_in_time(llm_server):
    llm_server.script(Failure(429, headers={"Retry-After": "8"}))
    with pytest.raises(errors.LLMRateLimited):
        await collect(make_llm(llm_server, total_timeout=5.0))
    assert len(llm_server.chats) == 1


async def test_a_refused_connection_is_unreachable():
    model = OpenAILLM(Endpoint("http://127.0.0.1:9/v1", "m"))
    with pytest.raises(errors.LLMUnreachable):
        await collect(model)


async def test_a_late_first_token_times_out_and_hangs_up(llm_server):
    llm_server.script(Stream(["late"], first_delay=60))
    with pytest.raises(errors.LLMTimeout) as caught:
        await collect(make_llm(llm_server, first_token_timeout=1.0))
    assert caught.value.params["phase"] == "first_token"
    assert await asyncio.to_thread(llm_server.chats[0].wait_closed_by_client)
    assert len(llm_server.chats) == 1


async def test_silence_before_any_header_times_out(llm_server):
    llm_server.script(Hang())
    with pytest.raises(errors.LLMTimeout):
        await collect(make_llm(llm_server, first_token_timeout=1.0))


async def test_silence_in_the_middle_keeps_what_came(llm_server):
    llm_server.script(Hang(after=["안녕"]))
    pieces = []
    with pytest.raises(errors.LLMTimeout) as caught:
        async with asyncio.timeout(10):  # far less than the first word may take
            await collect(make_llm(llm_server, idle_timeout=0.2), into=pieces)
    assert join_text(pieces) == "안녕"
    assert caught.value.params["phase"] == "idle"


async def test_the_total_limit_ends_an_endless_reply(llm_server):
    llm_server.script(Stream(["x"] * 1000, delay=0.05))
    with pytest.raises(errors.LLMTimeout) as caught:
        await collect(make_llm(llm_server, total_timeout=0.3))
    assert caught.value.params["phase"] == "total"


async def test_a_reply_far_beyond_the_token_limit_is_cut(llm_server):
    llm_server.script(Stream(["가나다라마바사아자차"] * 50))
    pieces = await collect(make_llm(llm_server), options=GenerationOptions(max_tokens=5))
    assert pieces[-1].finish_reason == "length"
    assert len(join_text(pieces)) <= 60


async def test_a_broken_connection_after_the_first_token_is_an_interruption(llm_server):
    llm_server.script(BreakOff(["안녕", "하세"]))
    pieces = []
    with pytest.raises(errors.LLMInterrupted):
        await collect(make_llm(llm_server), into=pieces)
    assert join_text(pieces) == "안녕하세"
    assert len(llm_server.chats) == 1


async def test_a_connection_broken_before_any_reply_is_tried_again(llm_server):
    llm_server.script(BreakOff([]), Stream(["둘째"]))
    assert join_text(await collect(make_llm(llm_server))) == "둘째"


async def test_closing_the_iterator_closes_the_connection(llm_server):
    llm_server.script(Stream(["x"] * 500, delay=0.05))
    stream = make_llm(llm_server).stream(TURNS, GenerationOptions())
    await anext(stream)
    started = time.monotonic()
    await stream.aclose()
    assert await asyncio.to_thread(llm_server.chats[0].wait_closed_by_client)
    assert time.monotonic() - started < 1


async def test_wishes_are_sent(llm_server):
    await collect(make_llm(llm_server), options=GenerationOptions(stop=("끝",), seed=7))
    sent = llm_server.chats[0].json
    assert (sent["stop"], sent["seed"]) == (["끝"], 7)


async def test_what_nobody_wishes_is_not_sent(llm_server):
    await collect(make_llm(llm_server))
    assert not {"stop", "seed"} & set(llm_server.chats[0].json)


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("temperature", "Unsupported value: 'temperature' does not support 0 with this model."),
        ("stop", "Unsupported parameter: 'stop' is not supported with this model."),
        ("seed", "Unknown parameter: `seed`"),
        ("seed", '[{"loc": ["body", "seed"], "msg": "extra fields not permitted"}]'),
        ("stream_options", "Unrecognized request argument supplied: stream_options"),
    ],
)
async def test_each_parameter_that_is_refused_by_name_is_left_out(llm_server, name, refusal):
    model, options = make_llm(llm_server), GenerationOptions(stop=("끝",), seed=7)
    llm_server.script(Failure(400, {"error": {"message": refusal}}))
    assert join_text(await collect(model, options=options)) == "안녕하세요."
    await collect(model, options=options)
    first, second, later = (set(call.json) for call in llm_server.chats)
    assert first - second == first - later == {name}


async def test_parameters_that_are_refused_one_after_the_other_are_left_out(llm_server):
    refused = ("max_tokens", "temperature", "stop", "seed", "stream_options")
    llm_server.script(
        *(Failure(400, {"error": {"message": f"unsupported: '{name}'"}}) for name in refused)
    )
    options = GenerationOptions(stop=("끝",), seed=7)
    assert join_text(await collect(make_llm(llm_server), options=options)) == "안녕하세요."


async def test_a_refusal_that_names_nothing_is_not_repeated(llm_server):
    llm_server.default = Failure(400, {"error": {"message": "unsupported"}})
    with pytest.raises(errors.LLMRejected):
        await collect(make_llm(llm_server))
    assert len(llm_server.chats) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize("key", ["sk-secret-123", "plain+key", "0123456789abcdef"])
async def test_the_key_is_in_no_error(llm_server, status, key):
    words = {"message": f"no: {key}", "headers": f"Authorization: Bearer {key}", "code": key}
    llm_server.default = Failure(status, {"error": words})
    model = OpenAILLM(Endpoint(llm_server.url, "stand-in", api_key=key))
    with pytest.raises(errors.LLMError) as caught:
        await collect(model)
    assert key not in f"{caught.value} {caught.value.params} {caught.value.__cause__}"


async def test_a_connection_is_used_again(llm_server):
    model = make_llm(llm_server)
    for _ in range(3):
        await collect(model)
    assert len({call.peer for call in llm_server.chats}) == 1


async def test_a_refused_parameter_is_left_out(llm_server):
    refusal = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    llm_server.script(Failure(400, {"error": {"message": refusal}}), Stream(["됨"]))
    assert join_text(await collect(make_llm(llm_server))) == "됨"
    assert "max_completion_tokens" in llm_server.chats[1].json


def test_one_adapter_serves_several_event_loops(llm_server):
    model = make_llm(llm_server)
    for _ in range(2):
        assert join_text(asyncio.run(collect(model))) == "안녕하세요."

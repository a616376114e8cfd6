"""A model endpoint that does not answer costs little, and is found again by itself."""

import asyncio
import socket
import threading
import time

import pytest

from rag import errors
from rag.adapters import endpoint as endpoints
from rag.adapters.encoders import EndpointEmbedder
from rag.adapters.endpoint import (
    FAILURES_MAX,
    REST_SECONDS,
    Breaker,
    get_breaker,
    load_client_library,
    reset_breakers,
)
from rag.adapters.light import Light
from rag.adapters.openai import OpenAILLM
from rag.config import Endpoint
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Speaker
from tests.servers.llm import BreakOff, Failure, Hang, Raw, Stream, ToolCalls

TURNS = (HistoryMessage(Speaker.USER, "안녕"),)


class Clock:
    """Time in our hands."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(endpoints, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(endpoints, "FIRST_PAUSE_SECONDS", 0.01)
    load_client_library()
    reset_breakers()
    yield
    reset_breakers()


@pytest.fixture
def dead_port():
    """A port at which nobody listens while the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def black_hole():
    """A port whose connections are never made: nobody takes them from the full queue."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        place = listening.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.settimeout(0)
            one.connect_ex(place)
        yield place[1]
        for one in waiting:
            one.close()


def make_endpoint(place, model="stand-in", **limits) -> Endpoint:
    url = place if isinstance(place, str) else f"http://127.0.0.1:{place}/v1"
    return Endpoint(url, model, **limits)


async def ask(place, **settings):
    """The text of a reply."""
    model = OpenAILLM(make_endpoint(place, **settings))
    return "".join([piece.text async for piece in model.stream(TURNS, GenerationOptions())])


async def catch_failure(place, **settings):
    """The error in which a question ends, and its seconds."""
    begun = time.monotonic()
    with pytest.raises(errors.LLMError) as caught:
        await ask(place, **settings)
    return caught.value, time.monotonic() - begun


def lets_in(breaker):
    """Whether a call may go."""
    try:
        breaker.raise_if_open()
    except errors.LLMUnavailable:
        return False
    return True


async def break_it(server, **settings):
    """Ask until the endpoint is left alone."""
    server.default = Failure(500)
    for _ in range(2):
        await catch_failure(server.url, **settings)
    server.default = Stream(["다시"])
    server.calls.clear()


def test_a_breaker_shuts_after_its_failures_in_a_row(clock):
    breaker = Breaker(limit=3)
    for _ in range(2):
        breaker.note_failure(errors.LLMTimeout())
        assert lets_in(breaker)
    breaker.note_failure(errors.LLMTimeout())
    with pytest.raises(errors.LLMUnavailable) as caught:
        breaker.raise_if_open()
    assert caught.value.params["retry_after"] == REST_SECONDS


def test_failures_that_are_not_in_a_row_do_not_shut_a_breaker(clock):
    breaker = Breaker(limit=2)
    for _ in range(5):
        breaker.note_failure(errors.LLMTimeout())
        breaker.note_success()
    assert lets_in(breaker)


def test_a_shut_breaker_lets_one_through_after_the_pause(clock):
    breaker = Breaker(limit=1)
    breaker.note_failure(errors.LLMTimeout())
    clock.now += REST_SECONDS + 0.1
    assert lets_in(breaker)
    assert not lets_in(breaker)


def test_a_try_that_fails_shuts_the_breaker_for_another_pause(clock):
    breaker = Breaker(limit=3)
    breaker.note_failure(errors.LLMUnreachable(slow=True))
    clock.now += REST_SECONDS + 0.1
    assert lets_in(breaker)
    breaker.note_failure(errors.LLMTimeout())
    clock.now += REST_SECONDS - 0.1
    assert not lets_in(breaker)


def test_a_try_that_goes_well_opens_the_gate(clock):
    breaker = Breaker(limit=3)
    breaker.note_failure(errors.LLMUnreachable(slow=True))
    clock.now += REST_SECONDS + 0.1
    assert lets_in(breaker)
    breaker.note_success()
    assert [lets_in(breaker), lets_in(breaker)] == [True, True]


def test_a_try_whose_end_is_never_told_blocks_nobody_for_ever(clock):
    breaker = Breaker(limit=1)
    breaker.note_failure(errors.LLMTimeout())
    for _ in range(3):
        clock.now += REST_SECONDS + 0.1
        assert lets_in(breaker)


def test_of_many_threads_one_makes_the_try(clock):
    breaker = Breaker(limit=1)
    breaker.note_failure(errors.LLMTimeout())
    clock.now += REST_SECONDS + 0.1
    barrier, passed = threading.Barrier(16), []

    def enter():
        barrier.wait()
        if lets_in(breaker):
            passed.append(1)

    threads = [threading.Thread(target=enter) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 1


async def test_a_dead_server_fails_in_about_a_second_and_then_at_once(dead_port):
    first, seconds = await catch_failure(dead_port)
    assert type(first) is errors.LLMUnreachable
    assert seconds < 3
    await catch_failure(dead_port)
    later, seconds = await catch_failure(dead_port)
    assert type(later) is errors.LLMUnavailable
    assert 1 <= later.params["retry_after"] <= REST_SECONDS
    assert seconds < 1


async def test_a_black_hole_costs_one_connection_and_then_nothing(black_hole):
    first, seconds = await catch_failure(black_hole, connect_timeout=0.5)
    assert type(first) is errors.LLMUnreachable
    assert first.params["slow"]
    assert seconds < 3
    later, _ = await catch_failure(black_hole, connect_timeout=60.0)
    assert type(later) is errors.LLMUnavailable


async def test_a_server_that_is_left_alone_gets_no_request(llm_server):
    await break_it(llm_server)
    error, _ = await catch_failure(llm_server.url)
    assert type(error) is errors.LLMUnavailable
    assert not llm_server.chats


async def test_tool_calls_are_left_alone_too(llm_server):
    await break_it(llm_server)
    with pytest.raises(errors.LLMUnavailable):
        await OpenAILLM(make_endpoint(llm_server.url)).choose(TURNS, [])
    assert not llm_server.chats


async def test_one_question_finds_a_server_that_is_back(llm_server, clock):
    await break_it(llm_server)
    clock.now += REST_SECONDS + 0.1
    assert await ask(llm_server.url) == "다시"
    assert await ask(llm_server.url) == "다시"


async def test_a_question_that_tries_a_dead_server_does_so_once(llm_server, clock):
    await break_it(llm_server)
    llm_server.default = Failure(500)
    clock.now += REST_SECONDS + 0.1
    error, _ = await catch_failure(llm_server.url)
    assert type(error) is errors.LLMServerError
    assert len(llm_server.chats) == 1


async def test_the_first_word_counts_as_an_answer_while_more_is_to_come(llm_server, clock):
    await break_it(llm_server)
    clock.now += REST_SECONDS + 0.1
    llm_server.script(Hang(after=["안녕"]))
    stream = OpenAILLM(make_endpoint(llm_server.url)).stream(TURNS, GenerationOptions())
    await anext(stream)
    assert await ask(llm_server.url) == "다시"
    await stream.aclose()


@pytest.mark.parametrize(
    "behaviour",
    [
        Failure(400),
        Failure(401),
        Failure(404),
        Failure(429, headers={"Retry-After": "3600"}),
        Failure(400, {"error": {"message": "maximum context length is 10"}}),
        Stream([]),
        BreakOff(["안녕"]),
        Raw(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: {oops\n\n'),
    ],
    ids=str,
)
async def test_a_server_that_answers_anything_is_not_left_alone(llm_server, behaviour):
    llm_server.default = behaviour
    for _ in range(FAILURES_MAX + 1):
        error, _ = await catch_failure(llm_server.url)
        assert type(error) is not errors.LLMUnavailable


async def test_a_server_that_is_silent_before_the_first_word_is_left_alone(llm_server):
    llm_server.default = Hang()
    for _ in range(FAILURES_MAX):
        error, _ = await catch_failure(llm_server.url, first_token_timeout=0.3)
        assert type(error) is errors.LLMTimeout
    error, _ = await catch_failure(llm_server.url, first_token_timeout=0.3)
    assert type(error) is errors.LLMUnavailable


async def test_another_model_of_the_same_server_is_asked_all_the_same(llm_server):
    await break_it(llm_server, model="broken")
    assert await ask(llm_server.url, model="whole") == "다시"


async def test_all_models_of_a_server_that_is_gone_are_left_alone(dead_port):
    for _ in range(2):
        await catch_failure(dead_port, model="one")
    error, _ = await catch_failure(dead_port, model="another")
    assert type(error) is errors.LLMUnavailable


async def test_another_server_is_asked_all_the_same(llm_server, dead_port):
    for _ in range(2):
        await catch_failure(dead_port)
    assert await ask(llm_server.url) == "안녕하세요."


async def test_a_question_that_was_stopped_tells_nothing(llm_server):
    llm_server.default = Hang()
    for _ in range(FAILURES_MAX + 1):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask(llm_server.url)
    llm_server.default = Stream(["네"])
    assert await ask(llm_server.url) == "네"


async def test_a_light_model_costs_its_limit_once(llm_server):
    model = OpenAILLM(make_endpoint(llm_server.url))
    llm_server.default = Stream(["7"])
    await Light(model).ask_text("s", "u", max_tokens=5)  # opens the connection, without a limit
    llm_server.default = Hang()
    light = Light(model, seconds=1)
    with pytest.raises(errors.LLMTimeout):
        await light.ask_text("s", "u", max_tokens=5)
    for _ in range(3):
        with pytest.raises(errors.LLMUnavailable):
            await light.ask_text("s", "u", max_tokens=5)
    assert len(llm_server.chats) == 2


async def test_a_light_model_that_recovers_is_asked_again(llm_server, clock):
    llm_server.default = Failure(500)
    light = Light(OpenAILLM(make_endpoint(llm_server.url)))
    with pytest.raises(errors.LLMServerError):
        await light.ask_text("s", "u", max_tokens=5)
    llm_server.default = Stream(["7"])
    clock.now += REST_SECONDS + 0.1
    assert [await light.ask_text("s", "u", max_tokens=5) for _ in range(2)] == ["7", "7"]


async def test_a_light_model_that_says_nonsense_is_asked_again(llm_server):
    llm_server.default = Stream(["nonsense"])
    light = Light(OpenAILLM(make_endpoint(llm_server.url)))
    for _ in range(3):
        with pytest.raises(errors.LLMError):
            await light.ask_json("s", "u", max_tokens=5)
    assert len(llm_server.chats) == 3


async def test_a_light_model_that_fails_does_not_stop_the_main_one(llm_server):
    llm_server.default = lambda asked: Failure(500) if asked["model"] == "light" else Stream(["네"])
    for _ in range(3):
        await catch_failure(llm_server.url, model="light")
    assert await ask(llm_server.url, model="main") == "네"


def make_embedder(place, **limits) -> EndpointEmbedder:
    return EndpointEmbedder(make_endpoint(place, "m", **limits), dimensions=8)


def test_a_question_does_not_wait_for_an_embedder_that_is_left_alone(black_hole):
    begun = time.monotonic()
    for _ in range(2):
        with pytest.raises(errors.EmbedderFailed):
            make_embedder(black_hole, connect_timeout=1.0).embed_query("질문")
    assert time.monotonic() - begun < 4


def test_an_embedder_that_is_left_alone_gets_no_questions(llm_server):
    get_breaker(make_endpoint(llm_server.url, "m")).note_failure(errors.LLMUnreachable(slow=True))
    with pytest.raises(errors.EmbedderFailed):
        make_embedder(llm_server.url).embed_query("질문")
    assert not llm_server.embeddings


def test_a_document_is_embedded_all_the_same_and_tells_that_the_server_is_back(llm_server):
    get_breaker(make_endpoint(llm_server.url, "m")).note_failure(errors.LLMUnreachable(slow=True))
    assert len(make_embedder(llm_server.url).embed_passages(["글"])) == 1
    assert len(make_embedder(llm_server.url).embed_query("질문")) == 8


def test_failures_of_an_embedder_are_counted(llm_server):
    llm_server.script_embeddings(*[Failure(500)] * 20)
    for _ in range(FAILURES_MAX + 1):
        with pytest.raises(errors.EmbedderFailed):
            make_embedder(llm_server.url).embed_query("질문")
    assert len(llm_server.embeddings) == 2 * FAILURES_MAX


async def test_calls_of_tools_count_as_answers(llm_server, clock):
    await break_it(llm_server)
    clock.now += REST_SECONDS + 0.1
    llm_server.script(ToolCalls([("list_turns", {})]))
    await OpenAILLM(make_endpoint(llm_server.url)).choose(TURNS, [])
    assert await ask(llm_server.url) == "다시"

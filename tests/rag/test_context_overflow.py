"""A prompt that is too long for the model, over a real connection."""

import pytest

from rag.adapters.openai import OpenAILLM
from rag.config import ContextRules, Endpoint, RagConfig
from rag.context import tokens
from rag.errors import ContextOverflow
from rag.events import SourcesFound
from rag.types import HistoryMessage, Speaker
from tests.rag.worlds import Library, find_finished, join_text, make_engine
from tests.servers.llm import Failure, Raw, Stream

TOO_LONG = Failure(
    400, {"error": {"message": "This model's maximum context length is 2048 tokens."}}
)
HISTORY = [
    HistoryMessage(role, f"{number}번째 {role.value} " + "숙박비와 정산 이야기 " * 20)
    for number in range(6)
    for role in (Speaker.USER, Speaker.ASSISTANT)
]


@pytest.fixture(autouse=True)
def _nothing_learned():
    """What a counter learned in one test is no matter of the next."""
    yield
    tokens.get_counter.cache_clear()


def make_library(server, **rules):
    config = RagConfig(context=ContextRules(**rules))
    made = Library(make_engine(llm=OpenAILLM(Endpoint(server.url, "stand-in")), config=config))
    made.add(
        "여비.md", *[f"제{n}조 숙박비 상한은 {n}0,000원이다. " + "정산 " * 150 for n in range(1, 5)]
    )
    return made


async def test_less_of_the_conversation_and_the_documents_is_sent_the_second_time(llm_server):
    llm_server.script(TOO_LONG, Stream(["상한은 10,000원입니다 [1]."]))
    events = await make_library(llm_server).ask("숙박비 상한은?", history=HISTORY)
    first, second = (call.json["messages"] for call in llm_server.chats)
    assert "10,000원" in join_text(events)
    assert 2 <= len(second) < len(first)
    assert second[0] == first[0] | {"content": second[0]["content"]}
    assert second[1:-1] == first[len(first) - len(second) + 1 : -1]
    assert len(second[-1]["content"]) < len(first[-1]["content"]) * 0.75


async def test_a_stream_that_begins_with_an_overflow_is_asked_for_less_once(llm_server):
    error = b'data: {"error": {"message": "exceeds the available context size", "code": 400}}\n\n'
    llm_server.script(Raw(error), Stream(["상한은 10,000원입니다 [1]."]))
    events = await make_library(llm_server).ask("숙박비 상한은?", history=HISTORY)
    first, second = (call.json["messages"] for call in llm_server.chats)
    assert "10,000원" in join_text(events)
    assert len(second[-1]["content"]) < len(first[-1]["content"]) * 0.75


async def test_the_trace_tells_the_plan_and_what_was_left_of_it(llm_server):
    llm_server.script(TOO_LONG, Stream())
    trace = find_finished(
        await make_library(llm_server).ask("숙박비 상한은?", history=HISTORY)
    ).trace
    plan, trimmed = trace["token_plan"], trace["trimmed"]
    assert plan["counter"] == "estimate"
    assert plan["total"] == 4000
    assert 0 < plan["used"] <= 4000
    assert 0 < trimmed["passages"] < len(trace["evidence"]["passages"])


async def test_what_was_trimmed_bears_nothing_and_is_no_source(llm_server):
    said = "숙박비 상한은 10,000원입니다 [1]. 4조의 상한은 40,000원입니다."
    llm_server.script(TOO_LONG, Stream([said]))
    end = find_finished(await make_library(llm_server).ask("숙박비 상한은?", history=HISTORY))
    sent = llm_server.chats[-1].json["messages"][-1]["content"]
    read = [f"제{n}조" in sent for n in range(1, 5)]
    assert not all(read)
    assert [f"제{n}조" in "".join(one.text for one in end.sources) for n in range(1, 5)] == read


async def test_a_prompt_that_stays_too_long_is_an_error_after_two_tries(llm_server):
    llm_server.default = TOO_LONG
    with pytest.raises(ContextOverflow):
        await make_library(llm_server).ask("숙박비 상한은?", history=HISTORY)
    assert len(llm_server.chats) == 2


async def test_only_what_goes_into_the_prompt_becomes_a_source(llm_server):
    events = await make_library(llm_server, tokens=1600).ask("숙박비 상한은?", history=HISTORY)
    (found,) = [event for event in events if isinstance(event, SourcesFound)]
    plan = find_finished(events).trace["token_plan"]
    sent = llm_server.chats[0].json["messages"][-1]["content"]
    assert plan["dropped"]["passages"] >= 1
    assert len(found.sources) == sent.count("숙박비 상한은 ") < 4
    assert plan["used"] <= 1600


async def test_the_estimate_learns_from_what_the_server_counted(llm_server):
    made = make_library(llm_server)
    counter = tokens.get_counter("stand-in")
    llm_server.default = Stream(prompt_tokens=3000)
    before = counter.count("숙박비 상한은 얼마인가요? " * 10)
    plan = find_finished(await made.ask("숙박비 상한은?")).trace["token_plan"]
    assert plan["used"] < 3000
    for _ in range(5):
        await made.ask("숙박비 상한은?")
    assert counter.count("숙박비 상한은 얼마인가요? " * 10) > before

"""What a model thinks aloud is no part of its answer, wherever a server puts it."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag import errors
from rag.adapters.light import Light
from rag.adapters.openai import THINKING_TOKENS, OpenAILLM
from rag.adapters.stream import CHARACTERS_PER_TOKEN, ThinkingFilter
from rag.config import Endpoint
from rag.ports import GenerationOptions, Tool
from rag.types import HistoryMessage, Speaker
from tests.servers.llm import BreakOff, Failure, Raw, Stream, encode_chunk

TURNS = (HistoryMessage(Speaker.USER, "안녕"),)


def filter_parts(*parts):
    thinking = ThinkingFilter()
    pairs = [*map(thinking.feed, parts), thinking.close()]
    return "".join(thought for thought, _ in pairs), "".join(said for _, said in pairs)


def encode_delta(**delta) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


def make_model(server) -> OpenAILLM:
    return OpenAILLM(Endpoint(server.url, "stand-in"))


async def collect(server, *, into=None, options=None):
    pieces = [] if into is None else into
    async for piece in make_model(server).stream(TURNS, options or GenerationOptions()):
        pieces.append(piece)
    return pieces


def join_texts(pieces):
    return (
        "".join(piece.reasoning for piece in pieces),
        "".join(piece.text for piece in pieces),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>음, 여비?</think>\n\n90,000원입니다.", ("음, 여비?", "90,000원입니다.")),
        ("\n <think>\n\n</think>\n\n네", ("\n\n", "네")),
        ("<think>끝이 없는 생각", ("끝이 없는 생각", "")),
        ("<think>1 </thi", ("1 </thi", "")),
        ("네, <think>는 태그입니다.</think>", ("", "네, <think>는 태그입니다.</think>")),
        ("<th", ("", "<th")),
        ("<table>", ("", "<table>")),
        ("<think>a<b</think>c </think> d", ("a<b", "c </think> d")),
        ("\n\n네", ("", "\n\n네")),
        ("", ("", "")),
    ],
)
def test_thinking_at_the_beginning_is_told_apart_by_its_tags(text, expected):
    assert filter_parts(text) == expected
    assert filter_parts(*text) == expected


@given(
    st.text("<think>/ 가\n", max_size=30),
    st.lists(st.integers(0, 60), max_size=8),
    st.booleans(),
)
def test_tags_may_be_cut_anywhere(text, cuts, tagged):
    text = f"<think>{text}</think>{text}" if tagged else text
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    parts = [text[start:end] for start, end in itertools.pairwise(places)]
    assert filter_parts(*parts) == filter_parts(text)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thinking_in_a_field_of_its_own_is_kept_apart(llm_server, field):
    body = (
        encode_delta(**{field: "생각 "})
        + encode_delta(**{field: "중", "content": None})
        + encode_chunk("네")
    )
    llm_server.script(Raw(body + encode_chunk("", "stop")))
    assert join_texts(await collect(llm_server)) == ("생각 중", "네")


async def test_thinking_in_both_fields_comes_once(llm_server):
    body = (
        encode_delta(reasoning_content="생각", reasoning="생각")
        + encode_chunk("네")
        + encode_chunk("", "stop")
    )
    llm_server.script(Raw(body))
    assert join_texts(await collect(llm_server)) == ("생각", "네")


async def test_thinking_between_tags_is_kept_apart(llm_server):
    llm_server.script(Stream(["<thi", "nk>생각", " 중</", "think>", "\n\n", "네, ", "<b>"]))
    assert join_texts(await collect(llm_server)) == ("생각 중", "네, <b>")


@pytest.mark.parametrize("pieces", [["<think>생각"], ["<think>생각</think>\n\n"]])
async def test_a_reply_that_is_all_thinking_twice_is_empty(llm_server, pieces):
    llm_server.default = Stream(pieces, finish_reason="length")
    shown = []
    with pytest.raises(errors.LLMEmptyAnswer) as caught:
        await collect(llm_server, into=shown)
    assert join_texts(shown) == ("생각생각", "")
    assert caught.value.params["reason"] == "length"
    assert len(llm_server.chats) == 2


async def test_endless_thinking_is_cut(llm_server):
    endless = (
        encode_delta(reasoning="생각" * 1000) * 50 + encode_chunk("네") + encode_chunk("", "stop")
    )
    llm_server.default = Raw(endless)
    shown = []
    with pytest.raises(errors.LLMEmptyAnswer):
        await collect(llm_server, into=shown, options=GenerationOptions(max_tokens=10))
    most = (THINKING_TOKENS + 2 * 10) * CHARACTERS_PER_TOKEN
    assert len(join_texts(shown)[0]) <= most + 2 * 2000


async def test_what_was_thought_aloud_is_not_begun_anew(llm_server):
    llm_server.script(BreakOff(["<think>생각"]), Stream(["네"]))
    with pytest.raises(errors.LLMInterrupted):
        await collect(llm_server)
    assert len(llm_server.chats) == 1


async def test_an_overflow_behind_thinking_is_no_reason_to_ask_again(llm_server):
    failure = b'data: {"error": {"message": "maximum context length is 10", "code": 400}}\n\n'
    llm_server.script(Raw(encode_delta(reasoning="생각") + failure))
    with pytest.raises(errors.LLMServerError):
        await collect(llm_server)


async def test_thinking_is_a_sign_of_life(llm_server):
    words = Stream(["<think>", "생", "각", "</think>", "네"], delay=0.5)
    llm_server.script(words)
    endpoint = Endpoint(llm_server.url, "stand-in", first_token_timeout=1.2)
    pieces = [piece async for piece in OpenAILLM(endpoint).stream(TURNS, GenerationOptions())]
    assert join_texts(pieces) == ("생각", "네")


async def test_the_light_model_says_what_it_means_without_its_thinking(llm_server):
    llm_server.script(
        Raw(
            encode_delta(reasoning_content="음")
            + encode_chunk("<think>흠</think>\n7")
            + encode_chunk("", "stop")
        )
    )
    assert await Light(make_model(llm_server)).ask_text("s", "u", max_tokens=10) == "7"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Let me think.\n</think>\n\n답입니다", "답입니다"),
        ("생각은 <think>와 </think> 사이에 둡니다", "생각은 <think>와 </think> 사이에 둡니다"),
    ],
)
async def test_thoughts_that_a_whole_reply_only_closes_are_no_part_of_it(llm_server, said, meant):
    llm_server.script(Stream([said]), Stream([said]))
    assert await Light(make_model(llm_server)).ask_text("s", "u", max_tokens=10) == meant
    choice = await make_model(llm_server).choose(TURNS, [Tool("search", "Search.")])
    assert choice.text == meant


async def test_the_words_beside_tool_calls_are_without_thinking(llm_server):
    llm_server.script(Stream(["<think>찾을까?</think>\n\n500만 원"]))
    choice = await make_model(llm_server).choose(TURNS, [Tool("search", "Search.")])
    assert choice.text == "500만 원"


async def test_a_whole_reply_that_only_thinks_twice_is_empty(llm_server):
    body = {"choices": [{"message": {"role": "assistant", "content": "<think>음"}}]}
    llm_server.default = Failure(200, body)
    with pytest.raises(errors.LLMEmptyAnswer):
        await make_model(llm_server).choose(TURNS, [Tool("search", "Search.")])

"""Bodies of replies as servers send them, good and bad, wherever the network cuts them."""

import itertools
import json
import random
import time

import pytest

from rag import errors
from rag.adapters import endpoint as endpoints
from rag.adapters import stream
from rag.adapters.endpoint import to_llm_error
from rag.adapters.openai import OpenAILLM
from rag.adapters.stream import ReplyReader
from rag.config import Endpoint
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Speaker
from tests.servers.llm import Failure, Raw, Stream, build_completion, encode_chunk

TURNS = (HistoryMessage(Speaker.USER, "안녕"),)
KEY = "sk-secret-123"
OK = "안녕하세요. 숙박비 상한은 1박 90,000원입니다 [1]."
LARGE = 10_000
JSON = {"Content-Type": "application/json"}
BODIES = [
    ("sse-ok", OK, None),
    ("sse-no-done", OK, None),
    ("sse-length", OK, None),
    ("sse-reasoning-and-tools", OK, None),
    ("sse-10000-one-byte-tokens", "가" * 3000, None),
    ("sse-empty-answer", "", errors.LLMEmptyAnswer),
    ("sse-cut-mid-stream", "안녕하세요. 숙박비 상한은 ", errors.LLMInterrupted),
    ("sse-error-object-mid-stream", "안녕", errors.LLMServerError),
    ("sse-malformed-json-chunk", "안녕하세요. 숙박비 ", errors.LLMInterrupted),
]
by_body = pytest.mark.parametrize(
    ("name", "expected", "error"), [pytest.param(*body, id=body[0]) for body in BODIES]
)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(endpoints, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(stream, "GRACE_SECONDS", 0.2)


@pytest.fixture
def body(shared_data):
    """Reads a body of the collection, or an error with its status and headers."""

    def read(name):
        return (shared_data / "bad-inputs" / "llm" / name).read_bytes()

    return read


def choose_cuts(body, seed):
    """Up to forty places in the body; seed 0: between all bytes."""
    chance = random.Random(seed)
    some = {chance.randrange(1, len(body)) for _ in range(40)}
    return sorted(some if seed else range(1, len(body)))


def cut(body, seed):
    """The body in parts."""
    ends = (0, *choose_cuts(body, seed), len(body))
    return [body[start:end] for start, end in itertools.pairwise(ends)]


def reading(parts):
    """What a reply of these parts shows, and the error in which it ends."""
    read = ReplyReader(Endpoint("http://stand-in", "m"), GenerationOptions(), time.monotonic() + 60)
    shown = []
    try:
        for part in parts:
            shown.extend(read.parse_part(part))
        shown.extend(read.close())
    except errors.LLMError as error:
        return join_text(shown), type(error)
    except ValueError as error:
        return join_text(shown), type(to_llm_error(error, started=True))
    return join_text(shown), None


def join_text(pieces):
    return "".join(piece.text for piece in pieces)


async def collect(server, *, into=None):
    model = OpenAILLM(Endpoint(server.url, "stand-in", api_key=KEY))
    pieces = [] if into is None else into
    async for piece in model.stream(TURNS, GenerationOptions()):
        pieces.append(piece)
    return pieces


@by_body
def test_each_body_reads_the_same_wherever_it_is_cut(body, name, expected, error):
    given = body(f"{name}.txt")
    for seed in range(60 if len(given) < LARGE else 10):
        seen = reading(cut(given, seed))
        assert seen == (expected, error), seed


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"])
@by_body
def test_each_body_reads_the_same_with_other_line_endings(body, name, expected, error, ending):
    given = body(f"{name}.txt").replace(b"\n", ending)
    for seed in range(5 if len(given) < LARGE else 2):
        assert reading(cut(given, seed)) == (expected, error)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@by_body
async def test_each_body_ends_as_it_should_over_a_connection(
    llm_server, body, name, expected, error, seed
):
    given = body(f"{name}.txt")
    if seed == 0 and len(given) > LARGE:
        pytest.skip("half a million packets")
    llm_server.script(Raw(given, cuts=() if seed is None else choose_cuts(given, seed)))
    pieces = []
    if error is None:
        await collect(llm_server, into=pieces)
    else:
        with pytest.raises(error):
            await collect(llm_server, into=pieces)
    assert join_text(pieces) == expected


@pytest.mark.parametrize(
    ("name", "error", "tries"),
    [
        ("http-400-context-openai", errors.ContextOverflow, 1),
        ("http-401", errors.LLMUnauthorized, 1),
        ("http-429-retry-after", errors.LLMRateLimited, 3),
        ("http-502-html", errors.LLMServerError, 3),
    ],
)
async def test_each_failure_of_the_collection_is_its_error(llm_server, body, name, error, tries):
    given = json.loads(body(f"{name}.json"))
    quick = {key: value.replace("2", "0") for key, value in given["headers"].items()}
    llm_server.default = Failure(given["status"], given["body"], quick)
    with pytest.raises(error) as caught:
        await collect(llm_server)
    assert len(llm_server.chats) == tries
    assert "html" not in str(caught.value)
    assert "sk-" not in str(caught.value)


def encode_value(value) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def make_choice(**fields) -> dict:
    return {"choices": [{"index": 0, **fields}]}


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None},
        {"choices": []},
        {"choices": {}},
        {"choices": [None]},
        {},
        make_choice(),
        make_choice(delta=None),
        make_choice(delta=[]),
        make_choice(delta={"content": None}),
        make_choice(delta={"content": 7}),
        make_choice(delta={"role": "assistant"}),
        {"choices": [], "usage": {"prompt_tokens": 1}},
        {"error": None, **make_choice(delta={})},
        {"prompt_filter_results": [{"content_filter_results": {}}], "choices": []},
    ],
    ids=lambda odd: json.dumps(odd)[:40],
)
async def test_chunks_without_words_are_passed_over(llm_server, odd):
    llm_server.script(
        Raw(encode_value(odd) + encode_chunk("네") + encode_value(odd) + encode_chunk("", "stop"))
    )
    assert join_text(await collect(llm_server)) == "네"


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3}, (7, 3)),
        ({"prompt_tokens": None, "completion_tokens": 3}, (0, 3)),
        ({"prompt_tokens": -1, "completion_tokens": 1e999}, (0, 0)),
        ({}, (0, 0)),
    ],
)
async def test_the_account_comes_in_a_chunk_without_choices(llm_server, usage, counted):
    account = {"choices": [], "usage": usage}
    llm_server.script(
        Raw(
            encode_chunk("네")
            + encode_chunk("", "stop")
            + encode_value(account)
            + b"data: [DONE]\n\n"
        )
    )
    last = (await collect(llm_server))[-1].usage
    assert (last.prompt_tokens, last.completion_tokens) == counted


@pytest.mark.parametrize("value", ["[]", '"text"', "7", "null", "{oops", "[" * 5000])
async def test_a_chunk_that_is_no_object_ends_the_reply(llm_server, value):
    llm_server.script(
        Raw(encode_chunk("안녕") + f"data: {value}\n\n".encode() + encode_chunk("네", "stop"))
    )
    pieces = []
    with pytest.raises(errors.LLMInterrupted):
        await collect(llm_server, into=pieces)
    assert join_text(pieces) == "안녕"


async def test_a_pair_that_was_cut_in_half_is_joined(llm_server):
    body = b"".join(
        f'data: {{"choices": [{{"delta": {{"content": "{half}"}}}}]}}\n\n'.encode()
        for half in ("가\\ud83d", "\\ude00나", "\\ud83d", "다\\u0000")
    )
    llm_server.script(Raw(body + encode_chunk("", "stop")))
    assert join_text(await collect(llm_server)) == "가😀나\ufffd다"


async def test_broken_letters_do_not_end_a_reply(llm_server):
    body = (
        encode_chunk("가").replace("가".encode(), b"a\xea\xb0")
        + encode_chunk("네")
        + encode_chunk("", "stop")
    )
    llm_server.script(Raw(body))
    assert join_text(await collect(llm_server)) == "a\ufffd네"


async def test_the_end_mark_is_an_end_without_a_reason(llm_server):
    llm_server.script(Raw(encode_chunk("네") + b"data: [DONE]\n\n" + encode_chunk("더")))
    pieces = await collect(llm_server)
    assert (join_text(pieces), pieces[-1].finish_reason) == ("네", "stop")


@pytest.mark.parametrize("part", [0, 1])
async def test_a_server_that_does_not_stream_is_understood(llm_server, part):
    body = json.dumps(
        build_completion("<think>음</think>네"), indent=1, ensure_ascii=False
    ).encode()
    llm_server.script(Raw(body, part=part, headers=JSON))
    pieces = await collect(llm_server)
    assert (join_text(pieces), pieces[0].reasoning) == ("네", "음")
    assert pieces[-1].usage.prompt_tokens == 11


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><h1>Welcome to nginx</h1></html>",
        b"data: <html>\n\n",
        b"{}",
        b'{"choices": []}',
        b'{"error": {"message": "boom"}}',
        b'{"error": "boom"}',
        b'data: {"error": {"message": "boom", "code": 500}}\n\n',
        b'event: error\ndata: {"message": "boom"}\n\n',
        b'error: {"code": 500, "message": "boom"}\n\n',
        b": ping\n\n",
    ],
)
async def test_a_good_status_without_a_reply_is_a_server_error(llm_server, body):
    llm_server.script(Raw(body), Stream(["둘째"]))
    assert join_text(await collect(llm_server)) == "둘째"
    llm_server.default = Raw(body)
    with pytest.raises(errors.LLMServerError) as caught:
        await collect(llm_server)
    assert "html" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "error"),
    [(401, errors.LLMUnauthorized), (404, errors.LLMRejected), (429, errors.LLMRateLimited)],
)
async def test_an_error_under_a_good_status_says_its_own(llm_server, code, error):
    body = encode_value({"error": {"message": f"no key {KEY}", "code": code}})
    llm_server.default = Raw(body)
    with pytest.raises(error) as caught:
        await collect(llm_server)
    assert KEY not in str(caught.value)


OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, you sent 9001 tokens.",
    "The decoder prompt (length 9001) is longer than the maximum model length of 8192.",
    "You passed 9001 input tokens. However, the model's context length is only 8192 tokens.",
    "request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "prompt too long; exceeded max context length by 809 tokens",
    "The input token count (9001) exceeds the maximum number of tokens allowed (8192).",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9001 `inputs` tokens",
    "Input is too long: prompt is too long for max_model_len",
]
IN_CODES = [
    {"message": "no", "code": "context_length_exceeded", "type": "invalid_request_error"},
    {"message": "no", "code": 400, "type": "exceed_context_size_error", "n_ctx": 4096},
]
by_overflow = pytest.mark.parametrize(
    "error", [*({"message": text, "code": 400} for text in OVERFLOWS), *IN_CODES]
)


@by_overflow
async def test_a_prompt_that_is_too_long_is_told_by_a_status(llm_server, error):
    llm_server.default = Failure(400, {"error": error})
    with pytest.raises(errors.ContextOverflow):
        await collect(llm_server)
    assert len(llm_server.chats) == 1


@by_overflow
async def test_a_prompt_that_is_too_long_is_told_within_a_stream(llm_server, error):
    llm_server.default = Raw(b": ok\n\n" + encode_value({"error": error}))
    with pytest.raises(errors.ContextOverflow):
        await collect(llm_server)
    assert len(llm_server.chats) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"object": "error", "message": OVERFLOWS[1], "type": "BadRequestError", "code": 400},
        {"error": OVERFLOWS[4]},
        {"detail": OVERFLOWS[0]},
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_a_prompt_that_is_too_long_is_told_in_any_shape(llm_server, status, body):
    llm_server.default = Failure(status, body)
    with pytest.raises(errors.ContextOverflow):
        await collect(llm_server)

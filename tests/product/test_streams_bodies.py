"""What language models send, good and bad, through the whole product, whole and cut anywhere."""

import json
import random

import pytest

from tests.product.client import Client
from tests.product.sockets import join_deltas
from tests.servers.llm import Failure, Raw, Stream, encode_chunk
from tests.support import wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(300)]

OK = "안녕하세요. 숙박비 상한은 1박 90,000원입니다 [1]."
QUESTION = "숙박비 상한은 얼마인가요?"
SEED = 54
CUTS = 12
"""How often a body is cut when it is cut at random."""

ENDS = {
    "sse-ok": ("COMPLETED", None, OK),
    "sse-no-done": ("COMPLETED", None, OK),
    "sse-length": ("COMPLETED", None, OK),
    "sse-reasoning-and-tools": ("COMPLETED", None, OK),
    "sse-empty-answer": ("FAILED", "llm_empty_answer", ""),
    "sse-cut-mid-stream": ("FAILED", "llm_interrupted", "안녕하세요. 숙박비 상한은"),
    "sse-error-object-mid-stream": ("FAILED", "llm_server_error", "안녕"),
    "sse-malformed-json-chunk": ("FAILED", "llm_interrupted", "안녕하세요. 숙박비"),
    "sse-10000-one-byte-tokens": ("COMPLETED", None, "가" * 3000),
}
"""Status, code of the error, and text without blanks at its end."""


@pytest.fixture
def body_of(shared_data):
    return lambda name: (shared_data / "bad-inputs" / "llm" / f"{name}.txt").read_bytes()


@pytest.fixture
def reply_of(shared_data):
    def load(name):
        raw = json.loads((shared_data / "bad-inputs" / "llm" / f"{name}.json").read_text("utf-8"))
        return Failure(raw["status"], raw["body"], raw["headers"])

    return load


@pytest.fixture(scope="module")
def rules(product, token):
    """A document that bears on the question."""
    client = Client(product.url, token)
    text = "출장 규정. 숙박비 상한은 1박 90,000원입니다. 교통비는 실비로 정산합니다."
    document = client.upload("출장 규정.txt", text.encode())

    def row():
        return client.call("GET", f"/documents/{document['id']}")[1]

    wait_until(lambda: row()["status"] == "COMPLETED", 120, step=0.2)
    return document["id"]


@pytest.fixture
def forgiven(client, model):
    """Leaves the model answering: an endpoint that failed for long is not asked for a while."""
    yield

    def answers():
        model.reset()
        turn = client.ask("안녕")
        listener = client.follow(turn)
        wait_until(lambda: listener.ended)
        return listener.events[-1]["type"] == "run.completed"

    wait_until(answers, 60, step=1.0)


def ask_to_the_end(client, *behaviours, model, content=QUESTION, **fields):
    """The answer as stored, when all that can be seen of it agrees."""
    model.script(*behaviours)
    turn = client.ask(content, **fields)
    live = client.follow(turn)
    wait_until(lambda: live.ended, 60)
    message = client.message(turn)
    replayed = client.follow(turn)
    wait_until(lambda: replayed.ended)
    assert join_deltas(live.events) == join_deltas(replayed.events) == message["content"]
    assert live.events == replayed.events
    assert live.events[-1]["data"]["message"]["content"] == message["content"]
    question = client.call("GET", f"/messages/{turn['user_message']['id']}")[1]
    assert question["content"] == content
    return message


def choose_cuts(body, kind):
    """Where to cut: nowhere, or at seeded places."""
    if kind == "whole":
        return ()
    return sorted(random.Random(f"{SEED} {kind}").sample(range(1, len(body)), CUTS))


@pytest.mark.parametrize("kind", ["whole", "cut", "cut again"])
@pytest.mark.parametrize("name", ENDS)
def test_d54_a_body_ends_as_it_should_however_the_network_cuts_it(
    client, model, body_of, rules, name, kind
):
    body = body_of(name)
    status, code, text = ENDS[name]
    behaviour = Raw(body, cuts=choose_cuts(body, kind))
    message = ask_to_the_end(client, behaviour, model=model, document_ids=[rules])
    assert (message["status"], (message["error"] or {}).get("code")) == (status, code)
    assert message["content"].rstrip() == text
    assert message["error"] is None or message["error"]["detail"]
    assert "upstream exploded" not in str(message)


def test_d54_an_answer_cut_by_the_models_limit_says_so(client, model, body_of):
    message = ask_to_the_end(client, Raw(body_of("sse-length")), model=model)
    assert [one["code"] for one in message["notices"]] == ["answer_cut"]


def test_d54_what_a_model_thinks_is_kept_apart_from_its_answer(client, model, body_of):
    message = ask_to_the_end(client, Raw(body_of("sse-reasoning-and-tools")), model=model)
    assert message["reasoning"] == "생각 중"


def test_d54_a_fast_model_is_passed_on_in_far_fewer_pieces(client, model, body_of):
    model.script(Raw(body_of("sse-10000-one-byte-tokens")))
    listener = client.follow(client.ask(QUESTION))
    wait_until(lambda: listener.ended)
    assert len(listener.events) < 600


def test_d54_characters_outside_the_basic_plane_come_whole_through_any_cut(client, model):
    text = "가족 👨‍👩‍👧‍👦 옛한글 ᄒᆞᆫ글 𠮷野家 é"
    body = encode_chunk(text) + encode_chunk("", finish_reason="stop") + b"data: [DONE]\n\n"
    message = ask_to_the_end(client, Raw(body, part=1), model=model)
    assert message["content"] == text


@pytest.mark.usefixtures("forgiven")
@pytest.mark.parametrize(
    ("name", "code", "tries"),
    [
        ("http-401", "llm_unauthorized", 1),
        ("http-502-html", "llm_server_error", 3),
        ("http-400-context-openai", "llm_context_overflow", 2),
    ],
)
def test_d54_a_refusal_before_the_first_word_is_told_in_our_own_words(
    client, model, reply_of, name, code, tries
):
    reply = reply_of(name)
    message = ask_to_the_end(client, *[reply] * tries, model=model)
    assert (message["status"], message["error"]["code"]) == ("FAILED", code)
    assert message["content"] == ""
    assert len(model.chats) == tries
    for foreign in ("sk-", "<h1>", "Bad Gateway", "maximum context"):
        assert foreign not in str(message)


def test_d52_a_busy_model_is_asked_again_after_the_pause_it_wants(client, model, reply_of):
    message = ask_to_the_end(
        client, reply_of("http-429-retry-after"), Stream(["다시"]), model=model
    )
    assert (message["status"], message["content"]) == ("COMPLETED", "다시")
    first, second = model.chats
    assert second.at - first.at >= 2


def test_d52_after_the_first_word_nothing_is_asked_again(client, model, body_of):
    ask_to_the_end(
        client, Raw(body_of("sse-error-object-mid-stream")), Stream(["zwei"]), model=model
    )
    assert len(model.chats) == 1


@pytest.mark.parametrize(
    "overflow",
    [
        "This model's maximum context length is 8192 tokens. However, you sent 9001 tokens.",
        "The decoder prompt (length 9001) is longer than the maximum model length of 8192.",
    ],
    ids=["openai", "vllm"],
)
def test_d55_an_overflow_is_trimmed_once_and_answered(client, model, overflow):
    model.default = Stream(["가나다라마바사아자차 " * 60])
    first = client.ask("첫 질문")
    wait_until(lambda: client.message(first)["status"] == "COMPLETED")
    model.calls.clear()
    message = ask_to_the_end(
        client,
        Failure(400, {"error": {"message": overflow}}),
        Stream(["됨"]),
        model=model,
        content="이어서 더 말해 줘",
        chat_id=first["chat_id"],
    )
    assert (message["status"], message["content"]) == ("COMPLETED", "됨")
    long, short = model.chats
    assert len(short.prompt) < len(long.prompt)

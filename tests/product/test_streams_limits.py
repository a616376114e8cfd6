"""Language models that hang, never end or fail at their edges, and searches that cannot be made.

A product of its own, with short limits and an embedding endpoint.
"""

import json

import psycopg
import pytest

from tests.product.client import Client
from tests.product.sockets import join_deltas
from tests.servers.llm import Failure, Hang, LLMServer, Stream, build_embeddings
from tests.support import Product, wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(300)]

TOKENS = 100
QUESTION = "숙박비 상한은 얼마인가요?"
CITED = Stream(["숙박비 상한은 1박 90,000원입니다. [1]"])
GREETING = "오늘 기분이 어때?"
LIMITS = {
    "NURA_LLM_TIMEOUT": "10",  # far from the next: the first word may be late on a busy machine
    "NURA_LLM_IDLE_TIMEOUT": "3",
    "NURA_LLM_TOTAL_TIMEOUT": "14",
    "NURA_LLM_MAX_TOKENS": str(TOKENS),
    "NURA_EMBEDDING_MODEL": "stand-in",
    "NURA_EMBEDDING_LANGUAGES": "ko,en",
    "NURA_SHUTDOWN_SECONDS": "1",
}


@pytest.fixture(scope="module")
def far():
    """The server of both models."""
    with LLMServer() as server:
        yield server


@pytest.fixture(scope="module")
def strict(far, tmp_path_factory):
    folder = tmp_path_factory.mktemp("strict") / "var"
    where = {
        "NURA_LLM_BASE_URL": far.url,
        "NURA_LLM_MODEL": "stand-in",
        "NURA_EMBEDDING_BASE_URL": far.url,
    }
    with Product(folder, **where, **LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def asker(strict):
    return Client(strict.url, strict.add_user("asker"))


@pytest.fixture(scope="module")
def rules(asker):
    """A document that bears on the question."""
    text = "출장 규정. 숙박비 상한은 1박 90,000원입니다. 교통비는 실비로 정산합니다."
    document = asker.upload("출장 규정.txt", text.encode())
    wait_until(lambda: get_document_status(asker, document) == "COMPLETED", 60)
    return document["id"]


def get_document_status(asker, document):
    return asker.call("GET", f"/documents/{document['id']}")[1]["status"]


@pytest.fixture(autouse=True)
def _answering(far, asker):
    """Before each test the model answers: one that failed for long is left alone for a while."""
    far.reset()
    wait_until(lambda: ask_to_the_end(asker, GREETING)["status"] == "COMPLETED", 60, step=0.5)
    far.reset()


def ask_to_the_end(asker, content, **fields):
    """The answer as stored at its end; all who follow read just that."""
    turn = asker.ask(content, **fields)
    listener = asker.follow(turn)
    wait_until(lambda: listener.ended, 40)
    message = asker.message(turn)
    assert join_deltas(listener.events) == message["content"]
    return message


LATE = {
    "before the first word": (Hang(), ""),
    "in the middle": (Hang(after=["여기까지 ", "말했습니다."]), "여기까지 말했습니다."),
    "in all": (Stream(["끝없이 "] * 60, delay=0.5), "끝없이 끝없이"),  # within the limit of tokens
}


def test_d53_each_limit_of_time_ends_the_answer_with_its_own_sentence(asker, far):
    details = {}
    for limit, (behaviour, text) in LATE.items():
        far.reset()
        far.default = behaviour
        message = ask_to_the_end(asker, GREETING)
        assert (message["status"], message["error"]["code"]) == ("FAILED", "llm_timeout"), limit
        assert message["content"].startswith(text)
        assert bool(message["content"]) == bool(text)
        assert len(far.chats) == 1
        assert far.chats[0].wait_closed_by_client()
        details[limit] = message["error"]["detail"]
    assert len(set(details.values())) == len(LATE), details


def test_d58_an_endless_answer_ends_at_the_limit_of_tokens_with_its_text(asker, far):
    piece = "가나다라마바사아자차"
    far.default = Stream([piece] * 100_000)
    message = ask_to_the_end(asker, GREETING)
    assert message["status"] == "COMPLETED"
    assert [one["code"] for one in message["notices"]] == ["answer_cut"]
    assert len(piece) * TOKENS <= len(message["content"]) <= len(piece) * (TOKENS + 2)
    assert set(message["content"]) == set(piece)
    assert far.chats[0].ended.wait(5)


def make_bad_vectors(width, number=0.5, count=None):
    """A reply with vectors that are not as they should be."""
    body = build_embeddings("x", width)
    body["data"][0]["embedding"] = [number] * width
    body["data"] = body["data"] if count is None else body["data"] * count
    return Failure(200, json.dumps(body))


@pytest.mark.parametrize(
    "reply",
    [
        Failure(500, {"error": {"message": "boom"}}),
        make_bad_vectors(3),
        make_bad_vectors(8, float("nan")),
        make_bad_vectors(8, 0.0),
        make_bad_vectors(8, count=0),
    ],
    ids=["down", "wrong width", "NaN", "zero", "none at all"],
)
def test_d56_an_embedder_that_fails_leaves_search_by_words_and_a_notice(asker, far, rules, reply):
    far.default = CITED
    far.script_embeddings(*[reply] * 5)
    message = ask_to_the_end(asker, QUESTION, document_ids=[rules])
    assert (message["status"], message["mode"]) == ("COMPLETED", "documents")
    assert [source["document_id"] for source in message["sources"]] == [rules]
    assert [one["code"] for one in message["notices"]] == ["embedder_failed"]
    assert "90,000" in far.chats[-1].prompt


def test_d56_a_document_whose_embedder_answers_nonsense_fails_with_a_reason(asker, far, rules):
    far.script_embeddings(*[make_bad_vectors(3)] * 20)
    document = asker.upload("다른 규정.txt", "식비는 하루 30,000원입니다.".encode())
    wait_until(lambda: get_document_status(asker, document) != "PROCESSING", 60)
    row = asker.call("GET", f"/documents/{document['id']}")[1]
    assert row["status"] == "FAILED"
    assert row["error"]["detail"]
    assert row["chunk_count"] == 0


def test_d57_a_search_that_raises_in_postgres_leaves_general_conversation(
    asker, far, strict, rules
):
    with psycopg.connect(**strict.database, autocommit=True) as database:
        database.execute("ALTER TABLE documents_chunk RENAME COLUMN text TO hidden")
        try:
            message = ask_to_the_end(asker, QUESTION, document_ids=[rules])
        finally:
            database.execute("ALTER TABLE documents_chunk RENAME COLUMN hidden TO text")
    assert (message["status"], message["mode"]) == ("COMPLETED", "general")
    assert message["sources"] is None
    assert [one["code"] for one in message["notices"]] == ["retrieval_failed"]
    far.default = CITED
    again = ask_to_the_end(asker, QUESTION, document_ids=[rules])
    assert (again["status"], again["mode"]) == ("COMPLETED", "documents")


def test_e71_an_answer_that_needs_longer_than_a_leaving_worker_has_is_interrupted(
    asker, far, strict
):
    far.default = Stream(["하나 "] * 180, delay=0.06)
    turn = asker.ask(GREETING)
    listener = asker.follow(turn)
    wait_until(lambda: len(listener.text) > 10)
    strict.find_process("answers").terminate()
    wait_until(lambda: listener.ended, 30)
    message = asker.message(turn)
    assert message["status"] == "INTERRUPTED"
    assert message["content"] == join_deltas(listener.events)
    assert len(far.chats) == 1

"""Two whole nodes, each with its own data folder, on one Postgres, one Redis and shared files."""

from urllib.parse import quote

import pytest

from tests.product.client import Client
from tests.product.test_streams_faults import WHOLE, WORDS
from tests.servers.llm import LLMServer, Stream
from tests.support import Product, wait_until

pytestmark = [
    pytest.mark.product,
    pytest.mark.timeout(300),
]
RULES = "# 여비 규정\n\n숙박비는 하루 8만 원까지 실비로 지급한다.\n"
QUESTIONS_A_NODE = 10


@pytest.fixture(scope="module")
def writer():
    """A stand-in for the language model of both."""
    with LLMServer() as server:
        yield server


@pytest.fixture(scope="module")
def nodes(writer, tmp_path_factory):
    """Both nodes; the first brings the servers."""
    folder = tmp_path_factory.mktemp("nodes")
    settings = {
        "SECRET_KEY": "the same on both nodes, and long enough to be one",
        "NURA_LLM_BASE_URL": writer.url,
        "NURA_LLM_MODEL": "stand-in",
        "NURA_LLM_MAX_TOKENS": "20000",
    }
    with Product(folder / "first", **settings) as first:
        where = first.database
        shared = {
            "DATABASE_URL": f"postgresql://{where['user']}:{where['password']}@/{where['dbname']}"
            f"?host={quote(where['host'], safe='')}",
            "REDIS_URL": first.redis_url,
        }
        (folder / "second").mkdir(mode=0o700)
        (folder / "second" / "files").symlink_to(first.data_dir / "files")
        with Product(folder / "second", prepared=False, **settings, **shared) as second:
            yield first, second


@pytest.fixture(scope="module")
def key(nodes):
    """Of somebody who is known on both."""
    return nodes[0].add_user("traveller")


def test_what_is_uploaded_at_one_node_is_asked_about_and_opened_at_the_other(nodes, key, writer):
    here, there = (Client(node.url, key) for node in nodes)
    writer.default = Stream(["하루 8만 원까지입니다. [1]"])
    document = here.upload("여비.md", RULES.encode())
    place = f"/documents/{document['id']}"
    wait_until(lambda: there.call("GET", place)[1]["status"] == "COMPLETED", 60)
    turn = there.ask("숙박비는 하루 얼마까지야?")
    wait_until(lambda: here.message(turn)["status"] == "COMPLETED", 60)
    (source,) = here.message(turn)["sources"]
    assert source["document_id"] == document["id"]
    assert there.call("GET", f"{place}/chunks")[1]["results"][0]["text"].endswith("지급한다.")


def test_a_node_that_dies_under_its_streams_loses_nothing_that_was_said(nodes, key, writer):
    writer.default = Stream(WORDS, delay=0.03)
    first, second = nodes
    here, there = Client(first.url, key), Client(second.url, key)
    turns = [here.ask("길게 이야기해 줘") for _ in range(QUESTIONS_A_NODE)]
    resting = first.process_of("answers")
    resting.suspend()  # so that the second takes what it is asked, whoever is faster
    try:
        turns += [there.ask("길게 이야기해 줘") for _ in range(QUESTIONS_A_NODE)]
        listeners = [here.follow(turn) for turn in turns]
        wait_until(lambda: len(listeners[-1].text) > 100, 60)
    finally:
        resting.resume()
    wait_until(lambda: all(len(one.text) > 100 for one in listeners), 60)
    for process in second.processes():
        process.kill()
    wait_until(lambda: all(one.ended for one in listeners), 120)
    ends = set()
    for turn, listener in zip(turns, listeners, strict=True):
        message = here.message(turn)
        ends.add(message["status"])
        # what a dead worker had begun to say is not said anew, and what was stored was said
        assert WHOLE.startswith(listener.text)
        assert listener.text.startswith(message["content"])
        assert message["status"] == "INTERRUPTED" or message["content"] == WHOLE
        assert len(message["content"]) > 100
        told = here.call("GET", f"/chats/{turn['chat_id']}/messages")[1]["results"]
        assert [one["role"] for one in told] == ["user", "assistant"]
    assert ends == {"COMPLETED", "INTERRUPTED"}
    second.start()
    assert [there.message(turn) for turn in turns] == [here.message(turn) for turn in turns]

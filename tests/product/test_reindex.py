"""The embedding model of a running product is changed and changed back, without a restart."""

import signal
import subprocess
import time

import pytest

from tests.documents.changing import TOPICS, write_text
from tests.product.client import Client
from tests.servers.embeddings import EmbeddingServer
from tests.support import Product, wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(400)]


@pytest.fixture
def models():
    server = EmbeddingServer()
    yield server
    server.close()


@pytest.fixture
def running(models, tmp_path):
    environment = {
        "NURA_EMBEDDING_BASE_URL": models.url,
        "NURA_EMBEDDING_MODEL": "words-64",
        "NURA_EMBEDDING_LANGUAGES": "*",
    }
    with Product(tmp_path / "var", **environment) as product:
        yield product, Client(product.url, product.add_user("asker"))


def add(client, name, topics):
    document = client.upload(name, write_text(topics).encode())
    wait_until(
        lambda: client.call("GET", f"/documents/{document['id']}")[1]["status"] == "COMPLETED", 60
    )


def list_searching_models(models, client, question):
    """The models that embedded this question when it was searched for."""
    status, answer = client.call("POST", "/search", {"query": question, "strategy": "similarity"})
    assert status == 200, answer
    assert answer["hits"]
    return {model for model, texts in models.embedded.items() if question in texts}


def test_running_workers_follow_a_swap_a_kill_and_a_swap_back(running, models):
    product, client = running
    for number in range(4):
        add(client, f"규정 {number}.md", TOPICS[number : number + 3])
    assert list_searching_models(models, client, "연차 휴가는 누가 정하나요?") == {"words-64"}
    words = ("reindex", "--model", "words-128", "--base-url", models.url, "--languages", "*")

    models.hold_after(1)
    killed = subprocess.Popen(
        product._manage(*words), env=product.environment(), stdout=subprocess.DEVNULL
    )
    assert models.held.wait(60)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    models.release()
    assert list_searching_models(models, client, "출장 여비는 누가 정하나요?") == {"words-64"}

    told = product.call(*words).stdout
    assert "words-128 (128) is in use" in told
    assert list_searching_models(models, client, "건강 검진은 누가 정하나요?") == {"words-128"}
    add(client, "나중.md", TOPICS[6:7])
    assert "manage.py reindex" in product.call("doctor", check=False).stdout

    begun = time.monotonic()
    told = product.call("reindex", "--rollback").stdout
    assert "words-64 (64) is in use again" in told
    assert time.monotonic() - begun < 30  # nearly all of it is the start of the command
    assert list_searching_models(models, client, "재택 근무는 누가 정하나요?") == {"words-64"}
    wait_until(lambda: "명절" in " ".join(models.embedded["words-64"]), 60)

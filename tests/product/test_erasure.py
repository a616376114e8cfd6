"""What is erased is in no table, no file, no Redis key and no export."""

import json
import urllib.request

import pytest

from tests.product.client import Client
from tests.product.traces import find_text
from tests.support import Product, wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(600)]

PLANTED = "은빛 열쇠는 서고 셋째 칸에 숨겨 두었다"
TEXT = f"# 서고 규정\n\n제1조 서고의 열쇠에 대하여 정한다.\n\n제2조 {PLANTED}.\n"
QUESTION = "은빛 열쇠는 어디에 있나요?"


@pytest.fixture(scope="module")
def product(tmp_path_factory, small_models):
    settings = {"NURA_RETENTION_DELETED_DAYS": "0", **small_models}
    with Product(tmp_path_factory.mktemp("erasing") / "var", **settings) as product:
        yield product


def ask_and_wait(client, question, **fields):
    turn = client.ask(question, **fields)
    wait_until(lambda: client.message(turn)["status"] == "COMPLETED", 60, step=0.1)
    return turn


def fill(client):
    """A document, an answer from it, and others that quote it; the document and the chat."""
    document = client.upload("서고 규정.md", TEXT.encode())
    wait_until(
        lambda: client.call("GET", f"/documents/{document['id']}")[1]["status"] == "COMPLETED",
        120,
        step=0.2,
    )
    turn = ask_and_wait(client, QUESTION)
    chat_id = turn["chat_id"]
    ask_and_wait(client, "열쇠에 대해 더 알려 주세요", chat_id=chat_id)
    ask_and_wait(client, "아까 은빛 열쇠가 어디에 있다고 했죠?", chat_id=chat_id)
    client.call("POST", "/search", {"query": QUESTION})
    return document["id"], turn


def export(client, chat_id, kind):
    request = urllib.request.Request(f"{client.url}/api/v1/chats/{chat_id}/export?format={kind}")
    request.add_header("Authorization", f"Token {client.token}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def test_an_erased_document_is_nowhere_and_its_citation_says_so(product):
    client = Client(product.url, product.add_user("eraser"))
    document_id, turn = fill(client)
    chat_id = turn["chat_id"]
    assert PLANTED in export(client, chat_id, "json")
    assert find_text(product, PLANTED)
    assert client.call("DELETE", f"/documents/{document_id}?erase=true")[0] == 204
    wait_until(lambda: not find_text(product, PLANTED), 90, step=4)
    message = client.message(turn)
    source = message["sources"][0]
    assert (source["deleted"], source["content_preview"], source["spans"]) == (True, "", [])
    assert source["document_name"] == "서고 규정.md"
    assert "[1]" in message["content"]
    assert "삭제됨" in export(client, chat_id, "md")
    told = json.loads(export(client, chat_id, "json"))
    assert told["turns"][0]["doc_refs"][0]["deleted"] is True
    assert "Nothing is wrong" in product.call("verify").stdout


def test_a_deleted_document_keeps_its_passages_as_long_as_it_may(product):
    client = Client(product.url, product.add_user("keeper"))
    document_id, turn = fill(client)
    assert client.call("DELETE", f"/documents/{document_id}")[0] == 204
    source = client.message(turn)["sources"][0]
    assert source["deleted"] is True
    assert source["content_preview"]
    sources = client.call("GET", f"/messages/{turn['assistant_message']['id']}/sources")[1]
    assert PLANTED in sources[0]["text"]


def test_a_deleted_chat_is_nowhere(product):
    client = Client(product.url, product.add_user("chatter"))
    words = "파란 코끼리가 달빛 아래에서 춤춘다"
    turn = ask_and_wait(client, f"{words}. 왜일까요?")
    assert find_text(product, words)
    assert client.call("DELETE", f"/chats/{turn['chat_id']}")[0] == 204
    wait_until(lambda: not find_text(product, words), 90, step=4)


def test_a_deleted_account_is_nowhere(product):
    name = "mayfly-7431"
    client = Client(product.url, product.add_user(name))
    _document, turn = fill(client)
    assert find_text(product, name)
    script = (
        "from django.contrib.auth.models import User; import json;"
        "from nura.accounts.deletion import delete_account, is_genuine;"
        f"receipt = delete_account(user=User.objects.get(username='{name}'));"
        "print('receipt', json.dumps(receipt), is_genuine(receipt))"
    )
    said = product.call("shell", "-v0", "-c", script).stdout.rpartition("receipt ")[2].strip()
    receipt, genuine = said.rsplit(" ", 1)
    assert genuine == "True"
    assert json.loads(receipt)["deleted"]["chats"] == 1
    # what the account did stays in the audit log, until that is trimmed
    assert find_text(product, name) == ["table documents_auditevent"]
    assert find_text(product, turn["chat_id"]) == []
    assert client.call("GET", "/me")[0] == 401


def test_purge_tells_what_it_does_and_has_nothing_to_do_the_second_time(product):
    product.call("purge")
    assert set(json.loads(product.call("purge", "--dry-run", "--json").stdout).values()) == {0}

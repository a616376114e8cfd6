"""A chat as a file."""

import json
from urllib.parse import unquote

import pytest

from chats.models import Chat
from tests.chats.conftest import client, make_document
from tests.chats.turns import add_answer, add_turn

pytestmark = pytest.mark.django_db(transaction=True)


def export(api, chat_id, kind="md"):
    return api.get(f"/api/v1/chats/{chat_id}/export?format={kind}")


@pytest.fixture
def chat(owner):
    first = add_turn(
        owner, "휴가는\n며칠?", make_document(owner, name="휴가 규정.md"), content="15일 [1]"
    )
    left = add_turn(owner, "고마워", parent=first, content="옛 답")
    add_answer(left, content="새 답")
    Chat.objects.update(title="휴가 / 2026")
    return Chat.objects.get()


def test_a_chat_can_be_read_as_markdown(api, chat):
    answer = export(api, chat.pk)
    text = answer.content.decode()
    assert answer["Content-Type"].startswith("text/markdown")
    assert text.startswith("# 휴가 / 2026\n\n## 1 · ")
    assert "> 휴가는\n> 며칠?\n\n15일 [1]\n" in text
    assert "- [1] 휴가 규정 (휴가 규정.md)" in text
    assert "새 답" in text
    assert "옛 답" not in text


def test_a_chat_can_be_processed_as_json(api, chat):
    told = json.loads(export(api, chat.pk, "json").content)
    assert told["chat"]["id"] == str(chat.pk)
    assert [turn["assistant_text"] for turn in told["turns"]] == ["15일 [1]", "새 답"]
    assert told["turns"][0]["doc_refs"][0]["title"] == "휴가 규정"


def test_the_file_is_named_by_the_chat(api, chat):
    disposition = unquote(export(api, chat.pk)["Content-Disposition"])
    assert disposition.startswith("attachment")
    assert disposition.endswith("휴가__2026.md")


def test_without_a_wish_it_is_markdown(api, chat):
    answer = api.get(f"/api/v1/chats/{chat.pk}/export")
    assert (answer.status_code, answer.content[:1]) == (200, b"#")


def test_other_formats_do_not_exist(api, chat):
    answer = export(api, chat.pk, "exe")
    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("application/problem+json")


def test_a_stranger_gets_no_file(chat, stranger):
    assert export(client(stranger), chat.pk).status_code == 404


def test_an_empty_chat_is_its_title(api, owner):
    chat = Chat.objects.create(owner=owner, title="비어 있음")
    assert export(api, chat.pk).content.decode() == "# 비어 있음\n"

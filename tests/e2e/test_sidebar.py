"""The list of chats: renamed, deleted with a way back, searched."""

from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.support import wait_until

QUESTION = "자작나무 숲은 어디에 있나요?"


@pytest.fixture
def chat(page, reader):
    """A chat, open in the page."""
    made = reader.api("messages", {"content": QUESTION})["chat_id"]
    page.goto(f"/c/{made}")
    return made


def row(page, chat):
    return page.locator(f'.side-chat[data-chat-id="{chat}"]')


def choose(page, chat, action):
    row(page, chat).hover()
    row(page, chat).locator("[data-chat-menu]").click()
    page.locator(f"#chat-menu [data-action={action}]").click()


def test_a_chat_is_renamed_in_place(page, reader, chat):
    choose(page, chat, "rename")
    field = page.locator(".side-rename")
    field.fill("자작나무 이야기")
    field.press("Enter")
    expect(row(page, chat)).to_contain_text("자작나무 이야기")
    expect(page.locator("#chat-title")).to_have_text("자작나무 이야기")
    wait_until(lambda: reader.api(f"chats/{chat}")["title"] == "자작나무 이야기")
    page.reload()
    expect(row(page, chat)).to_contain_text("자작나무 이야기")


def test_escape_leaves_the_old_name(page, reader, chat):
    choose(page, chat, "rename")
    page.locator(".side-rename").fill("doch nicht")
    page.locator(".side-rename").press("Escape")
    expect(row(page, chat)).to_contain_text(QUESTION)
    assert reader.api(f"chats/{chat}")["title"] == QUESTION


def test_a_deleted_chat_can_be_brought_back(page, reader, chat):
    choose(page, chat, "delete")
    expect(row(page, chat)).to_be_hidden()
    page.locator(".toast-action").click()
    expect(row(page, chat)).to_be_visible()
    page.reload()
    expect(row(page, chat)).to_be_visible()
    assert reader.api(f"chats/{chat}")["id"] == chat


def test_a_deleted_chat_is_gone_when_the_page_is_left(page, reader, chat):
    choose(page, chat, "delete")
    expect(row(page, chat)).to_be_hidden()
    page.goto("/")
    expect(row(page, chat)).to_be_hidden()
    query = urlencode({"q": QUESTION, "page_size": 100})
    wait_until(lambda: chat not in [c["id"] for c in reader.api(f"chats?{query}")["results"]])
    page.reload()
    expect(row(page, chat)).to_have_count(0)


def test_a_search_finds_chats_by_what_was_said_in_them(page, reader, chat):
    other = reader.api("messages", {"content": "전혀 다른 질문"})["chat_id"]
    reader.api(f"chats/{chat}", {"title": "제목에는 없음"}, "PATCH")
    page.reload()
    page.keyboard.press("Control+k")
    expect(page.locator("#chat-search")).to_be_focused()
    page.keyboard.type("자작나무 숲")
    expect(row(page, other)).to_have_count(0)
    expect(row(page, chat)).to_contain_text("자작나무 숲")
    page.locator("#chat-search").fill("아무 데도 없는 말")
    expect(page.locator(".side-chat")).to_have_count(0)
    expect(page.locator(".side-empty")).to_be_visible()
    page.locator("#chat-search").fill("")
    expect(row(page, other)).to_be_visible()


def test_a_chat_begun_elsewhere_appears_by_itself(page, reader, chat):
    other = reader.api("messages", {"content": "다른 기기에서 시작한 대화"})["chat_id"]
    expect(row(page, other)).to_be_visible()


def test_a_new_chat_begins_on_an_empty_page(page, chat):
    page.locator(".side-new").click()
    page.wait_for_url("**/")
    expect(page.locator(".msg")).to_have_count(0)
    expect(page.locator("#composer-input")).to_be_focused()

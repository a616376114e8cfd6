"""Ctrl+K: one search over chats, messages, documents and their texts, and the way to the place."""

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import MANUAL, SAMPLES
from tests.e2e.people import Person
from tests.support import wait_until

MARKED = "[...CSS.highlights.get('found') ?? []].map(String)"


@pytest.fixture
def chat(reader):
    return reader.api("messages", {"content": "두루미가 겨울을 나는 곳은 어디인가요?"})["chat_id"]


def look_for(page, words):
    page.keyboard.press("Control+k")
    expect(page.locator("#palette-input")).to_be_focused()
    page.keyboard.type(words)


def group(page, name):
    return page.locator(f'#palette-list [role=group][aria-label="{name}"] [role=option]')


def test_a_message_is_found_and_the_chat_opens_at_it_with_the_words_marked(page, chat):
    look_for(page, "두루미가 겨울")
    found = group(page, "메시지").first
    expect(found.locator("mark").first).to_have_text("두루미가")
    found.click()
    page.wait_for_url(f"**/c/{chat}?message=*")
    expect(page.locator(".msg-question").first).to_be_in_viewport()
    wait_until(lambda: page.evaluate(f"{MARKED}.includes('두루미가')"))


def test_a_document_is_found_by_its_text_and_opens_at_the_place(page, reader):
    look_for(page, "헤파 필터")
    found = group(page, "문서 내용").first
    expect(found).to_contain_text("환기청정기")
    found.click()
    page.wait_for_url("**/documents/*?chunk=*")
    expect(page.locator("mark.found").first).to_be_in_viewport()


def test_a_document_is_found_by_its_name_with_keys_alone(windows, product):
    """Of somebody without chats, in which its name might stand too."""
    person = Person(product, "finder")
    person.upload(SAMPLES / "ventilator-manual.md", MANUAL)
    person.wait_for_documents()
    page = windows(person)
    page.goto("/")
    look_for(page, "설명서")
    option = group(page, "문서").first
    expect(option).to_be_visible()
    chosen = page.locator("#palette-list [aria-selected=true]")
    for _ in range(8):
        if chosen.get_attribute("id") == option.get_attribute("id"):
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/documents/*")


def test_without_words_the_last_chats_are_offered(page, chat):
    page.locator("[data-open-palette]").click()
    expect(group(page, "최근 대화").first).to_contain_text("두루미")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()


def test_what_is_nowhere_is_said_to_be_nowhere(page):
    look_for(page, "아무데도없는말씀")
    expect(page.locator(".palette-none")).to_be_visible()


def test_on_a_phone_the_search_fills_the_screen(windows, reader, chat):
    page = windows(reader, viewport={"width": 375, "height": 740}, has_touch=True, is_mobile=True)
    page.goto("/")
    page.locator(".main [data-side-toggle]").tap()
    page.locator("[data-open-palette]").tap()
    page.locator("#palette-input").fill("두루미")
    expect(group(page, "메시지").first).to_be_visible()
    assert page.locator("#palette").bounding_box()["width"] >= 375
    group(page, "메시지").first.tap()
    page.wait_for_url(f"**/c/{chat}?message=*")

"""A chat as a file, from its menu in the list."""

import json

import pypdfium2
import pytest
from playwright.sync_api import expect

from tests.e2e.chat import DONE_WITHIN, answer, ask, get_chat_id
from tests.e2e.people import Person


@pytest.fixture
def page(windows, reader):
    """A window with a chat of one question."""
    window = windows(reader)
    window.goto("/")
    ask(window, "필터는 언제 교체하나요?")
    answer(window)
    return window


def export_chat(page, kind):
    """The file that the menu of the chat gives."""
    row = page.locator(f'.side-chat[data-chat-id="{get_chat_id(page)}"]')
    row.hover()
    row.locator("[data-chat-menu]").click()
    with page.expect_download() as coming:
        page.locator(f"#chat-menu [data-format={kind}]").click()
    return coming.value


def test_a_chat_is_saved_as_pdf(page):
    file = export_chat(page, "pdf")
    assert file.suggested_filename.endswith(".pdf")
    document = pypdfium2.PdfDocument(file.path())
    text = document[0].get_textpage().get_text_range()
    assert "필터는 언제 교체하나요?" in text
    assert "6개월" in text
    assert "출처" in text
    expect(page.locator(".toast")).to_have_count(0)


def test_a_chat_is_saved_as_markdown(page):
    file = export_chat(page, "md")
    assert "> 필터는 언제 교체하나요?" in file.path().read_text(encoding="utf-8")


def test_a_file_that_does_not_come_is_told(page):
    row = page.locator(f'.side-chat[data-chat-id="{get_chat_id(page)}"]')
    row.hover()
    row.locator("[data-chat-menu]").click()
    page.context.set_offline(True)
    page.locator("#chat-menu [data-format=pdf]").click()
    expect(page.locator(".toast-error")).to_contain_text("연결할 수 없습니다")
    page.context.set_offline(False)


def test_a_printed_chat_is_whole_and_dark_on_white(page):
    page.set_viewport_size({"width": 900, "height": 320})
    page.emulate_media(media="print", color_scheme="dark")
    heights = "(names) => names.map((name) => document.querySelector(name).scrollHeight)"
    thread, whole = page.evaluate(heights, ["#thread", "html"])
    assert thread > 320  # more than a screen shows
    assert whole >= thread
    expect(page.locator(".dock")).to_be_hidden()
    expect(page.locator("#sidebar")).to_be_hidden()
    expect(page.locator(".msg-answer .source-name").first).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(29, 33, 38)"


def test_a_chat_of_another_product_opens_where_it_was_left_and_offers_no_steps(windows, product):
    def node(key, parent, role, text):
        message = {
            "author": {"role": role},
            "content": {"content_type": "text", "parts": [text]},
            "create_time": 1_700_000_000 + len(key),
        }
        return {"parent": parent, "message": message}

    mapping = {
        "q": node("q", None, "user", "연차는 며칠인가요?"),
        "a": node("a", "q", "assistant", "연차는 15일입니다."),
        "later": node("later", "q", "assistant", "잘 모르겠습니다."),
    }
    told = {"id": "e2e", "title": "가져온 휴가", "mapping": mapping, "current_node": "a"}
    page = windows(Person(product, "mover"))
    page.goto("/settings/data")
    data = json.dumps([told]).encode()
    name = "conversations.json"
    page.set_input_files(
        "#import-file", {"name": name, "mimeType": "application/json", "buffer": data}
    )
    page.locator("[data-import] button").click()
    row = page.locator(".settings-row", has_text=name)
    expect(row).to_contain_text("대화 1개", timeout=DONE_WITHIN)
    page.goto("/")
    page.locator(".side-chat a", has_text="가져온 휴가").click()
    imported = answer(page)
    expect(imported).to_contain_text("연차는 15일입니다.")
    expect(imported.locator("[data-action=copy]")).to_be_visible()
    expect(imported.locator(".msg-why")).to_have_count(0)

"""The shell stands still whatever is scrolled within it: only the thread and the panel move."""

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import load_script
from tests.e2e.test_looks import PHONE

QUESTIONS = (
    "통합돌봄 정보시스템 사업 예산은 얼마인가요?",
    "제안서 마감은 언제인가요?",
    "사업 기간은 얼마나 되나요?",
    "입찰 참가 자격은 무엇인가요?",
    "제안서는 어디에 제출하나요?",
)
SIZES = {"wide": {"width": 1280, "height": 800}, "phone": PHONE}
TO_SIGHT = """(one) => {
  document.querySelector("#scroller").scrollTop += one.getBoundingClientRect().top - 200;
}"""
LENGTH = "[document.documentElement.scrollHeight, innerHeight]"


@pytest.fixture(scope="module")
def long_chat(reader):
    """The id of a chat of five turns whose answers cite a PDF."""
    (pdf,) = reader.api(f"documents?q={quote('제안요청서')}")["results"]
    found = None
    for question in QUESTIONS:
        body = {"chat_id": found, "content": question, "document_ids": [pdf["id"]]}
        found = reader.api("messages", body)["chat_id"]
    return found


def click(page, marker):
    """Press a marker with the mouse; its passage is then in sight."""
    marker.evaluate(TO_SIGHT)
    box = marker.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#panel .pdf-mark-here")).to_be_in_viewport()


@pytest.mark.parametrize("size", SIZES)
def test_a_citation_moves_the_panel_alone(windows, reader, long_chat, size, whole):
    page = windows(reader, viewport=SIZES[size], color_scheme="light")
    page.goto(f"/c/{long_chat}")
    expect(page.locator(".msg-answer")).to_have_count(len(QUESTIONS))
    markers = page.locator(".msg-answer .cite")
    assert markers.count() >= len(QUESTIONS)
    for number in range(0, markers.count(), 1 if whole else 6):
        click(page, markers.nth(number))
        assert page.evaluate(load_script("moved")) == []
        if size == "phone":
            page.locator("#panel-close").click()


@pytest.mark.parametrize("size", SIZES)
def test_no_page_is_longer_than_the_window(windows, reader, long_chat, size):
    page = windows(reader, viewport=SIZES[size])
    document = reader.api("documents")["results"][0]["id"]
    for path in (f"/c/{long_chat}", "/", "/documents", f"/documents/{document}", "/settings/keys"):
        page.goto(path)
        if path.startswith("/c/"):
            expect(page.locator(".msg-answer")).to_have_count(len(QUESTIONS))
        length, room = page.evaluate(LENGTH)
        assert length == room, path

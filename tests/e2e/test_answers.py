"""A question to one's documents, its answer, and the way to where it was read."""

import re

from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, read_answer
from tests.e2e.conftest import MANUAL, NOTICE

MANUAL_QUESTION = "헤파 필터는 언제 교체하나요?"
NOTICE_QUESTION = "통합돌봄 정보시스템 사업 예산은 얼마인가요?"


def test_an_answer_comes_with_its_source(page):
    ask(page, MANUAL_QUESTION)
    done = answer(page)
    assert "6개월" in read_answer(done)
    expect(done.locator(".cite").first).to_be_visible()
    expect(done.locator(".source-card").first).to_contain_text("HX-200")
    expect(page.locator("#chat-title")).to_have_text(MANUAL_QUESTION)
    expect(page.locator(f'.side-chat[data-chat-id="{get_chat_id(page)}"]')).to_be_visible()


def test_a_marker_opens_the_passage_marked_in_its_text(page):
    ask(page, MANUAL_QUESTION)
    answer(page).locator(".cite").first.click()
    panel = page.locator("#panel")
    expect(panel).to_be_visible()
    expect(panel).to_contain_text(MANUAL)
    cited = panel.locator("mark.cited", has_text="6개월 또는 누적 운전 4,000시간")
    expect(cited).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


def test_a_marker_of_a_pdf_opens_its_page_with_the_passage_marked(page):
    ask(page, NOTICE_QUESTION)
    done = answer(page)
    assert "1,240,000,000" in read_answer(done)
    done.locator(".cite").first.click()
    marks = page.locator("#panel .pdf-sentence")
    expect(marks.first).to_be_in_viewport()
    expect(page.locator("#panel .page[data-loaded=true] canvas").first).to_be_visible()
    sheet = page.locator("#panel .page[data-page-number='2']").bounding_box()
    for index in range(marks.count()):
        box = marks.nth(index).bounding_box()
        assert sheet["x"] - 2 <= box["x"] <= sheet["x"] + sheet["width"]
        assert box["width"] > 3
        assert box["height"] > 3


def test_the_scope_of_the_next_question_is_always_in_sight(page):
    scope = page.locator("#scope-text")
    expect(scope).to_have_text(re.compile(r"\d"))
    everything = scope.inner_text()
    page.locator("#scope-button").click()
    page.locator("#picker-list label", has_text=NOTICE).click()
    page.keyboard.press("Escape")
    expect(scope).to_have_text(NOTICE)
    expect(page.locator("[data-scope=these]")).to_have_attribute("aria-checked", "true")
    assert everything != NOTICE
    ask(page, "헤파 필터는 언제 교체하나요?")
    answer(page)
    sources = page.locator(".msg-answer .source-card", has_text="HX-200")
    expect(sources).to_have_count(0)
    expect(scope).to_have_text(NOTICE)


def test_one_source_can_be_made_the_only_one(page):
    ask(page, MANUAL_QUESTION)
    answer(page).locator(".source-card").first.click()
    page.locator("#panel .panel-only").click()
    expect(page.locator("#scope-text")).to_have_text(MANUAL)
    expect(page.locator("#composer-input")).to_be_focused()


def test_a_second_question_stays_in_the_chat(page, reader):
    ask(page, MANUAL_QUESTION)
    answer(page)
    first = get_chat_id(page)
    ask(page, "E-1234 오류는 무슨 뜻인가요?")
    done = answer(page, 1)
    assert "헤파 필터" in read_answer(done)
    assert get_chat_id(page) == first
    page.reload()
    expect(page.locator(".msg-question .bubble")).to_have_count(2)
    assert [row["role"] for row in reader.messages(first)] == ["user", "assistant"] * 2


def test_small_talk_is_answered_without_sources(page):
    ask(page, "안녕하세요")
    done = answer(page)
    assert read_answer(done)
    expect(done.locator(".source-card, .cite")).to_have_count(0)


def test_a_citation_can_be_reached_and_left_with_the_keyboard_alone(page):
    page.locator("#composer-input").focus()
    page.keyboard.type(MANUAL_QUESTION)
    page.keyboard.press("Enter")
    answer(page)
    for _ in range(60):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.matches('.cite')"):
            break
    marker = page.locator(".cite:focus")
    expect(marker).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("#panel")).to_be_visible()
    assert page.evaluate("document.querySelector('#panel').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect(page.locator(".cite:focus")).to_have_count(1)


def test_an_example_of_the_first_screen_becomes_a_question(page):
    example = page.locator("[data-example]").first
    words = example.inner_text().strip()
    example.click()
    expect(page.locator("#composer-input")).to_have_value(words)


def test_a_deleted_document_leaves_the_passage_that_was_quoted(page, reader, tmp_path):
    file = tmp_path / "잠깐 있던 안내.md"
    file.write_text("# 안내\n\n은하수 도서관의 대출 기간은 17일입니다.\n", encoding="utf-8")
    document = reader.upload(file)
    reader.wait_for_documents()
    ask(page, "은하수 도서관의 대출 기간은 며칠인가요?")
    done = answer(page)
    assert "17일" in read_answer(done)
    reader.api(f"documents/{document['id']}", method="DELETE")
    page.reload()
    answer(page).locator(".source-card").first.click()
    expect(page.locator("#panel .note-warning")).to_be_visible()
    expect(page.locator("#panel .doc-text")).to_contain_text("17일")

"""The page tells which documents a question was searched in because it named them."""

import re

from playwright.sync_api import expect

from tests.e2e.chat import answer, ask
from tests.e2e.test_looks import PHONE, measure_overflow

MANUAL_NAME = "라온 HX-200 환기청정기 사용 설명서"


def test_an_answer_tells_the_document_that_the_question_named(page):
    ask(page, f"{MANUAL_NAME}에서 헤파 필터는 언제 교체하나요?")
    kept = answer(page).locator(".msg-scope")
    expect(kept).to_contain_text(f"‘{MANUAL_NAME}’ 문서에서 찾았습니다")
    page.reload()
    expect(answer(page).locator(".msg-scope")).to_contain_text(MANUAL_NAME)


def test_an_answer_tells_that_the_document_named_holds_nothing(windows, reader):
    page = windows(reader, viewport=PHONE)
    page.goto("/")
    ask(page, f"{MANUAL_NAME}에서 통합돌봄 정보시스템 제안서 평가 배점은?")
    found = answer(page)
    expect(found.locator(".msg-dropped")).to_have_text(re.compile("찾지 못해 전체에서 찾았습니다"))
    expect(found.locator(".msg-scope")).not_to_contain_text(MANUAL_NAME)
    assert measure_overflow(page) <= 0

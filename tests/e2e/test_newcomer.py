"""Somebody new, without a document: what the first screen offers, and what it takes from them."""

from uuid import uuid4

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import DONE_WITHIN, answer, ask
from tests.e2e.people import Person
from tests.support import DATA, NO_DATA

LOCKED = DATA / "bad-inputs" / "pdf" / "real-pypdf-r3-user-password.pdf"
LONG_NAME = "가나다라마바사아자차" * 30 + ".md"


def make_file(name, content, kind="text/markdown"):
    """A file as the browser's dialog hands it over."""
    return {"name": name, "mimeType": kind, "buffer": content.encode()}


@pytest.fixture
def newcomer(windows, product):
    """The first screen of an account that has nothing yet."""
    page = windows(Person(product, f"newcomer-{uuid4().hex[:8]}"))
    page.goto("/")
    return page


def test_the_first_screen_offers_to_take_files(newcomer):
    with newcomer.expect_file_chooser():
        newcomer.locator("[data-choose-files]").click()
    expect(newcomer.locator(".dropzone")).to_contain_text("HWPX")
    newcomer.goto("/documents")
    with newcomer.expect_file_chooser():
        newcomer.locator("[data-choose-files]").click()


@pytest.mark.parametrize("path", ["/", "/documents"])
def test_where_fingers_choose_files_nobody_is_asked_to_drag_them(windows, product, newcomer, path):
    newcomer.goto(path)
    expect(newcomer.locator(".dropzone")).to_contain_text("끌어다", use_inner_text=True)
    phone = windows(
        Person(product, "thumb"),
        viewport={"width": 375, "height": 740},
        has_touch=True,
        is_mobile=True,
    )
    phone.goto(path)
    words = phone.locator(".dropzone")
    expect(words).to_contain_text("파일을 선택해 주세요", use_inner_text=True)
    expect(words).not_to_contain_text("끌어다", use_inner_text=True)


def test_with_the_first_document_come_first_questions(newcomer):
    newcomer.set_input_files(
        "#file-input", make_file("휴가 규정.md", "# 휴가 규정\n\n## 연차\n\n연차는 15일이다.")
    )
    example = newcomer.locator("[data-example]").first
    expect(example).to_contain_text("휴가 규정", timeout=DONE_WITHIN)
    example.click()
    expect(newcomer.locator("#composer-input")).to_have_value(example.inner_text().strip())
    ask(newcomer, "연차는 며칠인가?")
    expect(answer(newcomer).locator(".prose")).to_contain_text("15일")


def test_files_that_cannot_be_read_say_why_and_harm_no_other(newcomer):
    files = [make_file("빈 파일.pdf", "", "application/pdf"), make_file("프로그램.exe", "MZ\0\0")]
    newcomer.set_input_files(
        "#file-input", [*files, make_file(LONG_NAME, "# 긴 이름\n\n본문이다.")]
    )
    reasons = newcomer.locator('.upload[data-state="failed"] .upload-state')
    expect(reasons).to_have_count(2)
    expect(reasons.nth(0)).to_contain_text("비어")
    expect(reasons.nth(1)).to_contain_text("HWPX")
    done = newcomer.locator('.upload[data-state="completed"]')
    expect(done).to_have_count(1, timeout=DONE_WITHIN)
    newcomer.goto("/documents")
    name = newcomer.locator(".document-name").first
    expect(name).to_contain_text("가나다라")
    assert name.bounding_box()["height"] < 80


def test_many_files_leave_the_title_in_sight_and_the_composer_once_they_are_asked(newcomer):
    failed = [make_file(f"빈 파일 {number}.txt", "") for number in range(4)]
    newcomer.set_input_files(
        "#file-input", [*failed, make_file("규정.md", "# 규정\n\n연차는 15일이다.")]
    )
    done = newcomer.locator('.upload[data-state="completed"]')
    expect(done).to_have_count(1, timeout=DONE_WITHIN)
    expect(newcomer.locator('.upload[data-state="failed"]')).to_have_count(4)
    expect(newcomer.locator(".welcome h2")).to_be_in_viewport(ratio=1)
    ask(newcomer, "연차는 며칠인가?")
    answer(newcomer)
    expect(newcomer.locator(".upload")).to_have_count(0)


def test_without_a_model_nothing_is_called_general_knowledge(newcomer):
    ask(newcomer, "안녕하세요")
    greeting = answer(newcomer)
    expect(greeting.locator(".msg-why")).to_be_visible()
    expect(greeting.locator("[data-label]")).to_have_count(0)
    ask(newcomer, "연차는 며칠인가?")
    expect(answer(newcomer, 1).locator("[data-label]")).to_have_text("근거 부족")


@pytest.mark.skipif(not LOCKED.exists(), reason=NO_DATA)
def test_a_locked_pdf_says_what_to_do_in_the_chat_and_in_the_table(newcomer):
    newcomer.set_input_files("#file-input", LOCKED)
    failed = newcomer.locator('.upload[data-state="failed"]')
    expect(failed).to_contain_text("암호", timeout=DONE_WITHIN)
    newcomer.goto("/documents")
    expect(newcomer.locator(".document-error")).to_contain_text("암호")

"""Writing a question, above all in Korean: sent once, whole, and only when meant.

And what helps to write it: one line that says where it searches, menus, long texts as files.
"""

import time

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, load_script
from tests.e2e.conftest import MANUAL, NOTICE
from tests.e2e.people import Person
from tests.e2e.test_looks import PHONE
from tests.servers.llm import Stream
from tests.support import wait_until

INPUT = "#composer-input"
COMPOSE = load_script("compose")

ORDERS = {
    "Chrome: composing Enter, end, plain Enter": ["composingEnter", "end", "plainEnter"],
    "Chrome without the second Enter": ["composingEnter", "end"],
    "Safari: end, then Enter with 229": ["end", "lateEnter"],
    "Firefox: end, then a plain Enter": ["end", "plainEnter"],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_enter_after_an_open_syllable_sends_once_and_whole(order, talk, talker, llm):
    llm.default = Stream(["네"])
    talk.evaluate(COMPOSE, ["연차 휴가는 며", "칠", order])
    answer(talk)
    expect(talk.locator(".msg-question .bubble")).to_have_text(["연차 휴가는 며칠"])
    expect(talk.locator(INPUT)).to_have_value("")
    expect(talk.locator("#queue")).to_be_hidden()
    stored = talker.messages(get_chat_id(talk))
    assert [row["content"] for row in stored if row["role"] == "user"] == ["연차 휴가는 며칠"]


def test_nothing_is_sent_while_a_syllable_is_open(talk):
    talk.evaluate(COMPOSE, ["아직 쓰는 주", "ㅇ", ["composingEnter"]])
    expect(talk.locator(".msg-question")).to_have_count(0)
    expect(talk.locator(INPUT)).to_have_value("아직 쓰는 주ㅇ")


def test_the_browsers_own_composition_is_sent_whole(talk, talker, llm):
    llm.default = Stream(["네"])
    talk.locator(INPUT).focus()
    keyboard = talk.context.new_cdp_session(talk)

    def compose(text):
        place = {"selectionStart": len(text), "selectionEnd": len(text)}
        keyboard.send("Input.imeSetComposition", {"text": text, **place})

    for syllable in ("가나", "다"):
        for part in syllable:
            compose(part)
            keyboard.send("Input.insertText", {"text": part})
    for step in ("ㄹ", "라"):
        compose(step)
    enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229}
    keyboard.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **enter})
    keyboard.send("Input.insertText", {"text": "라"})
    talk.keyboard.press("Enter")
    answer(talk)
    stored = talker.messages(get_chat_id(talk))
    assert [row["content"] for row in stored if row["role"] == "user"] == ["가나다라"]


def test_shift_enter_breaks_the_line(talk, llm):
    llm.default = Stream(["네"])
    talk.locator(INPUT).focus()
    talk.keyboard.type("첫 줄")
    talk.keyboard.press("Shift+Enter")
    talk.keyboard.type("둘째 줄")
    expect(talk.locator(INPUT)).to_have_value("첫 줄\n둘째 줄")
    expect(talk.locator(".msg-question")).to_have_count(0)
    talk.keyboard.press("Enter")
    answer(talk)
    assert talk.locator(".msg-question .bubble").text_content() == "첫 줄\n둘째 줄"


def test_who_chose_so_sends_with_ctrl_enter_and_breaks_the_line_with_enter(talk, talker, llm):
    llm.default = Stream(["네"])
    talker.api("me/preferences", {"send_key": "mod-enter"}, "PATCH")
    try:
        talk.reload()
        talk.locator(INPUT).focus()
        talk.keyboard.type("첫 줄")
        talk.keyboard.press("Enter")
        talk.keyboard.type("둘째 줄")
        expect(talk.locator(INPUT)).to_have_value("첫 줄\n둘째 줄")
        expect(talk.locator(".msg-question")).to_have_count(0)
        talk.keyboard.press("Control+Enter")
        answer(talk)
        assert talk.locator(".msg-question .bubble").text_content() == "첫 줄\n둘째 줄"
    finally:
        talker.api("me/preferences", {"send_key": "enter"}, "PATCH")


def test_enter_twice_sends_once(talk, llm):
    llm.default = Stream(["네"])
    talk.locator(INPUT).fill("한 번만")
    talk.keyboard.press("Enter")
    talk.keyboard.press("Enter")
    answer(talk)
    expect(talk.locator(".msg-question")).to_have_count(1)


def test_nothing_but_blanks_is_not_sent(talk):
    ask(talk, "  \n ")
    expect(talk.locator(".msg-question")).to_have_count(0)
    expect(talk.locator("#composer-send")).to_be_disabled()


def test_a_draft_survives_a_reload(talk):
    talk.locator(INPUT).press_sequentially("쓰다 만 질문")
    wait_until(lambda: talk.evaluate("localStorage.getItem('nura.draft.new')") == "쓰다 만 질문")
    talk.reload()
    expect(talk.locator(INPUT)).to_have_value("쓰다 만 질문")
    talk.locator(INPUT).fill("")


def test_the_field_grows_with_its_text(talk):
    before = talk.locator(INPUT).bounding_box()["height"]
    talk.locator(INPUT).fill("\n".join("가나다라" for _ in range(6)))
    wait_until(lambda: talk.locator(INPUT).bounding_box()["height"] > before * 2)


def test_a_question_beyond_the_limit_cannot_be_sent(talk):
    talk.locator(INPUT).fill("가" * 20_001)
    expect(talk.locator("#composer-send")).to_be_disabled()
    expect(talk.locator("#composer-count")).to_be_visible()
    talk.locator(INPUT).press("Enter")
    expect(talk.locator(".msg-question")).to_have_count(0)
    talk.locator(INPUT).fill("")


MENU = "#composer-menu"
OPTIONS = f"{MENU} [role=option]"


def paste(page, text):
    """Ctrl+V of this text."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
    page.locator(INPUT).focus()
    page.keyboard.press("Control+V")


@pytest.mark.parametrize(("size", "most"), [({"width": 1280, "height": 800}, 96), (PHONE, 84)])
def test_the_dock_is_one_line_at_rest(windows, reader, size, most):
    page = windows(reader, viewport=size, has_touch=size is PHONE)
    page.goto("/")
    ask(page, "헤파 필터는 언제 교체하나요?")
    answer(page)
    expect(page.locator("#scope-text")).to_contain_text(MANUAL)
    assert page.locator(".dock").bounding_box()["height"] <= most


def test_a_hash_names_a_document_by_keyboard_alone(page):
    field = page.locator(INPUT)
    field.press_sequentially("요약해 줘 #제안")
    expect(page.locator(OPTIONS)).to_have_text([NOTICE + "4쪽"])
    active = field.get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active}")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator(MENU)).to_be_hidden()
    expect(field).to_have_value("요약해 줘 ")
    expect(field).to_be_focused()
    expect(page.locator("#scope-text")).to_have_text(NOTICE)
    expect(page.locator(".msg-question")).to_have_count(0)


def test_the_menu_of_documents_is_walked_with_the_arrows_and_left_with_escape(page):
    field = page.locator(INPUT)
    field.press_sequentially("#")
    expect(page.locator(OPTIONS)).to_have_count(2)
    page.keyboard.press("ArrowDown")
    expect(page.locator(OPTIONS).nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(page.locator(OPTIONS).nth(0)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(page.locator(MENU)).to_be_hidden()
    expect(field).to_have_value("#")
    field.fill("")


def test_a_syllable_that_is_open_is_closed_before_the_document_is_taken(page):
    page.evaluate(COMPOSE, ["#제", "안", []])
    expect(page.locator(OPTIONS)).to_have_count(1)
    page.evaluate(COMPOSE, ["#제", "안", ORDERS["Chrome: composing Enter, end, plain Enter"]])
    expect(page.locator("#scope-text")).to_have_text(NOTICE)
    expect(page.locator(".msg-question")).to_have_count(0)
    expect(page.locator(INPUT)).to_have_value("")


def test_without_a_model_no_command_promises_one(page):
    page.locator(INPUT).press_sequentially("/")
    expect(page.locator(OPTIONS)).to_have_count(1)
    expect(page.locator(OPTIONS)).to_contain_text("파일 첨부")
    page.locator(INPUT).fill("")


def test_a_command_writes_its_question_and_sends_nothing(talk, llm):
    llm.default = Stream(["네"])
    ask(talk, "안녕")
    answer(talk)
    talk.locator(INPUT).press_sequentially("/표")
    expect(talk.locator(OPTIONS)).to_have_count(1)
    talk.keyboard.press("Tab")
    expect(talk.locator(INPUT)).to_have_value("방금 답변을 표로 정리해 줘.")
    expect(talk.locator(".msg-question")).to_have_count(1)


def test_a_command_exports_the_chat(talk, llm):
    llm.default = Stream(["네"])
    ask(talk, "내보낼 질문")
    answer(talk)
    talk.locator(INPUT).press_sequentially("/markdown")
    with talk.expect_download() as download:
        talk.keyboard.press("Enter")
    assert download.value.suggested_filename.endswith(".md")
    expect(talk.locator(INPUT)).to_have_value("")


def test_a_long_text_becomes_a_file_and_can_be_taken_back(windows, reader):
    page = windows(reader)
    page.goto("/")
    text = "# 은하 계약서 초안\n" + "제1조 은하 계약의 기간은 19개월로 한다. " * 200
    paste(page, text)
    chip = page.locator("#uploads .upload")
    expect(chip).to_contain_text("붙여 넣은 글 - 은하 계약서 초안.txt")
    expect(page.locator(INPUT)).to_have_value("")
    expect(chip).to_have_attribute("data-state", "completed", timeout=60_000)
    page.locator(".toast-action").click()
    expect(chip).to_have_count(0)
    assert page.locator(INPUT).input_value() == text
    wait_until(lambda: reader.api("documents?status=COMPLETED")["count"] == 2)
    page.locator(INPUT).fill("")


def test_a_short_text_is_pasted_as_it_is(page):
    paste(page, "짧은 글")
    expect(page.locator(INPUT)).to_have_value("짧은 글")
    expect(page.locator("#uploads .upload")).to_have_count(0)
    page.locator(INPUT).fill("")


def test_a_lost_network_is_said_within_three_seconds_and_the_question_is_kept(talk, talker, llm):
    llm.default = Stream(["다시 이어졌습니다."])
    talk.context.set_offline(True)
    begun = time.monotonic()
    note = talk.locator("#connection")
    expect(note).to_contain_text("오프라인입니다")
    assert time.monotonic() - begun < 3
    ask(talk, "끊긴 사이의 질문")
    talk.wait_for_timeout(3500)  # longer than the page waits for a word of the server
    expect(note).to_contain_text("오프라인입니다")
    talk.context.set_offline(False)
    answer(talk)
    expect(note).to_be_hidden()
    assert len(talker.messages(get_chat_id(talk))) == 2


def test_the_keyboard_of_a_phone_does_not_cover_the_field(windows, reader):
    page = windows(reader, viewport=PHONE, has_touch=True)
    page.goto("/")
    page.evaluate(
        """() => {
          Object.defineProperty(visualViewport, "height", { value: 420, configurable: true });
          visualViewport.dispatchEvent(new Event("resize"));
        }"""
    )
    box = page.locator(".composer-row").bounding_box()
    assert box["y"] + box["height"] <= 420


def test_every_question_of_the_first_screen_is_answered_from_the_documents(page):
    offered = page.locator("[data-example]").all_inner_texts()
    assert offered
    for question in offered:
        page.goto("/")
        ask(page, question)
        expect(answer(page).locator("[data-label=passages]")).to_be_visible()


def test_a_temporary_chat_stands_in_no_list_and_is_found_by_its_address(windows, product):
    person = Person(product, "fleeting")
    page = windows(person)
    page.goto("/")
    page.locator("#temporary").check()
    ask(page, "숨은 질문입니다")
    answer(page)
    chat = get_chat_id(page)
    page.reload()
    expect(page.locator(".msg-question .bubble")).to_have_text(["숨은 질문입니다"])
    assert person.api("chats")["count"] == 0
    assert person.api(f"chats/{chat}")["temporary"] is True

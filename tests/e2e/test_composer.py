"""Writing a question, above all in Korean: sent once, whole, and only when meant."""

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, chat_id, script
from tests.servers.llm import Stream
from tests.support import wait_until

INPUT = "#composer-input"
COMPOSE = script("compose")

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
    stored = talker.messages(chat_id(talk))
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
    stored = talker.messages(chat_id(talk))
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

"""What a model thinks aloud: in sight while it thinks, folded afterwards, never in the answer."""

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, read_answer
from tests.servers.llm import Hang, Stream

THOUGHT = "먼저 **설명서**를 살피고 숫자를 옮긴다."
THINKS = Stream(["<think>", "먼저 **설명서**를 ", "살피고 숫자를 옮긴다.", "</think>", "답입니다."])
LONG = Stream(["<think>", "아주 오래 생각한다.\n\n" * 80, "</think>", "짧은 답입니다."])


@pytest.fixture
def thought(talk, llm):
    """A complete answer that was thought about."""
    llm.default = THINKS
    ask(talk, "생각하고 답해 줘")
    return answer(talk)


def test_a_thinking_model_shows_its_last_words_on_one_line(talk, llm):
    llm.default = Hang(["<think>먼저 ", "설명서를 ", "살펴본다"])
    ask(talk, "오래 생각해 줘")
    fold = talk.locator(".msg-answer .reasoning")
    expect(fold.locator(".reasoning-tail")).to_contain_text("설명서를 살펴본다")
    expect(fold.locator(".reasoning-text")).to_be_hidden()
    expect(fold.locator(".reasoning-clock")).to_contain_text("2")
    assert fold.bounding_box()["height"] < 48
    talk.keyboard.press("Escape")


def test_an_open_fold_grows_while_the_model_thinks(talk, llm):
    llm.default = Stream(
        ["<think>", *(f"{n}번째 생각. " for n in range(30)), "</think>", "답"], 0.1
    )
    ask(talk, "생각을 보여 줘")
    talk.locator(".reasoning summary").click()
    words = talk.locator(".reasoning-words")
    expect(words).to_contain_text("3번째 생각")
    expect(words).to_contain_text("20번째 생각")
    answer(talk)
    expect(words).to_contain_text("29번째 생각")


def test_thoughts_stop_showing_when_the_reader_stops_them(talk, llm):
    llm.default = Hang(["<think>끝나지 않는 생각"])
    ask(talk, "멈출 생각")
    expect(talk.locator(".reasoning-live")).to_be_visible()
    talk.keyboard.press("Escape")
    expect(talk.locator(".msg-answer .note")).to_be_visible()
    expect(talk.locator(".reasoning-live")).to_have_count(0)
    talk.locator(".reasoning summary").click()
    expect(talk.locator(".reasoning-text")).to_have_text("끝나지 않는 생각")


def test_thoughts_fold_when_the_answer_begins(thought):
    expect(thought.locator(".reasoning-live")).to_have_count(0)
    expect(thought.locator(".reasoning summary")).to_be_visible()
    expect(thought.locator(".reasoning-text")).to_be_hidden()
    assert read_answer(thought) == "답입니다."


def test_thoughts_are_no_part_of_the_stored_answer(talk, talker, thought):
    stored = talker.messages(get_chat_id(talk))[-1]
    assert (stored["content"], stored["reasoning"]) == ("답입니다.", THOUGHT)


def test_a_fold_opens_with_the_keyboard_after_a_reload(talk, thought):
    talk.reload()
    answer(talk)
    talk.locator(".reasoning summary").focus()
    talk.keyboard.press("Enter")
    words = talk.locator(".reasoning-text")
    expect(words).to_have_text("먼저 설명서를 살피고 숫자를 옮긴다.")
    expect(words.locator("strong")).to_have_text("설명서")
    talk.keyboard.press("Enter")
    expect(words).to_be_hidden()


def test_a_reload_in_the_middle_of_thinking_goes_on_thinking(talk, llm):
    llm.default = Hang(["<think>", "아직 생각하는 중이다"])
    ask(talk, "새로고침할 생각")
    expect(talk.locator(".reasoning-live")).to_be_visible()
    get_chat_id(talk)
    talk.reload()
    expect(talk.locator(".reasoning-tail")).to_contain_text("아직 생각하는 중이다")
    talk.keyboard.press("Escape")
    expect(talk.locator(".reasoning-live")).to_have_count(0)


def test_long_thoughts_scroll_within_and_the_page_keeps_its_place(talk, llm):
    llm.default = LONG
    ask(talk, "아주 오래 생각해 줘")
    summary = answer(talk).locator(".reasoning summary")
    before = summary.bounding_box()["y"]
    summary.click()
    box = talk.locator(".reasoning-text")
    expect(box).to_be_visible()
    assert summary.bounding_box()["y"] == pytest.approx(before, abs=1)
    assert box.bounding_box()["height"] < 320
    assert box.evaluate("(one) => one.scrollHeight > 2 * one.clientHeight")


def test_an_answer_without_thoughts_has_no_fold(talk, llm):
    llm.default = Stream(["바로 답합니다."])
    ask(talk, "생각 없이")
    expect(answer(talk).locator(".reasoning")).to_be_hidden()

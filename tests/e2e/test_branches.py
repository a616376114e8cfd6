"""Answers made anew, questions in other words, verdicts: what was there stays, and one is shown."""

import threading

from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, read_answer
from tests.servers.llm import Failure, Stream
from tests.support import wait_until

BUBBLES = ".msg-question .bubble"
SWITCHERS = ".branches:visible"
ANSWERS = ".msg-answer .prose"


def talk_twice(talk, llm):
    """Two questions and their answers."""
    for number, words in enumerate(("첫 답", "둘째 답")):
        llm.default = Stream([words])
        ask(talk, f"질문 {number + 1}")
        assert read_answer(answer(talk, number)) == words


def rewrite(talk, number, content):
    """Ask one of the questions in sight in other words."""
    talk.locator(".msg-question").nth(number).hover()
    talk.locator("[data-action=edit]").nth(number).click()
    editor = talk.locator(".question-editor textarea")
    expect(editor).to_be_focused()
    editor.fill(content)
    editor.press("Enter")


def switch_branch(talk, way, number=-1):
    """Go to the neighbouring branch by one of the switchers in sight."""
    talk.locator(f"[data-branch={way}]:visible").nth(number).click()


def expect_answers(talk, *texts):
    """These answers are in sight in the end, and no other."""
    expect(talk.locator(ANSWERS)).to_have_text(texts)


def test_an_answer_can_be_made_anew_and_the_old_one_stays(talk, talker, llm):
    talk_twice(talk, llm)
    seen = threading.Event()
    llm.default = Stream(["셋째 ", "답"], hold=seen)
    talk.locator("[data-action=regenerate]").last.click()
    expect(talk.locator("#composer-send.send-stop")).to_be_visible()
    seen.set()
    assert read_answer(answer(talk)) == "셋째 답"
    expect_answers(talk, "첫 답", "셋째 답")
    expect(talk.locator(SWITCHERS)).to_have_text(["2/2"])
    switch_branch(talk, "previous")
    expect_answers(talk, "첫 답", "둘째 답")
    expect(talk.locator(SWITCHERS)).to_have_text(["1/2"])
    assert len(talker.messages(get_chat_id(talk))) == 5


def test_a_question_in_other_words_takes_the_place_of_what_followed(talk, llm):
    talk_twice(talk, llm)
    llm.default = Stream(["다른 답"])
    rewrite(talk, 0, "다른 질문")
    expect(talk.locator(BUBBLES)).to_have_text(["다른 질문"])
    assert read_answer(answer(talk)) == "다른 답"
    expect(talk.locator(SWITCHERS)).to_have_text(["2/2"])
    switch_branch(talk, "previous")
    expect(talk.locator(BUBBLES)).to_have_text(["질문 1", "질문 2"])
    expect_answers(talk, "첫 답", "둘째 답")


def test_a_reload_shows_the_newest_branch_once(talk, llm):
    talk_twice(talk, llm)
    llm.default = Stream(["다른 답"])
    rewrite(talk, 1, "다른 질문")
    expect_answers(talk, "첫 답", "다른 답")
    answer(talk, 1)
    talk.reload()
    answer(talk, 1)
    expect(talk.locator(BUBBLES)).to_have_text(["질문 1", "다른 질문"])
    expect_answers(talk, "첫 답", "다른 답")
    switch_branch(talk, "previous")
    expect(talk.locator(BUBBLES)).to_have_text(["질문 1", "질문 2"])


def test_branches_of_another_program_come_up_here_at_once(talk, talker, llm):
    talk_twice(talk, llm)
    first = talker.messages(get_chat_id(talk))[1]
    seen = threading.Event()
    llm.default = Stream(["프로그램이 ", "받은 답"], hold=seen)
    talker.api(f"messages/{first['id']}/regenerate?wait=false", {}, "POST")
    expect(talk.locator(".msg-answer")).to_have_count(1)
    expect(talk.locator(ANSWERS)).to_have_text("프로그램이")
    seen.set()
    assert read_answer(answer(talk)) == "프로그램이 받은 답"
    expect(talk.locator(SWITCHERS)).to_have_text(["2/2"])


def test_a_question_on_an_older_branch_goes_on_there(talk, talker, llm):
    talk_twice(talk, llm)
    llm.default = Stream(["셋째 답"])
    talk.locator("[data-action=regenerate]").last.click()
    expect(talk.locator(SWITCHERS)).to_have_text(["2/2"])
    answer(talk, 1)
    switch_branch(talk, "previous")
    llm.default = Stream(["넷째 답"])
    ask(talk, "질문 3")
    answer(talk, 2)
    expect_answers(talk, "첫 답", "둘째 답", "넷째 답")
    stored = talker.messages(get_chat_id(talk))
    assert stored[-2]["parent_id"] == stored[3]["id"]
    talk.reload()
    answer(talk, 2)
    expect_answers(talk, "첫 답", "둘째 답", "넷째 답")


def test_an_answer_made_anew_survives_a_reload_in_its_middle(talk, llm):
    talk_twice(talk, llm)
    words = [f"{number}번째 낱말 " for number in range(40)]
    reloaded = threading.Event()
    llm.default = Stream(words, hold=reloaded)
    talk.locator("[data-action=regenerate]").last.click()
    expect(talk.locator(ANSWERS).last).to_contain_text("5번째")
    talk.reload()
    expect(talk.locator(".msg-answer")).to_have_count(2)
    reloaded.set()
    assert read_answer(answer(talk, 1)) == "".join(words).strip()


def test_a_failed_answer_offers_another_try(talk, llm):
    llm.default = Failure(500)
    ask(talk, "안 되는 질문")
    note = talk.locator(".msg-answer .note-error")
    expect(note).to_be_visible()
    llm.default = Stream(["이제 됩니다."])
    note.get_by_role("button").click()
    assert read_answer(answer(talk)) == "이제 됩니다."
    expect(talk.locator(BUBBLES)).to_have_text(["안 되는 질문"])
    switch_branch(talk, "previous")
    expect(talk.locator(".msg-answer .note-error")).to_be_visible()


def test_escape_leaves_a_question_as_it_was(talk, talker, llm):
    talk_twice(talk, llm)
    talk.locator("#composer-input").press("ArrowUp")
    editor = talk.locator(".question-editor textarea")
    expect(editor).to_have_value("질문 2")
    editor.press("Enter")  # the same words are no other question
    editor.fill("아니다")
    editor.press("Escape")
    expect(talk.locator(BUBBLES)).to_have_text(["질문 1", "질문 2"])
    assert len(talker.messages(get_chat_id(talk))) == 4


def test_a_switcher_keeps_the_keyboard(talk, llm):
    talk_twice(talk, llm)
    llm.default = Stream(["셋째 답"])
    talk.locator("[data-action=regenerate]").last.click()
    expect(talk.locator(SWITCHERS)).to_have_text(["2/2"])
    answer(talk, 1)
    talk.locator("[data-branch=previous]:visible").focus()
    talk.keyboard.press("Enter")
    expect(talk.locator("[data-branch=next]:focus")).to_be_visible()
    talk.keyboard.press("Enter")
    expect_answers(talk, "첫 답", "셋째 답")


def test_a_verdict_is_there_after_a_reload(talk, talker, llm):
    llm.default = Stream(["좋은 답"])
    ask(talk, "물음")
    answer(talk)
    thumb = talk.locator("[data-thumb='1']")
    for _ in range(2):
        thumb.click()
        expect(thumb).to_have_attribute("aria-pressed", "true")
    message = talker.messages(get_chat_id(talk))[-1]
    wait_until(lambda: talker.api(f"messages/{message['id']}")["feedback"])
    talk.reload()
    answer(talk)
    expect(thumb).to_have_attribute("aria-pressed", "true")
    expect(talk.locator("[data-thumb='-1']")).to_have_attribute("aria-pressed", "false")


def test_a_bad_verdict_may_have_a_reason_that_a_second_press_keeps(talk, talker, llm):
    llm.default = Stream(["나쁜 답"])
    ask(talk, "물음")
    answer(talk)
    thumb = talk.locator("[data-thumb='-1']")
    thumb.click()
    talk.locator(".feedback input").fill("숫자가 틀림")
    talk.keyboard.press("Enter")
    message = talker.messages(get_chat_id(talk))[-1]["id"]
    expected = {"value": -1, "reason": "숫자가 틀림"}
    wait_until(lambda: talker.api(f"messages/{message}")["feedback"] == expected)
    talk.reload()
    answer(talk)
    thumb.click()
    expect(talk.locator(".feedback input")).to_have_value("숫자가 틀림")
    talk.keyboard.press("Escape")
    expect(talk.locator(".feedback")).to_have_count(0)
    assert talker.api(f"messages/{message}")["feedback"] == expected

"""What can be done with a message, and what an answer says of itself."""

import re
import threading

from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, read_answer
from tests.e2e.conftest import MANUAL
from tests.e2e.test_looks import PHONE
from tests.servers.llm import Failure, Hang, Stream
from tests.support import wait_until

BUBBLES = ".msg-question .bubble"


def talk_about(page, llm, *questions):
    """A conversation of these questions."""
    for number, question in enumerate(questions):
        llm.default = Stream([f"{question}의 답"])
        ask(page, question)
        answer(page, number)


def choose(page, message, action):
    """Take an entry of the menu of a message."""
    message.hover()
    message.locator("[data-action=more]").click()
    page.locator(f".message-menu [data-action={action}]").click()


def test_an_answer_says_in_one_line_what_it_rests_on_and_what_it_searched(page):
    ask(page, "헤파 필터는 언제 교체하나요?")
    line = answer(page).locator(".msg-label")
    expect(line.locator("[data-label=passages]")).to_have_text("찾은 문단")
    expect(line).to_contain_text("내 문서 2개 전체에서 찾았습니다")
    assert not re.search(r"[0-9]%|·", line.inner_text())
    line.get_by_role("button", name="왜 이 답인가요?").click()
    expect(page.locator("#panel")).to_contain_text("찾은 문단")


def test_what_stands_near_the_passages_is_offered_as_a_next_question(page):
    ask(page, "HX-200 필터 교체 주기와 보증 기간을 알려 주세요")
    done = answer(page, 0)
    offered = done.locator(".followup").first
    words = offered.inner_text()
    offered.click()
    expect(page.locator(BUBBLES).last).to_have_text(words)
    answer(page, 1)
    expect(done.locator(".followups")).to_be_hidden()


def test_a_question_can_be_reworded_without_asking_again(talk, talker, llm):
    talk_about(talk, llm, "질문 하나", "질문 둘")
    asked = len(llm.chats)
    question = talk.locator(".msg-question").first
    question.hover()
    question.locator("[data-action=edit]").click()
    talk.locator(".question-editor textarea").fill("고친 질문")
    talk.locator("[data-action=keep]").click()
    expect(talk.locator(BUBBLES)).to_have_text(["고친 질문", "질문 둘"])
    expect(talk.locator(".msg-answer .prose").first).to_have_text("질문 하나의 답")
    assert talker.messages(get_chat_id(talk))[0]["content"] == "고친 질문"
    assert len(llm.chats) == asked
    talk.reload()
    expect(talk.locator(BUBBLES)).to_have_text(["고친 질문", "질문 둘"])


def test_a_question_is_deleted_with_its_answer_after_a_word_of_warning(talk, talker, llm):
    talk_about(talk, llm, "질문 하나", "질문 둘")
    choose(talk, talk.locator(".msg-question").first, "remove")
    talk.locator("#confirm").get_by_role("button", name="취소").click()
    expect(talk.locator(BUBBLES)).to_have_count(2)
    choose(talk, talk.locator(".msg-question").first, "remove")
    talk.locator("#confirm-yes").click()
    expect(talk.locator(BUBBLES)).to_have_text(["질문 둘"])
    expect(talk.locator(".msg-answer .prose")).to_have_text(["질문 둘의 답"])
    assert [row["content"] for row in talker.messages(get_chat_id(talk))] == [
        "질문 둘",
        "질문 둘의 답",
    ]
    talk_about(talk, llm)
    llm.default = Stream(["셋째 답"])
    ask(talk, "질문 셋")
    answer(talk, 1)
    expect(talk.locator(BUBBLES)).to_have_text(["질문 둘", "질문 셋"])


def test_a_message_goes_on_in_a_chat_of_its_own(talk, talker, llm):
    talk_about(talk, llm, "질문 하나", "질문 둘")
    first = get_chat_id(talk)
    choose(talk, talk.locator(".msg-answer").first, "fork")
    talk.wait_for_url(lambda url: "/c/" in url and not url.endswith(first))
    expect(talk.locator(BUBBLES)).to_have_text(["질문 하나"])
    assert read_answer(answer(talk)) == "질문 하나의 답"
    assert len(talker.messages(first)) == 4


def test_the_menu_of_a_message_is_walked_by_keyboard(talk, llm):
    talk_about(talk, llm, "질문")
    opener = talk.locator(".msg-answer [data-action=more]")
    opener.focus()
    talk.keyboard.press("Enter")
    menu = talk.get_by_role("menu", name="더 보기")
    expect(menu.get_by_role("menuitem").first).to_be_focused()
    talk.keyboard.press("ArrowDown")
    expect(menu.get_by_role("menuitem").last).to_be_focused()
    talk.keyboard.press("Escape")
    expect(menu).to_have_count(0)
    expect(opener).to_be_focused()


def test_an_answer_that_broke_off_goes_on_with_one_press(talk, llm):
    llm.default = Hang(after=[f"{number}번 " for number in range(10)])
    ask(talk, "긴 이야기")
    expect(talk.locator(".msg-answer .prose")).to_contain_text("5번")
    talk.locator("#composer-send").click()
    llm.default = Stream(["나머지입니다."])
    talk.locator("[data-action=continue]").click()
    assert read_answer(answer(talk, 1)) == "나머지입니다."
    expect(talk.locator(BUBBLES).last).to_have_text("끊긴 곳부터 이어서 답해 줘.")
    told = "".join(str(one["content"]) for one in llm.chats[-1].json["messages"])
    assert "5번" in told


def test_an_answer_that_says_nothing_has_nothing_to_go_on_with(talk, llm):
    llm.default = Failure(500)
    ask(talk, "안 되는 질문")
    expect(talk.locator(".note-error:visible")).to_be_visible()
    expect(talk.locator("[data-action=continue]")).to_have_count(0)


def test_the_question_stays_at_the_top_while_its_answer_grows(windows, talker, llm):
    for size in ({"width": 1280, "height": 800}, PHONE):
        page = windows(talker, viewport=size)
        page.goto("/")
        llm.default = Stream(["첫 답\n\n" * 30])
        ask(page, "첫 질문")
        answer(page)
        lines = [f"{number}번째 줄입니다.\n\n" for number in range(60)]
        seen = threading.Event()
        llm.default = Stream(lines, delay=0.02, hold=seen)
        ask(page, "둘째 질문")
        top = page.locator("#scroller").bounding_box()["y"]
        question = page.locator(".msg-question").last
        for line in ("3번째 줄", "58번째 줄"):
            expect(page.locator(".msg-answer").last).to_contain_text(line)
            assert abs(question.bounding_box()["y"] - top - 12) < 4
        seen.set()
        answer(page, 1)
        assert abs(question.bounding_box()["y"] - top - 12) < 4
        page.locator("#to-end").click()
        expect(page.locator(".msg-answer .msg-actions").last).to_be_in_viewport()


def test_the_actions_of_an_answer_wait_until_it_is_complete(talk, llm):
    seen = threading.Event()
    llm.default = Stream([f"{number}번 " for number in range(40)], hold=seen)
    ask(talk, "질문")
    expect(talk.locator(".msg-answer .prose")).to_contain_text("3번")
    expect(talk.locator(".msg-answer .msg-actions")).to_have_count(0)
    seen.set()
    answer(talk)


def test_start_and_end_of_an_answer_are_announced_and_no_word_of_it(talk, llm):
    talk.evaluate(
        """() => {
          window.said = [];
          const node = document.querySelector("#announcer");
          const hear = () => node.textContent && window.said.push(node.textContent);
          new MutationObserver(hear).observe(node, { childList: true });
        }"""
    )
    started = threading.Event()
    llm.default = Stream([f"{number}번 " for number in range(20)], hold=started)
    ask(talk, "질문")
    wait_until(lambda: talk.evaluate("window.said") == ["답변을 작성하고 있습니다"])
    started.set()
    answer(talk)
    wait_until(lambda: len(talk.evaluate("window.said")) == 2)
    assert talk.evaluate("window.said") == ["답변을 작성하고 있습니다", "답변이 완료되었습니다"]


def test_the_name_of_a_file_stands_wherever_the_documents_of_a_question_are_named(page):
    ask(page, "헤파 필터는 언제 교체하나요?")
    done = answer(page)
    expect(done.locator(".source-card").first).to_contain_text(MANUAL)
    expect(page.locator("#scope-text")).to_contain_text(MANUAL)

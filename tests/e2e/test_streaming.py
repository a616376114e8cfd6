"""An answer while it is being written: reloads, a second tab, stop, a model that fails."""

import threading
from urllib.parse import urlencode

from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, read_answer
from tests.product.browser import Browser
from tests.servers.llm import BreakOff, Failure, Hang, Stream
from tests.support import wait_until

WORDS = [f"{number}번째 문장은 가을바람처럼 천천히 흘러갑니다. " for number in range(1, 91)]
WHOLE = "".join(WORDS).strip()
SLOW = Stream(WORDS, delay=0.05)
LONG = "".join(WORDS * 10)
LONG_WINDED = Stream(WORDS * 10, delay=0.05, hold=threading.Event())
"""Does not end before a window stops it."""


def read_shown(page, number=-1):
    return read_answer(page.locator(".msg-answer").nth(number))


def wait_for_text(page, characters):
    wait_until(lambda: len(read_shown(page)) >= characters)


def write_meanwhile(page, llm):
    """A second question waits for the first answer, a third is being written.

    The answer ends once the event that this gives is set.
    """
    asked = threading.Event()
    llm.default = Stream(WORDS[:25], hold=asked)
    ask(page, "첫째")
    wait_for_text(page, 50)
    ask(page, "둘째")
    expect(page.locator("#queue")).to_contain_text("둘째")
    page.keyboard.type("셋째")
    return asked


def test_a_reload_in_the_middle_of_an_answer_loses_no_character_and_doubles_none(talk, talker, llm):
    llm.default = SLOW
    ask(talk, "천천히 이야기해 줘")
    for share in (0.1, 0.5, 0.9):
        wait_for_text(talk, share * len(WHOLE))
        assert WHOLE.startswith(read_shown(talk))
        talk.reload()
        expect(talk.locator(".msg-answer")).to_have_count(1)
    while not talk.locator(".msg-answer .msg-actions").count():
        assert WHOLE.startswith(read_shown(talk))
    assert read_answer(answer(talk)) == WHOLE
    assert talker.messages(get_chat_id(talk))[-1]["content"].strip() == WHOLE


def test_a_reload_right_after_enter_does_not_lose_the_question(talk, talker, llm):
    llm.default = Stream(["네"])
    ask(talk, "바로새로고침")
    talk.reload()
    # taken by the server, or a draft again: in either case nothing has to be written anew
    query = "chats?" + urlencode({"q": "바로새로고침"})
    field = talk.locator("#composer-input")
    wait_until(lambda: talker.api(query)["count"] or field.input_value() == "바로새로고침")
    talk.locator("#composer-input").fill("")


def test_a_second_tab_follows_the_same_answer(talk, llm):
    llm.default = SLOW
    ask(talk, "두 창에서 볼게")
    wait_for_text(talk, 200)
    other = talk.context.new_page()
    other.goto(f"/c/{get_chat_id(talk)}")
    wait_for_text(other, 400)
    assert WHOLE.startswith(read_shown(other))
    assert read_answer(answer(other)) == read_answer(answer(talk)) == WHOLE


def test_an_open_tab_shows_what_another_tab_asks(talk, llm):
    llm.default = Stream(["첫 답입니다."])
    ask(talk, "첫 질문")
    answer(talk)
    other = talk.context.new_page()
    other.goto(f"/c/{get_chat_id(talk)}")
    answer(other)
    seen = threading.Event()
    llm.default = Stream(["둘째 ", "답입니다."], hold=seen)
    ask(other, "둘째 질문")
    expect(talk.locator(".msg-answer .prose").last).to_have_text("둘째")
    seen.set()
    assert read_answer(answer(talk, 1)) == "둘째 답입니다."
    expect(talk.locator(".msg-question .bubble")).to_have_text(["첫 질문", "둘째 질문"])


def test_stop_keeps_what_was_written_and_hangs_up_on_the_model(talk, talker, llm):
    llm.default = LONG_WINDED
    ask(talk, "멈출 때까지 말해 줘")
    wait_for_text(talk, 200)
    talk.locator("#composer-send").click()
    kept = read_answer(answer(talk))
    assert len(kept) >= 200
    assert LONG.startswith(kept)
    expect(talk.locator(".msg-answer .note")).to_be_visible()
    stored = talker.messages(get_chat_id(talk))[-1]
    assert (stored["status"], stored["content"].strip()) == ("STOPPED", kept)
    assert llm.chats[-1].wait_closed_by_client()
    llm.default = Stream(["다음 답"])
    ask(talk, "이어서")
    assert read_answer(answer(talk, 1)) == "다음 답"


def test_escape_stops_too_even_before_the_first_word(talk, talker, llm):
    llm.default = Hang()
    ask(talk, "대답하지 마")
    chat = get_chat_id(talk)
    expect(talk.locator("#composer-send.send-stop")).to_be_visible()
    talk.keyboard.press("Escape")
    expect(talk.locator(".msg-answer .note")).to_be_visible()
    assert talker.messages(chat)[-1]["status"] == "STOPPED"


def test_a_question_written_meanwhile_is_sent_after_the_answer(talk, llm):
    asked = write_meanwhile(talk, llm)
    asked.set()
    answer(talk, 1)
    expect(talk.locator("#queue")).to_be_hidden()
    expect(talk.locator(".msg-question .bubble")).to_have_text(["첫째", "둘째"])
    expect(talk.locator("#composer-input")).to_have_value("셋째")


def test_what_waits_and_what_is_written_outlive_a_reload(talk, llm):
    asked = write_meanwhile(talk, llm)
    talk.reload()
    expect(talk.locator("#composer-input")).to_have_value("둘째\n셋째")
    asked.set()
    answer(talk)
    expect(talk.locator(".msg-question .bubble")).to_have_text(["첫째"])


def test_a_model_that_refuses_leaves_a_sentence_and_a_way_on(talk, llm):
    llm.default = Failure(401)
    ask(talk, "비밀번호가 틀린 모델")
    note = talk.locator(".msg-answer .note-error")
    expect(note).to_contain_text("모델")
    llm.default = Stream(["이제 됩니다."])
    note.get_by_role("button").click()
    assert read_answer(answer(talk)) == "이제 됩니다."
    expect(talk.locator(".msg-question .bubble")).to_have_text(["비밀번호가 틀린 모델"])


def test_a_model_that_breaks_off_leaves_what_it_said(talk, talker, llm):
    llm.default = BreakOff(["여기까지는 ", "말했습니다"])
    ask(talk, "끊기는 모델")
    expect(talk.locator(".msg-answer .note-error")).to_be_visible()
    assert read_shown(talk) == "여기까지는 말했습니다"
    talk.reload()
    expect(talk.locator(".msg-answer .note-error")).to_be_visible()
    assert read_shown(talk) == "여기까지는 말했습니다"
    assert talker.messages(get_chat_id(talk))[-1]["status"] == "FAILED"


def test_a_lost_connection_is_taken_up_again(talk, llm):
    llm.default = SLOW
    ask(talk, "잠깐 끊길게")
    wait_for_text(talk, 200)
    talk.context.set_offline(True)
    talk.evaluate("() => new Promise((done) => setTimeout(done, 800))")
    talk.context.set_offline(False)
    assert read_answer(answer(talk)) == WHOLE


class Line:
    """The page's connection, which can go dead without either side hearing of it, as in sleep."""

    def __init__(self, page):
        self.opened = 0
        self.dead = set()
        page.route_web_socket("**/ws/chat/", self._connect)

    def die(self):
        """No byte goes through what is open now."""
        self.dead = set(range(1, self.opened + 1))

    def _connect(self, page_side):
        self.opened += 1
        number = self.opened
        server_side = page_side.connect_to_server()
        for one, other in ((page_side, server_side), (server_side, page_side)):
            one.on_message(lambda text, to=other: number in self.dead or to.send(text))


def bring_into_sight(page):
    """What a browser says when a page comes back into sight."""
    page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")


def test_a_phone_that_slept_reads_on_at_once_and_can_still_stop(windows, talker, llm):
    phone = windows(talker)
    line = Line(phone)
    phone.goto("/")
    llm.default = LONG_WINDED
    ask(phone, "잠들었다 깰게")
    wait_for_text(phone, 200)
    line.die()
    before = len(read_shown(phone))
    bring_into_sight(phone)
    wait_until(lambda: len(read_shown(phone)) > before + 100, 7)  # a dead line alone takes 8 s
    assert line.opened == 2
    assert LONG.startswith(read_shown(phone))
    phone.locator("#composer-send.send-stop").click()
    kept = read_answer(answer(phone))
    assert LONG.startswith(kept)
    assert talker.messages(get_chat_id(phone))[-1]["status"] == "STOPPED"


def test_an_answer_that_ended_while_the_phone_slept_is_there_on_its_return(windows, talker, llm):
    phone = windows(talker)
    line = Line(phone)
    phone.goto("/")
    asleep = threading.Event()
    llm.default = Stream(WORDS, hold=asleep)
    ask(phone, "오래 잘게")
    wait_for_text(phone, 100)
    line.die()
    asleep.set()
    chat = get_chat_id(phone)
    wait_until(lambda: talker.messages(chat)[-1]["status"] == "COMPLETED")
    assert len(read_shown(phone)) < len(WHOLE)
    bring_into_sight(phone)
    assert read_answer(answer(phone)) == WHOLE
    expect(phone.locator("#composer-send.send-stop")).to_have_count(0)


def test_after_a_reload_the_button_stops_the_answer_for_all_tabs(talk, talker, llm):
    llm.default = LONG_WINDED
    ask(talk, "여기서 묻고 저기서 멈출게")
    wait_for_text(talk, 100)
    other = talk.context.new_page()
    other.goto(f"/c/{get_chat_id(talk)}")
    talk.reload()
    expect(talk.locator("#composer-send.send-stop")).to_be_visible()
    other.locator("#composer-send.send-stop").click()
    assert read_answer(answer(talk)) == read_answer(answer(other))
    expect(talk.locator("#composer-send.send-stop")).to_have_count(0)
    assert talker.messages(get_chat_id(talk))[-1]["status"] == "STOPPED"


def test_f84_a_sign_out_while_an_answer_streams_keeps_the_draft(windows, product_with_model, llm):
    product_with_model.add_user("leaver")
    session = Browser(product_with_model.url)
    page = windows(product=product_with_model)
    sign_in(page, session)
    page.goto("/")
    llm.default = SLOW
    ask(page, "이야기해 줘")
    wait_for_text(page, 100)
    chat = get_chat_id(page)
    page.locator("#composer-input").press_sequentially("다음 질문의 초안")
    session.sign_out()
    expect(page.locator(".toast-error")).to_be_visible()
    expect(page.locator("#composer-input")).to_have_value("다음 질문의 초안")
    sign_in(page, session)
    page.goto(f"/c/{chat}")
    assert read_answer(answer(page)) == WHOLE
    expect(page.locator("#composer-input")).to_have_value("다음 질문의 초안")


def sign_in(page, session):
    """Give the window a fresh session of the leaver's."""
    session.sign_in("leaver")
    page.context.add_cookies(
        [{"name": n, "value": v, "url": session.url} for n, v in session.cookies.items()]
    )

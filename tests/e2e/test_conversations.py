"""A conversation that remembers: what an answer was bound to, and the ways out of it."""

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, read_answer
from tests.e2e.conftest import MANUAL, NOTICE, SAMPLES
from tests.e2e.people import Person
from tests.e2e.test_looks import PHONE, measure_overflow
from tests.support import wait_until

MANUAL_TITLE = MANUAL.rpartition(".")[0]
SCOPE = "#scope-text"
CHIP = "button.msg-scope"
RULES = "은하수 도서관 이용 규정.md"


@pytest.fixture(scope="module")
def talker_with_files(product, tmp_path_factory):
    """Somebody with a manual, a notice and a document of several parts."""
    person = Person(product, "converser")
    rules = tmp_path_factory.mktemp("rules") / RULES
    rules.write_text(
        "# 은하수 도서관 이용 규정\n\n은하수 도서관의 대출 기간은 17일입니다.\n\n"
        + "\n\n".join(f"{n}번 서가에는 책이 {n * 7}권 있습니다. " * 6 for n in range(1, 60)),
        encoding="utf-8",
    )
    person.upload(rules)
    person.upload(SAMPLES / "ventilator-manual.md", MANUAL)
    person.upload(SAMPLES / "care-system-notice.pdf", NOTICE)
    person.wait_for_documents()
    return person


@pytest.fixture
def page(windows, talker_with_files):
    """A window on the first screen."""
    window = windows(talker_with_files)
    window.goto("/")
    return window


def ask_of_the_filter(page):
    """A first question, answered from the manual."""
    ask(page, "헤파 필터는 언제 교체하나요?")
    first = answer(page, 0)
    assert "6개월" in read_answer(first)
    expect(page.locator(SCOPE)).to_have_text(f"먼저 {MANUAL}")


def choose(page, topic):
    """Answer the last question anew, otherwise bound."""
    page.locator(CHIP).last.click()
    page.locator(f".scope-menu [data-topic={topic}]").click()


def test_a_follow_up_tells_that_it_kept_to_the_documents_of_before(page):
    ask_of_the_filter(page)
    ask(page, "그럼 그건 물로 씻어도 돼?")
    chip = answer(page, 1).locator(CHIP)
    expect(chip).to_contain_text("문서 안에서")
    assert MANUAL_TITLE in chip.get_attribute("title")
    chip.click()
    menu = page.locator(".scope-menu")
    expect(menu.locator(".scope-names")).to_contain_text(MANUAL_TITLE)
    expect(menu.locator("[data-topic=same]")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(answer(page, 1).locator(CHIP)).to_contain_text("문서 안에서")


def test_a_follow_up_can_be_widened_and_the_first_answer_stays(page):
    ask_of_the_filter(page)
    ask(page, "그럼 그건 물로 씻어도 돼?")
    answer(page, 1)
    choose(page, "wider")
    expect(page.locator(".branches:visible")).to_have_text(["2/2"])
    widened = answer(page, 1).locator(CHIP)
    expect(widened).not_to_contain_text(re.compile("이 [0-9]+개 문서 안에서"))
    widened.click()
    expect(page.locator(".scope-menu [data-topic=wider]")).to_have_attribute("aria-pressed", "true")


def test_a_follow_up_can_be_made_a_new_topic(page, talker_with_files):
    ask_of_the_filter(page)
    ask(page, "그럼 그건 물로 씻어도 돼?")
    answer(page, 1)
    choose(page, "new")
    expect(page.locator(".branches:visible")).to_have_text(["2/2"])
    answer(page, 1)
    scope = talker_with_files.messages(get_chat_id(page))[-1]["scope"]
    assert (scope["topic"], scope["follows"], scope["reason"]) == ("new", False, "all")


def test_the_words_searched_for_can_be_edited_into_the_next_question(page):
    ask_of_the_filter(page)
    ask(page, "그건 물로 씻어도 돼?")
    answer(page, 1).locator(CHIP).click()
    query = page.locator(".scope-query p").inner_text()
    assert query != "그건 물로 씻어도 돼?"
    page.locator("[data-action=edit-query]").click()
    expect(page.locator("#composer-input")).to_have_value(query)
    expect(page.locator("#composer-input")).to_be_focused()


def test_the_next_question_can_begin_a_new_topic(page, talker_with_files):
    ask_of_the_filter(page)
    field = page.locator("#composer-input")
    field.press_sequentially("/새주제")
    page.keyboard.press("Enter")
    new = page.locator("#scope-new")
    expect(new).to_be_visible()
    expect(field).to_have_value("")
    ask(page, "그건 물로 씻어도 돼?")
    answer(page, 1)
    expect(new).to_be_hidden()
    scope = talker_with_files.messages(get_chat_id(page))[-1]["scope"]
    assert (scope["topic"], scope["follows"]) == ("new", False)


def test_a_new_topic_can_be_taken_back(page, talker_with_files):
    ask_of_the_filter(page)
    page.locator("#composer-input").press_sequentially("/새주제")
    page.keyboard.press("Enter")
    page.locator("#scope-new").click()
    ask(page, "그건 물로 씻어도 돼?")
    answer(page, 1)
    assert talker_with_files.messages(get_chat_id(page))[-1]["scope"]["topic"] == "auto"


def test_one_tap_keeps_the_questions_to_the_documents_of_the_conversation(page, talker_with_files):
    ask_of_the_filter(page)
    page.locator("[data-scope=these]").click()
    expect(page.locator(SCOPE)).to_have_text(MANUAL)
    ask(page, "은하수 도서관의 대출 기간은 며칠인가요?")
    answer(page, 1)
    scope = talker_with_files.messages(get_chat_id(page))[-1]["scope"]
    assert (scope["reason"], len(scope["document_ids"])) == ("explicit", 1)
    expect(page.locator(SCOPE)).to_have_text(MANUAL)


def test_one_tap_searches_everything_however_the_question_follows(page, talker_with_files):
    ask_of_the_filter(page)
    everything = page.locator("[data-scope=all]")
    page.locator("[data-scope=auto]").focus()
    page.keyboard.press("ArrowLeft")
    expect(everything).to_have_attribute("aria-checked", "true")
    expect(page.locator(SCOPE)).to_have_text("내 모든 문서 (3)")
    ask(page, "그건 물로 씻어도 돼?")
    answer(page, 1)
    scope = talker_with_files.messages(get_chat_id(page))[-1]["scope"]
    assert (scope["topic"], scope["follows"]) == ("all", True)
    assert len(scope["document_ids"]) == 3
    expect(everything).to_have_attribute("aria-checked", "true")


def test_the_remembered_documents_can_be_forgotten(page, talker_with_files):
    ask_of_the_filter(page)
    page.locator("#scope-button").click()
    expect(page.locator("#picker-memory-names")).to_have_text(MANUAL)
    page.locator("#memory-forget").click()
    expect(page.locator(SCOPE)).to_have_text("내 모든 문서 (3)")
    expect(page.locator("#composer-input")).to_be_focused()
    assert talker_with_files.api(f"chats/{get_chat_id(page)}/memory")["document_ids"] == []
    page.reload()
    answer(page, 0)
    expect(page.locator(SCOPE)).to_have_text("내 모든 문서 (3)")


def test_documents_that_are_chosen_outrank_the_remembered_ones(page):
    ask_of_the_filter(page)
    page.locator("#scope-button").click()
    page.locator("#picker-list label", has_text=NOTICE).click()
    page.keyboard.press("Escape")
    expect(page.locator(SCOPE)).to_have_text(NOTICE)
    page.locator("[data-scope=auto]").click()
    expect(page.locator(SCOPE)).to_have_text(f"먼저 {MANUAL}")


def test_a_document_is_named_by_its_number(page):
    ask_of_the_filter(page)
    ask(page, "이전 1번 문서를 참고해서 필터 세척 방법을 알려줘")
    expect(answer(page, 1).locator(CHIP)).to_have_text("1번 문서에서 찾았습니다")


def test_a_question_back_is_answered_by_a_button(page, talker_with_files):
    ask_of_the_filter(page)
    question = "이전 9번 문서를 참고해서 필터 청소 방법을 알려줘"
    ask(page, question)
    asked_back = answer(page, 1)
    candidates = asked_back.locator(".candidate")
    expect(candidates.first).to_contain_text(MANUAL_TITLE)
    expect(asked_back.locator(".prose ol")).to_be_hidden()
    candidates.first.click()
    expect(page.locator(".msg-question .bubble").last).to_have_text(question)
    done = answer(page, 2)
    expect(done.locator(".source-card").first).to_contain_text("HX-200")
    last = talker_with_files.messages(get_chat_id(page))[-1]
    shown = {source["document_id"] for source in last["sources"]}
    assert (last["mode"], set(last["scope"]["document_ids"])) == ("documents", shown)


def test_a_whole_document_is_read_part_by_part(page):
    ask(page, "은하수 도서관의 대출 기간은 며칠인가요?")
    assert "17일" in read_answer(answer(page, 0))
    ask(page, "이전 1번 문서 전체 보여줘")
    first = answer(page, 1)
    expect(first.locator(".part-of")).to_have_text(re.compile(r"[0-9]부분 중 1번째"))
    expect(first.locator("[data-part=previous]")).to_be_disabled()
    first.locator("[data-part=next]").click()
    second = answer(page, 2)
    expect(second.locator(".part-of")).to_have_text(re.compile(r"부분 중 2번째"))
    expect(first.locator(".part-steps")).to_be_hidden()
    second.locator("[data-part=previous]").click()
    again = answer(page, 3)
    expect(again.locator(".part-of")).to_have_text(re.compile(r"부분 중 1번째"))
    assert read_answer(again) == read_answer(first)


def test_the_turns_to_remember_are_set_in_the_menu_of_a_chat(page, talker_with_files):
    ask_of_the_filter(page)
    chat = get_chat_id(page)
    usual = talker_with_files.api(f"chats/{chat}")["history_pairs"]
    row = page.locator(f'.side-chat[data-chat-id="{chat}"]')

    def open_setting():
        row.hover()
        row.locator("[data-chat-menu]").click()
        page.locator("#chat-menu [data-action=history]").click()
        return page.locator("#history-pairs")

    setting = open_setting()
    expect(setting).to_have_value(str(usual))
    setting.fill("101")
    page.keyboard.press("Enter")
    expect(setting).to_be_visible()
    setting.fill("3")
    page.keyboard.press("Enter")
    expect(setting).to_be_hidden()
    wait_until(lambda: talker_with_files.api(f"chats/{chat}")["history_pairs"] == 3)
    expect(open_setting()).to_have_value("3")
    page.locator("#history-usual").click()
    wait_until(lambda: talker_with_files.api(f"chats/{chat}")["history_pairs"] == usual)


def test_an_answer_tells_why_it_is_as_it_is(page):
    ask_of_the_filter(page)
    ask(page, "그건 물로 씻어도 돼?")
    why = answer(page, 1).locator("[data-action=why]")
    why.click()
    panel = page.locator("#panel")
    expect(panel.locator("#panel-title")).to_have_text("왜 이 답인가요?")
    for heading in ("질문", "검색", "찾은 문단", "참고한 지난 대화", "걸린 시간"):
        expect(panel.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(panel).to_contain_text("앞 대화에 이어지는 질문")
    expect(panel.locator(".trace-candidates li").first).to_contain_text("HX-200")
    assert not re.search(r"[{}\[\]]|undefined|NaN|null|[a-z]+_[a-z]+", panel.inner_text())
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(why).to_be_focused()
    page.locator(".cite").first.click()
    expect(panel.locator("#panel-title")).to_contain_text("HX-200")
    expect(panel.get_by_role("tab", selected=True)).to_contain_text("인용됨")


def test_a_conversation_fits_a_phone(windows, talker_with_files):
    page = windows(talker_with_files, viewport=PHONE, has_touch=True)
    page.goto("/")
    ask_of_the_filter(page)
    modes = page.locator(".scope-mode")
    boxes = [modes.nth(number).bounding_box() for number in range(3)]
    assert len({box["y"] for box in boxes}) == 1
    assert page.locator(SCOPE).bounding_box()["width"] >= 40
    ask(page, "그건 물로 씻어도 돼?")
    answer(page, 1).locator(CHIP).tap()
    expect(page.locator(".scope-menu [data-topic=new]")).to_be_in_viewport()
    page.keyboard.press("Escape")
    answer(page, 1).locator("[data-action=why]").tap()
    expect(page.locator(".trace-part").first).to_be_visible()
    assert measure_overflow(page) <= 0


def test_the_eye_shows_what_the_conversation_has_in_mind_and_the_way_to_all_of_it(page):
    ask_of_the_filter(page)
    page.locator("#context-open").click()
    panel = page.locator(".context")
    expect(panel.get_by_role("link", name=MANUAL)).to_be_visible()
    expect(panel.get_by_role("button", name="헤파 필터는 언제 교체하나요?")).to_be_visible()
    ask(page, "그럼 프리필터는?")
    answer(page, 1)
    expect(panel.get_by_role("button", name="그럼 프리필터는?")).to_be_visible()
    panel.locator(".context-all").click()
    page.locator("#turn-search").fill("프리필터")
    expect(page.locator(".turn-question mark").first).to_have_text("프리필터")
    page.locator(".turn-question").first.click()
    expect(page.locator(".msg-answer").first).to_be_visible()


def test_a_summary_is_put_into_ones_own_words(page, talker_with_files):
    chat = None
    for number in range(1, 13):
        body = {"content": f"{number}번 서가에는 책이 몇 권 있나요?", "chat_id": chat}
        chat = talker_with_files.api("messages", body)["chat_id"]
    wait_until(
        lambda: talker_with_files.api(f"chats/{chat}/context")["running_summary"],
        timeout=30,
    )
    page.goto(f"/c/{chat}")
    page.locator("#context-open").click()
    page.locator("[data-action=edit-summary]").click()
    page.locator(".context-form textarea").fill("서가의 책을 하나씩 물었다.")
    page.locator(".context-form button[type=submit]").click()
    expect(page.locator(".context-summary")).to_have_text("서가의 책을 하나씩 물었다.")
    told = talker_with_files.api(f"chats/{chat}/context")["running_summary"]
    assert (told["text"], told["model"]) == ("서가의 책을 하나씩 물었다.", "user")

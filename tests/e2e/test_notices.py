"""What a reader must know of an answer: once, while it is written and for ever; other wording."""

import threading

from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, read_answer
from tests.e2e.frames import rewrite_events
from tests.e2e.stored import store
from tests.servers.llm import Stream

FELL_BACK = {"code": "retrieval_failed", "detail": "문서를 검색하지 못했습니다."}
NOTES = ".msg-told"


def test_an_answer_that_was_cut_says_so_after_a_reload_too(talk, llm):
    llm.default = Stream(["여기까지만 씁니"], finish_reason="length")
    ask(talk, "끝까지 써 줘")
    note = answer(talk).locator(f".msg-end {NOTES}")
    expect(note).to_have_count(1)
    said = note.inner_text()
    talk.reload()
    expect(answer(talk).locator(NOTES)).to_have_text(said)


def test_an_answer_without_its_documents_says_so_before_its_text_after_a_reload(talk, talker, llm):
    llm.default = Stream(["일반 지식으로 답합니다."])
    ask(talk, "문서가 없을 때")
    answer(talk)
    codes = ["retrieval_failed"]
    store(talker.product, talker.messages(get_chat_id(talk))[-1]["id"], notices=codes)
    talk.reload()
    expect(answer(talk).locator(f".msg-notice {NOTES}")).to_have_count(1)
    expect(answer(talk).locator(f".msg-end {NOTES}")).to_have_count(0)


def test_a_warning_given_while_writing_is_not_given_twice_at_the_end(windows, talker, llm):
    def change(kind, data):
        if kind == "run.started":
            yield kind, data
            yield "status", {"step": "fallback", "detail": {"code": "retrieval_failed"}}
        elif kind == "run.completed":
            yield kind, {"message": data["message"] | {"notices": [FELL_BACK]}}
        else:
            yield kind, data

    seen = threading.Event()
    llm.default = Stream(["일반 ", "지식입니다."], hold=seen)
    page = windows(talker)
    rewrite_events(page, change)
    page.goto("/")
    ask(page, "검색이 안 될 때")
    expect(page.locator(f".msg-notice {NOTES}")).to_be_visible()
    seen.set()
    expect(answer(page).locator(NOTES)).to_have_text([FELL_BACK["detail"]])


def test_a_draft_gives_way_to_its_other_wording_without_a_jump(windows, talker, llm):
    draft = [f"{number}번째 초안 문장임.\n\n" for number in range(60)]
    polished = "".join(draft).replace("문장임", "문장입니다")

    def change(kind, data):
        if kind == "usage":
            yield "status", {"step": "style", "detail": {}}
            yield "replace", {"text": polished}
            yield "delta", {"text": "덧붙인 문장입니다."}
        elif kind != "run.completed":
            yield kind, data

    scrolled = threading.Event()
    llm.default = Stream(draft, delay=0.04, hold=scrolled)
    page = windows(talker)
    rewrite_events(page, change)
    page.goto("/")
    ask(page, "초안을 다듬어 줘")
    first = page.locator(".msg-answer .prose p", has_text="0번째").first
    prose = page.locator(".msg-answer .prose")
    expect(prose).to_contain_text("30번째")
    page.mouse.move(600, 300)
    page.mouse.wheel(0, -4000)
    expect(first).to_be_in_viewport()
    before = first.bounding_box()["y"]
    scrolled.set()
    expect(prose).to_contain_text("59번째 초안 문장입니다.")
    expect(prose).to_contain_text("덧붙인 문장입니다.")
    expect(prose).not_to_contain_text("문장임")
    assert abs(first.bounding_box()["y"] - before) < 2


def test_what_the_server_stored_is_what_stays(windows, talker, llm):
    def change(kind, data):
        if kind == "usage":
            yield "replace", {"text": "다듬은 답입니다."}
        else:
            yield kind, data

    llm.default = Stream(["저장된 답입니다."])
    page = windows(talker)
    rewrite_events(page, change)
    page.goto("/")
    ask(page, "무엇이 남을까")
    assert read_answer(answer(page)) == "저장된 답입니다."

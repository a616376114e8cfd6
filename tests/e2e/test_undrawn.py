"""A message that cannot be drawn is shown as its text, and never takes the thread with it."""

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, read_answer
from tests.e2e.stored import make_check, store
from tests.e2e.test_grounding import SOURCE
from tests.servers.llm import Stream

QUESTIONS = ("첫째 질문", "둘째 질문", "셋째 질문")
BODY = "필터는 **6개월**마다 바꿉니다 [1]."
NO_BEGIN = """
  const plain = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "aria-busy" && this.classList.contains("msg-answer")) throw new Error("not today");
    return plain.call(this, name, value);
  };
"""
NO_MARKS = "Text.prototype.splitText = () => { throw new Error('no marks today'); };"


@pytest.fixture
def chat(talker):
    """The id of a chat of three turns."""
    found = None
    for question in QUESTIONS:
        found = talker.api("messages", {"chat_id": found, "content": question})["chat_id"]
    return found


@pytest.fixture
def told(talk):
    """What the page writes into the console."""
    lines = []
    talk.on("console", lambda message: lines.append(message.text))
    return lines


@pytest.fixture
def spoil(talk):
    """Let messages reach the page with wrong fields: `answer_1={...}` is the second answer's."""

    def with_fields(**broken):
        def handle(route):
            response = route.fetch()
            body = response.json()
            for role, name in (("user", "question"), ("assistant", "answer")):
                rows = [one for one in body["results"] if one["role"] == role]
                for number, row in enumerate(rows):
                    row.update(broken.get(f"{name}_{number}", {}))
            route.fulfill(response=response, json=body)

        talk.route("**/api/v1/chats/*/messages*", handle)

    yield with_fields
    talk.unroute_all(behavior="ignoreErrors")


def test_an_answer_that_cannot_be_drawn_shows_its_text_and_leaves_the_rest(talk, spoil, chat, told):
    spoil(answer_1={"content": BODY, "mode": "clarify", "candidates": [None]})
    talk.goto(f"/c/{chat}")
    expect(talk.locator(".msg")).to_have_count(6)
    plain = talk.locator(".msg-answer").nth(1)
    assert read_answer(plain) == BODY
    expect(plain.locator(".msg-plain")).to_be_visible()
    expect(talk.locator(".msg-plain")).to_have_count(1)
    expect(answer(talk, 2).locator(".msg-plain")).to_have_count(0)
    assert any("could not be drawn" in line for line in told)


def test_a_question_that_cannot_be_drawn_shows_its_text_and_leaves_the_rest(talk, spoil, chat):
    spoil(question_1={"document_ids": 5})
    talk.goto(f"/c/{chat}")
    expect(talk.locator(".msg")).to_have_count(6)
    plain = talk.locator(".msg-question").nth(1)
    expect(plain).to_contain_text(QUESTIONS[1])
    expect(plain.locator(".msg-plain")).to_be_visible()


def test_an_answer_that_could_not_be_begun_is_drawn_whole_at_its_end(talk, llm, told):
    llm.default = Stream(["필터는 ", "**6개월**마다 ", "바꿉니다."], delay=0.1)
    talk.add_init_script(NO_BEGIN)
    talk.reload()
    ask(talk, "필터는 언제 바꾸나요?")
    found = answer(talk)
    assert read_answer(found) == "필터는 6개월마다 바꿉니다."
    expect(talk.locator(".msg-plain")).to_have_count(0)
    assert any("could not be drawn" in line for line in told)


def test_an_answer_whose_marks_fail_keeps_its_sources_and_what_can_be_done(
    talk, talker, chat, told
):
    message = talker.messages(chat)[-1]
    checks = [make_check(BODY, BODY, "unsupported", "number")]
    store(talker.product, message["id"], content=BODY, sources=[SOURCE], grounding=checks)
    talk.add_init_script(NO_MARKS)
    talk.goto(f"/c/{chat}")
    found = answer(talk)
    assert read_answer(found) == BODY
    expect(found.locator(".msg-plain")).to_be_visible()
    expect(found.locator(".source-card")).to_be_visible()
    expect(found.locator("[data-action=regenerate]")).to_be_visible()
    assert any("no marks today" in line for line in told)

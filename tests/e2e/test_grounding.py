"""Sentences that the evidence does not confirm: marked softly, explained, listed in the steps."""

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, read_answer
from tests.e2e.stored import make_check, store
from tests.servers.llm import Stream
from tests.support import wait_until

NUMBER = "**프리필터**는 9,000시간마다 [설명서](https://example.com/a) 대로 바꿉니다 [1]."
ROW = "| 보증 | 7년 [1] |"
TWICE = "교체는 기사가 합니다."
LONG = "이 사업의 예산은 부가가치세를 포함하여 일억 이천만 원이며, " * 5 + "더 들지 않습니다."
CONTENT = (
    f"😀👍🏽 헤파 필터는 6개월마다 교체합니다 [1]. {NUMBER} 무엇이 더 궁금하신가요?\n\n"
    f"- {TWICE}\n- 필터는 물로 씻지 않습니다 [1]\n- {TWICE}\n\n"
    f"| 항목 | 값 |\n|---|---|\n{ROW}\n\n```python\nx = 9000\n```"
)
SOURCE = {
    "slot": 1,
    "document_id": "00000000-0000-4000-8000-000000000000",
    "document_name": "설명서.md",
    "chunk_id": "00000000-0000-4000-8000-000000000000_0",
    "page": None,
    "similarity": 0.9,
    "content_preview": "헤파 필터는 6개월마다 교체합니다.",
    "section": "",
    "cited": True,
    "boxes": [],
}


CHECKS = [
    make_check(CONTENT, "😀👍🏽 헤파 필터는 6개월마다 교체합니다 [1].", "supported"),
    make_check(CONTENT, NUMBER, "unsupported", "number", "negation"),
    make_check(CONTENT, "무엇이 더 궁금하신가요?", "plain"),
    make_check(CONTENT, TWICE, "supported"),
    make_check(CONTENT, "필터는 물로 씻지 않습니다 [1]", "supported"),
    make_check(CONTENT, TWICE, "unsupported", "overlap", last=True),
    make_check(CONTENT, ROW, "unsupported", "a reason of a later version"),
]


def show(page, person, llm, **fields):
    """An answer with these fields stored."""
    llm.default = Stream(["."])
    ask(page, "확인할 질문")
    answer(page)
    message = person.messages(get_chat_id(page))[-1]
    store(person.product, message["id"], **fields)
    page.reload()
    return answer(page)


@pytest.fixture
def doubted(talk, talker, llm):
    """An answer of which three sentences were not confirmed."""
    return show(talk, talker, llm, content=CONTENT, sources=[SOURCE], grounding=CHECKS)


def read_marked(found, number):
    """The words that carry the mark of a sentence."""
    return "".join(found.locator(f'.doubt[data-check="{number}"]').all_text_contents())


def test_exactly_the_words_of_doubtful_sentences_are_marked(doubted):
    numbers = "(all) => all.map((one) => one.dataset.check)"
    marks = doubted.locator(".doubt")
    wait_until(lambda: set(marks.evaluate_all(numbers)) == {"1", "5", "6"})
    assert read_marked(doubted, 1) == "프리필터는 9,000시간마다 설명서 대로 바꿉니다"
    assert read_marked(doubted, 6) == "보증7년"


def test_of_a_sentence_that_stands_twice_the_right_one_is_marked(doubted):
    items = doubted.locator(".prose li")
    expect(items.nth(0).locator(".doubt")).to_have_count(0)
    expect(items.nth(2).locator(".doubt")).to_have_count(1)


def test_of_a_long_sentence_said_twice_both_are_marked(talk, talker, llm):
    content = f"{LONG}\n\n{LONG}\n\n```python\n" + "value = 1\n" * 80 + "```"
    checks = [
        make_check(content, LONG, "unsupported", "number"),
        make_check(content, LONG, "unsupported", "number", last=True),
    ]
    done = show(talk, talker, llm, content=content, grounding=checks)
    for number in (0, 1):
        expect(done.locator(".prose p").nth(number).locator(".doubt")).to_have_text(LONG)
    expect(done.locator(".doubt-sign")).to_have_count(2)
    expect(done.locator(".msg-plain")).to_have_count(0)


def test_a_mark_adds_nothing_to_the_text_and_takes_no_marker_away(doubted):
    assert "대로 바꿉니다 1. 무엇이" in " ".join(read_answer(doubted).split())
    expect(doubted.locator(".prose .cite")).to_have_count(4)


def test_a_mark_says_why_when_pointed_at(talk, doubted):
    doubted.locator('.doubt[data-check="1"]').last.hover()
    card = talk.locator("#doubt-card")
    expect(card).to_be_visible()
    expect(card.locator(".hover-why")).to_have_count(2)
    talk.mouse.move(5, 5)
    expect(card).to_be_hidden()


def test_a_mark_is_reached_read_and_left_with_the_keyboard(talk, doubted):
    sign = doubted.locator('button.doubt-sign[data-check="1"]')
    sign.focus()
    card = talk.locator("#doubt-card")
    expect(card).to_be_visible()
    label = sign.get_attribute("aria-label")
    for words in card.locator(".hover-why").all_text_contents():
        assert words in label
    talk.keyboard.press("Escape")
    expect(card).to_be_hidden()
    expect(sign).to_be_focused()


def test_a_reason_that_the_page_does_not_know_still_gets_words(talk, doubted):
    doubted.locator('.doubt-sign[data-check="6"]').focus()
    assert len(talk.locator("#doubt-card .hover-why").inner_text()) > 10


def test_the_summary_counts_claims_and_opens_the_sentences(talk, doubted):
    line = doubted.locator(".msg-checks")
    expect(line).to_contain_text("3/6")
    line.click()
    rows = talk.locator("#panel .trace-checks li")
    expect(rows).to_have_count(len(CHECKS))
    expect(rows.first).to_be_in_viewport()
    expect(talk.locator("#panel .check-unsupported")).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("프리필터는 9,000시간마다 설명서 대로 바꿉니다.")


def test_an_answer_that_is_confirmed_is_left_alone(talk, talker, llm):
    content = "헤파 필터는 6개월마다 교체합니다 [1]."
    checks = [make_check(content, content, "supported")]
    done = show(talk, talker, llm, content=content, sources=[SOURCE], grounding=checks)
    expect(done.locator(".prose .cite")).to_have_count(1)
    expect(done.locator(".msg-checks, .doubt, .doubt-sign")).to_have_count(0)


def test_doubts_and_thoughts_fit_a_phone(windows, talker, llm):
    page = windows(talker, viewport={"width": 375, "height": 740}, has_touch=True)
    page.goto("/")
    thoughts = "긴낱말이계속이어지는생각" * 40 + "\n\n```\n" + "x" * 300 + "\n```"
    fields = {"content": CONTENT, "sources": [SOURCE], "grounding": CHECKS, "reasoning": thoughts}
    done = show(page, talker, llm, **fields)
    done.locator(".reasoning summary").tap()
    expect(done.locator(".reasoning-text")).to_be_visible()
    done.locator('.doubt-sign[data-check="1"]').tap()
    expect(page.locator("#doubt-card")).to_be_in_viewport(ratio=1)
    wide = "(one) => one.scrollWidth - one.clientWidth"
    assert page.locator("html").evaluate(wide) <= 0
    assert page.locator("#scroller").evaluate(wide) <= 0


def test_cited_sources_and_those_only_looked_at_stand_apart(talk, talker, llm):
    other = SOURCE | {"slot": 2, "chunk_id": "x_1", "document_name": "공고.md", "cited": False}
    done = show(talk, talker, llm, content="6개월입니다 [1].", sources=[other, SOURCE])
    cards = done.locator(".source-card:visible")
    expect(cards).to_have_count(1)
    expect(cards).to_contain_text("설명서.md")
    cards.click()
    panel = talk.locator("#panel")
    expect(panel.get_by_role("tab", selected=True)).to_contain_text("인용됨 1")
    expect(panel.locator("#panel-title")).to_have_text("설명서.md")
    panel.get_by_role("tab", name="검토함").click()
    expect(panel.get_by_role("tab", selected=True)).to_contain_text("검토함 1")
    expect(panel.locator("#panel-title")).to_have_text("공고.md")


def test_sources_of_which_none_is_cited_are_said_to_be_looked_at(talk, talker, llm):
    done = show(talk, talker, llm, content="모릅니다.", sources=[SOURCE | {"cited": False}])
    expect(done.locator(".cards-none")).to_be_visible()
    expect(done.locator(".source-card")).to_be_visible()


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("documents", "문서 근거"),
        ("partial", "일부 확인"),
        ("insufficient", "근거 부족"),
        ("general", "일반 지식"),
        ("conversation", "이전 대화"),
        ("passages", "찾은 문단"),
    ],
)
def test_what_an_answer_rests_on_is_said_in_a_word_and_without_percentages(
    talk, talker, llm, label, words
):
    done = show(talk, talker, llm, content="6개월입니다 [1].", sources=[SOURCE], label=label)
    badge = done.locator(".msg-label [data-label]")
    expect(badge).to_have_text(words)
    assert len(badge.get_attribute("title")) > 10
    assert "%" not in done.inner_text()


def test_a_heading_that_is_but_a_date_is_no_next_question(talk, talker, llm):
    near = [SOURCE | {"cited": False, "section": one} for one in ("2027년 1월", "2027년 계획")]
    done = show(
        talk, talker, llm, content="6개월입니다 [1].", sources=[SOURCE, *near], mode="documents"
    )
    expect(done.locator(".followup")).to_have_text(["‘2027년 계획’에 대해서는 뭐라고 되어 있어?"])


def test_the_sentences_of_a_deleted_document_can_still_be_read(talk, talker, llm):
    sentence = "헤파 필터는 6개월마다 교체합니다."
    span = {"start": 0, "end": len(sentence), "page": None, "text": sentence, "boxes": []}
    source = SOURCE | {"content_preview": f"앞 문장입니다. {sentence}", "spans": [span]}
    done = show(talk, talker, llm, content="6개월입니다 [1].", sources=[source], label="documents")
    marker = done.locator(".cite")
    marker.hover()
    expect(talk.locator("#hover-card .hover-text")).to_have_text(sentence)
    marker.click()
    expect(talk.locator("#panel-facts")).to_have_text("삭제됨")
    expect(talk.locator("#panel .doc-text")).to_contain_text("앞 문장입니다.")
    expect(talk.locator("#panel .doc-text .cited")).to_have_text(sentence)


def test_a_sentence_that_a_passage_says_twice_is_marked_at_both_places(talk, talker, llm):
    text = f"{TWICE} 사이에 다른 문장이 있습니다. {TWICE}"
    places = [text.rindex(TWICE), text.index(TWICE)]
    spans = [
        {"start": at, "end": at + len(TWICE), "page": None, "text": TWICE, "boxes": []}
        for at in places
    ]
    source = SOURCE | {"content_preview": text, "spans": spans}
    done = show(talk, talker, llm, content=f"{TWICE} [1]", sources=[source], label="documents")
    done.locator(".cite").click()
    expect(talk.locator("#panel .doc-text .cited")).to_have_text([TWICE, TWICE])


def test_a_document_shown_whole_bears_the_colour_of_documents(talk, talker, llm):
    done = show(talk, talker, llm, content="본문", sources=[SOURCE], mode="document", label="")
    expect(done.locator(".msg-label .badge-accent[data-label]")).to_be_visible()

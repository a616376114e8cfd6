"""Words of models and documents are words: nothing in them runs, loads or asks (B19 to B22)."""

from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, load_script
from tests.e2e.injections import load_answers, needs_answers
from tests.e2e.watching import Watch
from tests.servers.llm import Stream
from tests.support import DATA, NO_DATA

FOUL, CUT, DRAW = load_script("foul"), load_script("cut"), load_script("heavy")
HEAVY = sorted((DATA / "bad-inputs" / "text").glob("md-*.md"))
MARKUP = "<img src=x onerror=alert(1)>"


def find_foul(found):
    return found.evaluate(FOUL)


@needs_answers
def test_no_answer_of_a_model_becomes_more_than_text(talk, llm, whole):
    """What the page draws of each, cut at any character, is looked at below."""
    said = load_answers() if whole else load_answers()[::3]
    for number, markdown in enumerate(said):
        llm.default = Stream([markdown[at : at + 7] for at in range(0, len(markdown), 7)])
        ask(talk, f"공격 {number}")
        assert find_foul(answer(talk, number).locator(".prose")) == [], markdown
    talk.reload()
    expect(talk.locator(".msg-answer .msg-actions")).to_have_count(len(said))
    for index in range(len(said)):
        assert find_foul(talk.locator(".msg-answer .prose").nth(index)) == []


@needs_answers
@pytest.mark.parametrize("markdown", load_answers(), ids=range(len(load_answers())))
def test_an_answer_cut_at_any_character_is_as_clean(markdown, still):
    assert still.evaluate(CUT, [find_markdown_module(still), markdown, FOUL]) == []


def find_markdown_module(window):
    """The address of the page's own module that draws Markdown."""
    loaded = window.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    return next(name for name in loaded if "/built/markdown." in name)


@pytest.fixture(scope="module")
def still(chromium, talker):
    """One window for all cuts."""
    context = chromium.new_context(base_url=talker.product.url, bypass_csp=True)
    context.add_cookies(talker.cookies())
    watch = Watch(context, talker.product.url)
    window = context.new_page()
    window.goto("/")
    yield window
    chromium.close_context(context)
    watch.assert_clean()


STILL = 2.0
"""Seconds of the processor."""


def measure_drawing(page, text):
    """The longest that its thread computes without a pause; others may compute meanwhile."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate(DRAW, [find_markdown_module(page), text])
    spent = [read_thread_time(session)]
    while page.evaluate("drawOn()"):
        spent.append(read_thread_time(session))
    session.detach()
    return max(later - earlier for earlier, later in pairwise(spent))


def read_thread_time(session):
    """Seconds that the page's thread has computed so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "ThreadTime")


@pytest.mark.skipif(not HEAVY, reason=NO_DATA)
def test_c94_no_markdown_makes_a_page_stand_still(still):
    """As an answer, as one that is being written, and as a document."""
    texts = {path.name: path.read_text("utf-8") for path in HEAVY}
    texts["150,000 cells"] = "| a | b | c |\n|---|---|---|\n" + "| 1 | 2 | 3 |\n" * 50_000
    took = {name: measure_drawing(still, text) for name, text in texts.items()}
    assert max(took.values()) < STILL, took


def test_a_picture_in_an_answer_is_never_fetched(talk, llm, windows):
    llm.default = Stream(
        ["![그림](http://canary.invalid/a.png) ", "[이동](http://canary.invalid/b)"]
    )
    ask(talk, "그림을 보여 줘")
    prose = answer(talk).locator(".prose")
    expect(prose.locator("img")).to_have_count(0)
    link = prose.locator("a").last
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    assert link.get_attribute("href") == "http://canary.invalid/b"
    assert not windows.watches[0].foreign


def test_a_question_with_markup_is_shown_as_it_was_written(talk, llm):
    llm.default = Stream(["네"])
    ask(talk, MARKUP)
    answer(talk)
    expect(talk.locator(".msg-question .bubble")).to_have_text(MARKUP)
    expect(talk.locator("#chat-title")).to_have_text(MARKUP)
    talk.reload()
    answer(talk)
    expect(talk.locator(".side-chat[aria-current], .side-chat").first).to_contain_text(MARKUP)
    expect(talk.locator("img[src='x']")).to_have_count(0)


def test_a_document_with_markup_in_name_and_text_is_text_everywhere(page, reader, tmp_path):
    file = tmp_path / "note.md"
    name = f"{MARKUP}'\"><b>노트.md".replace('"', "")
    file.write_text(
        f"# <script>alert(2)</script> 보름달 규정\n\n보름달 휴가는 {MARKUP} 사흘입니다. "
        "[눌러](javascript:alert(3))\n",
        encoding="utf-8",
    )
    document = reader.upload(file, name)
    reader.wait_for_documents()
    page.goto(f"/?documents={document['id']}")
    expect(page.locator("#scope-text")).to_contain_text("노트.md")
    ask(page, "보름달 휴가는 며칠인가요?")
    done = answer(page)
    assert find_foul(done.locator(".prose")) == []
    done.locator(".cite, .source-card").first.hover()
    done.locator(".source-card").first.click()
    expect(page.locator("#panel")).to_contain_text("onerror=alert(1)")
    expect(page.locator("#panel")).to_contain_text("사흘입니다")
    page.goto("/documents")
    expect(page.locator(f'tr[data-document-id="{document["id"]}"]')).to_contain_text("노트.md")
    page.goto(f"/documents/{document['id']}")
    expect(page.locator(".document-title")).to_contain_text("노트.md")
    expect(page.locator("img[src='x'], .sheet script")).to_have_count(0)
    reader.api(f"documents/{document['id']}", method="DELETE")

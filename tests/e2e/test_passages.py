"""The passage behind a citation, in the panel, as its file has it."""

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask
from tests.e2e.conftest import SAMPLES
from tests.e2e.people import Person
from tests.e2e.stored import store


@pytest.fixture(scope="module")
def engineer(product):
    """Somebody with a note that holds a table of faults."""
    person = Person(product, "engineer")
    person.upload(SAMPLES / "gateway-note.docx")
    person.wait_for_documents()
    return person


@pytest.fixture
def page(windows, engineer):
    """A window on the first screen."""
    window = windows(engineer)
    window.goto("/")
    return window


def test_a_table_of_a_file_is_drawn_as_a_table(page):
    ask(page, "What does fault code F-214 mean?")
    answer(page).locator(".cite").first.click()
    passage = page.locator("#panel .passage-context > mark")
    expect(passage.locator(".table-wrap th").first).to_have_text("Code")
    expect(passage.get_by_role("cell", name="F-214")).to_be_visible()
    expect(passage.locator(".as-typed").first).to_contain_text("6. Fault codes")
    expect(passage).not_to_contain_text("|")


def test_the_sentence_that_an_answer_takes_is_marked_in_its_passage(page):
    ask(page, "What does fault code F-214 mean?")
    marker = answer(page).locator(".cite").first
    marker.hover()
    card = page.locator("#hover-card .hover-text")
    expect(card).to_contain_text("F-214")
    marker.click()
    cited = page.locator("#panel .passage-context .cited")
    expect(cited.first).to_be_in_viewport()
    assert "F-214" in "".join(cited.all_text_contents())


def test_the_page_of_a_sentence_is_shown_however_far_into_its_passage_it_stands(windows, reader):
    (pdf,) = reader.api(f"documents?q={quote('제안요청서')}")["results"]
    asked = {"content": "사업 예산은 얼마인가요?", "document_ids": [pdf["id"]]}
    chat = reader.api("messages", asked)["chat_id"]
    message = reader.messages(chat)[-1]
    sentences = ["가나다라", "마바사아", "자차카타", "파하거너"]
    spans = [
        {
            "start": 10 * page,
            "end": 10 * page + 4,
            "page": page,
            "text": sentence,
            "boxes": [{"page": page, "x0": 0.1, "y0": 0.4, "x1": 0.9, "y1": 0.45}],
        }
        for page, sentence in enumerate(sentences, 1)
    ]
    source = message["sources"][0] | {"slot": 1, "page": 1, "cited": True, "spans": spans}
    content = f"{sentences[-1]} [1]."
    store(reader.product, message["id"], content=content, sources=[source], grounding=[])
    page = windows(reader)
    page.goto(f"/c/{chat}")
    answer(page).locator(".cite").click()
    expect(page.locator("#panel .page-sheet.loading")).to_have_count(0)
    expect(page.locator("#panel .page-sheet")).to_have_count(3)
    expect(page.locator("#panel .page-here")).to_be_in_viewport()

"""The passage behind a citation, in the panel, as its file has it."""

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask
from tests.e2e.conftest import SAMPLES
from tests.e2e.people import Person


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

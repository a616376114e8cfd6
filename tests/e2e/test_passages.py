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
    passage = page.locator("#panel .passage-context mark")
    expect(passage.locator(".table-wrap th").first).to_have_text("Code")
    expect(passage.get_by_role("cell", name="F-214")).to_be_visible()
    expect(passage.locator(".as-typed").first).to_contain_text("6. Fault codes")
    expect(passage).not_to_contain_text("|")

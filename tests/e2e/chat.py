"""Moves that many browser tests make."""

from pathlib import Path

from playwright.sync_api import Page, expect

DONE_WITHIN = 30_000
LOADING = ".htmx-request, .skeleton"
"""What stands for, or holds, a part of a page that is not there yet."""
DRAWN = "#document-reader .doc-part, #document-reader .textLayer span"
"""A document that is shown."""


def load_script(name: str) -> str:
    """A function to run in the page, without its comment."""
    text = (Path(__file__).parent / "scripts" / f"{name}.js").read_text(encoding="utf-8")
    return text.partition("\n")[2].strip()


def ask(page: Page, question: str) -> None:
    """Write a question and press Enter."""
    page.locator("#composer-input").fill(question)
    page.locator("#composer-input").press("Enter")


def answer(page: Page, number: int = -1):
    """The answer with this number, complete."""
    found = page.locator(".msg-answer").nth(number)
    expect(found.locator(".msg-actions")).to_be_visible(timeout=DONE_WITHIN)
    return found


def settle(page: Page) -> None:
    """Wait until a page that has loaded has its fonts and the parts that it asks for itself."""
    page.evaluate("document.fonts.ready.then(() => true)")
    expect(page.locator(LOADING)).to_have_count(0)
    if page.locator("#document-reader:visible").count():
        expect(page.locator(DRAWN).first).to_be_visible()


def read_answer(found) -> str:
    """What an answer says, as its reader sees it."""
    return str(found.locator(".prose").inner_text()).strip()


def get_chat_id(page: Page) -> str:
    """The chat in the address."""
    page.wait_for_url("**/c/*")
    return page.url.rpartition("/c/")[2].partition("?")[0]

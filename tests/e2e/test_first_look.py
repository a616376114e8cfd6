"""What somebody sees who looks at a document or at refused files for the first time."""

import pytest
from playwright.sync_api import expect

from tests.e2e.people import Person

READY = 150_000
ROWS = "\n".join(f"| 직급 {number} | {number}만 원 |" for number in range(90))


@pytest.fixture(scope="module")
def paid(product, tmp_path_factory):
    """Somebody with a table that is cut into parts."""
    path = tmp_path_factory.mktemp("trial") / "여비.md"
    path.write_text(f"# 여비 지급표\n\n| 등급 | 여비 |\n|---|---|\n{ROWS}\n", encoding="utf-8")
    person = Person(product, "paid")
    document = person.upload(path)
    person.wait_for_documents()
    return person, document


def test_a_part_of_a_table_is_named_so_and_shown_below_its_header(windows, paid):
    person, document = paid
    page = windows(person)
    page.goto(f"/documents/{document['id']}#index")
    page.locator("#trial-form input").fill("직급 77 여비")
    page.locator("#trial-form button").click()
    hit = page.locator(".trial-hit[data-kind=table]").filter(has_text="직급 77")
    expect(hit.locator(".trial-where .badge")).to_have_text("표", timeout=READY)
    expect(hit.locator(".chunk-header")).to_contain_text("등급")


def test_a_figure_is_marked_whatever_particle_follows_it_in_the_question(windows, paid):
    person, document = paid
    page = windows(person)
    page.goto(f"/documents/{document['id']}#index")
    page.locator("#trial-form input").fill("직급 77의 여비는?")
    page.locator("#trial-form button").click()
    hit = page.locator(".trial-hit").filter(has_text="직급 77")
    expect(hit.locator("mark", has_text="77").first).to_be_visible(timeout=READY)


def test_the_bars_of_the_lengths_say_how_far_they_go(windows, paid):
    person, document = paid
    page = windows(person)
    page.goto(f"/documents/{document['id']}#index")
    histogram = person.api(f"documents/{document['id']}/inspection")["chunks"]["length"][
        "histogram"
    ]
    axis = page.locator(".lengths-axis span")
    expect(axis).to_have_text(["0", f"{histogram[-1]['to']:,}"])


def test_only_what_may_succeed_is_offered_to_be_sent_again(windows, paid):
    page = windows(paid[0])
    page.goto("/documents")
    files = [
        {"name": "빈.md", "mimeType": "text/markdown", "buffer": b""},
        {"name": "사진.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n0000"},
    ]
    page.locator("#file-input").set_input_files(files)
    failed = page.locator("#uploads [data-state=failed]")
    expect(failed).to_have_count(2)
    retry = page.locator("#uploads").get_by_role("button", name="다시 시도")
    expect(retry).to_have_count(0)
    expect(page.locator(".uploads-head [data-all=retry]")).to_be_hidden()
    expect(page.locator(".uploads-head [data-all=clear]")).to_be_visible()

"""What a citation names, and the passage behind it in the panel, as its file has it."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, load_script
from tests.e2e.conftest import NOTICE, SAMPLES
from tests.e2e.people import Person
from tests.e2e.stored import store
from tests.support import wait_until


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
    document = page.locator("#panel .doc-text")
    row = document.locator("tr.in-passage", has_text="F-214")
    expect(row).to_be_in_viewport()
    expect(document.locator("th", has_text="Meaning")).to_be_visible()
    expect(document.get_by_role("heading", name="6. Fault codes")).to_be_visible()
    expect(row).not_to_contain_text("|")


def test_the_sentence_that_an_answer_takes_is_marked_in_its_passage(page):
    ask(page, "What does fault code F-214 mean?")
    marker = answer(page).locator(".cite").first
    marker.hover()
    card = page.locator("#hover-card .hover-text")
    expect(card).to_contain_text("F-214 · Checksum errors")
    expect(card).not_to_contain_text("|")
    marker.click()
    cited = page.locator("#panel mark.cited")
    expect(cited.first).to_be_in_viewport()
    said = "".join(cited.all_text_contents())
    assert said.startswith("F-214")
    assert "F-201" not in said


@pytest.fixture
def several(reader):
    """A chat whose answer cites two passages of one document and one of another."""
    (pdf,) = reader.api(f"documents?q={quote('제안요청서')}")["results"]
    (manual,) = reader.api(f"documents?q={quote('HX-200')}")["results"]
    asked = {"content": "사업 예산은 얼마인가요?", "document_ids": [pdf["id"]]}
    chat = reader.api("messages", asked)["chat_id"]
    message = reader.messages(chat)[-1]
    chunks = reader.api(f"documents/{pdf['id']}/chunks?page_size=20")["results"]
    own = reader.api(f"documents/{manual['id']}/chunks?page_size=20")["results"]
    sources = [
        _to_source(pdf, chunk, 1, sentence)
        for chunk, sentence in ((chunks[1], "선금은 계약 금액의 30%까지"), (chunks[2], ""))
    ]
    sources += [_to_source(manual, own[0], 2, ""), _to_source(pdf, chunks[3], 1, "", cited=False)]
    content = "첫째입니다 [1]. 둘째도 그렇습니다 [1]. 😀 셋째는 다릅니다 [2]."
    places = [at for at, letter in enumerate(content) if letter == "["]
    citations = [
        {"offset": places[0], "slot": 1, "chunk_id": sources[1]["chunk_id"], "spans": []},
        {"offset": places[1], "slot": 1, "chunk_id": sources[0]["chunk_id"], "spans": [0]},
        {"offset": places[1], "slot": 1, "chunk_id": sources[1]["chunk_id"], "spans": []},
        {"offset": places[2], "slot": 2, "chunk_id": sources[2]["chunk_id"], "spans": []},
    ]
    fields = {"content": content, "sources": sources, "citations": citations, "grounding": []}
    store(reader.product, message["id"], **fields)
    return chat


def _to_source(document, chunk, slot, sentence, *, cited=True):
    spans = []
    if sentence:
        lines = [box for box in chunk["boxes"] if box["page"] == chunk["page"]]
        spans = [
            {
                "start": 0,
                "end": len(sentence),
                "page": chunk["page"],
                "text": sentence,
                "boxes": lines[:1],
            }
        ]
    return {
        "slot": slot,
        "document_id": document["id"],
        "document_name": document["name"],
        "chunk_id": chunk["chunk_id"],
        "page": chunk["page"],
        "similarity": 0.9,
        "content_preview": chunk["text"][:200],
        "section": chunk["section"],
        "cited": cited,
        "boxes": chunk["boxes"],
        "version": 1,
        "spans": spans,
    }


def test_passages_of_one_document_have_names_of_their_own(windows, reader, several):
    page = windows(reader)
    page.goto(f"/c/{several}")
    markers = answer(page).locator(".cite")
    expect(markers).to_have_text(["1a", "1b", "1a", "2"])
    markers.nth(1).hover()
    card = page.locator("#hover-card")
    expect(card).to_contain_text(NOTICE)
    expect(card.locator(".hover-text")).to_have_text("선금은 계약 금액의 30%까지")
    markers.nth(0).hover()
    said = card.locator(".hover-text").inner_text()
    assert said.endswith("…")
    markers.nth(1).click()
    sentence = page.locator("#panel .pdf-sentence")
    expect(sentence.first).to_be_in_viewport()
    chips = page.locator("#panel .panel-chip")
    expect(chips).to_have_count(3)
    expect(page.locator("#panel .panel-chip[aria-current]")).to_contain_text("1b")


def test_a_sentence_is_marked_by_its_letters_and_not_by_its_line(windows, reader, several):
    page = windows(reader)
    page.goto(f"/c/{several}")
    answer(page).locator(".cite").nth(1).click()
    mark = page.locator("#panel .pdf-sentence")
    expect(mark.first).to_be_in_viewport()
    wait_until(lambda: "선금은" in _read_text_under_marks(page), 10)
    said = _read_text_under_marks(page)
    assert "30%까지" in said
    assert "부가가치세" not in said


def _read_text_under_marks(page):
    """The words of the page's text layer that the marks of the sentence cover."""
    return page.evaluate(load_script("covered"))


def test_the_next_citation_is_one_key_away(windows, reader, several):
    page = windows(reader)
    page.goto(f"/c/{several}")
    markers = answer(page).locator(".cite")
    page.locator("#composer-input").focus()
    for number in range(4):
        page.keyboard.press("Alt+ArrowDown")
        expect(markers.nth(number)).to_be_focused()
    page.keyboard.press("Alt+ArrowUp")
    expect(markers.nth(2)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#panel .panel-chip[aria-current]")).to_contain_text("1a")
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator("#panel .panel-chip[aria-current]")).to_contain_text("1b")


def test_an_answer_is_copied_with_its_citations_as_footnotes(windows, reader, several):
    page = windows(reader, permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"/c/{several}")
    answer(page).locator("[data-action=copy]").click()
    text = page.evaluate("navigator.clipboard.readText()")
    assert "첫째입니다 [^1a]. 둘째도 그렇습니다 [^1b][^1a]. 😀 셋째는 다릅니다 [^2]." in text
    notes = text.splitlines()[-3:]
    assert notes[1].startswith(f"[^1b]: {NOTICE}, ")
    assert notes[1].endswith("“선금은 계약 금액의 30%까지”")


def test_tabs_tell_what_is_cited_from_what_was_looked_at(windows, reader, several):
    page = windows(reader)
    page.goto(f"/c/{several}")
    answer(page).locator(".cite").first.click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("tab")).to_have_text(["인용됨 3", "검토함 1", "문서 전체"])
    panel.get_by_role("tab", name="검토함").click()
    expect(page).to_have_url(re.compile("source=4"))
    page.keyboard.press("ArrowRight")
    expect(panel.get_by_role("tab", selected=True)).to_have_text("문서 전체")
    expect(page).to_have_url(re.compile("tab=whole"))
    expect(panel.locator(".pdf-passage").first).to_be_attached()


def test_the_page_of_a_sentence_is_shown_however_far_into_its_passage_it_stands(windows, reader):
    (pdf,) = reader.api(f"documents?q={quote('제안요청서')}")["results"]
    asked = {"content": "사업 예산은 얼마인가요?", "document_ids": [pdf["id"]]}
    chat = reader.api("messages", asked)["chat_id"]
    message = reader.messages(chat)[-1]
    box = {"page": 4, "x0": 0.1, "y0": 0.4, "x1": 0.9, "y1": 0.45}
    span = {"start": 40, "end": 44, "page": 4, "text": "없는 말", "boxes": [box]}
    source = message["sources"][0] | {"slot": 1, "page": 1, "cited": True, "spans": [span]}
    citation = {"offset": 4, "slot": 1, "chunk_id": source["chunk_id"], "spans": [0]}
    fields = {"sources": [source], "citations": [citation], "grounding": []}
    store(reader.product, message["id"], content="말합니다[1].", **fields)
    page = windows(reader)
    page.goto(f"/c/{chat}")
    answer(page).locator(".cite").click()
    expect(page.locator("#panel .page[data-page-number='4'] .pdf-mark-here")).to_be_in_viewport()
    expect(page.locator("#panel .reader-page")).to_have_value("4")

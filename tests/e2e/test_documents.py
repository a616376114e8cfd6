"""Files on their way in: chosen or dropped, watched until they are ready, refused in words."""

import base64
import re

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, load_script, read_answer
from tests.e2e.conftest import SAMPLES
from tests.e2e.people import Person
from tests.support import wait_until

READY = 60_000
NOTE = "# 별빛 규정\n\n## 제3조\n\n별빛 휴가는 입사 2년 뒤부터 해마다 엿새입니다.\n"


@pytest.fixture(scope="module")
def newcomer(product):
    """Somebody who has nothing yet."""
    return Person(product, "newcomer")


@pytest.fixture
def fresh(windows, newcomer):
    """A window of the newcomer's, whose documents of earlier tests are gone."""
    for document in newcomer.api("documents?page_size=100")["results"]:
        newcomer.api(f"documents/{document['id']}", method="DELETE")
    window = windows(newcomer)
    window.goto("/")
    return window


def note(name="별빛 규정.md", text=NOTE):
    return {"name": name, "mimeType": "text/markdown", "buffer": text.encode()}


def drop(page, name, kind, data):
    file = {"name": name, "type": kind, "base64": base64.b64encode(data).decode()}
    page.evaluate(load_script("drop"), [file])


def test_a_chosen_file_is_followed_until_it_can_be_asked_about(fresh, newcomer):
    fresh.evaluate(load_script("states"))
    with fresh.expect_file_chooser() as chooser:
        fresh.locator("#attach").click()
    chooser.value.set_files(note())
    chip = fresh.locator("#uploads .upload")
    expect(chip).to_have_attribute("data-state", "completed", timeout=READY)
    expect(chip).to_contain_text("완료")
    states = fresh.evaluate("window.states")
    assert states == [s for s in ("waiting", "uploading", "processing", "completed") if s in states]
    assert {"uploading", "completed"} <= set(states)
    expect(fresh.locator("#scope-text")).to_have_text("별빛 규정.md")
    ask(fresh, "별빛 휴가는 며칠인가요?")
    done = answer(fresh)
    assert "엿새" in read_answer(done)
    expect(done.locator(".source-card")).to_contain_text("별빛 규정.md")
    expect(fresh.locator(".msg-question .attached")).to_contain_text("별빛 규정.md")
    stored = newcomer.api("documents")["results"]
    assert [row["status"] for row in stored] == ["COMPLETED"]


def test_a_dropped_pdf_is_taken(fresh):
    data = (SAMPLES / "care-system-notice.pdf").read_bytes()
    drop(fresh, "제안요청서.pdf", "application/pdf", data)
    expect(fresh.locator("#drop-overlay")).to_be_hidden()
    chip = fresh.locator("#uploads .upload")
    expect(chip).to_have_attribute("data-state", "completed", timeout=READY)
    ask(fresh, "사업 예산은 얼마인가요?")
    assert "1,240,000,000" in read_answer(answer(fresh))


def test_a_question_asked_too_early_waits_for_its_document(fresh):
    fresh.locator("#file-input").set_input_files(note("이른 규정.md"))
    ask(fresh, "별빛 휴가는 며칠인가요?")
    done = answer(fresh)
    assert "엿새" in read_answer(done)
    expect(done.locator(".source-card")).to_contain_text("이른 규정.md")
    expect(fresh.locator("#queue")).to_be_hidden()


def test_several_files_at_once(fresh, newcomer):
    files = [note(f"규정 {n}.md", NOTE.replace("엿새", f"{n}일")) for n in range(4)]
    fresh.locator("#file-input").set_input_files(files)
    completed = fresh.locator("#uploads .upload[data-state=completed]")
    expect(completed).to_have_count(4, timeout=READY)
    assert newcomer.api("documents")["count"] == 4


WRONG = {
    "a renamed program": ("보고서.pdf", b"MZ\x90\x00" + bytes(range(256)) * 20),
    "an empty file": ("빈 문서.md", b""),
    "a torn PDF": ("찢어진.pdf", b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog"),
    "a picture": ("사진.docx", b"\x89PNG\r\n\x1a\n" + b"\x00" * 200),
}


@pytest.mark.parametrize(("name", "data"), WRONG.values(), ids=WRONG)
def test_a_file_that_cannot_be_read_says_why_in_words(name, data, fresh):
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": data}
    fresh.locator("#file-input").set_input_files(file)
    chip = fresh.locator("#uploads .upload")
    expect(chip).to_have_attribute("data-state", "failed", timeout=READY)
    words = re.compile(r"[가-힣]{2,} [가-힣]{2,}.*(습니다|세요|오)\.")
    expect(chip.locator(".upload-state")).to_have_text(words)
    fresh.locator("#file-input").set_input_files(note())
    expect(fresh.locator("#uploads .upload").nth(1)).to_have_attribute(
        "data-state", "completed", timeout=READY
    )


def test_the_table_shows_a_new_document_without_a_reload(fresh):
    fresh.goto("/documents")
    fresh.locator("#file-input").set_input_files([note(), note("찢어진.pdf", "%PDF-1.7\n1 0 obj")])
    good = fresh.locator("tr[data-name='별빛 규정.md']")
    expect(good).to_have_attribute("data-status", "COMPLETED", timeout=READY)
    expect(good).to_contain_text("완료")
    bad = fresh.locator("tr[data-name='찢어진.pdf']")
    expect(bad).to_have_attribute("data-status", "FAILED", timeout=READY)
    expect(bad.locator(".document-error")).not_to_be_empty()
    fresh.locator("#document-search").fill("별빛")
    expect(bad).to_have_count(0)
    good.locator(".document-name").click()
    expect(fresh.locator("#chunk-list")).to_contain_text("엿새")


def test_progress_reaches_a_page_that_did_not_upload(fresh, newcomer, tmp_path):
    fresh.goto("/documents")
    file = tmp_path / "다른 창에서.md"
    file.write_text(NOTE, encoding="utf-8")
    newcomer.upload(file)
    row = fresh.locator("tr[data-name='다른 창에서.md']")
    expect(row).to_have_attribute("data-status", "COMPLETED", timeout=READY)


def test_a_document_is_deleted_after_a_question_back(fresh, newcomer):
    fresh.locator("#file-input").set_input_files(note())
    expect(fresh.locator("#uploads .upload")).to_have_attribute(
        "data-state", "completed", timeout=READY
    )
    fresh.goto("/documents")
    row = fresh.locator("tr[data-name='별빛 규정.md']")
    row.locator("[data-document-menu]").click()
    fresh.locator("#document-menu [data-action=delete]").click()
    fresh.locator("#confirm button[value=no]").click()
    expect(row).to_have_count(1)
    delete(fresh, row)
    expect(row).to_be_hidden()
    fresh.locator(".toast [aria-label='닫기']").click()
    expect(row).to_have_count(0)
    wait_until(lambda: newcomer.api("documents")["count"] == 0)


def delete(page, row):
    row.locator("[data-document-menu]").click()
    page.locator("#document-menu [data-action=delete]").click()
    page.locator("#confirm-yes").click()


def upload_here(page):
    page.goto("/documents")
    page.locator("#file-input").set_input_files(note())
    row = page.locator("tr[data-name='별빛 규정.md']")
    expect(row).to_have_attribute("data-status", "COMPLETED", timeout=READY)
    return row


def test_a_deletion_is_undone_in_the_list(fresh, newcomer):
    row = upload_here(fresh)
    delete(fresh, row)
    expect(row).to_be_hidden()
    fresh.evaluate("() => document.body.dispatchEvent(new Event('documents-changed'))")
    expect(row).to_be_hidden()
    fresh.locator(".toast-action").click()
    expect(row).to_be_visible()
    expect(fresh.locator(".toast")).to_have_count(0)
    fresh.goto("/")  # a deletion that was not undone would be sent now
    fresh.goto("/documents")
    expect(row).to_be_visible()


def test_a_long_english_name_is_read_whole_in_the_table(fresh, newcomer, tmp_path):
    name = "Request for proposals for the integrated care information system of Haesol.md"
    (tmp_path / "note.md").write_text(NOTE, encoding="utf-8")
    newcomer.upload(tmp_path / "note.md", name)
    fresh.goto("/documents")
    words = fresh.locator(".document-words", has_text=name)
    expect(words).to_be_visible()
    assert words.evaluate("words => words.scrollHeight <= words.clientHeight")


def test_the_list_says_that_it_is_empty_while_the_last_deletion_can_be_undone(fresh):
    row = upload_here(fresh)
    delete(fresh, row)
    expect(fresh.locator("#document-table .dropzone")).to_be_visible()
    expect(fresh.locator("#document-table thead")).to_be_hidden()
    fresh.locator(".toast-action").click()
    expect(row).to_be_visible()
    expect(fresh.locator("#document-table .dropzone")).to_be_hidden()


def test_a_file_uploaded_again_in_another_tab_is_not_deleted_with_the_old_one(fresh, newcomer):
    row = upload_here(fresh)
    delete(fresh, row)
    expect(row).to_be_hidden()
    other = fresh.context.new_page()
    other.goto("/")
    other.locator("#file-input").set_input_files(note())
    expect(other.locator("#uploads .upload")).to_have_count(1)
    expect(row).to_be_visible()
    expect(fresh.locator(".toast")).to_have_count(0)
    fresh.goto("/")  # a deletion that still stood would be sent now
    fresh.goto("/documents")
    expect(row).to_be_visible()
    assert newcomer.api("documents")["count"] == 1


def test_a_deletion_on_the_page_of_the_document_is_undone_in_the_list(fresh):
    row = upload_here(fresh)
    row.locator(".document-name").click()
    delete(fresh, fresh.locator("article[data-document-id]"))
    fresh.wait_for_url("**/documents")
    expect(row).to_be_hidden()
    fresh.locator(".toast-action").click()
    expect(row).to_be_visible()


def test_a_deletion_that_nobody_undoes_is_done_when_the_page_is_left(fresh, newcomer):
    delete(fresh, upload_here(fresh))
    fresh.goto("/")
    wait_until(lambda: newcomer.api("documents")["count"] == 0)


def test_a_file_that_was_just_deleted_is_uploaded_anew(fresh, newcomer):
    row = upload_here(fresh)
    old = row.get_attribute("data-document-id")
    delete(fresh, row)
    expect(row).to_be_hidden()
    fresh.locator("#file-input").set_input_files(note())
    expect(row.and_(fresh.locator("tr:visible"))).to_have_attribute(
        "data-status", "COMPLETED", timeout=READY
    )
    (left,) = newcomer.api("documents")["results"]
    assert left["id"] != old


def test_old_answers_lose_their_passages_at_once_where_that_is_chosen(fresh, newcomer):
    fresh.locator("#file-input").set_input_files(note())
    expect(fresh.locator("#uploads .upload")).to_have_attribute(
        "data-state", "completed", timeout=READY
    )
    fresh.goto("/documents")
    row = fresh.locator("tr[data-name='별빛 규정.md']")
    row.locator("[data-document-menu]").click()
    fresh.locator("#document-menu [data-action=delete]").click()
    expect(fresh.locator("#confirm-title")).to_contain_text("별빛 규정.md")
    fresh.get_by_label("이전 답변에 인용된 문단도 지금 지우기").check()
    fresh.locator("#confirm-yes").click()
    with fresh.expect_request("**/api/v1/documents/delete") as asked:
        fresh.locator(".toast [aria-label='닫기']").click()
    assert asked.value.post_data_json["erase"] is True
    expect(row).to_have_count(0)


def test_a_document_can_be_processed_again(fresh, newcomer):
    fresh.locator("#file-input").set_input_files(note())
    expect(fresh.locator("#uploads .upload")).to_have_attribute(
        "data-state", "completed", timeout=READY
    )
    before = newcomer.api("documents")["results"][0]["updated_at"]
    fresh.goto("/documents")
    fresh.locator("tr [data-document-menu]").click()
    fresh.locator("#document-menu [data-action=reprocess]").click()

    def is_new():
        document = newcomer.api("documents")["results"][0]
        return document["status"] == "COMPLETED" and document["updated_at"] > before

    wait_until(is_new)
    row = fresh.locator("tr[data-name='별빛 규정.md']")
    expect(row).to_have_attribute("data-status", "COMPLETED", timeout=READY)


def test_an_original_is_downloaded_under_its_name(fresh):
    fresh.locator("#file-input").set_input_files(note())
    expect(fresh.locator("#uploads .upload")).to_have_attribute(
        "data-state", "completed", timeout=READY
    )
    fresh.goto("/documents")
    fresh.locator("tr [data-document-menu]").click()
    with fresh.expect_download() as download:
        fresh.locator("#document-menu [data-action=download]").click()
    assert download.value.suggested_filename == "별빛 규정.md"
    assert download.value.path().read_text(encoding="utf-8") == NOTE

"""The list of files on their way: many at once, put off, there already, lost on the way."""

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.people import Person
from tests.support import wait_until

READY = 150_000
MANY = 33
DRAWN = 30


@pytest.fixture(scope="module")
def sender(product):
    """Somebody who uploads much."""
    return Person(product, "sender")


@pytest.fixture
def tray(windows, sender):
    """The page of documents, of which the sender has none."""
    for document in sender.api("documents?page_size=100")["results"]:
        sender.api(f"documents/{document['id']}", method="DELETE")
    window = windows(sender)
    window.goto("/documents")
    return window


def note(number, text="별빛 휴가는 해마다 엿새입니다."):
    content = f"# 규정 {number}\n\n{text} {number}번째 규정입니다.\n"
    return {"name": f"규정 {number}.md", "mimeType": "text/markdown", "buffer": content.encode()}


def send(page, files):
    page.locator("#file-input").set_input_files(files)


def locate_button_of_all(page, action):
    return page.locator(f".uploads-head [data-all={action}]")


def test_of_many_files_only_the_rows_in_sight_are_drawn(tray, sender):
    asked = []
    tray.on("request", lambda request: asked.append(request.url))
    send(tray, [note(number) for number in range(MANY)])
    rows = tray.locator("#uploads .upload")
    expect(rows.first).to_have_attribute("aria-setsize", str(MANY))
    assert 0 < rows.count() <= DRAWN
    tray.locator("#uploads").evaluate("(list) => list.scrollTo(0, list.scrollHeight)")
    expect(rows.last).to_contain_text(f"규정 {MANY - 1}.md")
    assert rows.count() <= DRAWN
    expect(tray.locator(".uploads-words")).to_contain_text(
        re.compile(rf"\b{MANY}\D+{MANY}\b"), timeout=READY
    )
    assert sender.api("documents?status=COMPLETED")["count"] == MANY
    single = [url for url in asked if re.search(r"/api/v1/documents/[0-9a-f-]{36}$", url)]
    tables = [
        url for url in asked if re.search(r"/documents(\?[^/]*)?$", url) and "/api/" not in url
    ]
    assert not single, "the list is followed as a whole"
    assert len(tables) < MANY, "the table is not drawn for every document"
    place, last_page = tray.locator(".pages span"), f"2 / 2 · 문서 {MANY}개"
    tray.locator("#pages-next").click()
    expect(place).to_have_text(last_page)
    with tray.expect_response(re.compile(r"/documents\?.*page=2")):
        tray.evaluate("document.body.dispatchEvent(new Event('documents-changed'))")
    expect(place).to_have_text(last_page)
    tray.reload()
    expect(place).to_have_text(last_page)


def test_a_file_that_is_there_already_leads_to_its_document(tray, sender):
    send(tray, [note(1)])
    chip = tray.locator("#uploads .upload")
    expect(chip).to_have_attribute("data-state", "completed", timeout=READY)
    send(tray, [note(1)])
    twin = tray.locator("#uploads .upload[data-duplicate]")
    expect(twin).to_have_attribute("data-state", "completed")
    (document,) = sender.api("documents")["results"]
    twin.locator(".upload-name a").click()
    tray.wait_for_url(f"**/documents/{document['id']}")


def test_a_file_chosen_twice_is_ready_in_both_rows(tray):
    send(tray, [note(1), {**note(1), "name": "규정 1 사본.md"}])
    expect(tray.locator("#uploads [data-state=completed]")).to_have_count(2, timeout=READY)


def test_a_file_cancelled_when_all_of_it_has_left_is_no_document(tray, sender):
    session = tray.context.new_cdp_session(tray)
    session.send("Network.enable")
    rates = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
    session.send("Network.emulateNetworkConditions", {**rates, "latency": 1000})
    send(tray, [note(1)])
    chip = tray.locator("#uploads .upload")
    expect(chip).to_contain_text("100%")
    with tray.expect_response("**/api/v1/documents/*") as gone:
        chip.locator("button:visible").click()
    assert gone.value.request.method == "DELETE"
    assert not sender.api("documents")["count"]


def test_all_files_are_put_off_and_taken_up_again(tray, sender):
    send(tray, [note(number) for number in range(12)])
    locate_button_of_all(tray, "pause").click()
    expect(tray.locator("#uploads .upload[data-state=paused]").first).to_be_visible()
    expect(locate_button_of_all(tray, "pause")).to_be_hidden(timeout=READY)
    wait_until(lambda: not sender.api("documents/queue")["working"], 60)
    assert sender.api("documents?status=COMPLETED")["count"] < 12
    locate_button_of_all(tray, "resume").click()
    wait_until(lambda: sender.api("documents?status=COMPLETED")["count"] == 12, READY / 1000)
    expect(locate_button_of_all(tray, "resume")).to_be_hidden()


def test_all_files_are_cancelled(tray, sender):
    send(tray, [note(number) for number in range(12)])
    locate_button_of_all(tray, "cancel").click()
    expect(locate_button_of_all(tray, "cancel")).to_be_hidden(timeout=READY)
    wait_until(lambda: not sender.api("documents?status=PROCESSING")["count"], READY / 1000)
    assert sender.api("documents?status=COMPLETED")["count"] < 12


def test_what_failed_is_shown_alone_and_cleared(tray):
    send(tray, [note(1), note(2), {"name": "빈.md", "mimeType": "text/markdown", "buffer": b""}])
    rows = tray.locator("#uploads .upload")
    expect(tray.locator("#uploads [data-state=completed]")).to_have_count(2, timeout=READY)
    locate_button_of_all(tray, "failed").click()
    expect(rows).to_have_count(1)
    expect(rows).to_have_attribute("data-state", "failed")
    locate_button_of_all(tray, "failed").click()
    expect(rows).to_have_count(3)
    locate_button_of_all(tray, "clear").click()
    expect(rows).to_have_count(0)


def test_what_failed_stays_in_sight_before_the_others(tray):
    empty = {"name": "빈.md", "mimeType": "text/markdown", "buffer": b""}
    broken = {"name": "깨짐.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4 broken"}
    send(tray, [*map(note, range(24)), empty, broken])
    failed = tray.locator("#uploads [data-state=failed]")
    expect(failed).to_have_count(2, timeout=READY)
    expect(tray.locator("#uploads [data-state=completed]")).to_have_count(24, timeout=READY)
    for place in range(2):
        expect(tray.locator("#uploads .upload").nth(place)).to_have_attribute(
            "data-state", "failed"
        )
        expect(failed.nth(place)).to_be_in_viewport()


def test_a_file_that_cannot_be_read_is_told_at_once_and_not_sent(tray):
    sent = []
    tray.on("request", lambda request: request.method == "POST" and sent.append(request.url))
    kinds = {"표.xlsx": b"PK\x03\x04", "빈.md": b"", "그림.pdf": b"\x89PNG\r\n\x1a\n"}
    send(
        tray,
        [
            {"name": name, "mimeType": "application/octet-stream", "buffer": content}
            for name, content in kinds.items()
        ],
    )
    rows = tray.locator("#uploads [data-state=failed]")
    expect(rows).to_contain_text(
        ["지원하지 않는 파일 형식", "파일이 비어", "확장자와 맞지 않습니다"]
    )
    assert not sent


def test_a_folder_gives_its_files_and_counts_those_that_cannot_be_read(tray, sender, tmp_path):
    folder = tmp_path / "자료"
    (folder / "안쪽").mkdir(parents=True)
    (folder / "규정.md").write_text("# 규정\n\n엿새입니다.", encoding="utf-8")
    (folder / "안쪽" / "지침.txt").write_text("사흘입니다.", encoding="utf-8")
    for name in ("그림.png", "안쪽/표.xlsx", ".hidden"):
        (folder / name).write_bytes(b"1")
    tray.locator("#folder-input").set_input_files(folder)
    expect(tray.locator("#uploads .upload")).to_have_count(2)
    expect(tray.locator(".uploads-words")).to_contain_text("2")
    expect(tray.locator("#uploads [data-state=completed]")).to_have_count(2, timeout=READY)
    assert {row["name"] for row in sender.api("documents")["results"]} == {"규정.md", "지침.txt"}


def test_a_folder_can_be_dropped(tray, tmp_path):
    inner = tmp_path / "자료" / "안쪽"
    inner.mkdir(parents=True)
    for number in range(3):
        (inner / f"규정 {number}.md").write_text(f"{number}일입니다.", encoding="utf-8")
    drag = {"items": [], "files": [str(tmp_path / "자료")], "dragOperationsMask": 1}
    session = tray.context.new_cdp_session(tray)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 700, "y": 400, "data": drag})
    expect(tray.locator("#uploads .upload")).to_have_count(3)


def test_a_file_lost_on_the_way_is_sent_again(tray):
    tray.context.set_offline(True)
    send(tray, [note(1)])
    chip = tray.locator("#uploads .upload")
    expect(chip).to_have_attribute("data-state", "uploading")
    tray.context.set_offline(False)
    expect(chip).to_have_attribute("data-state", "completed", timeout=READY)


def test_files_are_followed_without_a_live_connection(tray):
    tray.route_web_socket("**/ws/chat/", lambda socket: socket.close())
    tray.reload()
    send(tray, [note(1), note(2)])
    expect(tray.locator("#uploads [data-state=completed]")).to_have_count(2, timeout=READY)
    row = tray.locator("tr[data-name='규정 2.md']")
    expect(row).to_have_attribute("data-status", "COMPLETED", timeout=READY)

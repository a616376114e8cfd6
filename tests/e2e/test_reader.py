"""Documents in the panel: PDFs, other files as text, their address; hostile files."""

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.documents.parsers.pictured import chart, docx_with, png
from tests.documents.parsers.samples import docx, paragraph
from tests.e2e.chat import answer, ask, get_chat_id, load_script
from tests.e2e.conftest import MANUAL, NOTICE
from tests.e2e.people import Person
from tests.e2e.test_looks import PHONE
from tests.support import ROOT, wait_until

DATA = ROOT.parent / "shared" / "data"
HOSTILE = DATA / "bad-inputs" / "pdf"
QUESTION = "통합돌봄 정보시스템 사업 예산은 얼마인가요?"
MOVED = "[document.documentElement.scrollTop, document.body.scrollTop]"
IS_PLACE_KEPT = """() => {
  const { message, offset } = history.state?.scroll ?? {};
  const kept = document.querySelector(`[data-message-id='${message}']`);
  const top = document.querySelector("#scroller").getBoundingClientRect().top;
  return Boolean(kept) && Math.abs(top - kept.getBoundingClientRect().top - offset) < 1;
}"""


def find_document(person, name):
    """The document with this in its name."""
    return person.api(f"documents?q={quote(name)}")["results"][0]


def open_citation(page):
    """Ask, and open the first citation of a PDF; the panel."""
    ask(page, QUESTION)
    answer(page).locator(".cite").first.click()
    panel = page.locator("#panel")
    expect(panel.locator(".pdf-mark-here")).to_be_in_viewport()
    return panel


def test_pictures_of_a_text_stand_where_the_document_has_them(windows, reader, tmp_path):
    body = paragraph("조립 순서") + "{p0}" + paragraph("나사를 조인다")
    path = docx_with(tmp_path / "조립.docx", body, p0=png(chart()))
    reader.upload(path, "조립.docx")
    reader.wait_for_documents()
    page = windows(reader)
    page.goto(f"/documents/{find_document(reader, '조립')['id']}")
    drawn = page.locator(".doc-text .doc-picture img")
    expect(drawn).to_be_in_viewport()
    assert drawn.evaluate("image => image.decode().then(() => image.naturalWidth)") > 100
    told = page.locator(".doc-text").evaluate(
        "node => [...node.querySelectorAll('p, img')].map(one => one.textContent)"
    )
    assert told == ["조립 순서", "", "나사를 조인다"]


MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
FRACTION = (
    f'<m:oMath xmlns:m="{MATH}"><m:r><m:t>R=</m:t></m:r><m:f><m:num><m:r><m:t>순이익</m:t></m:r>'
    "</m:num><m:den><m:r><m:t>K</m:t></m:r></m:den></m:f></m:oMath>"
)


def test_formulas_of_word_are_drawn_in_the_document_and_where_it_is_quoted(
    windows, product, tmp_path
):
    person = Person(product, "reckoner")
    said = "<w:r><w:t>{}</w:t></w:r>"
    body = (
        f"<w:p>{said.format('은하 수익률은 다음 식 ')}{FRACTION}"
        f"{said.format('으로 구하며 수수료 $5는 따로 낸다.')}</w:p><w:p>{FRACTION}</w:p>"
    )
    person.upload(docx(tmp_path / "수익률.docx", body))
    person.wait_for_documents()
    page = windows(person)
    page.goto("/")
    ask(page, "은하 수익률은 어떤 식으로 구하나요?")
    expect(answer(page).locator(".math-drawn .katex").first).to_be_visible()
    marker = answer(page).locator(".cite").first
    marker.hover()
    expect(page.locator("#hover-card .katex").first).to_be_visible()
    marker.click()
    document = page.locator("#panel .doc-text")
    expect(document.locator(".math-drawn .mfrac")).to_have_count(2)
    expect(document.locator(".math-block")).to_have_count(1)
    expect(document.locator("p").first).to_contain_text("수수료 $5는 따로 낸다.")
    expect(document.locator("mark.cited").first).to_contain_text("은하 수익률은")
    expect(document.locator(".math.cited").first).to_be_visible()


def test_the_panel_says_whose_document_it_is_of_which_day_and_version(page):
    panel = open_citation(page)
    expect(panel.locator("#panel-title")).to_have_text(NOTICE)
    expect(panel.locator("#panel-facts")).to_contain_text("reader · 20")
    expect(panel.locator("#panel-facts")).to_contain_text("버전 1")


def test_back_closes_the_panel_and_a_reload_keeps_it(page):
    panel = open_citation(page)
    page.wait_for_url("**/c/*?message=*&source=1")
    page.reload()
    expect(panel.locator(".pdf-mark-here")).to_be_in_viewport()
    page.go_back()
    expect(panel).to_be_hidden()
    page.wait_for_url(f"**/c/{get_chat_id(page)}*")
    page.go_forward()
    expect(panel.locator(".pdf-mark-here")).to_be_in_viewport()


def test_on_a_phone_the_panel_fills_the_screen_and_back_returns_to_the_chat(windows, reader):
    page = windows(reader, viewport=PHONE, has_touch=True)
    page.goto("/")
    panel = open_citation(page)
    box = panel.bounding_box()
    assert (box["x"], box["y"], box["width"], box["height"]) == (
        0,
        0,
        PHONE["width"],
        PHONE["height"],
    )
    page.go_back()
    expect(panel).to_be_hidden()
    expect(page.locator("#composer-input")).to_be_in_viewport()
    assert "/c/" in page.url


@pytest.mark.parametrize("width", [1024, 1280])
def test_the_composer_stays_beside_the_panel(windows, reader, width):
    page = windows(reader, viewport={"width": width, "height": 768})
    page.goto("/")
    panel = open_citation(page)
    composer, own = page.locator("#composer-input").bounding_box(), panel.bounding_box()
    assert composer["x"] + composer["width"] <= own["x"]
    assert composer["width"] > 250
    assert page.evaluate(MOVED) == [0, 0]


def test_the_width_of_the_panel_is_dragged_and_kept(page):
    panel = open_citation(page)
    before = panel.bounding_box()["width"]
    grip = page.locator("#panel-grip").bounding_box()
    page.mouse.move(grip["x"] + 5, 300)
    page.mouse.down()
    page.mouse.move(grip["x"] + 85, 300, steps=4)
    page.mouse.up()
    after = panel.bounding_box()["width"]
    assert abs(before - 80 - after) < 3
    page.reload()
    expect(panel).to_be_visible()
    assert abs(panel.bounding_box()["width"] - after) < 3


def test_words_are_found_in_a_pdf_and_pages_turned(page):
    panel = open_citation(page)
    panel.locator(".reader-pane").focus()
    page.keyboard.press("Control+f")
    panel.locator(".reader-query").fill("하자보수")
    expect(panel.locator(".reader-count")).to_contain_text("1 /")
    expect(panel.locator(".textLayer .highlight").first).to_be_attached()
    panel.locator(".reader-query").fill("없는말")
    expect(panel.locator(".reader-count")).to_have_text("결과 없음")
    page.keyboard.press("Escape")
    expect(panel.locator(".reader-find")).to_be_hidden()
    panel.locator(".reader-page").fill("4")
    panel.locator(".reader-page").press("Enter")
    expect(panel.locator(".page[data-page-number='4'] canvas").first).to_be_in_viewport()


def test_a_pdf_is_enlarged_and_fits_the_panel_again(page):
    panel = open_citation(page)
    scale = panel.locator(".reader-scale")
    fitted = scale.inner_text()
    panel.get_by_role("button", name="확대").click()
    expect(scale).not_to_have_text(fitted)
    scale.click()
    expect(scale).to_have_text(fitted)


def test_pages_are_dark_at_night_unless_the_reader_wants_paper(windows, reader):
    page = windows(reader, color_scheme="dark")
    page.goto("/")
    panel = open_citation(page)
    filtered = "(one) => getComputedStyle(one).filter"
    assert "invert" in panel.locator(".canvasWrapper").first.evaluate(filtered)
    panel.get_by_role("button", name="밝은 종이로 보기").click()
    assert panel.locator(".canvasWrapper").first.evaluate(filtered) == "none"


def test_nothing_of_the_viewer_is_loaded_before_a_pdf_is_opened(windows, reader):
    page = windows(reader)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    ask(page, "헤파 필터는 언제 교체하나요?")
    answer(page).locator(".cite").first.click()
    expect(page.locator("#panel mark.cited").first).to_be_in_viewport()
    assert not [url for url in asked if "/pdf" in url]


def test_the_original_is_read_in_parts_without_a_download(windows, reader):
    page = windows(reader)
    page.goto("/")
    downloads, parts = [], []
    page.on("download", lambda one: downloads.append(one.url))
    page.on("response", lambda one: parts.append(one) if one.url.endswith("/file") else None)
    open_citation(page)
    assert parts
    assert {one.status for one in parts} <= {200, 206}
    assert all(one.headers["x-content-type-options"] == "nosniff" for one in parts)
    assert downloads == []


def test_front_matter_is_not_shown_as_text_and_lines_flow(windows, product, tmp_path):
    person = Person(product, "writer")
    file = tmp_path / "안내.md"
    file.write_text(
        "---\ntitle: 비밀 제목줄\nauthor: 저자\n---\n# 이용 안내\n\n"
        "회의실은 **오전 9시**부터\n쓸 수 있습니다. [규정](./rules.md)을 보십시오.\n\n"
        "- 첫째 항목은 예약입니다.\n- 둘째 항목은 정리입니다.\n",
        encoding="utf-8",
    )
    person.upload(file)
    person.wait_for_documents()
    page = windows(person)
    page.goto("/")
    ask(page, "회의실은 몇 시부터 쓸 수 있나요?")
    answer(page).locator(".cite").first.click()
    document = page.locator("#panel .doc-text")
    expect(document.locator("mark.cited").first).to_be_in_viewport()
    expect(document).not_to_contain_text("제목줄")
    expect(document.locator("p").first).to_have_text(
        "회의실은 오전 9시부터 쓸 수 있습니다. 규정을 보십시오."
    )
    expect(document.locator("li")).to_have_count(2)
    page.locator("#panel").get_by_role("button", name="목차").click()
    expect(page.locator("#panel .reader-outline button")).to_have_text(["이용 안내"])


def test_a_text_is_searched_and_its_hits_are_stepped_through(page):
    ask(page, "헤파 필터는 언제 교체하나요?")
    answer(page).locator(".cite").first.click()
    panel = page.locator("#panel")
    expect(panel.locator("#panel-title")).to_have_text(MANUAL)
    panel.get_by_role("button", name="문서에서 찾기").click()
    panel.locator(".reader-query").fill("필터")
    expect(panel.locator(".reader-count")).to_contain_text("1 /")
    first = panel.locator("mark.found").bounding_box()
    panel.locator(".reader-query").press("Enter")
    expect(panel.locator(".reader-count")).to_contain_text("2 /")
    expect(panel.locator("mark.found")).to_be_in_viewport()
    assert panel.locator("mark.found").bounding_box() != first


def test_a_row_deep_in_a_long_table_is_found_below_the_header(page, reader, tmp_path):
    file = tmp_path / "rows.md"
    rows = "".join(f"| 품목 {number} | {number}원 |\n" for number in range(1, 1001))
    file.write_text(f"| 이름 | 값 |\n|---|---|\n{rows}\n끝입니다.\n", encoding="utf-8")
    document = reader.upload(file, "긴 표.md")
    reader.wait_for_documents()
    page.goto(f"/?documents={document['id']}")
    ask(page, "품목 3은 얼마인가요?")
    answer(page).locator(".cite").first.click()
    panel = page.locator("#panel")
    panel.get_by_role("button", name="문서에서 찾기").click()
    panel.locator(".reader-query").fill("품목 987")
    expect(panel.locator("mark.found")).to_be_in_viewport()
    table = panel.locator("table", has=page.locator("mark.found"))
    expect(table.locator("th").first).to_have_text("이름")
    assert table.locator("tbody tr").count() <= 300
    reader.api(f"documents/{document['id']}", method="DELETE")


HELD_TEXT = """
const plain = window.fetch;
window.fetch = async (asked, ...rest) => {
  const isText = new URL(asked.url ?? asked, location).pathname.endsWith("/text");
  if (isText) await new Promise((go) => addEventListener("let-go", go, { once: true }));
  return plain(asked, ...rest);
};
"""


def test_a_search_that_began_before_the_document_came_goes_before_its_citation(
    page, reader, tmp_path
):
    file = tmp_path / "rows.md"
    rows = "".join(f"품목 {number}은 {number}원입니다.\n\n" for number in range(1, 401))
    file.write_text(f"# 단가\n\n{rows}", encoding="utf-8")
    document = reader.upload(file, "늦은 문서.md")
    reader.wait_for_documents()
    page.add_init_script(HELD_TEXT)
    page.goto(f"/?documents={document['id']}")
    ask(page, "품목 3은 얼마인가요?")
    answer(page).locator(".cite").first.click()
    panel = page.locator("#panel")
    panel.get_by_role("button", name="문서에서 찾기").click()
    panel.locator(".reader-query").fill("품목 398")
    page.evaluate("dispatchEvent(new Event('let-go'))")
    expect(panel.locator("mark.found")).to_be_in_viewport()
    expect(panel.locator("mark.cited").first).to_be_attached()  # the citation came as well
    expect(panel.locator("mark.found")).to_be_in_viewport()
    panel.locator(".reader-query").press("Escape")
    answer(page).locator(".cite").first.click()
    expect(panel.locator("mark.mark-here").first).to_be_in_viewport()
    reader.api(f"documents/{document['id']}", method="DELETE")


def test_a_link_leads_to_a_message_and_a_reload_keeps_the_place(windows, reader):
    page = windows(reader)
    page.goto("/")
    for question in ("헤파 필터는 언제 교체하나요?", QUESTION, "제안서 마감은 언제인가요?"):
        ask(page, question)
        answer(page)
        expect(page.locator("#composer-input")).to_be_enabled()
    chat = get_chat_id(page)
    wanted = reader.messages(chat)[1]["id"]
    page.goto(f"/chats/{chat}?message={wanted}")
    found = page.locator(f"[data-message-id='{wanted}']")
    expect(found).to_be_in_viewport()
    assert f"{chat}?message={wanted}" in page.url
    scroller = page.locator("#scroller")
    place = scroller.evaluate("(one) => one.scrollTop")
    scroller.evaluate("(one) => one.scrollBy(0, 30)")
    wait_until(lambda: page.evaluate(IS_PLACE_KEPT))  # it is when scrolling has ended
    page.reload()
    expect(found).to_be_in_viewport()
    wait_until(lambda: abs(scroller.evaluate("(one) => one.scrollTop") - place - 30) < 8, 10)


def test_a_link_leads_to_a_page_of_a_document(windows, reader):
    page = windows(reader)
    page.goto(f"/documents/{find_document(reader, '제안요청서')['id']}?page=3")
    expect(page.locator("#panel .page[data-page-number='3'] canvas").first).to_be_in_viewport()
    expect(page.locator("#panel .reader-page")).to_have_value("3")


def write_pdf(path: Path, pages: int) -> None:
    """A PDF with this many pages of a line each."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for number in range(1, pages + 1):
        text = f"BT /F1 24 Tf 72 700 Td (Sheet number {number} of the register) Tj ET"
        objects.append(f"<< /Length {len(text)} >>\nstream\n{text}\nendstream")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 "
            "/BaseFont /Helvetica >> >> >> >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Count {pages} /Kids [{' '.join(kids)}] >>"
    body, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    tail = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF"
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    path.write_bytes(body + head.encode() + tail.encode())


def test_a_thousand_pages_scroll_smoothly_and_few_of_them_are_drawn(windows, product, tmp_path):
    person = Person(product, "archivist")
    write_pdf(tmp_path / "register.pdf", 1000)
    document = person.upload(tmp_path / "register.pdf")
    person.api(f"documents/{document['id']}/cancel", {})
    page = windows(person)
    page.goto(f"/documents/{document['id']}?page=700")
    panel = page.locator("#panel")
    expect(panel.locator(".page[data-page-number='700'] canvas").first).to_be_in_viewport()
    expect(panel.locator(".reader-total")).to_have_text("/ 1000")
    longest = page.evaluate(load_script("scrolled"))
    assert longest < 400, f"a frame took {longest:.0f} ms"
    assert panel.locator("canvas").count() < 30
    panel.locator(".reader-page").fill("1000")
    panel.locator(".reader-page").press("Enter")
    expect(panel.locator(".page[data-page-number='1000'] canvas").first).to_be_in_viewport()


@pytest.fixture(scope="module")
def collector(product):
    """Somebody who uploads what attackers send."""
    return Person(product, "collector")


NAMES = (
    "open-action-javascript.pdf",
    "real-pdfjs-xfa_issue14315.pdf",
    "real-pdfjs-bomb_giant.pdf",
    "page-tree-depth-6000.pdf",
    "metadata-html-title.pdf",
    "truncated-half.pdf",
    *(
        pytest.param(name, marks=pytest.mark.whole)
        for name in (
            "real-pdfjs-evaljs.pdf",
            "real-pdfjs-attachment.pdf",
            "real-pdfjs-poppler-395-0-fuzzed.pdf",
            "mediabox-1e6.pdf",
            "xref-prev-points-to-itself.pdf",
            "real-pillow-trailer_loop.pdf",
        )
    ),
)
"""Something of every kind; `--whole` reads the like of them too."""


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_pdf_does_nothing_but_fail_to_show(windows, collector, name):
    if not (HOSTILE / name).exists():
        pytest.skip("the hostile files are not here")
    document = collector.upload(HOSTILE / name)
    page = windows(collector)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"/documents/{document['id']}?page=1")
    shown = page.locator(
        "#panel .page canvas, #panel .reader-note .note, #panel .reader-pane > .note"
    )
    expect(shown.first).to_be_attached(timeout=45_000)
    home = collector.product.url
    assert [url for url in asked if not url.startswith((home, "data:", "blob:"))] == []
    assert page.evaluate("1 + 1") == 2
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()

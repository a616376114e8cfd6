"""The table of documents, and the page of one: what is known, versions, a search tried."""

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask
from tests.e2e.conftest import NOTICE, SAMPLES
from tests.e2e.people import Person
from tests.e2e.test_looks import PHONE, measure_luminance, measure_overflow
from tests.support import wait_until

READY = 120_000
RULES = "# 별빛 규정\n\n## 제3조\n\n별빛 휴가는 입사 2년 뒤부터 해마다 {days}입니다.\n"


@pytest.fixture(scope="module")
def keeper(product):
    """Somebody with a PDF and some rules."""
    person = Person(product, "keeper")
    person.upload(SAMPLES / "care-system-notice.pdf", NOTICE)
    person.wait_for_documents()
    return person


@pytest.fixture
def rules(keeper, tmp_path):
    """The document of the rules, new for each test."""
    file = tmp_path / "규정.md"
    file.write_text(RULES.format(days="엿새"), encoding="utf-8")
    document = keeper.upload(file, "별빛 규정.md")
    keeper.wait_for_documents()
    yield document
    keeper.api(f"documents/{document['id']}", method="DELETE")


@pytest.fixture
def open_page(windows, keeper):
    """Opens a page of the keeper's."""

    def opened(path, **options):
        page = windows(keeper, **options)
        page.goto(path)
        return page

    return opened


TIMES = """elements => elements.map(element => {
  const format = new Intl.DateTimeFormat("ko", { dateStyle: "medium", timeStyle: "short" });
  return [element.textContent, format.format(new Date(element.dateTime))];
})"""


def test_the_server_writes_times_as_the_browser_does(open_page, rules):
    page = open_page("/", timezone_id="America/New_York")
    page.goto(f"/documents/{rules['id']}")
    (pair,) = page.locator(".facts time").evaluate_all(TIMES)
    assert pair[0] == pair[1]


def find_notice(keeper):
    found = keeper.api("documents?page_size=100")["results"]
    return next(one for one in found if one["name"] == NOTICE)


def locate_field(page, key):
    return page.locator(f"#metadata-form input[data-key='{key}']")


def send_version(page, days, name="별빛 규정 2.md"):
    file = {"name": name, "mimeType": "text/markdown", "buffer": RULES.format(days=days).encode()}
    page.locator("#version-input").set_input_files(file)


def test_what_is_known_is_changed_added_and_removed(open_page, keeper, rules):
    page = open_page(f"/documents/{rules['id']}#about")
    page.locator("#metadata-edit").click()
    locate_field(page, "title").fill("별빛 휴가 규정")
    page.locator("#metadata-form select").select_option("issuer")
    page.locator("#metadata-form [data-add]").click()
    locate_field(page, "issuer").fill("별빛 주식회사")
    page.locator("#metadata-form select").select_option("")
    page.locator("#metadata-form [data-own-key]").fill("보관 기한")
    page.locator("#metadata-form [data-add]").click()
    locate_field(page, "보관 기한").fill("5년")
    page.locator("#metadata-form [type=submit]").click()
    shown = page.locator("#metadata-shown")
    expect(shown).to_contain_text("별빛 휴가 규정")
    expect(shown).to_contain_text("보관 기한")
    known = keeper.api(f"documents/{rules['id']}")["metadata"]
    assert known["issuer"] == "별빛 주식회사"
    page.locator("#metadata-edit").click()
    locate_field(page, "보관 기한").fill("")
    page.locator("#metadata-form [type=submit]").click()
    expect(shown).not_to_contain_text("보관 기한")
    assert "보관 기한" not in keeper.api(f"documents/{rules['id']}")["metadata"]


def test_metadata_that_the_server_refuses_stays_in_the_form_with_the_reason(open_page, rules):
    page = open_page(f"/documents/{rules['id']}#about")
    page.locator("#metadata-edit").click()
    for number in range(8):
        page.locator("#metadata-form select").select_option("")
        page.locator("#metadata-form [data-own-key]").fill(f"항목 {number}")
        page.locator("#metadata-form [data-add]").click()
        locate_field(page, f"항목 {number}").fill("가" * 1000)
    page.locator("#metadata-form [type=submit]").click()
    expect(page.locator("#metadata-form [data-trouble]")).to_contain_text(re.compile("[가-힣]"))
    expect(locate_field(page, "항목 7")).to_have_value("가" * 1000)


def test_a_new_version_takes_the_place_of_the_old_one_which_can_be_downloaded(
    open_page, keeper, rules
):
    page = open_page(f"/documents/{rules['id']}#about")
    send_version(page, "열흘")
    expect(page.locator("#version-news")).to_be_visible()
    expect(page.locator("#chunk-list")).to_contain_text("열흘", timeout=READY)
    states = page.locator("#version-list .version")
    expect(states).to_have_count(2)
    expect(states.nth(0)).to_have_attribute("data-state", "current")
    old = states.nth(1)
    expect(old).to_have_attribute("data-state", "old")
    with page.expect_download() as download:
        old.locator("a").click()
    assert "엿새" in download.value.path().read_text(encoding="utf-8")
    news = page.locator("#version-news").inner_text()
    send_version(page, "열흘")
    expect(page.locator("#version-news")).not_to_have_text(news)
    expect(states).to_have_count(2)
    assert keeper.api(f"documents/{rules['id']}")["version"] == 2


def test_a_version_that_cannot_be_read_leaves_the_document_as_it_was(open_page, rules):
    page = open_page(f"/documents/{rules['id']}#about")
    torn = {"name": "찢어진.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.7\n1 0 obj"}
    page.locator("#version-input").set_input_files(torn)
    refused = page.locator("#version-list [data-state=refused]")
    expect(refused.locator(".document-error")).to_contain_text("니다.", timeout=READY)
    expect(page.locator("#chunk-list")).to_contain_text("엿새")
    expect(page.locator("article")).to_have_attribute("data-status", "COMPLETED")


def test_an_answer_says_that_it_rests_on_an_older_version(open_page, keeper, rules, tmp_path):
    page = open_page(f"/?documents={rules['id']}")
    ask(page, "별빛 휴가는 며칠인가요?")
    answer(page)
    newer = tmp_path / "새 규정.md"
    newer.write_text(RULES.format(days="열흘"), encoding="utf-8")
    keeper.upload(newer, over=rules["id"])
    wait_until(lambda: keeper.api(f"documents/{rules['id']}")["version"] == 2, READY / 1000)
    page.reload()
    answer(page).locator(".cite").first.click()
    expect(page.locator("#panel .passage-old")).to_contain_text("2")
    expect(page.locator("#panel mark.cited")).to_contain_text("엿새")


def test_a_search_tried_shows_hits_their_scores_and_the_verdict(open_page, keeper):
    page = open_page(f"/documents/{find_notice(keeper)['id']}#index")
    form, found = page.locator("#trial-form"), page.locator("#trial-found")
    form.locator("input").fill("통합돌봄 정보시스템 사업 예산은 얼마인가요?")
    form.locator("button").click()
    expect(found.locator("[data-relevant=true]")).to_be_visible(timeout=READY)
    expect(found.locator(".trial-hit").first).to_contain_text("1,240,000,000")
    expect(found.locator("mark").first).to_be_visible()
    assert found.locator(".trial-hit").first.locator(".trial-score").count() > 1
    form.locator("select").select_option("bm25")
    form.locator("input").fill("zebra quantum waffle")
    form.locator("input").press("Enter")
    expect(found.locator("[data-relevant=false]")).to_be_visible(timeout=READY)


def test_a_chunk_is_shown_on_its_page(open_page, keeper):
    page = open_page(f"/documents/{find_notice(keeper)['id']}#index")
    button = page.locator("#chunk-1 [data-show-page]")
    button.click()
    expect(page.locator("#panel .pdf-passage").first).to_be_in_viewport(timeout=READY)
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect(button).to_be_focused()


def test_several_documents_are_chosen_asked_about_and_deleted(open_page, keeper, tmp_path):
    for number in range(3):
        file = tmp_path / f"낱장 {number}.md"
        file.write_text(f"# 낱장\n\n{number}번째 낱장입니다.", encoding="utf-8")
        keeper.upload(file)
    keeper.wait_for_documents()
    page = open_page("/documents?q=낱장")
    page.locator("[data-choose-all]").check()
    bulk = page.locator("#bulk")
    expect(bulk.locator("[data-words]")).to_contain_text("3")
    page.locator("[data-choose]").first.uncheck()
    two = re.compile("^[^,]+,[^,]+$")
    expect(bulk.locator("[data-bulk=ask]")).to_have_attribute("href", two)
    bulk.locator("[data-bulk=delete]").click()
    expect(page.locator("#confirm-list li")).to_have_count(2)
    expect(page.locator("#confirm-list")).to_contain_text("낱장 0.md")
    page.locator("#confirm-yes").click()
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    expect(bulk).to_be_hidden()
    page.locator("[data-choose-all]").check()
    expect(bulk.locator("[data-words]")).to_contain_text("1")
    page.locator("[data-choose-all]").uncheck()
    page.locator(".toast [aria-label='닫기']").click()
    expect(page.locator("tbody tr")).to_have_count(1)

    def left():
        return [one["name"] for one in keeper.api("documents?page_size=100")["results"]]

    wait_until(lambda: sum("낱장" in name for name in left()) == 1)


def upload_notes(keeper, folder, word):
    """As many documents as need a second page of the list, named after `word`."""
    documents = []
    for number in range(21):
        file = folder / f"{word} {number}.md"
        file.write_text(f"# {word}\n\n{number}번째 {word}입니다.", encoding="utf-8")
        documents.append(keeper.upload(file))
    return documents


def test_documents_chosen_on_two_pages_of_the_list_are_deleted_together(
    open_page, keeper, tmp_path
):
    documents = upload_notes(keeper, tmp_path, "장부")
    page = open_page("/documents?q=장부")
    page.locator("[data-choose]").first.check()
    page.locator("#pages-next").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    words = page.locator("#bulk [data-words]")
    expect(words).to_have_text("1개 선택됨 · 다른 페이지에 1개")
    expect(page.locator("[data-choose-all]")).not_to_be_checked()
    page.locator("[data-choose]").check()
    expect(words).to_have_text("2개 선택됨 · 다른 페이지에 1개")
    page.locator("#pages-previous").click()
    expect(page.locator("[data-choose]").first).to_be_checked()
    page.locator("#bulk [data-bulk=delete]").click()
    expect(page.locator("#confirm-list li")).to_have_text(["장부 20.md", "장부 0.md"])
    page.locator("#confirm-yes").click()
    expect(page.locator("#bulk")).to_be_hidden()
    page.locator(".toast [aria-label='닫기']").click()
    expect(page.locator("tbody tr")).to_have_count(19)
    for one in documents[1:-1]:
        keeper.api(f"documents/{one['id']}", method="DELETE")


def test_a_chosen_document_that_somebody_deletes_is_chosen_no_longer(open_page, keeper, tmp_path):
    file = tmp_path / "쪽지.md"
    file.write_text("# 쪽지\n\n곧 없어집니다.", encoding="utf-8")
    document = keeper.upload(file)
    page = open_page("/documents?q=쪽지.md")
    page.locator("[data-choose]").check()
    keeper.api(f"documents/{document['id']}", method="DELETE")
    expect(page.locator("#bulk")).to_be_hidden()


REDRAW_TWICE = """() => {
  const redraw = () => document.body.dispatchEvent(new Event("documents-changed"));
  redraw();
  redraw();
}"""


def test_a_page_turned_while_the_list_is_redrawn_stays_turned(open_page, keeper, tmp_path):
    """Also where the list has changed again meanwhile."""
    documents = upload_notes(keeper, tmp_path, "일지")
    keeper.wait_for_documents()
    page = open_page("/documents?q=일지")
    first_page = re.compile(r"/documents\?.*page=1$")
    with page.expect_event("requestfailed") as given_up:
        with page.expect_request(first_page):  # it may also come from a document that is ready
            page.route(first_page, lambda _route: None, times=1)  # not answered yet
            page.evaluate(REDRAW_TWICE)
        page.locator("#pages-next").click()
    assert given_up.value.url.endswith("page=1")
    expect(page.locator("tbody tr")).to_have_count(1)
    for one in documents:
        keeper.api(f"documents/{one['id']}", method="DELETE")


REDRAW_STYLED = """() => new Promise((resolve) => {
  const found = [];
  const note = (event) => found.push(event.violatedDirective);
  document.addEventListener("securitypolicyviolation", note);
  document.getElementById("document-page").style.color = "red";
  const end = () => requestAnimationFrame(() => resolve(found));
  document.body.addEventListener("htmx:afterSettle", end);
  document.body.dispatchEvent(new Event("documents-changed"));
})"""
"""Redraws the list with a style that a script has set; resolves to what the policy forbade."""


def test_a_list_is_redrawn_without_styles_that_the_policy_forbids(open_page, rules):
    assert open_page("/documents").evaluate(REDRAW_STYLED) == []


@pytest.fixture
def cards(open_page, keeper):
    """The list of documents as cards; a table again for who comes next."""
    page = open_page("/documents")
    page.locator("#layouts [data-layout=cards]").click()
    expect(page.locator("#layouts [data-layout=cards]")).to_have_attribute("aria-pressed", "true")
    yield page
    keeper.api("me/preferences", {"document_layout": "table"}, "PATCH")


WHERE_SECOND = """([first, second]) => {
  if (!second) return "nowhere";
  const [one, other] = [first, second].map((row) => row.getBoundingClientRect());
  if (one.height && one.top === other.top && one.right <= other.left) return "beside";
  return one.height && one.bottom <= other.top ? "below" : "elsewhere";
}"""
"""Where the second of the rows is seen from the first."""


def test_documents_are_cards_where_that_is_chosen_and_stay_so(cards, keeper, rules):
    cards.reload()
    rows = cards.locator("tbody tr")
    expect(rows.first).to_contain_text("별빛 규정.md")
    wait_until(lambda: rows.evaluate_all(WHERE_SECOND) == "beside")  # the list may be being renewed
    expect(cards.locator("#layouts [data-layout=cards]")).to_have_attribute("aria-pressed", "true")
    assert measure_overflow(cards) <= 0
    assert keeper.api("me/preferences")["document_layout"] == "cards"
    cards.locator("#layouts [data-layout=table]").click()
    wait_until(lambda: rows.evaluate_all(WHERE_SECOND) == "below")


def test_cards_are_sorted_narrowed_and_chosen_like_rows(cards, keeper, rules):
    cards.locator("[name=sort]").select_option("name")
    first = min(one["name"] for one in keeper.api("documents?page_size=100")["results"])
    expect(cards.locator("tbody tr").first).to_have_attribute("data-name", first)
    cards.locator("[data-choose-all]").check()
    shown = cards.locator("tbody tr").count()
    expect(cards.locator("#bulk [data-words]")).to_contain_text(str(shown))
    cards.locator("[data-choose]").first.uncheck()
    cards.locator("#document-search").fill("별빛")
    expect(cards.locator("tbody tr")).to_have_count(1)
    expect(cards.locator(".document-found mark").first).to_have_text("별빛")


def test_all_documents_of_a_page_are_chosen_on_a_phone(open_page, rules):
    page = open_page("/documents", viewport=PHONE)
    expect(page.locator("#layouts")).to_be_hidden()
    page.locator("[data-choose-all]").check()
    shown = page.locator("tbody tr").count()
    expect(page.locator("#bulk [data-words]")).to_contain_text(str(shown))
    assert measure_overflow(page) <= 0
    page.set_viewport_size({"width": 320, "height": 640})
    field = page.locator("#document-search").bounding_box()
    assert field["x"] + field["width"] <= 320


def test_the_table_is_narrowed_by_issuer_and_ordered(open_page, keeper, rules):
    keeper.api(f"documents/{rules['id']}", {"metadata": {"issuer": "별빛 주식회사"}}, "PATCH")
    page = open_page("/documents")
    page.locator("[name=issuer]").select_option("별빛 주식회사")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile("issuer="))
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("[name=issuer]").select_option("")
    page.locator("[name=sort]").select_option("name")
    first = min(one["name"] for one in keeper.api("documents?page_size=100")["results"])
    expect(page.locator("tbody tr").first).to_have_attribute("data-name", first)


def test_a_document_opens_on_itself_and_a_tab_holds_the_figures(open_page, keeper):
    page = open_page(f"/documents/{find_notice(keeper)['id']}")
    expect(page.locator("#document-reader .textLayer span").first).to_be_visible(timeout=READY)
    expect(page.locator("#document-made")).to_be_hidden()
    page.locator("#tab-read").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#document-made")).to_be_visible()
    page.reload()
    expect(page.locator("#document-made")).to_be_visible()


TOOLS = """bar => [...bar.querySelectorAll("button, input")]
  .filter((one) => one.checkVisibility())
  .map((one) => one.getBoundingClientRect())
  .map(({ left, right, top }) => [left, right, top])"""


@pytest.mark.parametrize("width", [320, 375])
def test_all_tools_of_the_reader_stand_in_one_row_of_a_phone(open_page, keeper, width):
    path = f"/documents/{find_notice(keeper)['id']}"
    page = open_page(
        path, viewport={"width": width, "height": 700}, has_touch=True, color_scheme="dark"
    )
    bar = page.locator(".reader-bar")
    expect(bar.locator(".reader-total")).to_have_text("/ 4")
    box = bar.bounding_box()
    lefts, rights, tops = zip(*bar.evaluate(TOOLS), strict=True)
    assert len(lefts) >= 5
    assert min(lefts) >= box["x"]
    assert max(rights) <= box["x"] + box["width"]
    assert max(tops) - min(tops) < 20


def test_paper_is_offered_at_night_for_the_pages_of_a_pdf_alone(open_page, keeper, rules):
    for document, is_offered in ((find_notice(keeper), True), (rules, False)):
        page = open_page(f"/documents/{document['id']}", color_scheme="dark")
        expect(page.locator(".reader-bar")).to_be_visible()
        expect(page.locator(".reader-paper")).to_be_visible(visible=is_offered)


def test_a_document_that_is_deleted_while_its_page_opens_goes_out_of_sight(windows, keeper):
    document = keeper.upload(SAMPLES / "ventilator-manual.md", "곧 지워질 설명서.md")
    keeper.wait_for_documents()
    address = f"documents/{document['id']}"

    def delete(route):
        if not asked:
            keeper.api(address, method="DELETE")
        asked.append(route)
        route.continue_()

    asked = []
    page = windows(keeper)
    page.route(f"**/api/v1/{address}", delete)
    page.goto(f"/{address}?page=2")
    expect(page.locator("article[data-document-id]")).to_have_count(0)


def test_a_passage_that_cannot_be_shown_says_why(open_page, rules):
    page = open_page(f"/documents/{rules['id']}#index")
    button = page.locator("[data-show-page]").first
    button.scroll_into_view_if_needed()
    page.route(f"**/api/v1/documents/{rules['id']}", lambda route: route.abort())
    button.click()
    expect(page.locator(".toast-error")).to_be_visible()
    expect(page.locator("#panel")).to_be_hidden()


def test_a_document_says_which_chats_have_used_it(open_page, keeper, rules):
    page = open_page(f"/?documents={rules['id']}")
    ask(page, "별빛 휴가는 며칠인가요?")
    answer(page)
    page.goto(f"/documents/{rules['id']}#about")
    link = page.locator(".document-chats a").first
    expect(link).to_have_text("별빛 휴가는 며칠인가요?")
    link.click()
    page.wait_for_url("**/c/*")


def test_a_document_is_found_by_what_it_says_and_opens_at_the_words(open_page, keeper, rules):
    page = open_page("/documents")
    page.locator("#document-search").fill("별빛 휴가")
    found = page.locator(".document-found a").first
    expect(found.locator("mark").first).to_have_text("별빛")
    found.click()
    expect(page.locator("mark.found").first).to_be_in_viewport()


LAST = "노랑부리저어새"
IS_LAST_SEEN = """
(word) => {
  const text = document.querySelector("#document-reader .doc-text");
  if (!text) return false;
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
  const range = new Range();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const at = node.data.lastIndexOf(word);
    if (at < 0) continue;
    range.setStart(node, at);
    range.setEnd(node, at + word.length);
  }
  const [place, pane] = [range, text.parentElement].map((one) => one.getBoundingClientRect());
  const bottom = Math.min(pane.bottom, innerHeight);
  return place.height > 0 && place.top >= pane.top && place.bottom <= bottom;
}
"""


def test_words_at_the_end_of_a_long_passage_are_in_sight_and_stay_so(open_page, keeper, tmp_path):
    file = tmp_path / "긴 글.txt"
    lines = "\n".join(f"{number}번째 줄에는 물새 이야기가 있다." for number in range(1, 200))
    file.write_text(f"{LAST} 이야기의 처음.\n\n{lines}\n마지막으로 {LAST}가 온다.\n", "utf-8")
    document = keeper.upload(file, "물새.txt")
    keeper.wait_for_documents()
    place = f"documents/{document['id']}"
    chunks = keeper.api(f"{place}/chunks?page_size=100")["results"]
    assert len(chunks) > 1
    page = open_page(
        f"/{place}?chunk={len(chunks) - 1}&q={LAST}", viewport={"width": 1000, "height": 1000}
    )
    wait_until(lambda: page.evaluate(IS_LAST_SEEN, LAST))
    # Fewer lines are in sight, or they break anew: the place is led to again.
    for width, height in ((1000, 700), (1000, 480), (700, 480), (900, 480)):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        assert page.evaluate(IS_LAST_SEEN, LAST)
    keeper.api(place, method="DELETE")


def test_words_of_a_search_are_marked_without_their_endings(open_page, keeper, tmp_path):
    file = tmp_path / "계약.txt"
    file.write_text("계약 해지는 서면으로 한다. 해지된 계약은 되살릴 수 없다.\n", "utf-8")
    document = keeper.upload(file, "계약.txt")
    keeper.wait_for_documents()
    place = f"documents/{document['id']}"
    page = open_page(f"/{place}?chunk=0&q=계약을 해지하려면")
    found = page.locator("#document-reader mark.found")
    expect(found).to_have_text(["계약", "해지", "해지", "계약"])
    keeper.api(place, method="DELETE")


def test_what_is_chosen_ends_with_its_list(open_page, keeper, rules):
    page = open_page("/documents")
    page.locator("[data-choose]").first.check()
    expect(page.locator("#bulk")).to_be_visible()
    page.locator("#document-search").fill("뷁꿻쀍")
    expect(page.locator("tbody tr")).to_have_count(0)
    expect(page.locator("#bulk")).to_be_hidden()
    page.locator("#document-search").fill("")
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.locator("#bulk")).to_be_hidden()


def test_the_tray_of_uploads_opens_at_its_first_file(open_page):
    page = open_page("/documents")
    files = [
        {"name": f"빈 {number}.md", "mimeType": "text/markdown", "buffer": b""}
        for number in range(20)
    ]
    page.locator("#file-input").set_input_files(files)
    expect(page.locator("#uploads .upload")).to_have_count(20)
    assert page.locator("#uploads").evaluate("(one) => one.scrollTop") == 0
    expect(page.locator("#uploads .upload").first).to_be_in_viewport()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_fit_a_phone_with_everything_open(open_page, keeper, scheme):
    page = open_page(f"/documents/{find_notice(keeper)['id']}", viewport=PHONE, color_scheme=scheme)
    assert (measure_luminance(page) < 60) == (scheme == "dark")
    assert measure_overflow(page) <= 0
    page.locator("#tab-about").click()
    page.locator("#metadata-edit").click()
    assert measure_overflow(page) <= 0
    page.locator("#tab-index").click()
    page.locator("#trial-form input").fill("사업 예산은 얼마인가요?")
    page.locator("#trial-form button").click()
    expect(page.locator(".trial-hit").first).to_be_visible(timeout=READY)
    assert measure_overflow(page) <= 0
    inner = page.locator(".scroller").evaluate("(one) => one.scrollWidth - one.clientWidth")
    assert inner <= 0
    page.goto("/documents")
    page.locator("[data-choose]").first.check()
    expect(page.locator("#bulk")).to_be_visible()
    assert measure_overflow(page) <= 0

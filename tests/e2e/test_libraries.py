"""Libraries in the page: made, shared, filled, asked, and closed to who is no member any more."""

import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import DONE_WITHIN, answer, ask
from tests.e2e.people import Person
from tests.e2e.test_accessibility import AXE, PHONE, RULES, RUN
from tests.servers.llm import Stream

NOTE = "# 별빛 규정\n\n## 제3조\n\n별빛 휴가는 입사 2년 뒤부터 해마다 엿새입니다.\n"
READY = 60_000


@pytest.fixture(scope="module")
def manager(product):
    """Somebody who shares a document."""
    return Person(product, "library-manager")


@pytest.fixture(scope="module")
def member(product):
    """Somebody with whom it is shared."""
    return Person(product, "library-member")


@pytest.fixture
def library(manager, member, tmp_path):
    """A library of the manager's with a document that can be asked, which the member reads."""
    library = make_library(manager, member, tmp_path)
    yield library
    manager.api(f"libraries/{library['id']}?documents=delete", method="DELETE")


def make_library(manager, member, tmp_path):
    library = manager.api("libraries", {"name": "별빛 자료"})
    body = {"user": member.name, "role": "reader"}
    library["member"] = manager.api(f"libraries/{library['id']}/members", body)["id"]
    (tmp_path / "별빛 규정.md").write_text(NOTE)
    document = manager.upload(tmp_path / "별빛 규정.md")
    manager.wait_for_documents()
    body = {"library_id": library["id"]}
    manager.api(f"documents/{document['id']}", body, method="PATCH")
    library["document"] = document["id"]
    return library


def leave(manager, library):
    manager.api(f"libraries/{library['id']}/members/{library['member']}", method="DELETE")


def test_a_library_is_made_and_shared_and_a_document_moves_into_it(windows, manager, tmp_path):
    (tmp_path / "달빛.md").write_text("# 달빛\n\n달빛 수당은 매달 삼만 원입니다.\n")
    document = manager.upload(tmp_path / "달빛.md")
    window = windows(manager)
    window.goto("/documents")
    window.locator("#library-new").click()
    window.locator("#library-form [name=name]").fill("달빛 자료")
    window.locator("button[form=library-form]").click()
    window.wait_for_url("**library=**")
    window.locator("#library-manage").click()
    rows = window.locator("#member-list li")
    expect(rows).to_have_count(1)
    window.locator("#member-form [name=name]").fill("nobody-at-all")
    window.locator("#member-form button").click()
    expect(window.locator("#library-trouble")).to_contain_text("nobody-at-all")
    window.locator("#library-dialog [data-close]").click()
    window.goto("/documents?library=private")
    row = window.locator(f"[data-document-id='{document['id']}']")
    row.locator("[data-document-menu]").click()
    window.locator("#document-menu [data-action=move]").click()
    window.locator("#library-target-choice").select_option(label="달빛 자료")
    window.locator("#library-target button[value=yes]").click()
    expect(row).to_have_count(0)
    moved = manager.api(f"documents/{document['id']}")
    (made,) = manager.api(f"libraries?{urlencode({'q': '달빛'})}")["results"]
    assert moved["library_id"] == made["id"]
    manager.api(f"libraries/{made['id']}?documents=delete", method="DELETE")


def test_people_one_knows_are_suggested_while_a_name_is_typed(windows, manager, member, library):
    window = windows(manager)
    Person(manager.product, "library-outsider")
    window.goto(f"/documents?library={library['id']}")
    window.locator("#library-manage").click()
    field = window.locator("#member-form [name=name]")
    field.press_sequentially("library-")
    offered = window.locator("#library-dialog [role=option]")
    expect(offered).to_have_text([member.name])
    expect(field).to_have_attribute("role", "combobox")
    expect(field).to_have_attribute("aria-expanded", "true")
    expect(offered).to_have_attribute("aria-selected", "false")
    field.press("ArrowDown")
    expect(offered).to_have_attribute("aria-selected", "true")
    expect(field).to_have_attribute("aria-activedescendant", offered.get_attribute("id"))
    field.press("Escape")
    expect(offered).to_be_hidden()
    expect(window.locator("#library-dialog")).to_be_visible()
    expect(field).to_have_attribute("aria-expanded", "false")
    field.press_sequentially("m")
    expect(offered).to_be_visible()
    field.press("ArrowDown")
    field.press("Enter")
    expect(field).to_have_value(member.name)
    expect(offered).to_be_hidden()
    asked = []
    window.on("request", lambda request: asked.append(request.url))
    window.locator("#member-form [name=kind]").select_option("group")
    field.fill("some-group")
    window.locator("#member-form [name=kind]").select_option("user")
    field.fill("library-m")
    expect(offered).to_be_visible()
    assert not [url for url in asked if "some-group" in url]


DRAW_ANEW = """() => new Promise((done) => {
  const table = document.getElementById("document-table");
  table.addEventListener("htmx:afterSettle", ({ target }) => target === table && done());
  document.body.dispatchEvent(new Event("documents-changed"));
})"""


@pytest.mark.parametrize("chosen", ["", "private"])
def test_what_is_chosen_stays_chosen_and_open_when_the_list_is_drawn_anew(
    chosen, windows, manager, library
):
    window = windows(manager)
    window.goto(f"/documents?library={chosen}")
    choice = window.locator("#library")
    window.evaluate(DRAW_ANEW)
    assert choice.input_value() == chosen
    choice.focus()
    option = choice.locator("option").first.element_handle()
    window.evaluate(DRAW_ANEW)
    assert option.evaluate("(option) => option.isConnected"), "an open choice closes"
    choice.blur()
    assert not option.evaluate("(option) => option.isConnected")
    assert choice.input_value() == chosen


def test_a_reader_changes_nothing_and_asks_with_a_hash_sign(windows, member, library):
    window = windows(member)
    window.goto(f"/documents?library={library['id']}")
    expect(window.locator("#attach")).to_be_hidden()
    expect(window.locator("#library-manage")).to_have_count(0)
    window.locator("[data-document-menu]").click()
    expect(window.locator("#document-menu [data-action=delete]")).to_be_hidden()
    expect(window.locator("#document-menu [data-action=download]")).to_be_visible()
    window.goto("/")
    window.locator("#composer-input").click()
    window.keyboard.type("#별빛")
    expect(window.locator("#composer-menu .option").first).to_contain_text("별빛 자료")
    window.keyboard.press("Enter")
    expect(window.locator("#scope-text")).to_have_text("별빛 자료")
    ask(window, "별빛 휴가는 며칠인가요?")
    done = answer(window)
    expect(done.locator(".source-card")).to_contain_text("별빛 규정.md")
    expect(window.locator(".msg-question .attached")).to_contain_text("별빛 자료")


def test_an_open_list_offers_what_the_new_role_allows(windows, manager, member, library):
    window = windows(member)
    window.goto(f"/documents?library={library['id']}")
    expect(window.locator("#attach")).to_be_hidden()
    place = f"libraries/{library['id']}/members/{library['member']}"
    manager.api(place, {"role": "contributor"}, "PATCH")
    expect(window.locator("#attach")).to_be_visible()
    manager.api(place, {"role": "reader"}, "PATCH")
    expect(window.locator("#attach")).to_be_hidden()


def test_the_open_page_of_a_document_offers_what_the_new_role_allows(
    windows, manager, member, library
):
    window = windows(member)
    window.goto(f"/documents/{library['document']}#about")
    edit, upload = window.locator("#metadata-edit"), window.locator("#version-upload")
    expect(window.locator("#metadata-shown")).to_be_visible()
    expect(edit).to_be_hidden()
    place = f"libraries/{library['id']}/members/{library['member']}"
    manager.api(place, {"role": "manager"}, "PATCH")
    expect(edit).to_be_visible()
    expect(upload).to_be_visible()
    edit.click()
    manager.api(place, {"role": "reader"}, "PATCH")
    expect(upload).to_be_hidden()
    expect(window.locator("#metadata-form")).to_be_hidden()
    expect(edit).to_be_hidden()
    window.locator("[data-document-menu]").click()
    expect(window.locator("#document-menu [data-action=download]")).to_be_visible()
    expect(window.locator("#document-menu [data-action=delete]")).to_be_hidden()


def test_an_open_list_shows_a_library_to_its_new_member(windows, manager, product, library):
    newcomer = Person(product, "library-newcomer")
    window = windows(newcomer)
    window.goto("/documents")
    expect(window.locator("[data-choose-files]")).to_be_visible()
    body = {"user": newcomer.name, "role": "reader"}
    manager.api(f"libraries/{library['id']}/members", body)
    expect(window.locator(f"[data-document-id='{library['document']}']")).to_be_visible()
    expect(window.locator("#library option", has_text="별빛 자료")).to_have_count(1)


def test_an_open_chat_drops_a_chosen_library_that_is_deleted(windows, manager, member, tmp_path):
    library = make_library(manager, member, tmp_path)
    window = windows(member)
    window.goto("/")
    window.locator("#composer-input").click()
    window.keyboard.type("#별빛")
    expect(window.locator("#composer-menu .option").first).to_contain_text("별빛 자료")
    window.keyboard.press("Enter")
    expect(window.locator("#scope-text")).to_have_text("별빛 자료")
    manager.api(f"libraries/{library['id']}?documents=delete", method="DELETE")
    expect(window.locator("#scope-text")).not_to_have_text("별빛 자료")
    ask(window, "별빛 휴가는 며칠인가요?")
    answer(window)


def test_who_is_no_member_any_more_finds_nothing_and_old_answers_say_so(
    windows, manager, member, library
):
    chat = member.api("messages", {"content": "별빛 휴가는 며칠인가요?"})["chat_id"]
    leave(manager, library)
    window = windows(member)
    window.goto(f"/c/{chat}")
    done = window.locator(".msg-answer").first
    expect(done).to_be_visible()
    assert "엿새" not in window.content()
    window.goto("/documents")
    expect(window.locator(f"[data-document-id='{library['document']}']")).to_have_count(0)
    assert library["id"] not in window.content()


def test_open_pages_show_nothing_more_of_a_library_when_the_membership_ends(
    windows, manager, member, library
):
    window, documents, document = windows(member), windows(member), windows(member)
    window.goto("/")
    ask(window, "별빛 휴가는 며칠인가요?")
    done = answer(window)
    done.locator(".source-card").first.click()
    expect(window.locator("#panel-body")).to_contain_text("엿새")
    documents.goto(f"/documents?library={library['id']}")
    document.goto(f"/documents/{library['document']}")
    leave(manager, library)
    expect(done.locator(".source-closed")).to_contain_text("열람 권한 없음")
    expect(done.locator(".source-card:not(.source-closed)")).to_have_count(0)
    expect(window.locator("#panel")).to_be_hidden()
    expect(window.locator("body")).not_to_contain_text("엿새")
    done.locator(".source-closed").click()
    panel = window.locator("#panel")
    expect(panel.locator("#panel-facts")).to_have_text("열람 권한 없음")
    expect(panel.locator("#panel-body")).to_contain_text("열람 권한 없음")
    expect(panel.locator("#panel-actions")).to_be_empty()
    expect(panel).not_to_contain_text("엿새")
    documents.wait_for_url(lambda url: "library=" not in url)
    expect(documents.locator(f"[data-document-id='{library['document']}']")).to_have_count(0)
    expect(document.locator("article[data-document-id]")).to_have_count(0)


def test_what_was_closed_while_the_connection_was_down_is_not_shown_when_it_is_back(
    windows, manager, member, library
):
    def connect(socket):
        socket.connect_to_server()
        sockets.append(socket)

    sockets = []
    documents, document = windows(member), windows(member)
    for page in (documents, document):
        page.route_web_socket("**/ws/chat/", connect)
    row = f"[data-document-id='{library['document']}']"
    documents.goto(f"/documents?library={library['id']}")
    expect(documents.locator(row)).to_have_count(1)
    document.goto(f"/documents/{library['document']}")
    expect(document.locator(f"article{row}")).to_have_count(1)
    for socket in sockets:
        socket.close()
    leave(manager, library)
    documents.wait_for_url(lambda url: "library=" not in url)
    expect(documents.locator(row)).to_have_count(0)
    expect(document.locator(f"article{row}")).to_have_count(0)


def test_an_answer_under_way_ends_in_the_open_page_and_its_sources_are_closed(
    windows, product_with_model, llm, tmp_path
):
    manager = Person(product_with_model, "midstream-manager")
    member = Person(product_with_model, "midstream-member")
    library = make_library(manager, member, tmp_path)
    llm.default = Stream(["별빛 휴가는 해마다 엿새입니다 [1]. ", *["그리고 "] * 2000], delay=0.05)
    window = windows(member)
    window.goto("/")
    ask(window, "별빛 휴가는 며칠인가요?")
    growing = window.locator(".msg-answer")
    expect(growing.locator(".prose")).to_contain_text("그리고", timeout=DONE_WITHIN)
    leave(manager, library)
    expect(growing).not_to_have_attribute("aria-busy", "true")
    expect(answer(window).locator(".source-card")).to_have_class(re.compile("source-closed"))
    llm.default = Stream()
    manager.api(f"libraries/{library['id']}?documents=delete", method="DELETE")


@pytest.mark.skipif(not AXE.exists(), reason="npm --prefix front ci installs axe-core")
@pytest.mark.parametrize(
    ("language", "scheme"),
    [
        ("ko", "light"),
        ("en", "dark"),
        pytest.param("ko", "dark", marks=pytest.mark.whole),
        pytest.param("en", "light", marks=pytest.mark.whole),
    ],
)
def test_the_members_of_a_library_are_within_reach_of_everybody(
    windows, manager, library, language, scheme
):
    locale = {"ko": "ko-KR", "en": "en-US"}[language]
    window = windows(manager, viewport=PHONE, color_scheme=scheme, locale=locale)
    window.context.add_init_script(AXE.read_text())
    window.goto(f"/documents?library={library['id']}")
    assert window.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert window.evaluate(RUN, RULES) == []
    window.locator("#library-manage").click()
    expect(window.locator("#member-list li")).to_have_count(2)
    assert window.evaluate(RUN, RULES) == []

"""The chats of the sidebar: renamed, deleted with a way back, pinned, in folders, archived."""

from urllib.parse import urlencode
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from chats.views import PAGE_SIZE
from tests.support import wait_until

QUESTION = "자작나무 숲은 어디에 있나요?"


@pytest.fixture
def chat(page, reader):
    """A chat, open in the page."""
    made = reader.api("messages", {"content": QUESTION})["chat_id"]
    page.goto(f"/c/{made}")
    return made


@pytest.fixture
def folder(reader):
    """A folder with a name of its own."""
    return reader.api("categories", {"name": f"폴더 {uuid4().hex[:6]}"})


def locate_row(page, chat):
    return page.locator(f'.side-chat[data-chat-id="{chat}"]')


def locate_place(page, name):
    return page.locator(f'#chat-list [data-drop="{name}"]')


def open_menu(page, chat):
    locate_row(page, chat).hover()
    locate_row(page, chat).locator("[data-chat-menu]").click()


def choose(page, chat, action):
    open_menu(page, chat)
    page.locator(f"#chat-menu [data-action={action}]").click()


def test_a_chat_is_renamed_in_place(page, reader, chat):
    choose(page, chat, "rename")
    field = page.locator(".side-rename")
    field.fill("자작나무 이야기")
    field.press("Enter")
    expect(locate_row(page, chat)).to_contain_text("자작나무 이야기")
    expect(page.locator("#chat-title")).to_have_text("자작나무 이야기")
    wait_until(lambda: reader.api(f"chats/{chat}")["title"] == "자작나무 이야기")
    page.reload()
    expect(locate_row(page, chat)).to_contain_text("자작나무 이야기")


def test_escape_leaves_the_old_name(page, reader, chat):
    choose(page, chat, "rename")
    page.locator(".side-rename").fill("doch nicht")
    page.locator(".side-rename").press("Escape")
    expect(locate_row(page, chat)).to_contain_text(QUESTION)
    assert reader.api(f"chats/{chat}")["title"] == QUESTION


def test_a_deleted_chat_can_be_brought_back(page, reader, chat):
    choose(page, chat, "delete")
    expect(locate_row(page, chat)).to_be_hidden()
    page.locator(".toast-action").click()
    expect(locate_row(page, chat)).to_be_visible()
    page.reload()
    expect(locate_row(page, chat)).to_be_visible()
    assert reader.api(f"chats/{chat}")["id"] == chat


def test_a_deleted_chat_is_gone_when_the_page_is_left(page, reader, chat):
    choose(page, chat, "delete")
    expect(locate_row(page, chat)).to_be_hidden()
    page.goto("/")
    expect(locate_row(page, chat)).to_be_hidden()
    query = urlencode({"q": QUESTION, "page_size": 100})
    wait_until(lambda: chat not in [c["id"] for c in reader.api(f"chats?{query}")["results"]])
    page.reload()
    expect(locate_row(page, chat)).to_have_count(0)


def test_a_chat_begun_elsewhere_appears_by_itself_and_is_unread(page, reader, chat):
    other = reader.api("messages", {"content": "다른 기기에서 시작한 대화"})["chat_id"]
    expect(locate_row(page, other).locator(".dot-unread")).to_be_visible()
    locate_row(page, other).locator(".side-link").click()
    page.wait_for_url(f"**/c/{other}")
    wait_until(lambda: not reader.api(f"chats/{other}")["unread"])
    page.goto("/")
    expect(locate_row(page, other)).to_be_visible()
    expect(locate_row(page, other).locator(".dot-unread")).to_have_count(0)


def test_a_chat_that_is_deleted_elsewhere_while_it_is_read_leaves_the_list(page, reader, chat):
    other = reader.api("messages", {"content": "곧 지워질 대화"})["chat_id"]
    held = []

    def hold(route):
        if route.request.method == "PATCH":
            held.append(route)
        else:
            route.continue_()

    page.route(f"**/api/v1/chats/{other}", hold)
    page.goto(f"/c/{other}")
    expect(locate_row(page, other)).to_be_visible()
    expect(page.locator(".msg-answer")).to_be_visible()
    wait_until(lambda: page.evaluate("1") and held)
    reader.api(f"chats/{other}", method="DELETE")
    with page.expect_response(lambda one: one.request.method == "PATCH") as told:
        held[0].continue_()
    assert told.value.status == 404
    expect(locate_row(page, other)).to_have_count(0)
    page.evaluate("fetch('/healthz').then(() => new Promise(requestAnimationFrame))")  # it was read
    assert not page.locator(".toast-error").count()  # at once: a toast goes by itself


def test_who_was_signed_out_meanwhile_keeps_the_page_and_is_led_back_to_it(page, chat):
    page.context.clear_cookies(name="sessionid")
    choose(page, chat, "pin")
    expect(page.locator(".toast")).to_have_count(1)
    for _ in range(2):
        with page.expect_response("**/panels/chats*"):
            page.evaluate("document.body.dispatchEvent(new Event('chats-changed'))")
    expect(locate_row(page, chat)).to_be_visible()
    expect(page.locator("#sidebar [type=password]")).to_have_count(0)
    expect(page.locator(".toast")).to_have_count(1)
    page.locator(".toast").get_by_role("button", name="로그인").click()
    page.wait_for_url(f"**/accounts/login/?next=*{chat}*")


def test_who_asks_in_a_chat_that_was_deleted_elsewhere_is_told_so_and_keeps_the_question(
    page, reader
):
    chat = reader.api("messages", {"content": "곧 지워질 대화"})["chat_id"]
    page.goto(f"/c/{chat}")
    expect(page.locator(".msg-answer")).to_be_visible()
    reader.api(f"chats/{chat}", method="DELETE")
    page.locator("#composer textarea").fill("아직 있니?")
    page.keyboard.press("Enter")
    expect(page.locator("#composer-note")).to_contain_text("삭제된 대화입니다")
    expect(page.locator("#composer textarea")).to_have_value("아직 있니?")


def test_an_answer_that_ended_while_its_page_came_is_not_shown_as_running(page, chat):
    page.add_init_script("""addEventListener("DOMContentLoaded", () => {
        const mark = '<span class="dot-busy"></span>';
        document.querySelector(".side-chat .side-link").insertAdjacentHTML("beforeend", mark);
        window.isMarked = Boolean(document.querySelector(".dot-busy"));
    })""")
    page.reload()
    assert page.evaluate("isMarked")
    expect(page.locator(".dot-busy")).to_have_count(0)


def test_a_new_chat_begins_on_an_empty_page(page, chat):
    page.locator(".side-new").click()
    page.wait_for_url("**/")
    expect(page.locator(".msg")).to_have_count(0)
    expect(page.locator("#composer-input")).to_be_focused()


def test_a_chat_is_pinned_and_unpinned(page, reader, chat):
    choose(page, chat, "pin")
    expect(locate_place(page, "pinned").locator(f'[data-chat-id="{chat}"]')).to_be_visible()
    assert reader.api(f"chats/{chat}")["pinned"]
    choose(page, chat, "unpin")
    expect(locate_place(page, "recent").locator(f'[data-chat-id="{chat}"]')).to_be_visible()


def test_a_chat_is_dragged_into_a_folder_and_out_of_it(page, reader, chat, folder):
    page.reload()
    target = locate_place(page, folder["id"])
    locate_row(page, chat).drag_to(target)
    wait_until(lambda: reader.api(f"chats/{chat}")["category_id"] == folder["id"])
    expect(target.locator(".side-count")).to_have_text("1")
    expect(target.locator(f'[data-chat-id="{chat}"]')).to_be_visible()  # that of the open chat
    locate_row(page, chat).drag_to(locate_place(page, "recent"), target_position={"x": 20, "y": 8})
    wait_until(lambda: reader.api(f"chats/{chat}")["category_id"] is None)


def test_a_chat_is_moved_into_a_new_folder_with_keys_alone(page, reader, chat):
    name = f"새 폴더 {uuid4().hex[:6]}"
    locate_row(page, chat).locator("[data-chat-menu]").focus()
    page.keyboard.press("Enter")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    expect(page.locator("#chat-menu [data-action=move]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#move-dialog")).to_be_visible()
    page.locator("#move-new").focus()
    page.keyboard.press("Enter")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    expect(page.locator("#folder-dialog")).to_be_hidden()
    wait_until(lambda: reader.api(f"chats/{chat}")["category_id"])
    moved = page.locator(".side-folder").filter(has_text=name)
    expect(moved.locator(f'[data-chat-id="{chat}"]')).to_be_visible()


def test_two_folders_of_one_name_are_refused_in_words(page, folder):
    page.locator("[data-new-folder]").click()
    page.locator("#folder-name").fill(folder["name"])
    page.locator("#folder-name").press("Enter")
    expect(page.locator("#folder-trouble")).to_have_text("같은 이름의 폴더가 이미 있습니다.")
    expect(page.locator("#folder-dialog")).to_be_visible()


def test_a_folder_stays_open_and_its_deletion_leaves_its_chats(page, reader, chat, folder):
    reader.api(f"chats/{chat}", {"category_id": folder["id"]}, "PATCH")
    page.goto("/")
    target = locate_place(page, folder["id"])
    target.locator("summary").click()
    expect(locate_row(page, chat)).to_be_visible()
    page.reload()
    expect(locate_row(page, chat)).to_be_visible()
    target.locator("summary").hover()
    target.locator("[data-folder-menu]").click()
    page.locator("#folder-menu [data-action=delete]").click()
    expect(page.locator("#confirm")).to_contain_text(folder["name"])
    page.locator("#confirm-yes").click()
    expect(target).to_have_count(0)
    expect(locate_place(page, "recent").locator(f'[data-chat-id="{chat}"]')).to_be_visible()


def test_a_closed_folder_is_renamed_with_keys_alone_and_keeps_the_focus(page, reader, folder):
    page.goto("/")
    target, name = locate_place(page, folder["id"]), f"새 이름 {uuid4().hex[:6]}"
    target.locator("[data-folder-menu]").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("End")
    expect(page.locator("#folder-menu [data-action=delete]")).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.locator(".side-rename")).to_be_focused()
    expect(target.locator("summary")).to_be_hidden()
    page.keyboard.type(name)
    with page.expect_response("**/panels/chats?*"):
        page.keyboard.press("Enter")
    expect(target.locator("summary")).to_contain_text(name)
    expect(target.locator("summary")).to_be_focused()
    expect(target.locator("details")).not_to_have_attribute("open", "")


@pytest.mark.parametrize("action", ["archive", "delete"])
def test_the_focus_stays_beside_a_chat_that_leaves_the_list(page, reader, chat, action):
    below = reader.api("messages", {"content": "나중에 시작한 대화"})["chat_id"]
    expect(locate_row(page, below)).to_be_visible()
    locate_row(page, below).locator("[data-chat-menu]").focus()
    page.keyboard.press("Enter")
    page.locator(f"#chat-menu [data-action={action}]").focus()
    page.keyboard.press("Enter")
    expect(locate_row(page, below)).to_be_hidden()
    expect(page.locator("#chat-list .side-link:focus")).to_be_visible()


@pytest.mark.parametrize("action", ["archive", "delete", None])
def test_the_focus_stays_where_the_list_is_replaced_under_an_open_menu(page, reader, chat, action):
    below = reader.api("messages", {"content": "나중에 시작한 대화"})["chat_id"]
    expect(locate_row(page, below)).to_be_visible()
    locate_row(page, below).locator("[data-chat-menu]").focus()
    page.keyboard.press("Enter")
    locate_row(page, below).evaluate("row => row.toggleAttribute('data-former')")
    page.evaluate("document.body.dispatchEvent(new Event('chats-changed'))")
    expect(page.locator("#chat-list [data-former]")).to_have_count(0)
    if action is None:
        page.keyboard.press("Escape")
        expect(locate_row(page, below).locator("[data-chat-menu]")).to_be_focused()
        return
    page.locator(f"#chat-menu [data-action={action}]").focus()
    page.keyboard.press("Enter")
    expect(locate_row(page, below)).to_be_hidden()
    expect(page.locator("#chat-list .side-link:focus")).to_be_visible()


def test_an_archived_chat_is_found_in_the_archive_and_comes_back(page, reader, chat):
    choose(page, chat, "archive")
    expect(locate_row(page, chat)).to_have_count(0)
    page.locator(".side-archive").click()
    expect(locate_row(page, chat)).to_be_visible()
    choose(page, chat, "restore")
    expect(locate_row(page, chat)).to_have_count(0)
    page.locator(".side-back").click()
    expect(locate_row(page, chat)).to_be_visible()
    assert not reader.api(f"chats/{chat}")["archived"]


def test_several_chats_are_deleted_at_once_and_brought_back(page, reader, chat):
    other = reader.api("messages", {"content": "둘째 대화"})["chat_id"]
    expect(locate_row(page, other)).to_be_visible()
    choose(page, chat, "choose")
    locate_row(page, other).locator(".side-link").click()
    expect(page.locator("#side-bulk-words")).to_have_text("2개 선택됨")
    page.locator("[data-side-bulk=delete]").click()
    expect(locate_row(page, chat)).to_be_hidden()
    expect(locate_row(page, other)).to_be_hidden()
    page.locator(".toast-action").click()
    expect(locate_row(page, chat)).to_be_visible()
    expect(locate_row(page, other)).to_be_visible()
    assert reader.api(f"chats/{other}")["id"] == other


def test_on_a_phone_a_finger_reaches_the_menu_of_a_chat(windows, reader):
    made = reader.api("messages", {"content": QUESTION})["chat_id"]
    page = windows(reader, viewport={"width": 375, "height": 740}, has_touch=True, is_mobile=True)
    page.goto("/")
    page.locator(".main [data-side-toggle]").tap()
    button = locate_row(page, made).locator("[data-chat-menu]")
    box = button.bounding_box()
    assert min(box["width"], box["height"]) >= 44
    button.tap()
    page.locator("#chat-menu [data-action=pin]").tap()
    expect(locate_place(page, "pinned").locator(f'[data-chat-id="{made}"]')).to_be_visible()
    reader.api(f"chats/{made}", {"pinned": False}, "PATCH")


@pytest.fixture
def long_list(page, reader):
    """The ids of chats of two pages in the list, the oldest first; both pages are loaded."""
    made = [
        reader.api("chats", {"title": f"옛 대화 {number}"})["id"] for number in range(PAGE_SIZE)
    ]
    made += [reader.api("chats", {"title": "더 새로운 대화"})["id"]]
    page.goto("/")
    expect(locate_row(page, made[-1])).to_be_visible()
    expect(locate_row(page, made[0])).to_have_count(0)
    page.locator(".side-more-chats").scroll_into_view_if_needed()
    expect(locate_row(page, made[0])).to_be_attached()
    yield made
    reader.api("chats/bulk", {"chat_ids": made, "deleted": True})


def fetch_list(page):
    """Have the list fetched again; how many of its rows come with content."""
    with page.expect_response("**/panels/chats?**shown=**") as response:
        page.evaluate("() => document.body.dispatchEvent(new Event('chats-changed'))")
    return response.value.text().count("data-chat-id")


def test_older_chats_come_as_the_list_is_scrolled(page, reader, long_list):
    reader.api(f"chats/{long_list[-1]}", {"title": "새 이름"}, method="PATCH")
    fetch_list(page)
    expect(locate_row(page, long_list[-1])).to_contain_text("새 이름")
    expect(locate_row(page, long_list[0])).to_be_attached()


def test_a_long_list_keeps_its_rows_and_its_place_when_it_is_fetched_again(page, long_list):
    oldest, newest = locate_row(page, long_list[0]), locate_row(page, long_list[-1])
    oldest.scroll_into_view_if_needed()
    oldest.locator("[data-chat-menu]").focus()
    for one in (oldest, newest):
        one.evaluate("row => row.toggleAttribute('data-former')")
    place_before = page.evaluate("() => document.querySelector('#chat-list').scrollTop")
    assert place_before > 0
    count = page.locator("#chat-list .side-chat").count()
    complete = fetch_list(page)
    expect(page.locator("#chat-list [data-former]")).to_have_count(1)
    expect(oldest).to_have_attribute("data-former", "")
    expect(oldest.locator("[data-chat-menu]")).to_be_focused()
    assert page.locator("#chat-list .side-chat").count() == count
    assert page.evaluate("() => document.querySelector('#chat-list').scrollTop") == place_before
    assert complete <= count - 1


def test_old_chats_of_a_long_list_change_when_they_change_elsewhere(page, reader, long_list):
    old = long_list[:2]
    reader.api(f"chats/{old[0]}", {"title": "다른 곳에서 바꾼 이름"}, method="PATCH")
    reader.api(f"chats/{old[1]}", {"archived": True}, method="PATCH")
    fetch_list(page)
    expect(locate_row(page, old[0])).to_contain_text("다른 곳에서 바꾼 이름")
    expect(locate_row(page, old[1])).to_have_count(0)
    reader.api(f"chats/{old[1]}", {"archived": False}, method="PATCH")
    fetch_list(page)
    expect(locate_row(page, old[1])).to_contain_text("옛 대화 1")


def test_no_key_is_lost_while_the_list_is_replaced(page, chat):
    locate_row(page, chat).locator("[data-chat-menu]").focus()
    is_kept = """() => new Promise((answer) => {
        const look = () => answer(document.activeElement.matches("[data-chat-menu]"));
        addEventListener("htmx:afterSwap", look, { once: true });
        document.body.dispatchEvent(new Event("chats-changed"));
    })"""
    assert page.evaluate(is_kept)

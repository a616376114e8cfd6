"""The pages as an app: offline page, shortcuts, and how much a first look loads."""

import json

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, settle
from tests.support import wait_until

MAX_BYTES = 600_000
MAX_REQUESTS = 25
MAX_LCP_MS = 800
LCP = """() => new Promise((answer) => {
  const watch = (list) => answer(list.getEntries().at(-1).startTime);
  new PerformanceObserver(watch).observe({type: "largest-contentful-paint", buffered: true});
})"""


@pytest.fixture
def chat(reader):
    return reader.api("messages", {"content": "헤파 필터는 언제 교체하나요?"})["chat_id"]


def test_without_a_connection_the_offline_page_stands_in_and_the_way_back_works(windows, reader):
    page = windows(reader, service_workers="allow")
    page.goto("/")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    wait_until(lambda: page.evaluate("caches.keys().then((names) => names.length)"))
    page.context.set_offline(True)
    page.goto("/documents")
    expect(page.locator("h1")).to_have_text("Nura에 연결할 수 없습니다")
    page.context.set_offline(False)
    page.get_by_role("link", name="다시 시도").click()
    expect(page.locator("h1")).to_have_text("문서")


def test_the_worker_keeps_nothing_of_a_person(windows, reader, chat):
    page = windows(reader, service_workers="allow")
    page.goto(f"/c/{chat}")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.reload()
    expect(page.locator(".msg-answer")).to_be_visible()
    kept = page.evaluate(
        "caches.keys().then((names) => Promise.all(names.map((name) => caches.open(name)"
        ".then((cache) => cache.keys())))).then((all) => all.flat()"
        ".map((one) => new URL(one.url).pathname))"
    )
    assert kept
    assert all(path == "/offline" or path.startswith("/static/") for path in kept)


def test_a_first_look_at_a_chat_loads_little_and_shows_it_soon(windows, reader, chat):
    page = windows(reader)
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    asked, received = {}, {}

    def ask(event):
        asked[event["requestId"]] = event["request"]["url"]

    def receive(event):
        received[event["requestId"]] = event["encodedDataLength"]

    session.on("Network.requestWillBeSent", ask)
    session.on("Network.loadingFinished", receive)
    page.goto(f"/c/{chat}")
    answer(page)
    settle(page)
    wait_until(lambda: page.evaluate("true") and received.keys() == asked.keys())
    size = sum(received.values())
    assert size <= MAX_BYTES, size
    assert len(asked) <= MAX_REQUESTS, asked.values()
    print(f"{size / 1000:.0f} kB, {len(asked)} requests, LCP {page.evaluate(LCP):.0f} ms")


def test_c98_a_page_of_a_former_release_offers_to_reload_and_what_is_typed_stays(windows, reader):
    page = windows(reader)
    heard = []

    def connect(page_side):
        server_side = page_side.connect_to_server()
        heard.append([])
        number = len(heard)

        def pass_on(text):
            frame = json.loads(text)
            if frame["type"] == "pong" and number == 1:  # the next release answers this page
                frame["data"]["release"] = "later"
            page_side.send(json.dumps(frame))
            heard[number - 1].append(frame["type"])

        server_side.on_message(pass_on)

    page.route_web_socket("**/ws/chat/", connect)
    page.goto("/")
    page.locator("#composer-input").fill("반쯤 쓴 질문")
    offer = page.locator(".toast", has_text="새 버전이 설치되었습니다")
    offer.get_by_role("button", name="새로고침").click()
    wait_until(lambda: page.title() and "pong" in heard[-1] and len(heard) > 1)
    expect(page.locator("#composer-input")).to_have_value("반쯤 쓴 질문")
    expect(offer).to_have_count(0)


def test_ctrl_slash_lists_the_shortcuts_and_one_of_them_gets_other_keys(page):
    page.keyboard.press("Control+/")
    dialog = page.locator("#shortcuts")
    expect(dialog).to_be_visible()
    dialog.locator("[data-action=search]").click()
    page.keyboard.press("Control+Shift+F")
    expect(dialog.locator("[data-action=search]")).to_have_text("Ctrl Shift F")
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_hidden()
    page.keyboard.press("Control+Shift+F")
    expect(page.locator("#palette")).to_be_visible()


def test_keys_of_another_shortcut_are_refused_in_words(page):
    page.keyboard.press("Control+/")
    page.locator("#shortcuts [data-action=search]").click()
    page.keyboard.press("Control+Shift+O")
    expect(page.locator("#shortcut-trouble")).to_contain_text("새 대화")
    expect(page.locator("#shortcuts [data-action=search]")).to_have_text("Ctrl K")
    page.locator("#shortcuts [data-action=search]").click()
    page.keyboard.press("k")
    expect(page.locator("#shortcut-trouble")).not_to_be_empty()


def test_shortcuts_can_be_switched_off_and_on(page):
    page.locator(".side-user").click()
    page.locator("[data-show-shortcuts]").click()
    expect(page.locator("#shortcuts-on")).to_have_css("width", "18px")
    page.locator("#shortcuts-on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_hidden()
    page.locator(".side-user").click()
    page.locator("[data-show-shortcuts]").click()
    page.locator("#shortcuts-usual").click()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()


def test_the_sidebar_and_the_input_have_keys(page):
    page.keyboard.press("Control+Shift+S")
    expect(page.locator("#sidebar")).to_be_hidden()
    page.keyboard.press("Control+Shift+S")
    expect(page.locator("#sidebar")).to_be_visible()
    page.locator(".side-new").focus()
    page.keyboard.press("Shift+Escape")
    expect(page.locator("#composer-input")).to_be_focused()


def test_nothing_moves_for_who_wants_it_so(windows, reader):
    page = windows(reader, reduced_motion="reduce")
    page.goto("/")
    page.keyboard.press("Control+k")
    moving = page.evaluate(
        "document.getAnimations().filter((one) => one.effect.getTiming().duration > 20).length"
    )
    assert moving == 0


def test_a_keyboard_over_the_page_never_covers_the_composer(windows, reader, chat):
    page = windows(reader, viewport={"width": 375, "height": 740}, has_touch=True)
    page.add_init_script(
        "const seen = new EventTarget();"
        "Object.assign(seen, {scale: 1, height: innerHeight, offsetTop: 0});"
        "Object.defineProperty(window, 'visualViewport', {value: seen})"
    )
    page.goto(f"/c/{chat}")
    page.locator("#composer-input").tap()
    page.evaluate("visualViewport.height = 400; visualViewport.dispatchEvent(new Event('resize'))")
    box = page.locator(".dock").bounding_box()
    assert box["y"] + box["height"] <= 400
    page.evaluate("visualViewport.height = 740; visualViewport.dispatchEvent(new Event('resize'))")
    box = page.locator(".dock").bounding_box()
    assert box["y"] + box["height"] == 740

"""Every page, wide and narrow, light and dark, without a breach of its own policy."""

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, settle
from tests.e2e.people import Person
from tests.servers.llm import Stream
from tests.support import wait_until

PHONE = {"width": 375, "height": 740}
OWN = ["/", "/documents", "/settings/keys", "/accounts/password/change/", "/nowhere", "/c/none"]
OPEN = ["/accounts/login/", "/accounts/signup/", "/accounts/password/reset/"]
WIDE = (
    "긴낱말이계속이어지는문장" * 12
    + "\n\n| "
    + " | ".join(f"열 {n}" for n in range(14))
    + " |\n|"
    + "---|" * 14
    + "\n| "
    + " | ".join("값" * 8 for _ in range(14))
    + " |\n\n```python\n"
    + "x = '"
    + "a" * 400
    + "'\n```\n\nhttps://example.com/"
    + "very-long-path/" * 20
)


def measure_overflow(page):
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def measure_luminance(page):
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3


def test_every_page_fits_a_phone(windows, reader):
    page = windows(reader, viewport=PHONE)
    for path in OWN:
        page.goto(path)
        assert measure_overflow(page) <= 0, path


BANNER = "from nura.models import Banner; Banner.objects."
CENTRE = "one => { const { top, bottom } = one.getBoundingClientRect(); return (top + bottom) / 2 }"


def test_a_banner_and_its_button_stand_in_one_line(windows, product, reader):
    page = windows(reader)
    banner = page.locator(".banner")

    def is_shown():
        page.goto("/")
        return banner.count() == 1

    product.call("shell", "-v0", "-c", f"{BANNER}create(text_ko='오늘 밤 점검합니다.')")
    try:
        wait_until(is_shown)  # a server looks for banners every five seconds
        words, button = (banner.locator(one).evaluate(CENTRE) for one in ("p", "button"))
        assert abs(words - button) <= 1
        banner.locator("button").click()
        expect(banner).to_have_count(0)
        page.reload()
        expect(page.locator("#composer-input")).to_be_visible()
        expect(banner).to_have_count(0)
    finally:
        product.call("shell", "-v0", "-c", f"{BANNER}all().delete()")
        page.context.clear_cookies(name=re.compile("^banner_"))
        wait_until(lambda: not is_shown())  # not on the pages of other tests


def test_every_page_for_everybody_fits_a_phone(windows, product):
    page = windows(product=product, viewport=PHONE)
    for path in OPEN:
        page.goto(path)
        assert measure_overflow(page) <= 0, path


def test_an_answer_with_wide_things_fits_a_phone(windows, talker, llm):
    llm.default = Stream([WIDE])
    page = windows(talker, viewport=PHONE)
    page.goto("/")
    ask(page, "넓은 표" + "가" * 200)
    answer(page)
    assert measure_overflow(page) <= 0
    boxes = page.locator("#scroller").evaluate("(one) => one.scrollWidth - one.clientWidth")
    assert boxes <= 0


def test_drawer_and_panel_can_be_used_on_a_phone(windows, reader):
    page = windows(reader, viewport=PHONE, has_touch=True)
    page.goto("/")
    expect(page.locator("#sidebar")).not_to_be_in_viewport()
    page.locator(".main [data-side-toggle]").click()
    expect(page.locator("#sidebar")).to_be_in_viewport()
    expect(page.locator(".side-new")).to_be_in_viewport()
    page.keyboard.press("Escape")
    expect(page.locator("#sidebar")).not_to_be_in_viewport()
    ask(page, "헤파 필터는 언제 교체하나요?")
    answer(page).locator(".cite").first.tap()
    panel = page.locator("#panel")
    expect(panel).to_be_visible()
    expect(panel.locator("mark").first).to_be_in_viewport()
    assert measure_overflow(page) <= 0
    assert panel.bounding_box()["width"] >= PHONE["width"] - 2
    page.locator("#panel-close").tap()
    expect(panel).to_be_hidden()
    expect(page.locator("#composer-input")).to_be_in_viewport()


def test_a_document_page_fits_a_phone(windows, reader):
    page = windows(reader, viewport=PHONE)
    for document in reader.api("documents")["results"]:
        page.goto(f"/documents/{document['id']}")
        assert measure_overflow(page) <= 0


def test_dark_follows_the_system_and_can_be_chosen(windows, reader):
    page = windows(reader, color_scheme="dark")
    page.goto("/")
    wait_until(lambda: measure_luminance(page) < 60)
    page.emulate_media(color_scheme="light")
    wait_until(lambda: measure_luminance(page) > 200)
    page.locator(".side-user").click()
    for _ in range(2):  # system, light, dark
        page.locator("[data-theme-cycle]").click()
    wait_until(lambda: measure_luminance(page) < 60)
    page.reload()
    wait_until(lambda: measure_luminance(page) < 60)


@pytest.fixture(scope="module")
def chief(product):
    """Somebody who may administrate."""
    product.add_user("chief", "correct-horse-9", staff=True)
    return Person(product, "chief")


ADMIN = [
    *("/admin/", "/admin/auth/user/", "/admin/chats/chat/", "/admin/chats/message/"),
    *("/admin/documents/document/", "/api/docs/"),
]


def test_no_page_breaches_its_own_policy(windows, chief):
    page = windows(chief)
    (watch,) = windows.watches
    for path in [*OWN, *ADMIN]:
        response = page.goto(path)
        assert response.status == (404 if path in {"/nowhere", "/c/none"} else 200), path
        settle(page)
        header = response.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in header, path
        assert "unsafe-eval" not in header or path.startswith("/admin/"), path
        assert not watch.breaches, path


def test_a_chat_with_everything_open_breaches_nothing(page):
    ask(page, "통합돌봄 정보시스템 사업 예산은 얼마인가요?")
    answer(page).locator(".cite").first.hover()
    expect(page.locator("#hover-card")).to_be_visible()
    page.locator(".cite").first.click()
    expect(page.locator("#panel .pdf-mark-here")).to_be_in_viewport()
    page.keyboard.press("Control+/")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    assert get_chat_id(page)

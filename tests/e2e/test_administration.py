"""The administration at work: pages with something on them, in both languages, wide and narrow."""

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import settle
from tests.e2e.conftest import MANUAL, SAMPLES
from tests.e2e.people import Person
from tests.e2e.test_accessibility import AXE, PHONE, WIDE, is_due, list_violations
from tests.e2e.test_models import OF_THE_SHELL
from tests.servers.llm import Stream
from tests.support import wait_until

PASSWORD = "correct-horse-9"
OF_THE_LIBRARY = (
    *OF_THE_SHELL,
    "landmark-unique: #nav-sidebar-apps > .simplebar",
    "landmark-unique: fieldset[",
    "label: .select2-search__field",
    "empty-table-header: #quota_rules-data",
    "empty-table-header: #User_groups-data",
)
"""What axe says of the scroll bars, choosers and inline tables that unfold and Django bring."""
PAGES = {
    "overview": "",
    "overview of 90 days": "?days=90",
    "queue": "queue/",
    "failures": "failures/",
    "unanswered": "unanswered/",
    "feedback": "chats/feedback/",
    "evaluation": "evaluation/",
    "models": "models/",
    "a new connection": "models/connections/add/",
    "tools": "tools/",
    "a new tool server": "tools/add/",
    "accounts": "auth/user/",
    "a new account": "auth/user/add/",
    "groups": "auth/group/",
    "a new group": "auth/group/add/",
    "invitations": "nura/invitation/",
    "a new invitation": "nura/invitation/add/",
    "a list of invitations": "invite-list/",
    "quotas": "quotas/",
    "usage": "usage/",
    "sign-on servers": "nura/signonserver/",
    "a new sign-on server": "nura/signonserver/add/",
    "libraries": "documents/library/",
    "documents": "documents/document/",
    "messages": "chats/message/",
    "audit log": "documents/auditevent/",
    "banners": "nura/banner/",
    "a new banner": "nura/banner/add/",
}


@pytest.fixture(scope="module")
def busy(product_with_model, llm, tmp_path_factory):
    """A product in which somebody asked in vain, judged, and sent a file that is none."""
    llm.default = Stream(["그 내용은 알지 못합니다."])
    person = Person(product_with_model, "admin-asker")
    person.upload(SAMPLES / "ventilator-manual.md", MANUAL)
    person.wait_for_documents()
    broken = tmp_path_factory.mktemp("broken") / "깨진 파일.pdf"
    broken.write_bytes(b"%PDF-1.7 nothing of a document")
    person.upload(broken)
    wait_until(lambda: person.api("documents?status=FAILED")["count"], 60, step=0.2)
    for number in range(3):
        said = person.api("messages", {"content": f"주차장 {number + 1}호기는 언제 점검하나요?"})
        answer = said["assistant_message"]["id"]
        person.api(f"messages/{answer}/feedback", {"value": -1, "reason": "틀렸어요"})
    return product_with_model


@pytest.fixture(scope="module")
def chief(busy):
    busy.add_user("admin-chief", PASSWORD, staff=True)
    return Person(busy, "admin-chief")


@pytest.fixture
def desk(windows, chief):
    """The administration in a language and of a width."""

    def open_window(language="ko", size=WIDE):
        page = windows(chief, viewport=size, reduced_motion="reduce")
        url = chief.product.url
        page.context.add_cookies([{"name": "django_language", "value": language, "url": url}])
        return page

    return open_window


@pytest.mark.skipif(not AXE.exists(), reason="npm --prefix front ci installs axe-core")
@pytest.mark.parametrize(
    ("language", "size"),
    [
        pytest.param("ko", WIDE, id="ko-1280"),
        pytest.param("ko", PHONE, id="ko-375", marks=pytest.mark.whole),
        pytest.param("en", WIDE, id="en-1280", marks=pytest.mark.whole),
        pytest.param("en", PHONE, id="en-375"),
    ],
)
def test_every_page_can_be_read_by_everybody_and_fits(language, size, desk, whole):
    page = desk(language, size)
    found = {}
    for number, (name, path) in enumerate(PAGES.items()):
        due = is_due(number, size, whole)
        if not due and size != PHONE:
            continue
        page.goto(f"/admin/{path}")
        settle(page)
        wide = page.evaluate("document.documentElement.scrollWidth")
        wrong = [f"{wide} px wide"] if wide > size["width"] else []
        violations = list_violations(page) if due else []
        wrong += [one for one in violations if not one.startswith(OF_THE_LIBRARY)]
        if wrong:
            found[name] = wrong
    assert not found, "\n".join(f"{name}\n  " + "\n  ".join(all_) for name, all_ in found.items())


def test_a_group_is_made_and_somebody_is_invited(desk):
    page = desk()
    page.goto("/admin/auth/group/add/")
    page.locator("[name=name]").fill("인사팀")
    page.locator("[name=_save]").click()
    expect(page.locator("#result_list")).to_contain_text("인사팀")
    page.goto("/admin/nura/invitation/add/")
    page.locator("[name=email]").fill("new@example.com")
    page.locator("[name=_save]").click()
    expect(page.locator("body")).to_contain_text("/invitations/")


def test_the_file_of_a_list_is_chosen_in_words_of_the_page_and_its_name_is_shown(desk):
    page = desk()
    page.goto("/admin/invite-list/")
    shown = page.locator(".nu-page form input[type=text]")
    expect(shown).to_have_value("올릴 파일 선택")
    people = {"name": "people.csv", "mimeType": "text/csv", "buffer": b"email,name,groups\n"}
    page.locator(".nu-page [type=file]").set_input_files(people)
    expect(shown).to_have_value("people.csv")


def test_the_way_up_names_a_row_as_it_is_called(desk):
    page = desk()
    page.goto("/admin/auth/user/?q=admin-asker")
    page.locator("#result_list tbody th a").first.click()
    expect(page.locator("#header-inner")).to_contain_text("admin-asker")


def test_a_file_that_could_not_be_read_is_tried_again_from_the_failures(desk):
    page = desk()
    page.goto("/admin/failures/")
    name = page.get_by_role("link", name="깨진 파일.pdf")
    expect(name).to_have_css("overflow-wrap", "normal")  # not broken within a word
    page.get_by_role("button", name="다시 시도").first.click()
    expect(page).to_have_url(re.compile("/admin/failures/"))


def test_the_queue_is_held_and_goes_on(desk):
    page = desk()
    page.goto("/admin/queue/")
    page.get_by_role("button", name="대기열 멈춤").click()
    page.get_by_role("button", name="대기열 재개").click()
    expect(page.get_by_role("button", name="대기열 멈춤")).to_be_visible()


def test_verdicts_and_what_nobody_could_answer_are_listed(desk):
    page = desk()
    page.goto("/admin/chats/feedback/?q=admin-asker")
    expect(page.locator("#result_list tbody tr")).to_have_count(3)
    page.goto("/admin/unanswered/")
    expect(page.locator(".nu-table tbody tr").first).to_be_visible()

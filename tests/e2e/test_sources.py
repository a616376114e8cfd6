"""Sources in the page: one that a program fills is added, filled, looked at and removed."""

import hashlib
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.e2e.people import Person
from tests.e2e.test_accessibility import AXE, PHONE, RULES, RUN

NOTE = "# 은하 규정\n\n은하 수당은 매달 사만 원입니다.\n"
READY = 60_000


@pytest.fixture(scope="module")
def manager(product):
    """Somebody who manages a library."""
    return Person(product, "source-manager")


@pytest.fixture(scope="module")
def reader_of_it(product):
    """Somebody who reads it."""
    return Person(product, "source-reader")


@pytest.fixture
def library(manager, reader_of_it):
    """A library of the manager's without a source."""
    library = manager.api("libraries", {"name": "은하 자료"})
    body = {"user": reader_of_it.name, "role": "reader"}
    manager.api(f"libraries/{library['id']}/members", body)
    yield library
    manager.api(f"libraries/{library['id']}?documents=delete", method="DELETE")


@pytest.fixture
def source(manager, library):
    """One that a program fills."""
    body = {"kind": "manifest", "name": "배포 스크립트", "settings": {}}
    return manager.api(f"libraries/{library['id']}/sources", body)


def send(window, manager, path, text):
    """What a program does: it tells what there is, and sends what is wanted."""
    headers = {"Authorization": f"Token {manager.key}"}
    place = f"{manager.product.url}/api/v1{path}"
    content = text.encode()
    listed = [{"path": "규정/은하.md", "sha256": hashlib.sha256(content).hexdigest()}]
    told = window.request.post(f"{place}/manifest", headers=headers, data={"files": listed})
    assert told.json()["wanted"] == ["규정/은하.md"]
    file = {"name": "은하.md", "mimeType": "text/markdown", "buffer": content}
    form = {"path": "규정/은하.md", "file": file}
    sent = window.request.post(f"{place}/files", headers=headers, multipart=form)
    assert sent.status == 201, sent.text()


def test_a_source_is_added_filled_by_a_program_and_removed_with_its_documents(
    windows, manager, library
):
    window = windows(manager)
    window.goto(f"/documents?library={library['id']}")
    window.locator(f"a[href='/libraries/{library['id']}/sources']").click()
    expect(window.get_by_role("heading", level=1)).to_have_text("은하 자료의 소스")
    window.get_by_role("link", name="프로그램으로 올리기 선택").click()
    window.locator("#source-name").fill("배포 스크립트")
    window.get_by_role("button", name="추가", exact=True).click()
    expect(window.get_by_role("heading", level=1)).to_have_text("배포 스크립트")
    expect(window.locator("pre")).to_contain_text("/manifest")
    source = urlsplit(window.url).path.rpartition("/")[2]
    send(window, manager, f"/libraries/{library['id']}/sources/{source}", NOTE)
    manager.wait_for_documents()
    window.reload()
    expect(window.locator("#source-status")).to_contain_text("문서 1개")
    window.goto(f"/documents?library={library['id']}")
    expect(window.get_by_role("link", name="은하.md").first).to_be_visible()
    window.goto(f"/libraries/{library['id']}/sources/{source}")
    window.get_by_role("button", name="문서까지 함께 제거").click()
    expect(window.get_by_text("배포 스크립트")).to_have_count(0)
    window.goto(f"/documents?library={library['id']}")
    expect(window.get_by_role("link", name="은하.md")).to_have_count(0, timeout=READY)


def test_a_reader_of_the_library_sees_no_source_of_it(windows, reader_of_it, library, source):
    window = windows(reader_of_it)
    window.goto(f"/documents?library={library['id']}")
    expect(window.locator(f"a[href='/libraries/{library['id']}/sources']")).to_have_count(0)
    headers = {"Authorization": f"Token {reader_of_it.key}"}
    for path in ("sources", f"sources/{source['id']}"):
        address = f"{reader_of_it.product.url}/libraries/{library['id']}/{path}"
        assert window.request.get(address, headers=headers).status == 404


@pytest.mark.skipif(not AXE.exists(), reason="npm --prefix front ci installs axe-core")
@pytest.mark.parametrize(("language", "scheme"), [("ko", "light"), ("en", "dark")])
def test_the_pages_of_sources_are_within_reach_of_everybody(
    windows, manager, library, source, language, scheme
):
    locale = {"ko": "ko-KR", "en": "en-US"}[language]
    window = windows(manager, viewport=PHONE, color_scheme=scheme, locale=locale)
    window.context.add_init_script(AXE.read_text())
    place = f"/libraries/{library['id']}/sources"
    for path in ("/sources", place, f"{place}?kind=web", f"{place}/{source['id']}"):
        window.goto(path)
        assert window.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        assert window.evaluate(RUN, RULES) == [], path
